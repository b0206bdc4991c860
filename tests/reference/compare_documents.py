"""Trains small models on samples of several documents with ranvier-train and transformers, from the same files, and compares.

usage: compare_documents.py TRAINER FOLDER KIND DATA      FOLDER is emptied and filled; exit code 77: no transformers

KIND is gpt2 or llama. DATA is tokens, whose documents end with token 0 (--documents mask), or answers, JSON lines with
prompts (--prompt-field). LLaMA gets a block-diagonal causal mask and positions that count from zero in each document; GPT-2,
whose class takes no such mask, gets each document alone. Targets without a loss are ignored. Each of GRIDS must have the
losses of double precision within 1e-5 and the gradient norms and final tensors within 1e-4, step by step.
"""

import json
import sys
from pathlib import Path

import compare_families as families
import numpy
from compare_families import BATCH, LENGTH, STEPS, VOCABULARY, torch
from transformers import AutoConfig, AutoModelForCausalLM

NONE = -100
KINDS = {
    "gpt2": dict(vocab_size=VOCABULARY, n_embd=48, n_layer=4, n_head=6, n_positions=LENGTH, resid_pdrop=0.0, embd_pdrop=0.0,
                 attn_pdrop=0.0),
    "llama": dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6,
                  num_key_value_heads=2, max_position_embeddings=64, use_cache=False),
}
GRIDS = {name: grid for name, grid in families.GRIDS.items() if name != "3 x 1"}


def make_model(kind):
    """Without zeros and ones: an omitted parameter, or one added twice, must change the result."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **KINDS[kind]), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if ("norm" in name or "ln_" in name) and name.endswith("weight") else 0.0
            parameter.copy_(centre + 0.08 * torch.randn_like(parameter))
    return model


def make_tokens(folder):
    """Samples as (inputs, targets, starts); documents of about seven tokens."""
    draws = numpy.random.default_rng(3)
    tokens = draws.integers(1, VOCABULARY, STEPS * BATCH * LENGTH + 1)
    tokens[draws.random(len(tokens)) < 1 / 7] = 0
    tokens.astype(numpy.uint16).tofile(folder / "data.bin")
    samples = []
    for n in range(STEPS * BATCH):
        window = tokens[n * LENGTH:n * LENGTH + LENGTH + 1].tolist()
        targets = [NONE if token == 0 else target for token, target in zip(window, window[1:])]
        starts = [0]
        for t in range(1, LENGTH):
            starts.append(t if window[t - 1] == 0 else starts[-1])
        samples.append((window[:-1], targets, starts))
    return samples, ["--data", folder / "data.bin", "--token-format", "uint16", "--tokenizer", "none", "--documents", "mask",
                     "--document-end", 0]


def make_answers(folder):
    """The same for prompts and completions that are packed without splitting."""
    draws = numpy.random.default_rng(4)
    word = lambda least, most: "".join(chr(c) for c in draws.integers(97, 123, draws.integers(least, most)))
    samples, lines = [], []
    while len(samples) <= STEPS * BATCH:
        prompt, answer = word(0, 9), word(1, 12)
        lines.append(json.dumps({"question": prompt, "answer": answer}))
        document = [ord(c) for c in prompt + answer + "\n"]
        if not samples or len(samples[-1][0]) + len(document) - 1 > LENGTH:
            samples.append(([], [], []))
        inputs, targets, starts = samples[-1]
        starts += [len(inputs)] * (len(document) - 1)
        inputs += document[:-1]
        targets += [NONE if t < len(prompt) else document[t] for t in range(1, len(document))]
    for inputs, targets, starts in samples:
        padding = LENGTH - len(inputs)
        inputs += [0] * padding
        targets += [NONE] * padding
        starts += range(LENGTH - padding, LENGTH)
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")
    return samples, ["--data", folder / "data.jsonl", "--tokenizer", "bytes", "--prompt-field", "question", "--json-field",
                     "answer"]


def logits_of(model, inputs, starts):
    places = torch.arange(LENGTH)
    if model.config.model_type == "gpt2":
        rows = []
        for tokens, begins in zip(inputs, starts):
            ends = [t for t in range(1, LENGTH) if begins[t] == t] + [LENGTH]
            rows.append(torch.cat([model(tokens[None, begin:end]).logits[0] for begin, end in zip([0] + ends, ends)]))
        return torch.stack(rows)
    sees = (places[None, None, :] <= places[None, :, None]) & (places[None, None, :] >= starts[:, :, None])
    mask = torch.zeros(len(inputs), 1, LENGTH, LENGTH, dtype=torch.double)
    mask = mask.masked_fill(~sees[:, None], torch.finfo(torch.double).min)
    return model(inputs, attention_mask=mask, position_ids=places[None] - starts).logits


def train_reference(model, samples):
    def loss_of(step):
        inputs, targets, starts = (torch.tensor(each) for each in zip(*samples[step * BATCH:(step + 1) * BATCH]))
        logits = logits_of(model, inputs, starts)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NONE)

    return families.reference_steps(model, loss_of)


def compared(parameters):
    """The key's third of GPT-2's attention bias is left out: AdamW turns its gradient, pure rounding, into steps."""
    for name, values in parameters:
        if name.endswith("attn.c_attn.bias"):
            third = len(values) // 3
            values = torch.cat([values[:third], values[2 * third:]])
        yield values.double()


def main():
    trainer, folder, kind, data = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    families.prepare(folder)
    samples, data_flags = (make_tokens if data == "tokens" else make_answers)(folder)
    model = make_model(kind)
    model.save_pretrained(folder / "given", safe_serialization=True)
    model = model.double()
    losses, norms = train_reference(model, samples)

    for name, (ranks, flags) in GRIDS.items():
        saved = folder / name.replace(" ", "-")
        lines = families.train(trainer, folder, ranks, flags, saved, folder / f"{name}.jsonl", data_flags)
        opened = AutoModelForCausalLM.from_pretrained(saved)
        pairs = zip(compared(opened.named_parameters()), compared(model.named_parameters()), strict=True)
        families.check(f"{kind}, {data}, {name}", families.apart(lines, losses, norms, pairs))


main()
