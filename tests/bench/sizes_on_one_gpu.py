"""Trainings of several sizes on one GPU, each started once: tokens per second, what share of the measured rate of a
large matrix product that is, and memory beside the plan.

usage: sizes_on_one_gpu.py TRAINER [--models gpt2-small,774M,1.5B,7B] [--steps 20] [--limit 90] [--device cuda:0]
                           [--products-file FILE] [--metrics FILE] [-- FLAGS OF ranvier-train]

One JSON line per size, as soon as it is there; a size that fails says why in `failed` and the next one begins. --limit:
seconds, after which a size ends with the step that it is in. --metrics: what every step said, of all sizes.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from gpu_training import MODELS, train


def line_of(log, beginning):
    return next((line for line in log.splitlines() if line.startswith(beginning)), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer")
    parser.add_argument("--models", default="gpt2-small,774M,1.5B,7B")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--products-file")
    parser.add_argument("--metrics", type=Path)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    flags = {"products_file": options.products_file} if options.products_file else {}
    failed = False
    for name in options.models.split(","):
        if name not in MODELS:
            sys.exit(f"--models {name}: one of {', '.join(MODELS)}")
        model = MODELS[name]
        with tempfile.TemporaryDirectory() as folder:
            done = train(options.trainer, model, Path(folder), options.limit, sys.argv[end + 1:], steps=options.steps,
                         device=options.device, **flags)
        result = {"bench": "sizes_on_one_gpu", "model": name, "parameters": model.parameters,
                  "tokens_a_step": model.tokens, "steps": len(done.lines), "run_seconds": round(done.seconds, 1)}
        if done.status != 0 or not done.lines:
            failed = True
            result["failed"] = done.log[-400:].strip()
            print(done.log[-3000:], file=sys.stderr)
        else:
            rate = done.steady("tokens_per_second")
            in_steps = sum(line["seconds"] for line in done.lines)
            result |= {
                "start_seconds": round(done.seconds - in_steps, 1),
                "tokens_per_second": round(rate, 1), "tflops": round(rate * model.flops_per_token * 1e-12, 1),
                "mfu": done.steady("mfu"), "planned_bytes": done.device_bytes, "measured_bytes": done.used_bytes,
                "first_loss": done.lines[0]["loss"], "last_loss": done.lines[-1]["loss"],
                "attention": line_of(done.log, "attention"), "products": line_of(done.log, "products")}
            if options.metrics:
                with options.metrics.open("a") as all_of_them:
                    for line in done.lines:
                        all_of_them.write(json.dumps({"model": name} | line) + "\n")
        print(json.dumps(result), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
