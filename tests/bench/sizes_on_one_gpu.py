"""Several model sizes on one GPU, one run each: tokens per second, MFU, and memory compared with the plan.

usage: sizes_on_one_gpu.py TRAINER [--models gpt2-small,774M,1.5B,7B] [--microbatches 8] [--steps 20] [--limit 90]
                           [--device cuda:0] [--products-file FILE] [--metrics FILE] [-- FLAGS OF ranvier-train]

One JSON line per size, as soon as it is measured. A size that fails has the reason in `failed`. A size whose plan does
not fit into the GPU's free memory is not started and has the reason in `left_out`. --microbatches: per step; with one,
the optimizer takes 8 % of a step of 7B. --limit: seconds per size, which then stops after its current step. --metrics:
file for the lines of all steps. `mfu` is the share of the data sheet's rate, `measured_mfu` of the measured rate.
"""

import argparse
import sys

from gpu_training import MODELS, options_of, print_figure


def line_of(log, label):
    """The line that describes a choice at startup: text, not a figure; None on a CPU."""
    return next((line for line in log.splitlines() if line.startswith(label)), None)


def evaluate(model, done):
    return {"tflops": round(done.steady("tokens_per_second") * model.flops_per_token * 1e-12, 1),
            "planned_bytes": done.device_bytes, "first_loss": done.lines[0]["loss"], "last_loss": done.lines[-1]["loss"],
            "attention": line_of(done.log, "attention:"),
            "products": line_of(done.log, "products:")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="gpt2-small,774M,1.5B,7B")
    parser.add_argument("--microbatches", type=int, default=8)
    options = options_of(parser)
    failed = False
    for name in options.models.split(","):
        if name not in MODELS:
            sys.exit(f"--models {name}: one of {', '.join(MODELS)}")
        failed |= print_figure(options, name, {"bench": "sizes_on_one_gpu", "microbatches": options.microbatches},
                               lambda done: evaluate(MODELS[name], done), microbatches=options.microbatches)
    sys.exit(failed)


if __name__ == "__main__":
    main()
