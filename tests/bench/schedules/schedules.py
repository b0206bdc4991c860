#!/usr/bin/env python3
"""Tables and a plot of pipelines' idle time under each policy, from schedules_bench in virtual time.

    schedules.py build/release/tests/bench/schedules_bench [--output FOLDER] [--imbalance 0,0.25,0.5]
                 [--jitter 0,0.1,0.3,0.5] [--seeds 10] [--chunks 1,2,4] [--cases FILE]

Writes FOLDER/schedules.md and FOLDER/schedules.svg (default: next to this script), and prints the summary. --cases FILE
keeps results, one JSON line per case, and skips the cases that it has.
"""

import argparse
import json
import pathlib
import subprocess

COLOURS = {"zero-bubble": "#0072b2", "zb-h1": "#56b4e9", "message-driven": "#d55e00", "1f1b": "#e69f00",
           "gpipe": "#999999"}
STATIC = ("zb-h1", "1f1b", "gpipe")
ROOM = 44  # margin of a panel, for labels
WIDTH, HEIGHT = 240, 130
LOWEST = 0.75  # share at the bottom of a panel


def measure(arguments):
    known = []
    if arguments.cases and arguments.cases.exists():
        known = [json.loads(line) for line in arguments.cases.read_text().splitlines()]
    cases = []
    for imbalance in arguments.imbalance:
        for jitter in arguments.jitter:
            for chunks in arguments.chunks:
                place = {"imbalance": imbalance, "jitter": jitter, "chunks": chunks, "seeds": arguments.seeds}
                of = [case for case in known if place.items() <= case.items()]
                if not of:
                    words = [arguments.program, str(imbalance), str(jitter), str(arguments.seeds), str(chunks)]
                    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
                    of = [json.loads(line) for line in text.splitlines()]
                    if arguments.cases:
                        with arguments.cases.open("a") as file:
                            file.write(text)
                cases += of
    return cases


def disturbance(case):
    return case["imbalance"], case["jitter"]


def chunks_of(case):
    return case["chunks"]


def pipeline(case):
    return case["stages"], case["microbatches"]


def select(cases, key, value):
    return [case for case in cases if key(case) == value]


def percent(share, digits=1):
    return f"{round(100 * share, digits) + 0.0:.{digits}f} %"


def named(policy, chunks):
    return policy if chunks == 1 else f"{policy}, {chunks} chunks"


def bubbles(cases):
    """Bubbles of equal stages without jitter, compared with the formulas of ZB-H1 and 1F1B."""
    policies = list(dict.fromkeys(case["policy"] for case in cases))
    rows = ["| chunks | stages | microbatches | slots | " + " | ".join(policies) +
            " | (p - 1) / 3vm | 2 (p - 1) / 3vm |", "|" + "---|" * (len(policies) + 6)]

    def place(case):
        return case["chunks"], *pipeline(case)

    for each in sorted(set(map(place, cases))):
        of = {case["policy"]: case for case in select(cases, place, each)}
        cells = [percent(of[policy]["bubble"], 2) if policy in of else "–" for policy in policies]
        cells += [percent(of[policy]["formula"], 2) for policy in ("zero-bubble", "1f1b")]
        slots = f'{of["zero-bubble"]["slots"]:g}'
        rows.append("| " + " | ".join([*map(str, each), slots, *cells]) + " |")
    return rows


def behind(cases):
    """Relative time that zero-bubble takes longer than the best fixed order, for one pipeline with any number of chunks;
    negative if it is faster. Both use at most the slots of the fixed order. Maximum over all numbers of slots."""

    def least(policies, slots):
        return min(case["seconds"] for case in cases if case["policy"] in policies and case["slots"] <= slots)

    levels = {case["slots"] for case in cases if case["policy"] in STATIC}
    room = min(case["slots"] for case in cases if case["policy"] == "zero-bubble")
    return max(least(("zero-bubble",), slots) / least(STATIC, slots) - 1 for slots in levels if slots >= room)


