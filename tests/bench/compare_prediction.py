#!/usr/bin/env python3
"""Predicted beside measured on this machine: the same trainings in virtual time and for real.

usage: tests/bench/compare_prediction.py [--build build/release] [--rounds 2] [--steps 4] [--only REGEX]
                                         [--profile FILE]

First `ranvier-bench profile` measures the machine, alone and with two ranks (for the links), unless --profile has it;
then each case runs `rounds` times in turns. Prints a JSON line per case: seconds of a step, predicted and measured (the
median of all steps but each run's first), and their ratio; at the end the median and the worst error, and how many of
the five fastest keep their order. Ranks and their threads are no more than cores unless the case says so. Cases on
emulated hosts need tests/cluster/run.sh, and are left out where the machine does not allow it.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
SHAPE = "--layers 6 --hidden 384 --heads 6 --sequence-length 256"

# name, ranks, flags, rate of hosts (none: one host)
CASES: list[tuple[str, int, str, str]] = [
    ("one rank", 1, "--batch-size 16 --microbatch-size 4 --threads 1", ""),
    ("one rank, two threads", 1, "--batch-size 16 --microbatch-size 4 --threads 2", ""),
    ("microbatches of 1", 1, "--batch-size 16 --microbatch-size 1 --threads 1", ""),
    ("microbatches of 16", 1, "--batch-size 16 --microbatch-size 16 --threads 1", ""),
    ("recompute 1", 1, "--batch-size 16 --microbatch-size 4 --threads 1 --recompute 1", ""),
    ("recompute 3", 1, "--batch-size 16 --microbatch-size 4 --threads 1 --recompute 3", ""),
    ("bf16", 1, "--batch-size 16 --microbatch-size 4 --threads 1 --precision bf16", ""),
    ("bf16, two threads", 1, "--batch-size 16 --microbatch-size 4 --threads 2 --precision bf16", ""),
    ("states on the host", 1, "--batch-size 16 --microbatch-size 4 --threads 1 --offload infinity-cpu", ""),
    ("states in files", 1,
     "--batch-size 16 --microbatch-size 4 --threads 1 --offload infinity-nvme --nvme {folder}", ""),
    ("2 x 1", 2, "--g-inter 2 --batch-size 16 --microbatch-size 4 --threads 1", ""),
    ("2 x 1, microbatches of 1", 2, "--g-inter 2 --batch-size 16 --microbatch-size 1 --threads 1", ""),
    ("2 x 1, 1f1b", 2, "--g-inter 2 --batch-size 16 --microbatch-size 2 --threads 1 --policy 1f1b", ""),
    ("2 x 1, gpipe", 2, "--g-inter 2 --batch-size 16 --microbatch-size 2 --threads 1 --policy gpipe", ""),
    ("1 x 2, ddp", 2, "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1", ""),
    ("1 x 2, zero1", 2, "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1 --shard zero1", ""),
    ("1 x 2, zero2", 2, "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1 --shard zero2", ""),
    ("1 x 2, zero3", 2, "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1 --shard zero3", ""),
    ("1 x 2, bf16, zero3", 2,
     "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1 --shard zero3 --precision bf16", ""),
    ("2 x 2 on two cores", 4, "--g-inter 2 --g-data 2 --batch-size 16 --microbatch-size 2 --threads 1", ""),
    ("1 x 4 on two cores, mics", 4,
     "--g-data 4 --batch-size 16 --microbatch-size 2 --threads 1 --shard mics --group-size 2", ""),
    ("4 x 1 on two cores", 4, "--g-inter 4 --batch-size 16 --microbatch-size 2 --threads 1", ""),
    *[(f"{name}, hosts at {rate}", 2, flags, rate) for rate in ("200mbit", "1gbit") for name, flags in [
        ("2 x 1", "--g-inter 2 --batch-size 16 --microbatch-size 4 --threads 1"),
        ("1 x 2, ddp", "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1"),
        ("1 x 2, zero3", "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1 --shard zero3")]],
]


def run(command: list[str], **more) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def hosts(rate: str) -> list[str]:
    return [os.path.join(TOP, "tests/cluster/run.sh"), "--hosts", "2", "--ranks-per-host", "1", "--rate", rate, "--"]


class Machine:
    """Profiles of this machine by threads of a rank, precision's rates included, and links by rate."""

    def __init__(self, build: str, folder: str, given: str | None):
        self.build, self.folder, self.given = build, folder, given
        self.known: dict[tuple[int, str], str] = {}

    def profile(self, threads: int, ranks: int, rate: str) -> str:
        if self.given and not rate:
            return self.given
        key = (threads, rate if ranks > 1 else "alone")
        if key not in self.known:
            path = os.path.join(self.folder, f"profile-{len(self.known)}.json")
            program = [os.path.join(self.build, "apps/ranvier-bench"), "profile", "--threads", str(threads),
                       "--nvme", self.folder, "--write-profile", path]
            start = [] if ranks == 1 else hosts(rate) if rate else [*MPIRUN, "-n", "2"]
            run([*start, *program])
            self.known[key] = path
        return self.known[key]


