"""One GPU with optimizer states on the host (ZeRO-Infinity §6, Myelin §V-B): seconds that they add to a step, and
device memory compared with 4φ + 16 · bucket + activations.

usage: optimizer_on_host_gpu.py TRAINER [--model 3B] [--steps-at host,device,none] [--microbatches 16] [--steps 3]
                                [--bucket 16777216] [--limit 90] [--device cuda:0] [--products-file FILE]
                                [--metrics FILE] [-- FLAGS OF ranvier-train]

One JSON line per processor that computes AdamW; `none`: states on the device, for comparison. `seconds` is the median
of all steps but the first. `seconds_without_optimizer`: seconds of the passes per step, from their shares of the time
in the run's final table. --limit: seconds per run, which then stops after its current step. A run whose plan does not
fit into free memory is not started and has the reason in `left_out`.
"""

import argparse
import statistics
import sys

import figures
from gpu_training import MODELS, options_of, print_figure


def evaluate(model, bucket, done):
    seconds = [line["seconds"] for line in done.lines]  # weight gradients are not deferred: backward has them
    usual = statistics.median(seconds[1:])
    passes = statistics.mean(seconds) * sum(figures.column(done.log, name)[0] for name in ("forward", "backward"))
    memory = done.lines[0]["memory"]
    return {"seconds": round(usual, 4), "seconds_without_optimizer": round(passes, 4), "over": round(usual / passes, 3),
            "planned_bytes": memory, "device_bytes": done.device_bytes,
            "allowed_bytes": 4 * model.parameters + 16 * bucket + memory.get("activations", 0)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="3B", choices=MODELS)
    parser.add_argument("--steps-at", default="host,device,none")
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--bucket", type=int, default=1 << 24)
    parser.set_defaults(steps=3)
    options = options_of(parser)
    failed = False
    for place in options.steps_at.split(","):
        if place not in ("host", "device", "none"):
            sys.exit(f"--steps-at {place}: host, device or none")
        flags = {} if place == "none" else {"optimizer_tier": "host", "optimizer_step": place,
                                            "bucket_size": options.bucket}
        failed |= print_figure(options, options.model, {"bench": "optimizer_on_host_gpu", "step_at": place},
                               lambda done: evaluate(MODELS[options.model], options.bucket, done), least_steps=2,
                               microbatches=options.microbatches, **flags)
    sys.exit(failed)


if __name__ == "__main__":
    main()
