#!/usr/bin/env python3
"""Tables and a plot of how long pipelines idle under each policy, by schedules_bench in virtual time.

    schedules.py build/release/tests/bench/schedules_bench [--output FOLDER] [--imbalance 0,0.25,0.5]
                 [--jitter 0,0.1,0.3,0.5] [--seeds 10] [--chunks 2,4]

Writes FOLDER/schedules.md and FOLDER/schedules.svg (default: beside this script), and prints the summary.
"""

import argparse
import json
import pathlib
import subprocess

COLOURS = {"zero-bubble": "#0072b2", "zb-h1": "#56b4e9", "message-driven": "#d55e00", "1f1b": "#e69f00",
           "gpipe": "#999999"}
STATIC = ("zb-h1", "1f1b", "gpipe")
ROOM = 44  # around a panel, for its words
WIDTH, HEIGHT = 240, 130
LOWEST = 0.75  # share at the bottom of a panel


def measure(arguments):
    cases = []
    for imbalance in arguments.imbalance:
        for jitter in arguments.jitter:
            words = [arguments.program, str(imbalance), str(jitter), str(arguments.seeds)]
            lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
            cases += [json.loads(line) for line in lines]
    return cases


def disturbance(case):
    return case["imbalance"], case["jitter"]


def pipeline(case):
    return case["stages"], case["microbatches"]


def select(cases, key, value):
    return [case for case in cases if key(case) == value]


def percent(share, digits=1):
    return f"{100 * share:.{digits}f} %"


def bubbles(cases, policies):
    """Of stages that are alike and do not jitter; beside them what the formulas of ZB-H1 and 1F1B say."""
    rows = ["| stages | microbatches | " + " | ".join(policies) + " | (p - 1) / 3m | (p - 1) / m |",
            "|" + "---|" * (len(policies) + 4)]
    for stages, microbatches in dict.fromkeys(map(pipeline, cases)):
        of = {case["policy"]: case for case in select(cases, pipeline, (stages, microbatches))}
        cells = [percent(of[policy]["bubble"], 2) for policy in policies]
        cells += [percent(of[policy]["formula"], 2) for policy in ("zb-h1", "1f1b")]
        rows.append(f"| {stages} | {microbatches} | " + " | ".join(cells) + " |")
    return rows


def measure_chunks(arguments):
    cases = []
    for jitter in arguments.jitter:
        for chunks in arguments.chunks:
            words = [arguments.program, "0", str(jitter), str(arguments.seeds), str(chunks)]
            lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
            cases += [json.loads(line) for line in lines]
    return cases


def chunk_bubbles(cases):
    """Of ranks with several slices of the model; beside them what interleaved 1F1B's formula says without jitter."""
    policies = list(dict.fromkeys(case["policy"] for case in cases))
    rows = ["| chunks | stages | microbatches | jitter | " + " | ".join(policies) + " | 2 (p - 1) / 3vm |",
            "|" + "---|" * (len(policies) + 5)]

    def place(case):
        return case["chunks"], case["stages"], case["microbatches"], case["jitter"]

    for each in sorted(set(map(place, cases))):
        of = {case["policy"]: case for case in select(cases, place, each)}
        cells = [percent(of[policy]["bubble"], 2) for policy in policies] + [percent(of["1f1b"]["formula"], 2)]
        chunks, stages, microbatches, jitter = each
        rows.append(f"| {chunks} | {stages} | {microbatches} | {percent(jitter, 0)} | " + " | ".join(cells) + " |")
    return rows


def behind(cases):
    """How much longer zero-bubble takes than the best policy of a fixed order; below 0: it is faster."""
    of = {case["policy"]: case["share"] for case in cases}
    return max(of[policy] for policy in STATIC) / of["zero-bubble"] - 1


def summary(cases, policies):
    rows = ["| imbalance | jitter | " + " | ".join(policies) +
            " | zero-bubble, of what none can beat | behind the best fixed order: most | on average |",
            "|" + "---|" * (len(policies) + 5)]
    for imbalance, jitter in dict.fromkeys(map(disturbance, cases)):
        of = select(cases, disturbance, (imbalance, jitter))
        least = [min(case["share"] for case in of if case["policy"] == policy) for policy in policies]
        bound = min(case["least_share"] for case in of if case["policy"] == "zero-bubble")
        late = [behind(select(of, pipeline, each)) for each in dict.fromkeys(map(pipeline, of))]
        cells = [percent(share) for share in least + [bound]]
        cells += [percent(max(late), 2), percent(sum(late) / len(late), 2)]
        rows.append(f"| {percent(imbalance, 0)} | {percent(jitter, 0)} | " + " | ".join(cells) + " |")
    return rows


def all_shares(cases, policies):
    rows = ["| imbalance | jitter | stages | microbatches | " + " | ".join(policies) + " |",
            "|" + "---|" * (len(policies) + 4)]
    for imbalance, jitter in dict.fromkeys(map(disturbance, cases)):
        for stages, microbatches in dict.fromkeys(map(pipeline, cases)):
            of = {case["policy"]: case["share"]
                  for case in select(select(cases, disturbance, (imbalance, jitter)), pipeline, (stages, microbatches))}
            shares = " | ".join(percent(of[policy]) for policy in policies)
            rows.append(f"| {percent(imbalance, 0)} | {percent(jitter, 0)} | {stages} | {microbatches} | {shares} |")
    return rows


