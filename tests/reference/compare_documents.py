"""Trains small models on samples of several documents with ranvier-train and transformers, from the same files, and compares.

usage: compare_documents.py TRAINER FOLDER KIND DATA      FOLDER is emptied and filled; exit code 77: no transformers

KIND is gpt2 or llama. DATA is tokens, whose documents end with token 0 (--documents mask), or answers, JSON lines with
prompts (--prompt-field). LLaMA gets a block-diagonal causal mask and positions that count from zero in each document; GPT-2,
whose class takes no such mask, gets each document alone. Targets without a loss are ignored. Each of GRIDS must have the
losses of double precision within 1e-5 and the gradient norms and final tensors within 1e-4, step by step.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.remove(str(Path(__file__).resolve().parent))  # its safetensors.py is not the package
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", USE_TF="0", USE_JAX="0")
try:
    import numpy
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as missing:
    print(f"Skipped: {missing}")
    sys.exit(77)

STEPS, BATCH, LENGTH, VOCABULARY, RATE, NONE = 20, 6, 24, 256, 1e-3, -100
TOLERANCE = {"loss": 1e-5, "norm": 1e-4, "tensor": 1e-4}
KINDS = {
    "gpt2": dict(vocab_size=VOCABULARY, n_embd=48, n_layer=4, n_head=6, n_positions=LENGTH, resid_pdrop=0.0, embd_pdrop=0.0,
                 attn_pdrop=0.0),
    "llama": dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6,
                  num_key_value_heads=2, max_position_embeddings=64, use_cache=False),
}
# Processes and flags; microbatches of two samples.
GRIDS = {
    "1 rank": (1, []),
    "2 x 2": (4, ["--g-inter", 2, "--g-data", 2]),
    "zero3": (2, ["--g-data", 2, "--shard", "zero3"]),
    "all in files": (1, ["--offload", "infinity-nvme", "--nvme", "nvme"]),
}


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
    """Losses and gradient norms; the model has the last step's weights."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)], lr=RATE,
                                  betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step in range(STEPS):
        inputs, targets, starts = (torch.tensor(each) for each in zip(*samples[step * BATCH:(step + 1) * BATCH]))
        optimizer.zero_grad()
        logits = logits_of(model, inputs, starts)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NONE)
        loss.backward()
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in model.parameters()]))
        for parameter in model.parameters():
            parameter.grad.mul_(min(1.0, 1.0 / norm.item()))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms


def compared(parameters):
    """The key's third of GPT-2's attention bias is left out: AdamW turns its gradient, pure rounding, into steps."""
    for name, values in parameters:
        if name.endswith("attn.c_attn.bias"):
            third = len(values) // 3
            values = torch.cat([values[:third], values[2 * third:]])
        yield values.double()


def main():
    trainer, folder, kind, data = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "nvme").mkdir(parents=True)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    torch.set_num_threads(1)
    samples, data_flags = (make_tokens if data == "tokens" else make_answers)(folder)
    model = make_model(kind)
    model.save_pretrained(folder / "given", safe_serialization=True)
    model = model.double()
    losses, norms = train_reference(model, samples)
    print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")

    for name, (ranks, flags) in GRIDS.items():
        saved, metrics = folder / name.replace(" ", "-"), folder / f"{name}.jsonl"
        flags = [folder / "nvme" if flag == "nvme" else flag for flag in flags]
        command = ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", trainer, "--init-from", folder / "given",
                   *data_flags, "--shuffle", "off", "--sequence-length", LENGTH, "--batch-size", BATCH, "--microbatch-size", 2,
                   "--steps", STEPS, "--learning-rate", RATE, "--warmup-steps", 0, "--lr-decay", "constant", "--threads", 1,
                   "--save", saved, "--metrics", metrics, *flags]
        command = [str(part) for part in command]
        print(" ".join(command), flush=True)
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        subprocess.run(command, env=environment, check=True, timeout=120, stdin=subprocess.DEVNULL)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        opened = AutoModelForCausalLM.from_pretrained(saved)
        pairs = zip(compared(opened.named_parameters()), compared(model.named_parameters()), strict=True)
        worst = {
            "loss": max(abs(line["loss"] - loss) / loss for line, loss in zip(lines, losses, strict=True)),
            "norm": max(abs(line["grad_norm"] - norm) / norm for line, norm in zip(lines, norms, strict=True)),
            "tensor": max((torch.linalg.vector_norm(ours - theirs) / torch.linalg.vector_norm(theirs)).item()
                          for ours, theirs in pairs),
        }
        print(f"{kind}, {data}, {name}: apart by at most {worst}")
        for what, tolerance in TOLERANCE.items():
            if not worst[what] <= tolerance:
                sys.exit(f"{kind}, {data}, {name}: {what} is {worst[what]:.1e} apart, more than {tolerance}")


main()
