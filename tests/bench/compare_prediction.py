#!/usr/bin/env python3
"""Predicted beside measured on this machine: the same trainings in virtual time and for real.

usage: tests/bench/compare_prediction.py [--build build/release] [--rounds 2] [--steps 6] [--only REGEX]
                                         [--profile FILE] [--keep FOLDER] [--measure] [--table]

First `ranvier-bench profile` measures the machine, with as many ranks as cores have room for, once for ranks of one
thread and once for two, unless --profile has it; then each case runs `rounds` times in turns. Prints a JSON line per
case: seconds of a step, predicted and measured (the median of all steps but each run's first two, which touch weights
and states for the first time), and their ratio; at the end the median and the worst error, how well the order of all
cases is predicted (Spearman's rank correlation), of the pairs whose measured times differ by more than rounds of the
same case do, how many are in the predicted order, and the five fastest as measured and as predicted, of all cases and
of those alike in model, ranks, threads, type and links, with what the one that is predicted to be the fastest loses
to the fastest. Ranks and their threads are no more than cores unless the case says so. Cases on emulated hosts need
tests/cluster/run.sh, and are left out where the machine does not allow it. With --keep FOLDER an interrupted
comparison goes on where it was, case by case.
"""

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import figures

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
CORES = os.cpu_count() or 1
SHAPE = "--layers 6 --hidden 384 --heads 6 --sequence-length 256"  # where a case has no other one
LLAMA = "--model llama --layers 4 --hidden 512 --heads 8 --kv-heads 4 --ffn-size 1408 --sequence-length 128"

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
    *[(f"1 x 4 on two cores, {shard}", 4,
       f"--g-data 4 --batch-size 16 --microbatch-size 2 --threads 1 --shard {shard} --group-size 2", "")
      for shard in ("paro-iig", "paro-nig", "paro-igg")],
    ("LLaMA of 4 x 512", 1, LLAMA + " --batch-size 16 --microbatch-size 4 --threads 1", ""),
    ("LLaMA of 4 x 512, 2 x 1", 2, LLAMA + " --g-inter 2 --batch-size 16 --microbatch-size 2 --threads 1", ""),
    ("LLaMA of 4 x 512, 1 x 2, bf16, zero3", 2,
     LLAMA + " --g-data 2 --batch-size 16 --microbatch-size 4 --threads 1 --shard zero3 --precision bf16", ""),
    *[(f"{name}, hosts at {rate}", 2, flags, rate) for rate in ("200mbit", "1gbit") for name, flags in [
        ("2 x 1", "--g-inter 2 --batch-size 16 --microbatch-size 4 --threads 1"),
        ("1 x 2, ddp", "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1"),
        ("1 x 2, zero3", "--g-data 2 --batch-size 16 --microbatch-size 4 --threads 1 --shard zero3")]],
]


def shape_of(flags: str) -> list[str]:
    return [] if "--layers" in flags else SHAPE.split()


def run(command: list[str], **more) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def hosts(rate: str) -> list[str]:
    return [os.path.join(TOP, "tests/cluster/run.sh"), "--hosts", "2", "--ranks-per-host", "1", "--rate", rate, "--"]


def threads_of(flags: str) -> int:
    return 2 if "--threads 2" in flags else 1


