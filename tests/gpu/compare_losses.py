"""50 steps of ranvier-train on the cpu device, on the cuda device in fp32 and bf16, and of PyTorch on the same GPU,
from the same weights on the same tokens: the losses beside each other.

usage: compare_losses.py TRAINER FOLDER [--tiny] [-- FLAGS OF ranvier-train]
       FOLDER is emptied and filled; --tiny: for an emulated GPU

fp32 must agree within rounding, which 50 steps let grow; bf16 must learn the same.
"""

import contextlib
import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "reference"))
import compare
import gpt2
import safetensors

END = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
TINY = "--tiny" in sys.argv[:END]
FLAGS = dict(zip((flag.removeprefix("--") for flag in sys.argv[END + 1::2]), sys.argv[END + 2::2]))
STEPS = 4 if TINY else 50
LIMITS = {"fp32": 1e-4, "bf16": 2e-2}  # relative, of every step's loss
CASE = compare.Case(1, 1, layers=4, hidden=128, heads=2, vocabulary=256, length=128, batch_size=8, microbatch_size=4,
                    tokens="tokens.txt")
if TINY:
    CASE = dataclasses.replace(CASE, layers=1, hidden=64, length=16, batch_size=2, microbatch_size=1)


def pytorch(folder, device, precision):
    context = torch.autocast("cuda", dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    with context:
        losses, _, _ = gpt2.train(
            safetensors.read(folder / "initial.safetensors"), gpt2.read_tokens(folder / CASE.tokens), heads=CASE.heads,
            steps=STEPS, batch_size=CASE.batch_size, learning_rate=compare.LEARNING_RATE, device=device)
    return losses


def main():
    trainer, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    random = np.random.default_rng(compare.SEED)
    compare.make_tokens(CASE, folder / CASE.tokens, random, STEPS)
    compare.make_weights(CASE, folder / "initial.safetensors", random)

    def ranvier(**flags):
        return compare.run_trainer(CASE, trainer, folder, steps=STEPS, **FLAGS, **flags)[0]

    losses = {("ranvier cpu", "fp32"): ranvier(device="cpu"),
              ("ranvier cuda", "fp32"): ranvier(device="cuda"),
              ("ranvier cuda, products measured", "bf16"): ranvier(device="cuda", precision="bf16"),
              ("ranvier cuda, library's first products", "bf16"):
                  ranvier(device="cuda", precision="bf16", products="first")}
    if torch.cuda.is_available():
        for precision in LIMITS:
            losses["PyTorch cuda", precision] = pytorch(folder, "cuda", precision)
    else:
        print("this PyTorch has no CUDA: it computes on the processor")
        losses["PyTorch cpu", "fp32"] = pytorch(folder, "cpu", "fp32")

    expected = losses["ranvier cpu", "fp32"]
    failed = False
    for (who, precision), values in losses.items():
        worst = max(abs(a - b) / abs(b) for a, b in zip(values, expected, strict=True))
        within = worst <= LIMITS[precision]
        failed |= not within
        print(json.dumps({"bench": "compare_losses", "who": who, "precision": precision, "first_loss": values[0], "last_loss": values[-1],
                          "worst_relative_difference": worst, "limit": LIMITS[precision], "within": within}))
    sys.exit(failed)


if __name__ == "__main__":
    main()
