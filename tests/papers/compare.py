#!/usr/bin/env python3
"""Predicts the papers' measurements, and compares the predictions with their figures.

usage: tests/papers/compare.py [--build build/release] [--only REGEX] [--quick] [--jobs N] [--cpu-seconds N]
                               [--markdown FILE]
exit code 1: a row could not be predicted, or none was chosen

Each line of the tables is a result that a paper's text states (Myelin, MiCS, PaRO, ZeRO-Infinity), the flags of
ranvier-plan that set up the same training, and what the prediction says. Profiles are those that ship with the program:
nothing in them is fitted to a paper. Rows that say "at" a rate have that of the paper's own text instead, or one
efficiency of products, which a figure of the same paper sets. Systems that Ranvier does not imitate (tensor parallelism
of Megatron-LM, 3-D DeepSpeed) are left out; ZeRO-1, 2 and 3 are Ranvier's own, which overlap collectives with
computing. Rows "without overlap" have them one after the other.
"""

import argparse
import concurrent.futures
import os
import re
import sys

from papers import PAPERS
from predictions import TOP, Planner, Result, fits


def text_of(value: float | bool | None, unit: str) -> str:
    if value is None:
        return "does not fit"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}{unit}"


def verdict(result: Result, value: float | bool | None) -> str:
    if value is None:
        return "–"
    if isinstance(result.says, bool):
        return "same" if value == result.says else "**other**"
    low, high = min(result.says), max(result.says)
    if low <= value <= high:
        return "within"
    nearest = low if value < low else high
    return f"{100 * (value / nearest - 1):+.0f} %"


def evaluate(planner: Planner, result: Result) -> tuple[float | bool | None, str]:
    """The figure (none: it does not fit), and an error message, if there was an error."""
    try:
        more = " --no-simulation" if result.of is fits else ""  # memory is in the plan
        predictions = [planner.predict(flags + more) for flags in result.flags]
        if result.of is not fits and not all(predictions):
            return None, ""
        return result.of(*predictions), ""
    except RuntimeError as error:
        return None, f"{error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(TOP, "build/release"), help="folder of a build with tests")
    parser.add_argument("--only", default="", help="regular expression over names and descriptions")
    parser.add_argument("--quick", action="store_true", help="skip rows that take minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--cpu-seconds", type=int, default=600, help="maximum CPU seconds per prediction")
    parser.add_argument("--markdown", help="also write the tables to this file")
    options = parser.parse_args()
    planner = Planner(options.build, options.cpu_seconds)
    out = []
    failed = []

    def say(line: str = "") -> None:
        print(line, flush=True)
        out.append(line)

    for paper, results in PAPERS.items():
        chosen = [r for r in results if re.search(options.only, f"{paper} {r.name} {r.what}")
                  and not (options.quick and r.heavy)]
        if not chosen:
            continue
        say(f"## {paper}\n")
        say("| | what | the paper | predicted | difference |")
        say("|-|-|-|-|-|")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for result, (value, error) in zip(chosen, pool.map(lambda r: evaluate(planner, r), chosen)):
                says = (text_of(result.says, "") if isinstance(result.says, bool)
                        else " to ".join(text_of(s, result.unit) for s in dict.fromkeys(result.says)))
                found = (error.strip().splitlines() or [text_of(value, result.unit)])[-1]
                if error:
                    failed.append(f"{paper}, {result.name}, {result.what}: {error}")
                say(f"| {result.name} | {result.what} | {says} | {found} | {verdict(result, value)} |")
        say()
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(out))
    for why in failed:
        print(why, file=sys.stderr)
    if not out:
        print(f"no row matches --only {options.only}", file=sys.stderr)
    planner.close()
    return 1 if failed or not out else 0


if __name__ == "__main__":
    sys.exit(main())
