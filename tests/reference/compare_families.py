"""Trains small models of a family with ranvier-train and with transformers' class of it, from the same files, and compares.

usage: compare_families.py TRAINER GENERATOR FOLDER FAMILY      FOLDER is emptied and filled; exit code 77: no transformers

Each grid and placement of GRIDS must have the losses of PyTorch in double precision within 1e-5 and the gradient norms and
final tensors within 1e-4, step by step. What is saved must open with transformers' class with no tensor missing or left
over, and ranvier-generate must write the greedy text of that class.
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
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as missing:
    print(f"Skipped: {missing}")
    sys.exit(77)

STEPS, BATCH, LENGTH, VOCABULARY, RATE = 20, 6, 24, 256, 1e-3
TOLERANCE = {"loss": 1e-5, "norm": 1e-4, "tensor": 1e-4}
PROMPT, DRAWN = b"the nodes ", 20
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
}
# Processes and flags; microbatches of two samples.
GRIDS = {
    "1 rank": (1, []),
    "2 x 2": (4, ["--g-inter", 2, "--g-data", 2]),
    "3 x 1": (3, ["--g-inter", 3]),
    "zero3": (2, ["--g-data", 2, "--shard", "zero3"]),
    "all in files": (1, ["--offload", "infinity-nvme", "--nvme", "nvme"]),
}


def run(command, **more):
    command = [str(part) for part in command]
    print(" ".join(command), flush=True)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.run(command, env=environment, check=True, timeout=120, stdin=subprocess.DEVNULL, **more)


def make_model(family):
    """No zeros and ones: what is left out, or added twice, has to show."""
    kind, options = FAMILIES[family]
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name else 0.0
            parameter.copy_(centre + 0.08 * torch.randn_like(parameter))
    return model


def make_tokens(path):
    """Bytes in which the next one mostly follows from the last."""
    generator = torch.Generator().manual_seed(3)
    followers = torch.randint(VOCABULARY, (VOCABULARY, 4), generator=generator)
    draws = torch.randint(4, (STEPS * BATCH * LENGTH + 1,), generator=generator)
    tokens = [0]
    for draw in draws:
        tokens.append(int(followers[tokens[-1], draw]))
    path.write_bytes(bytes(tokens))
    return torch.tensor(tokens)


def train_reference(model, tokens):
    """Losses and gradient norms; the model has the last step's weights."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)], lr=RATE,
                                  betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step in range(STEPS):
        first = step * BATCH
        windows = torch.stack([tokens[n * LENGTH:n * LENGTH + LENGTH + 1] for n in range(first, first + BATCH)])
        optimizer.zero_grad()
        logits = model(windows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        loss.backward()
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in model.parameters()]))
        for parameter in model.parameters():
            parameter.grad.mul_(min(1.0, 1.0 / norm.item()))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms


def greedy_text(model):
    tokens = list(PROMPT)
    for _ in range(DRAWN):
        with torch.no_grad():
            tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
    return bytes(tokens) + b"\n"


def main():
    trainer, generator, folder, family = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "nvme").mkdir()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    torch.set_num_threads(1)
    tokens = make_tokens(folder / "tokens.txt")
    model = make_model(family)
    model.save_pretrained(folder / "given", safe_serialization=True, max_shard_size="60KB")
    model = model.double()
    losses, norms = train_reference(model, tokens)
    print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")

    for name, (ranks, flags) in GRIDS.items():
        saved, metrics = folder / name.replace(" ", "-"), folder / f"{name}.jsonl"
        flags = [folder / "nvme" if flag == "nvme" else flag for flag in flags]
        run(["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", trainer, "--init-from", folder / "given", "--data",
             folder / "tokens.txt", "--token-format", "text", "--tokenizer", "bytes", "--shuffle", "off", "--sequence-length",
             LENGTH, "--batch-size", BATCH, "--microbatch-size", 2, "--steps", STEPS, "--learning-rate", RATE,
             "--warmup-steps", 0, "--lr-decay", "constant", "--threads", 1, "--save", saved, "--metrics", metrics, *flags])
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        opened, report = AutoModelForCausalLM.from_pretrained(saved, output_loading_info=True)
        wrong = {key: value for key, value in report.items() if value}
        if wrong or type(opened) is not type(model):
            sys.exit(f"{name}: transformers opens what was saved as a {type(opened)} with {wrong}")
        worst = {
            "loss": max(abs(line["loss"] - loss) / loss for line, loss in zip(lines, losses, strict=True)),
            "norm": max(abs(line["grad_norm"] - norm) / norm for line, norm in zip(lines, norms, strict=True)),
            "tensor": max((torch.linalg.vector_norm(ours.double() - theirs) / torch.linalg.vector_norm(theirs)).item()
                          for ours, theirs in zip(opened.parameters(), model.parameters(), strict=True)),
        }
        print(f"{family}, {name}: apart by at most {worst}")
        for kind, tolerance in TOLERANCE.items():
            if not worst[kind] <= tolerance:
                sys.exit(f"{family}, {name}: {kind} is {worst[kind]:.1e} apart, more than {tolerance}")

    text = run([generator, "--weights", folder / "1-rank", "--prompt", PROMPT.decode(), "--tokens", DRAWN, "--temperature", 0,
                "--tokenizer", "bytes", "--threads", 1], stdout=subprocess.PIPE).stdout
    expected = greedy_text(model)
    print(f"text {text}")
    if text != expected:
        sys.exit(f"{family}: the text is {text}, of transformers {expected}")


main()