def panel(cases, policies, title, left, top, labels):
    """Shares of the clairvoyant throughput, by pipeline."""
    pipelines = list(dict.fromkeys(map(pipeline, cases)))

    def place(number, share):
        x = left + WIDTH * (number + 0.5) / len(pipelines)
        return x, top + HEIGHT * (1 - max(share - LOWEST, 0) / (1 - LOWEST))

    parts = [f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#cccccc"/>',
             f'<text x="{left + WIDTH / 2}" y="{top - 6}" text-anchor="middle">{title}</text>']
    _, y = place(0, 0.9)
    parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eeeeee"/>')
    for policy in policies:
        shares = [case["share"] for case in cases if case["policy"] == policy]
        points = " ".join("{:.1f},{:.1f}".format(*place(*each)) for each in enumerate(shares))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[policy]}" stroke-width="2"/>')
    for number, (stages, microbatches) in enumerate(pipelines if labels else []):
        x, _ = place(number, 1)
        for line, word in enumerate((stages, microbatches)):
            parts.append(f'<text x="{x:.1f}" y="{top + HEIGHT + 14 + 13 * line}" text-anchor="middle" '
                         f'font-size="10">{word}</text>')
    return parts


def plot(cases, policies):
    imbalances = list(dict.fromkeys(case["imbalance"] for case in cases))
    jitters = list(dict.fromkeys(case["jitter"] for case in cases))
    width, height = ROOM + len(jitters) * (WIDTH + 14), len(imbalances) * (HEIGHT + 30) + 3 * ROOM
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{width / 2}" y="18" text-anchor="middle">throughput, as a share of that of a schedule that '
             'knows all durations</text>']
    for row, imbalance in enumerate(imbalances):
        top = ROOM + row * (HEIGHT + 30)
        for share in (LOWEST, 0.9, 1):
            y = top + HEIGHT * (1 - (share - LOWEST) / (1 - LOWEST)) + 4
            parts.append(f'<text x="{ROOM - 6}" y="{y:.1f}" text-anchor="end" font-size="10">'
                         f'{percent(share, 0)}</text>')
        for column, jitter in enumerate(jitters):
            title = f"stages differ by {percent(imbalance, 0)}, work jitters by {percent(jitter, 0)}"
            parts += panel(select(cases, disturbance, (imbalance, jitter)), policies, title,
                           ROOM + column * (WIDTH + 14), top, row + 1 == len(imbalances))
    x, y = ROOM, height - ROOM / 2
    parts.append(f'<text x="{width / 2}" y="{y - 16}" text-anchor="middle">stages, and microbatches below them</text>')
    for policy in policies:
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" stroke="{COLOURS[policy]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 30}" y="{y + 4}">{policy}</text>')
        x += 150
    return "\n".join(parts + ["</svg>", ""])


def numbers(text):
    return [float(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--imbalance", type=numbers, default=[0, 0.25, 0.5])
    parser.add_argument("--jitter", type=numbers, default=[0, 0.1, 0.3, 0.5])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--chunks", type=lambda text: list(map(int, text.split(","))), default=[2, 4])
    arguments = parser.parse_args()
    cases = measure(arguments)
    policies = list(dict.fromkeys(case["policy"] for case in cases))
    least = summary(cases, policies)
    undisturbed = select(cases, disturbance, (0, 0))
    text = ["# Pipelines under each policy", "",
            "In virtual time, by `schedules.py`. Stages take the same for forward passes, input gradients and weight",
            "gradients; *imbalance* draws how long each stage takes from so much less to so much more, *jitter* is the",
            "lognormal deviation of each piece of work. All policies have as many slots as stages. `zero-bubble` is",
            "also `message-driven` with `--defer-weights`.", "",
            f"## Least share of the clairvoyant throughput, means over {arguments.seeds} seeds", "",
            "Of 2, 4, 8 and 16 stages with as many microbatches, twice and four times as many. The clairvoyant",
            "schedule is the best that list scheduling finds with all durations known; what none can beat is a bound.",
            "", *least, ""]
    if undisturbed:
        text += ["## Idle time over computing, undisturbed", "", *bubbles(undisturbed, policies), ""]
    text += ["## Idle time over computing, with several chunks per rank", "",
             "Stages are even. Input gradients leave before weight gradients are computed: 1F1B idles for two thirds of",
             "(p - 1) / m, and interleaved 1F1B for so many times less as there are chunks.", "",
             *chunk_bubbles(measure_chunks(arguments)), ""]
    text += ["## All shares", "", *all_shares(cases, policies), ""]
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "schedules.md").write_text("\n".join(text))
    (arguments.output / "schedules.svg").write_text(plot(cases, policies))
    print("\n".join(least))


if __name__ == "__main__":
    main()
