"""Trains small models of a family with ranvier-train and with transformers' class of it, from the same files, and compares.

usage: compare_families.py TRAINER GENERATOR FOLDER FAMILY      FOLDER is emptied and filled; exit code 77: no transformers

Each grid and placement of GRIDS must have the losses of PyTorch in double precision within 1e-5 and the gradient norms and
final tensors within 1e-4, step by step. What is saved must open with transformers' class with no tensor missing or left
over, and ranvier-generate must write the greedy text of that class. Families that fill masks are trained on the same masks,
drawn here once more, and write no text.
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
    import torch
    import transformers
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
    from transformers.models.mistral.modeling_mistral import MistralForCausalLM, MistralRMSNorm
except ImportError as missing:
    print(f"Skipped: {missing}")
    sys.exit(77)

STEPS, BATCH, LENGTH, VOCABULARY, RATE = 20, 6, 24, 256, 1e-3
TOLERANCE = {"loss": 1e-5, "norm": 1e-4, "tensor": 1e-4}
PROMPT, DRAWN = b"the nodes ", 20
RANK, ALPHA = 3, 6  # of adapters
SIZES = dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64, use_cache=False)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
FAMILIES = {
    "llama": ("llama", SIZES | dict(rope_scaling=LLAMA3, rope_theta=500.0)),
    "llama-biases": ("llama", SIZES | dict(num_key_value_heads=6, attention_bias=True, tie_word_embeddings=True,
                                           rope_scaling={"rope_type": "linear", "factor": 2.0})),
    "mistral": ("mistral", SIZES | dict(sliding_window=7)),
    "qwen2": ("qwen2", SIZES | dict(tie_word_embeddings=True)),
    "phi3": ("phi3", SIZES | dict(sliding_window=64, pad_token_id=None)),  # old versions ignore windows
    "gpt2": ("gpt2", dict(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=48, n_layer=4, n_head=6, embd_pdrop=0.0,
                          attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False)),
    "qwen3": ("qwen3", SIZES | dict(head_dim=12, tie_word_embeddings=True)),
}
# Padding has a special meaning in transformers, so the data contain none.
SEED, MASK, CHOSEN, FIRST_TOKEN = 12, 256, round(0.15 * LENGTH), 2
MASKED_SIZES = dict(vocab_size=VOCABULARY + 1, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MASKED_FAMILIES = {
    "bert": ("bert", MASKED_SIZES | dict(max_position_embeddings=LENGTH, pad_token_id=0)),
    "roberta": ("roberta", MASKED_SIZES | dict(max_position_embeddings=LENGTH + 2, pad_token_id=1, type_vocab_size=1,
                                               layer_norm_eps=1e-5)),
}
# Without rotation no score depends on keys' biases: their gradient is rounding, which AdamW turns into steps of any
# sign.
NO_SLOPE = "attention.self.key.bias"
KEYS_BETWEEN = "attn.c_attn.bias"  # in GPT-2, between the biases of queries and values
# Processes and flags; microbatches of two samples.
GRIDS = {
    "1 rank": (1, []),
    "2 x 2": (4, ["--g-inter", 2, "--g-data", 2]),
    "3 x 1": (3, ["--g-inter", 3]),
    "zero3": (2, ["--g-data", 2, "--shard", "zero3"]),
    "all in files": (1, ["--offload", "infinity-nvme", "--nvme", "nvme"]),
}


class Adapter(torch.nn.Module):
    """y = W x + alpha / r B A x, as in PEFT."""

    def __init__(self, base, a, b):
        super().__init__()
        self.base_layer, self.a, self.b = base, torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, x):
        return self.base_layer(x) + ALPHA / RANK * (x @ self.a.T) @ self.b.T


def prepare(folder):
    """Empties the folder, and makes one for states in it."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "nvme").mkdir(parents=True)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    torch.set_num_threads(1)


def run(command, **more):
    command = [str(part) for part in command]
    print(" ".join(command), flush=True)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.run(command, env=environment, check=True, timeout=120, stdin=subprocess.DEVNULL, **more)


