#!/usr/bin/env python3
"""Idle time of pipeline stages under each policy, measured on this machine and predicted.

usage: tests/bench/schedules/machine.py [--build build/release] [--keep build/machine-schedules] [--profile FILE]
                                        [--minutes 11] [--rounds 1] [--only REGEX] [--output FILE]

Trains a GPT of 6 layers of 384 channels and GPT-2 small in pipelines of 2 and 4 ranks with a thread each. Stages are
balanced, uneven (--layers-per-stage), or one rank is 1.5 times as slow (RANVIER_FAULT). Policies: message-driven, 1F1B,
zero-bubble and ZB-H1, and two model chunks per rank with message-driven and interleaved 1F1B. `ranvier-bench profile`
measures the machine first, unless --profile is given. Each run records predicted and measured busy shares in --metrics.
The output is a table in Markdown: seconds per step and idle shares per stage (default: machine.md next to this script).

The folder --keep holds the measured cases: an interrupted comparison resumes, and no case starts after --minutes. Four
ranks share the cores if there are fewer. A slow rank sleeps, so others can use its core; the prediction does not model
that. Keep the machine idle.
"""

import argparse
import array
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[2]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
CORES = os.cpu_count() or 1
STEPS = 4  # per run; the first one does not count
SLOW = 1.5  # factor of the slow rank's durations

# flags, vocabulary
MODELS = {
    "6 × 384": ("--layers 6 --hidden 384 --heads 6 --vocab-size 256 --sequence-length 128 --batch-size 16 "
                "--microbatch-size 2", 256),
    "GPT-2 small": ("--model gpt2-small --sequence-length 32 --batch-size 8 --microbatch-size 1", 50257)}

# Layers per stage, and per model chunk with two chunks per rank and equal layers per rank; None: impossible.
UNEVEN = {("6 × 384", 2): ("3,5", "2,2,1,3"), ("6 × 384", 4): ("2,1,3,2", None),
          ("GPT-2 small", 2): ("7,7", "4,4,3,3"), ("GPT-2 small", 4): ("3,4,5,2", "2,2,3,1,1,2,2,1")}

POLICIES = {"message-driven": "--policy message-driven", "1f1b": "--policy 1f1b", "zero-bubble": "--policy zero-bubble",
            "zb-h1": "--policy zb-h1", "message-driven, 2 chunks": "--policy message-driven --chunks-per-rank 2",
            "1f1b, 2 chunks": "--policy 1f1b --chunks-per-rank 2"}


class Case:
    """A run: model, ranks, disturbance and policy."""

    def __init__(self, model, ranks, wrong, policy):
        self.model, self.ranks, self.wrong, self.policy = model, ranks, wrong, policy

    @property
    def name(self):
        return f"{self.model}, {self.ranks} ranks, {self.wrong}, {self.policy}"

    @property
    def chunked(self):
        return "chunks" in self.policy

    def flags(self):
        """None if the stages cannot be uneven."""
        words = f"{MODELS[self.model][0]} {POLICIES[self.policy]} --g-inter {self.ranks}".split()
        if self.wrong == "uneven":
            layers = UNEVEN[self.model, self.ranks][1 if self.chunked else 0]
            if layers is None:
                return None
            words += ["--layers-per-stage", layers]
        return words

    def environment(self):
        # The slow rank is neither the first nor the last of four.
        slow = {"RANVIER_FAULT": f"1:1:slow:{SLOW}"} if self.wrong == f"rank 1 × {SLOW}" else {}
        return os.environ | {"RANVIER_PROFILE": "none"} | slow


CASES = [Case(model, ranks, wrong, policy)
         for model in MODELS for ranks in (2, 4) for wrong in ("even", "uneven", f"rank 1 × {SLOW}")
         for policy in POLICIES]


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def write_tokens(path, vocabulary):
    """Writes a token file in llm.c's format."""
    count, draw = 65536, random.Random(1)
    with open(path, "wb") as file:
        array.array("i", [20240520, 1, count] + [0] * 253).tofile(file)
        array.array("H", [draw.randrange(vocabulary) for _ in range(count)]).tofile(file)


class Machine:
    """Measured runs, kept in a folder."""

    def __init__(self, options):
        self.build, self.folder, self.given = options.build, options.keep, options.profile
        self.record = self.folder / "runs.jsonl"
        self.runs = {}
        if self.record.exists():
            for line in self.record.read_text().splitlines():
                entry = json.loads(line)
                self.runs.setdefault(entry["case"], []).append(entry["prediction"])

    def profile(self):
        if self.given:
            return self.given
        path = self.folder / "profile.json"
        if not path.exists():
            run([*MPIRUN, "-n", str(CORES), self.build / "apps/ranvier-bench", "profile", "--threads", "1",
                 "--write-profile", path])
        return path

    def tokens(self, model):
        vocabulary = MODELS[model][1]
        path = self.folder / f"tokens-{vocabulary}.bin"
        if not path.exists():
            write_tokens(path, vocabulary)
        return path

    def measure(self, case):
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        output = run([*MPIRUN, "-n", str(case.ranks), self.build / "apps/ranvier-train", "--data",
                      self.tokens(case.model), *case.flags(), "--steps", str(STEPS), "--threads", "1",
                      "--validation-split", "0", "--profile", self.profile(), "--metrics", metrics], case.environment())
        lines = map(json.loads, metrics.read_text().splitlines())
        found = [line["prediction"] for line in lines if "prediction" in line]
        if not found:
            raise RuntimeError(f"{case.name}: no line of --metrics has a prediction:\n{output[-2000:]}")
        self.runs.setdefault(case.name, []).append(found[0])
        with open(self.record, "a", encoding="utf-8") as record:
            record.write(json.dumps({"case": case.name, "prediction": found[0]}) + "\n")


