"""Trains a small GPT-2 with ranvier-train and with PyTorch, from the same weights on the same tokens, and compares.

usage: compare.py TRAINER FOLDER CASE      where CASE is one of CASES below; FOLDER is emptied and filled

Relative differences have to stay below TOLERANCE: of the loss and the gradient norm at every step, and of every
final tensor, as the norm of the difference (so that of the norms is no larger). The key bias is left out: it moves
every score of a row alike, so its true gradient is zero, and Adam makes steps of full size from what rounding
leaves. PyTorch itself in fp32 and fp64 differs by 2e-7, 1e-6 and 7e-6.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import gpt2
import safetensors

TOLERANCE = {"loss": 1e-5, "grad_norm": 1e-4, "tensor": 1e-4}
STEPS = 20
LEARNING_RATE = 1e-3
SGD_LEARNING_RATE = 0.1
SEED = 1


@dataclass
class Case:
    g_inter: int
    g_data: int
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    length: int
    batch_size: int
    microbatch_size: int
    tokens: str  # file name; its ending says the format
    momentum: float | None = None  # of SGD; none: AdamW


# The second shape is not divisible by the sizes that kernels prefer.
BYTES = dict(layers=4, hidden=64, heads=4, vocabulary=256, length=64, batch_size=8, microbatch_size=2,
             tokens="tokens.txt")
ODD = dict(layers=3, hidden=60, heads=3, vocabulary=300, length=37, batch_size=6, microbatch_size=2,
           tokens="tokens.bin")
CASES = {
    "bytes-1x1": Case(1, 1, **BYTES),
    "bytes-2x2": Case(2, 2, **BYTES),
    "odd-1x1": Case(1, 1, **ODD),
    "odd-2x2": Case(2, 2, **ODD),
    "momentum-2x2": Case(2, 2, **BYTES, momentum=0.9),
    "sgd-2x1": Case(2, 1, **ODD, momentum=0.0),
}


def make_tokens(case, path, random, steps=STEPS):
    """Tokens in which the next one mostly follows from the last, so that there is something to learn."""
    count = steps * case.batch_size * case.length + 1
    followers = random.integers(case.vocabulary, size=(case.vocabulary, 4))
    tokens = np.zeros(count, dtype=np.int64)
    for i in range(1, count):
        tokens[i] = followers[tokens[i - 1], random.integers(4)]
    if path.suffix == ".bin":
        header = np.zeros(256, dtype="<i4")
        header[:3] = 20240520, 1, count
        path.write_bytes(header.tobytes() + tokens.astype("<u2").tobytes())
    else:
        path.write_bytes(tokens.astype(np.uint8).tobytes())


def make_weights(case, path, random):
    """Without zeros and ones: a bias that is added twice, or an omitted scale, must change the result."""
    tensors = {}
    for name, shape in gpt2.shapes(case.layers, case.hidden, case.vocabulary, case.length).items():
        centre = 1.0 if ".ln_" in f".{name}" and name.endswith(".weight") else 0.0
        tensors[name] = (centre + 0.08 * random.standard_normal(shape)).astype(np.float32)
    safetensors.write(path, tensors)


def run_trainer(case, trainer, folder, **other_flags):
    """Losses, gradient norms and final tensors of ranvier-train; `other_flags` are more of them, or other values."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    flags = {
        "g-inter": case.g_inter, "g-data": case.g_data, "threads": 1,
        "layers": case.layers, "hidden": case.hidden, "heads": case.heads,
        "vocab-size": case.vocabulary, "sequence-length": case.length,
        "batch-size": case.batch_size, "microbatch-size": case.microbatch_size,
        "data": folder / case.tokens, "shuffle": "off",
        "token-format": "auto" if case.tokens.endswith(".bin") else "text",  # bytes at random are no UTF-8
        "steps": STEPS, "learning-rate": LEARNING_RATE, "warmup-steps": 0, "lr-decay": "constant",
        "precision": "fp32", "init-from": folder / "initial.safetensors",
        "save": folder / "ranvier.safetensors", "metrics": folder / "ranvier.jsonl",
    } | {name.replace("_", "-"): value for name, value in other_flags.items()}
    command = ["mpirun", "-n", str(case.g_inter * case.g_data), "--oversubscribe", "--bind-to", "none", trainer]
    for flag, value in flags.items():
        command += [f"--{flag}", str(value)]
    command.append("--overwrite")
    print(" ".join(command), flush=True)
    subprocess.run(command, env=environment, check=True, timeout=120, stdin=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "ranvier.jsonl").read_text().splitlines()]
    return ([line["loss"] for line in lines], [line["grad_norm"] for line in lines],
            safetensors.read(folder / "ranvier.safetensors"))


def parts(tensors):
    """The tensors to compare; the key's third of the attention bias left out."""
    for name, values in tensors.items():
        if name.endswith("attn.c_attn.bias"):
            query, _, value = np.split(values, 3)
            yield f"{name} (query, value)", np.concatenate([query, value])
        else:
            yield name, values


def main():
    trainer, folder, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    case = CASES[name]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    random = np.random.default_rng(SEED)
    make_tokens(case, folder / case.tokens, random)
    make_weights(case, folder / "initial.safetensors", random)

    torch.set_num_threads(1)  # the tensors are small
    sgd = {} if case.momentum is None else dict(optimizer="sgd", momentum=case.momentum, weight_decay=0,
                                                learning_rate=SGD_LEARNING_RATE)
    losses, norms, tensors = run_trainer(case, trainer, folder, **sgd)
    expected_losses, expected_norms, expected_tensors = gpt2.train(
        safetensors.read(folder / "initial.safetensors"), gpt2.read_tokens(folder / case.tokens),
        heads=case.heads, steps=STEPS, batch_size=case.batch_size,
        learning_rate=sgd.get("learning_rate", LEARNING_RATE), momentum=case.momentum)

    if len(losses) != STEPS or sorted(tensors) != sorted(expected_tensors):
        sys.exit(f"ranvier-train wrote {len(losses)} steps and the tensors {sorted(tensors)}")

    def steps(values, expected):
        return [(abs(a - b) / abs(b), f"step {i}: {a} where PyTorch has {b}")
                for i, (a, b) in enumerate(zip(values, expected), start=1)]

    def distances(values, expected):
        result = []
        for (part, a), (_, b) in zip(sorted(parts(values)), sorted(parts(expected))):
            if a.shape != b.shape:
                sys.exit(f"{part} has shape {a.shape}, PyTorch's {b.shape}")
            result.append((np.linalg.norm(a - b) / np.linalg.norm(b), part))
        return result

    worst = {"loss": max(steps(losses, expected_losses)),
             "grad_norm": max(steps(norms, expected_norms)),
             "tensor": max(distances(tensors, expected_tensors))}
    print(f"loss {expected_losses[0]:.6f} -> {expected_losses[-1]:.6f}")
    failed = False
    for what, (difference, where) in worst.items():
        within = difference < TOLERANCE[what]
        failed |= not within
        print(f"{'ok  ' if within else 'FAIL'} {what}: {difference:.1e} (limit {TOLERANCE[what]:.0e}) in {where}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
