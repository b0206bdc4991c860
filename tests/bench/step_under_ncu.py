"""One training step on a GPU under Nsight Compute (ncu): its kernels, costliest first, with the bytes that they moved.

usage: step_under_ncu.py TRAINER [--model gpt2-small] [--most 30] [--csv FILE] [--device cuda:0] [--ncu PROGRAM]
                         [--products-file FILE] [-- FLAGS OF ranvier-train]

One JSON line per kernel: `share` of all kernels' time, bytes of the device's memory per second, `sm_share` of what the
multiprocessors can do at most. ncu leaves clocks alone, runs kernels one by one and with cold caches: sums are above
what a step takes. --csv keeps all that ncu said. --products-file: of a run before; without one the library's first
products are taken, as measuring them would be profiled too.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from gpu_training import MODELS, command_of, environment

TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
BUSY = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1, "second": 1,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "%": 0.01}


def find_ncu():
    """On the PATH, in the toolkit, or where NVIDIA's own packages put it."""
    places = [*sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu")), Path("/usr/local/cuda/bin/ncu")]
    return shutil.which("ncu") or next((str(place) for place in places if os.access(place, os.X_OK)), None)


def kernels_of(path):
    """Name and values of every kernel, in the order of their launches, in seconds and bytes."""
    with path.open(newline="") as file:
        table = csv.reader(line for line in file if line.startswith('"'))  # others are ncu's own words
        names = next(table, [])
        missing = {"Kernel Name", TIME, READ, WRITTEN, BUSY} - set(names)
        if missing:
            sys.exit(f"{path} has no column {', '.join(sorted(missing))}: {path.read_text()[-2000:]}")
        units = dict(zip(names, next(table, [])))

        def value(row, name):
            text = row[name].replace(",", "")
            return float(text) * UNITS[units[name]] if text and text[0].isdigit() else 0.0

        for row in (dict(zip(names, cells)) for cells in table):
            yield row["Kernel Name"], tuple(value(row, name) for name in (TIME, READ, WRITTEN, BUSY))


def of_the_step(kernels):
    """Before the step, products are measured and layers run once: it begins where tokens are looked up last."""
    begins = [i for i, (name, _) in enumerate(kernels) if "forward_kernel" in name and "EmbeddingShape" in name]
    return kernels[begins[-1]:] if begins else kernels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer")
    parser.add_argument("--model", default="gpt2-small", choices=MODELS)
    parser.add_argument("--most", type=int, default=30)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--ncu", default=find_ncu())
    parser.add_argument("--products-file", type=Path)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    if options.ncu is None:
        sys.exit("step_under_ncu.py: ncu is not on the PATH, in /usr/local/cuda/bin or /opt/nvidia/nsight-compute")
    known = options.products_file is not None and options.products_file.exists()
    products = {"products_file": options.products_file} if known else {"products": "first"}
    with tempfile.TemporaryDirectory() as folder:
        table = options.csv or Path(folder) / "kernels.csv"
        table.unlink(missing_ok=True)
        command = [options.ncu, "--clock-control", "none", "--metrics", ",".join((TIME, READ, WRITTEN, BUSY)), "--csv",
                   "--page", "raw", "--print-units", "base", "--log-file", str(table),
                   *command_of(options.trainer, MODELS[options.model], Path(folder), steps=1, cuda_graphs="off",
                               device=options.device, **products), *sys.argv[end + 1:]]
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0 or not table.exists():
            said = table.read_text()[-2000:] if table.exists() else ""
            sys.exit(f"ncu ended with {done.returncode}:\n{done.stdout[-2000:]}\n{said}")
        kernels = of_the_step(list(kernels_of(table)))
    sums = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for name, (seconds, read, written, busy) in kernels:
        of_name = sums[name]
        of_name[0] += 1
        of_name[1] += seconds
        of_name[2] += read + written
        of_name[3] += busy * seconds
    everything = sum(of_name[1] for of_name in sums.values())
    if not everything:
        sys.exit("ncu saw no kernel")
    costliest = sorted(sums.items(), key=lambda item: -item[1][1])
    for name, (calls, seconds, moved, busy) in costliest[:options.most]:
        print(json.dumps({"bench": "step_under_ncu", "model": options.model, "kernel": name[:120], "calls": calls,
                          "us": round(seconds * 1e6, 1), "share": round(seconds / everything, 3),
                          "gbytes_per_second": round(moved / seconds * 1e-9) if seconds else None,
                          "sm_share": round(busy / seconds, 3) if seconds else None}))
    print(json.dumps({"bench": "step_under_ncu", "model": options.model, "kernels": len(kernels),
                      "us": round(everything * 1e6, 1), "tokens": MODELS[options.model].tokens}))


if __name__ == "__main__":
    main()
