"""Greedy text of ranvier-generate, beside that of PyTorch, which computes every token from all those before it.

usage: compare_generation.py GENERATOR FOLDER      FOLDER is emptied and filled
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import gpt2
import safetensors

LAYERS, HIDDEN, HEADS, VOCABULARY, LENGTH = 4, 60, 3, 256, 96
PROMPT = b"The nodes of Ranvier"


def main():
    generator, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    weights = {}
    for name, shape in gpt2.shapes(LAYERS, HIDDEN, VOCABULARY, LENGTH).items():
        centre = 1.0 if ".ln_" in f".{name}" and name.endswith(".weight") else 0.0
        weights[name] = (centre + 0.2 * random.standard_normal(shape)).astype(np.float32)
    safetensors.write(folder / "model.safetensors", weights)

    count = LENGTH - len(PROMPT)
    for threads in 1, 2:
        text = subprocess.run(
            [generator, "--weights", folder / "model.safetensors", "--heads", str(HEADS), "--prompt", PROMPT.decode(),
             "--tokens", str(count), "--temperature", "0", "--threads", str(threads)],
            check=True, timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout

        torch.set_num_threads(1)
        tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in weights.items()}
        tokens, gap = list(PROMPT), np.inf
        while len(tokens) < LENGTH:
            last = gpt2.logits(tensors, torch.tensor([tokens]), HEADS)[0, -1]
            best = torch.topk(last, 2)
            gap = min(gap, (best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
        print(f"{threads} threads: {count} tokens, {len(set(tokens))} of them different, closest choice {gap:.2e}")
        if text != bytes(tokens) + b"\n":
            sys.exit(f"ranvier-generate wrote\n{text}\nand PyTorch\n{bytes(tokens)}")


main()