def summary(cases):
    policies = list(dict.fromkeys(case["policy"] for case in cases))
    rows = ["| imbalance | jitter | " + " | ".join(policies) +
            " | zero-bubble relative to the bound | slower than the best fixed order: largest | on average |",
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


def joined(cases):
    """Whatever number of chunks is the fastest with the slots that there are."""
    rows = ["| imbalance | jitter | slower than the best fixed order: largest | on average |", "|" + "---|" * 4]
    for imbalance, jitter in dict.fromkeys(map(disturbance, cases)):
        of = select(cases, disturbance, (imbalance, jitter))
        late = [behind(select(of, pipeline, each)) for each in dict.fromkeys(map(pipeline, of))]
        rows.append(f"| {percent(imbalance, 0)} | {percent(jitter, 0)} | {percent(max(late), 2)} | "
                    f"{percent(sum(late) / len(late), 2)} |")
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


def stroke(policy, chunks):
    dashes = "" if chunks == 1 else ' stroke-dasharray="5 3"'
    return f'stroke="{COLOURS[policy]}" stroke-width="2"{dashes}'


def panel(cases, lines, title, left, top, labels):
    """Shares of the clairvoyant throughput, per pipeline."""
    pipelines = list(dict.fromkeys(map(pipeline, cases)))

    def place(number, share):
        x = left + WIDTH * (number + 0.5) / len(pipelines)
        return x, top + HEIGHT * (1 - max(share - LOWEST, 0) / (1 - LOWEST))

    parts = [f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#cccccc"/>',
             f'<text x="{left + WIDTH / 2}" y="{top - 6}" text-anchor="middle">{title}</text>']
    _, y = place(0, 0.9)
    parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eeeeee"/>')
    for policy, chunks in lines:
        shares = [case["share"] for case in cases if (case["policy"], case["chunks"]) == (policy, chunks)]
        points = " ".join("{:.1f},{:.1f}".format(*place(*each)) for each in enumerate(shares))
        parts.append(f'<polyline points="{points}" fill="none" {stroke(policy, chunks)}/>')
    for number, (stages, microbatches) in enumerate(pipelines if labels else []):
        x, _ = place(number, 1)
        for line, word in enumerate((stages, microbatches)):
            parts.append(f'<text x="{x:.1f}" y="{top + HEIGHT + 14 + 13 * line}" text-anchor="middle" '
                         f'font-size="10">{word}</text>')
    return parts


def plot(cases, most_chunks):
    lines = list(dict.fromkeys((case["policy"], case["chunks"]) for case in cases
                               if case["chunks"] in (1, most_chunks)))
    imbalances = list(dict.fromkeys(case["imbalance"] for case in cases))
    jitters = list(dict.fromkeys(case["jitter"] for case in cases))
    width, height = ROOM + len(jitters) * (WIDTH + 14), len(imbalances) * (HEIGHT + 30) + 3 * ROOM + 20
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
            parts += panel(select(cases, disturbance, (imbalance, jitter)), lines, title,
                           ROOM + column * (WIDTH + 14), top, row + 1 == len(imbalances))
    x, y = ROOM, height - ROOM / 2 - 20
    parts.append(f'<text x="{width / 2}" y="{y - 16}" text-anchor="middle">stages, and microbatches below them</text>')
    for number, (policy, chunks) in enumerate(lines):
        if number > 0 and chunks != lines[number - 1][1]:
            x, y = ROOM, y + 20
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" {stroke(policy, chunks)}/>')
        parts.append(f'<text x="{x + 30}" y="{y + 4}">{named(policy, chunks)}</text>')
        x += 204
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
    parser.add_argument("--chunks", type=lambda text: list(map(int, text.split(","))), default=[1, 2, 4])
    parser.add_argument("--cases", type=pathlib.Path)
    arguments = parser.parse_args()
    cases = measure(arguments)
    whole = select(cases, chunks_of, 1)
    policies = list(dict.fromkeys(case["policy"] for case in whole))
    text = ["# Pipelines under each policy", "",
            "`schedules.py` computes these tables in virtual time. Forward passes, input gradients and weight",
            "gradients take equal time. With an *imbalance* of x, each rank's durations have a random factor",
            "from 1 − x to 1 + x. *Jitter* is the lognormal deviation of each operation. `zero-bubble` is also",
            "`message-driven` with `--defer-weights`. *Slots* are the most microbatches in flight on a rank; a",
            "slot of one of v chunks counts 1/v.", "",
            f"## Least share of the clairvoyant throughput, means over {arguments.seeds} seeds", "",
            "Pipelines have 2, 4, 8 and 16 stages, and once, twice or four times as many microbatches. The",
            "clairvoyant schedule is the best one that list scheduling finds if all durations are known, for",
            "the same number of chunks. The bound is a throughput that no schedule can exceed. Fixed orders are",
            "1F1B, GPipe and ZB-H1. The last two columns show how much longer `zero-bubble` takes than the best",
            "of them, with no more slots than that order needs.", ""]
    least = []
    for chunks in arguments.chunks:
        table = summary(select(cases, chunks_of, chunks))
        least += table
        text += [f"### {'One model chunk per rank' if chunks == 1 else f'{chunks} chunks per rank'}", "", *table, ""]
    table = joined(cases)
    least += table
    text += ["### The best number of chunks", "",
             "Both sides use the fastest number of chunks that the slots permit.", "", *table, ""]
    undisturbed = select(cases, disturbance, (0, 0))
    if undisturbed:
        text += ["## Idle time over computing, undisturbed", "",
                 "Input gradients are sent before weight gradients are computed. Divided by its computing time,",
                 "the idle time of 1F1B is 2 (p - 1) / 3m with p stages and m microbatches. With v chunks per rank,",
                 "it is 2 (p - 1) / 3vm. Deferred weight gradients halve it.", "",
                 *bubbles(undisturbed), ""]
    text += ["## All shares, one model chunk per rank", "", *all_shares(whole, policies), ""]
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "schedules.md").write_text("\n".join(text))
    (arguments.output / "schedules.svg").write_text(plot(cases, max(arguments.chunks)))
    print("\n".join(least))


if __name__ == "__main__":
    main()
