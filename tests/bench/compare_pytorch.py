"""ranvier-train compared with PyTorch tuned for this machine: in turns, medians, one JSON line per case.

usage: compare_pytorch.py TRAINER [--cases NAME,…] [--repeats 3] [--seconds 10] [--threads 2] [--python PYTHON]
                          [--compile whole,blocks,none] [--tuning NAME]

One rank and one PyTorch process have the same number of threads. Each allocator is tried first, with bound and unbound
threads: glibc without returning memory and with huge pages, jemalloc, tcmalloc. The fastest one is compared. --tuning
names one ("glibc", "jemalloc, bound") and skips the trials, because torch.compile takes minutes in each. --python: an
interpreter with another PyTorch, such as 2.x for torch.compile. Each word of --compile has its own runs and line.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import figures
import gpu_training

HERE = Path(__file__).resolve().parent
# layers, hidden, heads, vocabulary, length, batch
MODELS = {"6x384": (6, 384, 6, 256, 256, 16), "gpt2-small": (12, 768, 12, 50257, 256, 4),
          "llama-6x384": (6, 384, 6, 256, 256, 16), "bert-6x384": (6, 384, 6, 256, 256, 16)}
# pixels across, classes, batch
IMAGES = {"wide-resnet-50-2": (224, 1000, 4)}
FLAGS = {"llama": ["--model", "llama", "--ffn-size", 1024],
         "bert": ["--model", "bert", "--ffn-size", 1536, "--mask-token", 0, "--mlm-probability", 1]}


def family_of(model):
    return model.split("-")[0] if model.split("-")[0] in FLAGS else "gpt"


def unit_of(model):
    return "images" if model in IMAGES else "tokens"


CASES = [f"{model}-{precision}" for model in (*MODELS, *IMAGES) for precision in ("fp32", "bf16")]
TRIAL_SECONDS = 3
TRIAL_LIMIT_SECONDS = {"tokens": 60, "images": 180}


def tunings():
    """Environment variables per allocator and thread binding."""
    kept = ["glibc.malloc.hugetlb=1", "glibc.malloc.mmap_max=0", "glibc.malloc.top_pad=1073741824",
            "glibc.malloc.trim_threshold=100000000000"]
    allocators = {"glibc": {"GLIBC_TUNABLES": ":".join(kept)}}
    for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4"):
        for path in glob.glob(f"/usr/lib/*/{name}"):
            allocators[name.split(".")[0].removeprefix("lib")] = {
                "LD_PRELOAD": path, "MALLOC_CONF": "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1"}
    return {f"{name}{suffix}": variables | binding
            for name, variables in allocators.items()
            for suffix, binding in (("", {}), (", bound", {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}))}


def run_pytorch(options, case, compiled, seconds, environment, limit=None):
    model, precision = case.rsplit("-", 1)
    if model in IMAGES:
        command = [options.python, HERE / "pytorch_images.py", *map(str, IMAGES[model]), precision, str(seconds),
                   "--compile", "none" if compiled == "none" else "whole"]
    else:
        command = [options.python, HERE / "pytorch_training.py", *map(str, MODELS[model]), precision, str(seconds),
                   "--family", family_of(model), "--compile", compiled]
    variables = dict(os.environ, OMP_NUM_THREADS=str(options.threads), **environment)
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True, timeout=limit)
    return json.loads(done.stdout)


def fastest_tuning(options, case, compiled):
    if options.tuning:
        return options.tuning, {}
    rates, unit = {}, unit_of(case.rsplit("-", 1)[0])
    for name, environment in tunings().items():
        try:
            result = run_pytorch(options, case, compiled, TRIAL_SECONDS, environment, TRIAL_LIMIT_SECONDS[unit])
            rates[name] = result[f"{unit}_per_second"]
        except subprocess.TimeoutExpired:
            rates[name] = 0.0
    return max(rates, key=rates.get), rates


def shape_flags(model, folder):
    """Flags of data and model; tokens or images per step."""
    if model in IMAGES:
        size, classes, batch = IMAGES[model]
        return ["--model", model, "--data", "synthetic", "--image-size", size, "--classes", classes, "--batch-size",
                batch, "--microbatch-size", batch], batch
    layers, hidden, heads, vocabulary, length, batch = MODELS[model]
    tokens = folder / "tokens.bin"
    gpu_training.write_tokens(gpu_training.Model(*MODELS[model]), tokens)
    return ["--data", tokens, "--layers", layers, "--hidden", hidden, "--heads", heads, "--vocab-size", vocabulary,
            "--sequence-length", length, "--batch-size", batch, "--microbatch-size", batch,
            *FLAGS.get(family_of(model), [])], batch * length


def run_ranvier(trainer, case, threads, seconds, folder):
    model, precision = case.rsplit("-", 1)
    metrics = folder / "metrics.jsonl"
    flags, items_of_step = shape_flags(model, folder)

    def rates(steps):
        command = ["mpirun", "-n", "1", "--bind-to", "none", trainer, *flags, "--precision", precision,
                   "--threads", threads, "--steps", steps, "--metrics", metrics, "--overwrite"]
        subprocess.run(list(map(str, command)), env=gpu_training.environment(), check=True, capture_output=True)
        return figures.values(metrics, "tokens_per_second")

    probe = statistics.median(rates(3))
    steps = 2 + max(3, round(seconds * probe / items_of_step))
    return statistics.median(rates(steps)[2:])  # the first steps touch new memory


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--compile", default="none")
    parser.add_argument("--tuning", choices=tunings())
    options = parser.parse_args()
    modes = options.compile.split(",")
    for mode in modes:
        if mode not in ("whole", "blocks", "none"):
            sys.exit(f"--compile {mode}: one of whole, blocks, none")
    for case in options.cases.split(","):
        if case not in CASES:
            sys.exit(f"--cases {case}: one of {', '.join(CASES)}")
        unit = unit_of(case.rsplit("-", 1)[0])
        tuning = {mode: fastest_tuning(options, case, mode) for mode in modes}
        ranvier, pytorch = [], {mode: [] for mode in modes}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.repeats):
                ranvier.append(run_ranvier(options.trainer, case, options.threads, options.seconds, Path(folder)))
                for mode in modes:
                    pytorch[mode].append(run_pytorch(options, case, mode, options.seconds, tunings()[tuning[mode][0]]))
        for mode in modes:
            rates = [result[f"{unit}_per_second"] for result in pytorch[mode]]
            print(json.dumps({
                "bench": "compare_pytorch", "case": case, "threads": options.threads,
                f"ranvier_{unit}_per_second": round(statistics.median(ranvier), 2),
                f"pytorch_{unit}_per_second": round(statistics.median(rates), 2),
                "ratio": round(statistics.median(r / p for r, p in zip(ranvier, rates)), 3),
                "ranvier_runs": [round(rate, 2) for rate in ranvier],
                "pytorch_runs": [round(rate, 2) for rate in rates],
                "torch": pytorch[mode][0]["torch"], "compiled": pytorch[mode][0]["compiled"],
                "tuning": tuning[mode][0],
                "tried": {name: round(rate, 2) for name, rate in tuning[mode][1].items()}}), flush=True)


if __name__ == "__main__":
    main()