def sides_of(runs):
    """Seconds per step and idle shares per stage, measured and predicted, of the run with the shortest steps: other
    work can only delay steps."""
    best = min(runs, key=lambda run: run["measured"]["step_seconds"])
    return [(best[side]["step_seconds"], [1 - share for share in best[side]["busy"]])
            for side in ("measured", "predicted")]


def table(cases, machine):
    rows = ["| stages | policy | step | predicted | idle, by stage | predicted | mean | predicted |",
            "|---|---|---|---|---|---|---|---|"]

    def shares(idle):
        return " ".join(f"{100 * share:.0f}" for share in idle) + " %"

    for case in cases:
        runs = machine.runs.get(case.name)
        if runs is None:
            rows.append(f"| {case.wrong} | {case.policy} | – | – | – | – | – | – |")
            continue
        (was, idle), (said, idle_said) = sides_of(runs)
        rows.append(f"| {case.wrong} | {case.policy} | {1e3 * was:.0f} ms | {1e3 * said:.0f} ms | {shares(idle)} | "
                    f"{shares(idle_said)} | {100 * statistics.mean(idle):.1f} % | "
                    f"{100 * statistics.mean(idle_said):.1f} % |")
    return rows


def summary(cases, machine):
    """Errors of the predicted idle shares, and pairs of policies in the predicted order."""
    if not any(case.name in machine.runs for case in cases):
        return "Nothing was measured yet."
    apart, pairs, right = [], 0, 0
    groups = {}
    for case in cases:
        if case.name not in machine.runs:
            continue
        runs = machine.runs[case.name]
        (was, idle), (said, idle_said) = sides_of(runs)
        apart += [abs(a - b) for a, b in zip(idle, idle_said)]
        groups.setdefault((case.model, case.ranks, case.wrong), []).append((was, said))
    for group in groups.values():
        for number, (was, said) in enumerate(group):
            for other_was, other_said in group[:number]:
                if max(was, other_was) > 1.05 * min(was, other_was):
                    pairs += 1
                    right += (was - other_was) * (said - other_said) > 0
    return (f"idle shares of {len(apart)} stages have a median error of {100 * statistics.median(apart):.1f} points "
            f"(largest: {100 * max(apart):.1f}). The prediction orders\n  {right} of {pairs} pairs of schedules "
            "correctly; only pairs whose step times differ by more than 5 % count.")


def report(machine, skipped):
    crowded = [f"Four ranks share the {CORES} cores, in virtual time too. Computation of other ranks delays a",
               "waiting stage, so schedules differ less."] if CORES < 4 else []
    text = ["# Idle stages on a machine", "",
            f"`tests/bench/schedules/machine.py` ran on {CORES} cores. The tables show the idle share of each stage",
            "in a typical step, first stage first. The predicted columns come from the same job in virtual time,",
            "with a profile of the machine. A slow rank sleeps after each operation and leaves its core to the",
            "others meanwhile.",
            *crowded,
            *(["The fastest of several runs counts."] if any(len(r) > 1 for r in machine.runs.values()) else []),
            "Six layers cannot be split unevenly into eight model chunks.",
            "Layers per stage in the uneven cases, embedding and head included:", "",
            *(f"- {model}, {ranks} ranks: {layers[0]}" + (f", in two chunks {layers[1]}" if layers[1] else "")
              for (model, ranks), layers in UNEVEN.items()), "",
            *(f"- {ranks} ranks: {summary([case for case in CASES if case.ranks == ranks], machine)}"
              for ranks in (2, 4)), ""]
    for model in MODELS:
        for ranks in (2, 4):
            shared = f" that share {CORES} cores" if ranks > CORES else ""
            text += [f"## {model}, {ranks} ranks{shared}", "",
                     *table([case for case in CASES if (case.model, case.ranks) == (model, ranks)], machine), ""]
    if skipped:
        text += [f"{skipped} runs were not measured yet.", ""]
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release")
    parser.add_argument("--keep", type=pathlib.Path, default=TOP / "build/machine-schedules")
    parser.add_argument("--profile", type=pathlib.Path, help="of this machine, for ranks of one thread")
    parser.add_argument("--minutes", type=float, default=11, help="after which no run begins")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name matches")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "machine.md")
    options = parser.parse_args()
    if os.geteuid() == 0:
        os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    until = time.monotonic() + 60 * options.minutes
    options.keep.mkdir(parents=True, exist_ok=True)
    machine = Machine(options)
    machine.profile()
    left = 0
    for number in range(options.rounds):
        for case in CASES:
            known = len(machine.runs.get(case.name, [])) > number
            if known or not re.search(options.only, case.name) or case.flags() is None:
                continue
            if time.monotonic() > until:
                left += 1
                continue
            print(case.name, flush=True)
            machine.measure(case)
    options.output.write_text(report(machine, left), encoding="utf-8")
    print(f"{options.output}: {summary(CASES, machine)}" + (f" {left} runs are left: start it again." if left else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
