#!/usr/bin/env python3
"""A table and a plot of how long pipelines idle under each policy, by schedules_bench in virtual time.

    schedules.py build/release/tests/bench/schedules_bench [--output FOLDER] [--imbalance 0.3] [--jitter 0.2] [--seeds 5]

Writes FOLDER/schedules.md and FOLDER/schedules.svg (default: schedules/), and prints the table.
"""

import argparse
import json
import pathlib
import subprocess

COLOURS = {"zero-bubble": "#0072b2", "zb-h1": "#56b4e9", "message-driven": "#d55e00", "1f1b": "#e69f00",
           "gpipe": "#999999"}
ROOM = 48  # around a panel, for its words
WIDTH, HEIGHT = 230, 170


def measure(arguments):
    words = [arguments.program, str(arguments.imbalance), str(arguments.jitter), str(arguments.seeds)]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def table(cases, policies):
    """Bubbles in percent; beside zero-bubble and 1f1b what their formulas say."""
    rows = ["| stages | microbatches | " + " | ".join(policies) + " | (p - 1) / 3m | (p - 1) / m |",
            "|" + "---|" * (len(policies) + 4)]
    for stages, microbatches in dict.fromkeys((c["stages"], c["microbatches"]) for c in cases):
        of = {c["policy"]: c for c in cases if (c["stages"], c["microbatches"]) == (stages, microbatches)}
        bubbles = [f"{100 * of[policy]['bubble']:.2f} %" for policy in policies]
        formulas = [f"{100 * of[policy]['formula']:.2f} %" for policy in ("zb-h1", "1f1b")]
        rows.append(f"| {stages} | {microbatches} | " + " | ".join(bubbles + formulas) + " |")
    return "\n".join(rows) + "\n"


def panel(cases, policies, stages, left, highest):
    """Bubbles of pipelines of so many stages by their microbatches."""
    counts = sorted({c["microbatches"] for c in cases if c["stages"] == stages})

    def place(microbatches, bubble):
        x = left + WIDTH * counts.index(microbatches) / max(len(counts) - 1, 1)
        return x, ROOM + HEIGHT * (1 - bubble / highest)

    parts = [f'<rect x="{left}" y="{ROOM}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#cccccc"/>',
             f'<text x="{left + WIDTH / 2}" y="{ROOM - 10}" text-anchor="middle">{stages} stages</text>']
    for count in counts:
        x, y = place(count, 0)
        parts.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{count}</text>')
    for policy in policies:
        of = [c for c in cases if c["stages"] == stages and c["policy"] == policy]
        points = " ".join("{:.1f},{:.1f}".format(*place(c["microbatches"], c["bubble"])) for c in of)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[policy]}" stroke-width="2"/>')
    formula = [c for c in cases if c["stages"] == stages and c["policy"] == "zb-h1"]
    for case in formula:
        x, y = place(case["microbatches"], case["formula"])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="black"/>')
    return parts


def plot(cases, policies):
    stages = sorted({c["stages"] for c in cases})
    highest = 1.05 * max(c["bubble"] for c in cases)
    width = ROOM + len(stages) * (WIDTH + ROOM)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + 3 * ROOM}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for number, count in enumerate(stages):
        parts += panel(cases, policies, count, ROOM + number * (WIDTH + ROOM), highest)
    for step in range(5):
        bubble = highest * step / 4
        y = ROOM + HEIGHT * (1 - step / 4)
        parts.append(f'<text x="{ROOM - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * bubble:.0f} %</text>')
    x, y = ROOM, HEIGHT + 2 * ROOM
    parts.append(f'<text x="{width / 2}" y="{y}" text-anchor="middle">microbatches; idle time over computing</text>')
    for policy in policies:
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="{y + 24}" y2="{y + 24}" stroke="{COLOURS[policy]}" '
                     'stroke-width="2"/>')
        parts.append(f'<text x="{x + 30}" y="{y + 28}">{policy}</text>')
        x += 150
    parts.append(f'<circle cx="{x + 12}" cy="{y + 24}" r="4" fill="none" stroke="black"/>')
    parts.append(f'<text x="{x + 30}" y="{y + 28}">(p - 1) / 3m</text>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("schedules"))
    parser.add_argument("--imbalance", type=float, default=0)
    parser.add_argument("--jitter", type=float, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    cases = measure(arguments)
    policies = list(dict.fromkeys(c["policy"] for c in cases))
    text = table(cases, policies)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "schedules.md").write_text(text)
    (arguments.output / "schedules.svg").write_text(plot(cases, policies))
    print(text, end="")


if __name__ == "__main__":
    main()