class Measurements:
    """What the machine said: profiles by the threads of a rank and the rate of hosts, seconds of steps by case."""

    def __init__(self, build: str, folder: str, given: str | None, bench: str):
        self.build, self.folder, self.given, self.bench = build, folder, given, bench
        self.record = os.path.join(folder, "steps.jsonl")
        self.seconds: dict[str, list[list[float]]] = {}
        if os.path.exists(self.record):
            with open(self.record, encoding="utf-8") as lines:
                for line in map(json.loads, lines):
                    self.seconds.setdefault(line["case"], []).append(line["seconds"])

    def profile_path(self, threads: int, rate: str) -> str:
        return os.path.join(self.folder, f"profile-{threads}{'-' + rate if rate else ''}.json")

    def profile(self, threads: int, rate: str) -> str:
        """Of as many ranks as the cores have room for."""
        if rate:
            return self.profile_of_hosts(threads, rate)
        if self.given:
            return self.given
        path = self.profile_path(threads, rate)
        if not os.path.exists(path):
            ranks = max(1, CORES // threads)
            run([*MPIRUN, "-n", str(ranks), self.bench, "profile", "--threads", str(threads), "--nvme", self.folder,
                 "--write-profile", path])
        return path

    def profile_of_hosts(self, threads: int, rate: str) -> str:
        """This machine's, with the links between two hosts, which share its cores: work is as slow as on busy ones."""
        path = self.profile_path(threads, rate)
        links = path + ".links"
        if not os.path.exists(links):
            run([*hosts(rate), self.bench, "--write-links", links])
        with open(self.profile(threads, ""), encoding="utf-8") as file:
            profile = json.load(file)
        with open(links, encoding="utf-8") as file:
            profile["links"] = json.load(file)
        for dtype, kinds in profile["rates"].items():
            for kind, work in kinds.items():
                times = work.pop("crowding", profile.get("crowding", 1))
                shapes = profile.get("products", {}).get(dtype, []) if kind == "product" else []
                for rate in [work, *shapes]:
                    for name in {"flops_per_second", "bytes_per_second"} & rate.keys():
                        rate[name] /= times
        profile.pop("crowding", None)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(profile, file)
        return path

    def measure(self, case: tuple[str, int, str, str], steps: int) -> None:
        name, ranks, flags, rate = case
        metrics = os.path.join(self.folder, "metrics")
        if os.path.exists(metrics):
            os.remove(metrics)
        trace = os.path.join(self.folder, re.sub(r"[^a-z0-9]+", "-", name) + ".trace.json")
        environment = os.environ | {"RANVIER_PROFILE": "none"}
        start = hosts(rate) if rate else [*MPIRUN, "-n", str(ranks)]
        run([*start, os.path.join(self.build, "apps/ranvier-train"), "--data", os.path.join(self.folder, "text"),
             *shape_of(flags), *flags.format(folder=self.folder).split(), "--steps", str(steps), "--validation-split",
             "0", "--metrics", metrics, "--trace", trace, "--overwrite"], env=environment)
        seconds = figures.values(metrics, "seconds")[2:]
        self.seconds.setdefault(name, []).append(seconds)
        with open(self.record, "a", encoding="utf-8") as record:
            record.write(json.dumps({"case": name, "seconds": seconds}) + "\n")


def predicted(build: str, folder: str, case: tuple[str, int, str, str], profile: str) -> dict:
    _, ranks, flags, rate = case
    node = 1 if rate else ranks
    answer = json.loads(run([os.path.join(build, "apps/ranvier-plan"), *shape_of(flags),
                             *flags.format(folder=folder).split(), "--vocab-size", "256", "--world", str(ranks),
                             "--node-size", str(node), "--profile", profile, "--best", "1", "--json"]))
    if not answer["best"]:
        raise RuntimeError(f"nothing fits: {flags}")
    return answer["best"][0]


def write_text(path: str) -> None:
    with open(path, "w", encoding="utf-8") as text:
        for name in sorted(os.listdir(os.path.join(TOP, "runtime"))):
            if name.endswith(("pp",)):
                with open(os.path.join(TOP, "runtime", name), encoding="utf-8") as source:
                    text.write(source.read())


def places(values: list[float]) -> list[float]:
    """The rank of each; equal ones share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def order(rows: list[tuple[str, float, float]], noise: float) -> dict:
    """How well the predicted order is the measured one: of all rows, and of pairs that differ by more than `noise`."""
    apart = [(a, b) for a, b in itertools.combinations(rows, 2) if max(a[2], b[2]) > (1 + noise) * min(a[2], b[2])]
    wrong = [[a[0], b[0]] for a, b in apart if (a[1] - b[1]) * (a[2] - b[2]) <= 0]
    answer = {"noise": round(noise, 3), "pairs_apart": len(apart), "in_predicted_order": len(apart) - len(wrong),
              "not_in_it": wrong}
    if len({row[1] for row in rows}) > 1 and len({row[2] for row in rows}) > 1:
        said, was = places([row[1] for row in rows]), places([row[2] for row in rows])
        answer = {"rank_correlation": round(statistics.correlation(said, was), 3)} | answer
    return answer


def kind_of(case: tuple[str, int, str, str]) -> str:
    """What a plan for given ranks does not choose."""
    _, ranks, flags, rate = case
    return (f"{'LLaMA, ' if '--layers' in flags else ''}ranks {ranks}, threads {threads_of(flags)}, "
            f"{'bf16' if 'bf16' in flags else 'fp32'}"
            f"{', hosts at ' + rate if rate else ''}")


def fastest(rows: list[tuple[str, float, float]], count: int = 5) -> dict:
    """The fastest as measured and as predicted, and by how much the first of the latter was slower."""
    was = sorted(rows, key=lambda row: row[2])
    said = sorted(rows, key=lambda row: row[1])
    return {"measured": [row[0] for row in was[:count]], "predicted": [row[0] for row in said[:count]],
            "loss_of_first": round(said[0][2] / was[0][2] - 1, 3)}


def noise_of(rounds: dict[str, list[list[float]]], names: list[str]) -> float:
    """By how much medians of rounds of the same case differ at most, in nine cases of ten; 10 % of a single round."""
    medians = [[statistics.median(each) for each in rounds[name]] for name in names]
    spreads = sorted(max(each) / min(each) - 1 for each in medians if len(each) > 1)
    return spreads[min(len(spreads) - 1, int(0.9 * len(spreads)))] if spreads else 0.1


def report(rows: list[tuple[str, float, float]], noise: float, table: bool) -> None:
    for name, said, was in rows:
        if table:
            print(f"| {name} | {1e3 * was:.0f} | {1e3 * said:.0f} | {100 * (said / was - 1):+.1f} % |")
        else:
            print(json.dumps({"case": name, "predicted": round(said, 4), "measured": round(was, 4),
                              "ratio": round(said / was, 3)}), flush=True)
    errors = sorted(abs(said / was - 1) for _, said, was in rows)
    print(json.dumps({"cases": len(rows), "median_error": round(statistics.median(errors), 3),
                      "worst_error": round(errors[-1], 3)} | order(rows, noise)))
    kinds = {case[0]: kind_of(case) for case in CASES}
    groups = {"all": rows} | {kind: [row for row in rows if kinds[row[0]] == kind] for kind in set(kinds.values())}
    for kind, group in sorted(groups.items()):
        if len(group) > 2:
            print(json.dumps({"fastest_of": kind, "cases": len(group)} | fastest(group)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(TOP, "build/release"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", help="of this machine, where it was measured before")
    parser.add_argument("--keep", help="a folder for profiles and steps: what is in it is not measured again")
    parser.add_argument("--measure", action="store_true", help="only measure what --keep lacks")
    parser.add_argument("--bench", help="ranvier-bench, if not that of --build")
    parser.add_argument("--table", action="store_true", help="rows of a table in Markdown")
    options = parser.parse_args()
    if options.steps < 3:
        parser.error("--steps: take 3 at least, as the first two do not count")
    check = [os.path.join(TOP, "tests/cluster/run.sh"), "--check"]
    has_hosts = subprocess.run(check, capture_output=True).returncode == 0
    cases = [case for case in CASES if re.search(options.only, case[0]) and (has_hosts or not case[3])]
    with tempfile.TemporaryDirectory(dir=TOP) as temporary:
        folder = os.path.abspath(options.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        write_text(os.path.join(folder, "text"))
        bench = options.bench or os.path.join(options.build, "apps/ranvier-bench")
        machine = Measurements(options.build, folder, options.profile, bench)
        for _, _, flags, rate in cases:
            machine.profile(threads_of(flags), rate)
        for number in range(options.rounds):
            for case in cases:
                if len(machine.seconds.get(case[0], [])) <= number:
                    machine.measure(case, options.steps)
        if options.measure:
            return 0
        rows = []
        for case in cases:
            name, _, flags, rate = case
            said = predicted(options.build, folder, case, machine.profile(threads_of(flags), rate))
            was = statistics.median([second for each in machine.seconds[name] for second in each])
            rows.append((name, said["step_seconds"], was))
        report(rows, noise_of(machine.seconds, [row[0] for row in rows]), options.table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