class Qwen3(MistralForCausalLM):
    """Qwen3 for versions of transformers without it: RMSNorm of each head of queries and keys, and no window. Same names."""

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            attention = layer.self_attn
            attention.q_norm, attention.k_norm = (MistralRMSNorm(config.head_dim, config.rms_norm_eps) for _ in range(2))
            for product, norm in ((attention.q_proj, attention.q_norm), (attention.k_proj, attention.k_norm)):
                product.register_forward_hook(
                    lambda _, inputs, output, norm=norm: norm(output.unflatten(-1, (-1, config.head_dim))).flatten(-2))

    @classmethod
    def from_config(cls, config, **more):
        return cls._from_config(config, **more)

    def save_pretrained(self, folder, **more):
        super().save_pretrained(folder, **more)
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"])))


def class_of(family):
    if family == "qwen3" and family not in CONFIG_MAPPING:
        return Qwen3
    return AutoModelForMaskedLM if family in MASKED_FAMILIES else AutoModelForCausalLM


def config_of(family):
    kind, options = (FAMILIES | MASKED_FAMILIES)[family]
    if class_of(family) is Qwen3:
        kind, options = "mistral", options | dict(sliding_window=None)
    return AutoConfig.for_model(kind, **options)


def make_model(family):
    """Without zeros and ones: an omitted parameter, or one added twice, must change the result."""
    torch.manual_seed(7)
    model = class_of(family).from_config(config_of(family), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name.lower() or ".ln_" in name else 0.0
            parameter.copy_(centre + 0.08 * torch.randn_like(parameter))
    return model


def open_model(family, folder):
    """The model that transformers loads from a folder, and its report of missing and unexpected tensors."""
    if class_of(family) is not Qwen3:
        return class_of(family).from_pretrained(folder, output_loading_info=True)
    config = config_of(family)
    written = json.loads((folder / "config.json").read_text())
    different = {key: written[key] for key in FAMILIES[family][1] if written[key] != getattr(config, key)}
    assert written["architectures"] == ["Qwen3ForCausalLM"] and not different, written
    return Qwen3.from_pretrained(folder, config=config, output_loading_info=True)


def make_tokens(path, least=0):
    """Bytes in which the next one mostly follows from the last."""
    generator = torch.Generator().manual_seed(3)
    followers = torch.randint(least, VOCABULARY, (VOCABULARY, 4), generator=generator)
    draws = torch.randint(4, (STEPS * BATCH * LENGTH + 1,), generator=generator)
    tokens = [least]
    for draw in draws:
        tokens.append(int(followers[tokens[-1], draw]))
    path.write_bytes(bytes(tokens))
    return torch.tensor(tokens)


def philox(key, counter):
    """Philox4x32-10."""
    low, high = key
    a, b, c, d = counter
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = second >> 32 ^ b ^ low, second & 0xFFFFFFFF, first >> 32 ^ d ^ high, first & 0xFFFFFFFF
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def masked(windows, first):
    """In each of these samples CHOSEN tokens are masked, replaced or kept: inputs, and targets."""
    inputs, targets = windows.clone(), torch.full_like(windows, -1)
    key = philox((SEED, 0), (6, 0, 0, 0))[:2]
    for row in range(len(windows)):
        draws = [philox(key, (t, 0, first + row, 0)) for t in range(LENGTH)]
        for t in sorted(range(LENGTH), key=lambda t: draws[t][:2])[:CHOSEN]:
            targets[row, t] = windows[row, t]
            change = (draws[t][2] >> 8) / 2**24
            if change < 0.9:
                inputs[row, t] = MASK if change < 0.8 else draws[t][3] * VOCABULARY >> 32
    assert inputs.min() >= FIRST_TOKEN, "a token of padding was drawn: choose another seed"
    return inputs, targets


def reference_steps(model, loss_of):
    """Losses and gradient norms of steps with these losses by number; the model has the last step's trained weights."""
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() > 1]
    others = [p for p in trained if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)], lr=RATE,
                                  betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        gradients = [p.grad for p in trained if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
        for gradient in gradients:
            gradient.mul_(min(1.0, 1.0 / norm.item()))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
    return losses, norms


def train_reference(model, tokens, masks=False):
    def loss_of(step):
        first = step * BATCH
        windows = torch.stack([tokens[n * LENGTH:n * LENGTH + LENGTH + 1] for n in range(first, first + BATCH)])
        inputs, targets = masked(windows[:, :-1], first) if masks else (windows[:, :-1], windows[:, 1:])
        return torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

    return reference_steps(model, loss_of)


def letters(family):
    """Number of letters that a family may generate: GPT-2 has learned as many positions as a sample has."""
    return LENGTH - len(PROMPT) if family == "gpt2" else DRAWN


def greedy_text(model, drawn):
    tokens = list(PROMPT)
    for _ in range(drawn):
        with torch.no_grad():
            tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
    return bytes(tokens) + b"\n"


def train(trainer, folder, ranks, flags, saved, metrics, data=()):
    """Runs ranvier-train on the same files; returns the lines of its metrics, one per step."""
    flags = [folder / "nvme" if flag == "nvme" else flag for flag in flags]
    data = data or ["--data", folder / "tokens.txt", "--token-format", "text", "--tokenizer", "bytes"]
    run(["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", trainer, "--init-from", folder / "given", *data,
         "--shuffle", "off", "--sequence-length", LENGTH, "--batch-size", BATCH, "--microbatch-size", 2, "--steps", STEPS,
         "--learning-rate", RATE, "--warmup-steps", 0, "--lr-decay", "constant", "--threads", 1, "--seed", SEED,
         "--save", saved, "--metrics", metrics, *flags])
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [line for line in lines if "loss" in line]  # lines about checkpoints have none


def sloped(ours, theirs):
    """Pairs of tensors of two models, without keys' biases if their gradient is zero."""
    for (name, our), (_, their) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        if name.endswith(KEYS_BETWEEN):
            yield from zip(our.chunk(3)[::2], their.chunk(3)[::2])
        elif not name.endswith(NO_SLOPE):
            yield our, their


def apart(lines, losses, norms, tensors):
    """The largest distances; `tensors`: pairs of ours and theirs."""
    return {
        "loss": max(abs(line["loss"] - loss) / loss for line, loss in zip(lines, losses, strict=True)),
        "norm": max(abs(line["grad_norm"] - norm) / norm for line, norm in zip(lines, norms, strict=True)),
        "tensor": max((torch.linalg.vector_norm(ours.double() - theirs) / torch.linalg.vector_norm(theirs)).item()
                      for ours, theirs in tensors),
    }


def check(name, worst):
    print(f"{name}: apart by at most {worst}")
    for kind, tolerance in TOLERANCE.items():
        if not worst[kind] <= tolerance:
            sys.exit(f"{name}: {kind} is {worst[kind]:.1e} apart, more than {tolerance}")


def main():
    trainer, generator, folder, family = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    prepare(folder)
    masks = family in MASKED_FAMILIES
    tokens = make_tokens(folder / "tokens.txt", FIRST_TOKEN if masks else 0)
    model = make_model(family)
    model.save_pretrained(folder / "given", safe_serialization=True, max_shard_size="60KB")
    model = model.double()
    losses, norms = train_reference(model, tokens, masks)

    for name, (ranks, flags) in GRIDS.items():
        saved, metrics = folder / name.replace(" ", "-"), folder / f"{name}.jsonl"
        lines = train(trainer, folder, ranks, flags, saved, metrics)
        opened, report = open_model(family, saved)
        wrong = {key: value for key, value in report.items() if value}
        if wrong or type(opened) is not type(model):
            sys.exit(f"{name}: transformers opens what was saved as a {type(opened)} with {wrong}")
        check(f"{family}, {name}", apart(lines, losses, norms, sloped(opened, model)))

    drawn = letters(family)
    command = [generator, "--weights", folder / "1-rank", "--prompt", PROMPT.decode(), "--tokens", drawn, "--temperature", 0,
               "--tokenizer", "bytes", "--threads", 1]
    if masks:
        refusal = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        print(refusal.stderr)
        if refusal.returncode == 0 or "cannot generate text" not in refusal.stderr:
            sys.exit(f"{family}: ranvier-generate does not refuse a model that cannot generate")
        return
    text = run(command, stdout=subprocess.PIPE).stdout
    expected = greedy_text(model, drawn)
    print(f"text {text}")
    if text != expected:
        sys.exit(f"{family}: the text is {text}, of transformers {expected}")


if __name__ == "__main__":
    main()