def measured(build: str, folder: str, ranks: int, flags: str, rate: str, steps: int) -> list[float]:
    metrics = os.path.join(folder, "metrics")
    if os.path.exists(metrics):
        os.remove(metrics)
    start = hosts(rate) if rate else [*MPIRUN, "-n", str(ranks)]
    run([*start, os.path.join(build, "apps/ranvier-train"), "--data", os.path.join(folder, "text"), *SHAPE.split(),
         *flags.format(folder=folder).split(), "--steps", str(steps), "--validation-split", "0", "--metrics", metrics])
    with open(metrics, encoding="utf-8") as lines:
        return [json.loads(line)["seconds"] for line in lines][1:]


def predicted(build: str, folder: str, ranks: int, flags: str, rate: str, profile: str) -> dict:
    node = 1 if rate else ranks
    answer = json.loads(run([os.path.join(build, "apps/ranvier-plan"), *SHAPE.split(),
                             *flags.format(folder=folder).split(), "--vocab-size", "256", "--world", str(ranks),
                             "--node-size", str(node), "--profile", profile, "--best", "1", "--json"]))
    if not answer["best"]:
        raise RuntimeError(f"nothing fits: {flags}")
    return answer["best"][0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(TOP, "build/release"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", help="of this machine, where it was measured before")
    options = parser.parse_args()
    check = [os.path.join(TOP, "tests/cluster/run.sh"), "--check"]
    has_hosts = subprocess.run(check, capture_output=True).returncode == 0
    cases = [case for case in CASES if re.search(options.only, case[0]) and (has_hosts or not case[3])]
    with tempfile.TemporaryDirectory(dir=TOP) as folder:
        with open(os.path.join(folder, "text"), "w", encoding="utf-8") as text:
            for name in sorted(os.listdir(os.path.join(TOP, "runtime"))):
                if name.endswith(("pp",)):
                    with open(os.path.join(TOP, "runtime", name), encoding="utf-8") as source:
                        text.write(source.read())
        machine = Machine(options.build, folder, options.profile)
        seconds: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for name, ranks, flags, rate in cases:
                seconds.setdefault(name, []).extend(measured(options.build, folder, ranks, flags, rate, options.steps))
        rows = []
        for name, ranks, flags, rate in cases:
            threads = 2 if "--threads 2" in flags else 1
            said = predicted(options.build, folder, ranks, flags, rate, machine.profile(threads, ranks, rate))
            was = statistics.median(seconds[name])
            rows.append((name, said["step_seconds"], was))
            print(json.dumps({"case": name, "predicted": round(said["step_seconds"], 4), "measured": round(was, 4),
                              "ratio": round(said["step_seconds"] / was, 3)}), flush=True)
    errors = sorted(abs(said / was - 1) for _, said, was in rows)
    fastest = [name for name, _, _ in sorted(rows, key=lambda row: row[2])[:5]]
    expected = [name for name, _, _ in sorted(rows, key=lambda row: row[1])[:5]]
    print(json.dumps({"cases": len(rows), "median_error": round(statistics.median(errors), 3),
                      "worst_error": round(errors[-1], 3),
                      "fastest_in_their_place": sum(a == b for a, b in zip(fastest, expected))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
