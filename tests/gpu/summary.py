"""What the stages of run.sh found, as tables: tokens per second beside others', shares of the measured matrix rate,
memory beside the plan, and what failed.

usage: summary.py FOLDER…      what run.sh --results wrote, of one or several calls
"""

import json
import sys
from pathlib import Path

OUTCOMES = {0: "done", 124: "ended by its limit", 137: "killed at its limit", None: "not begun: --budget was spent"}


def read(folders):
    """All figures of the folders, by what measured them."""
    figures = {}
    for folder in folders:
        path = Path(folder) / "figures.jsonl"
        if not path.exists():
            sys.exit(f"summary.py: {path} is not there: name a folder that run.sh --results wrote")
        for line in path.read_text().splitlines():
            try:
                figure = json.loads(line)
            except ValueError:
                continue  # cut off where a call ended
            figures.setdefault(figure.get("bench"), []).append(figure)
    return figures


def show(title, header, rows):
    rows = [["–" if cell is None else str(cell) for cell in row] for row in rows]
    if not rows:
        return
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    print(f"\n{title}")
    for row in [header, *rows] if any(header) else rows:
        print("  " + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def number(value, pattern="{:,.0f}"):
    return None if value is None else pattern.format(value)


def percent(value):
    return number(value, "{:.1%}")


def gib(value):
    return None if value is None else f"{value / 2**30:.1f}"


def stages(figures):
    rows = [[stage["stage"], stage["seconds"], stage.get("limit"),
             OUTCOMES.get(stage["status"], f"failed ({stage['status']})")] for stage in figures.get("stage", [])]
    show("stages", ["", "seconds", "limit", ""], rows)


def ceilings(figures):
    rows = []
    for ceiling in figures.get("ceiling", []):
        if ceiling["operation"] == "copy":
            rows.append([f"copy, {ceiling['device']}", f"{ceiling['gbytes_per_second']:,} GB/s"])
        else:
            rows.append([f"product of 8192³, {ceiling['dtype']}", f"{ceiling['tflops']} TFLOP/s"])
    show("what this GPU reaches on random values", ["", ""], rows)


def trainings(figures):
    compared = {case["case"]: case for case in figures.get("compare_pytorch_gpu", [])}
    rows = []
    for size in figures.get("sizes_on_one_gpu", []):
        beside = compared.get(f"{size['model']}-bf16", {})
        if "failed" in size:
            rows.append([size["model"], "failed"] + [None] * 8)
            continue
        rows.append([size["model"], number(size["tokens_per_second"]), size["tflops"], percent(size["mfu"]),
                     gib(size["planned_bytes"]), gib(size["measured_bytes"]), size["start_seconds"],
                     number(beside.get("pytorch_tokens_per_second")),
                     number(beside.get("pytorch_padded_tokens_per_second")), beside.get("ratio")])
    show("trainings in bf16; TFLOP/s and shares of the measured matrix rate count all of T × T in attention",
         ["", "tokens/s", "TFLOP/s", "share", "GiB planned", "measured", "start s", "PyTorch tokens/s", "padded", "ratio"],
         rows)
    rows = [[case["case"], number(case["ranvier_tokens_per_second"]), number(case["pytorch_tokens_per_second"]),
             number(case["pytorch_padded_tokens_per_second"]), case["ratio"]] for case in compared.values()]
    show("beside PyTorch, in turns", ["", "tokens/s", "PyTorch", "padded", "ratio"], rows)
    show("other trainers", ["", "tokens/s"],
         [[other["program"], number(other["tokens_per_second"])] for other in figures.get("others", [])])


def operations(figures):
    rows = []
    for operation in figures.get("operation", []):
        share = operation.get("share_of_matmul", operation.get("share_of_copy"))
        if operation["dtype"] == "bf16":
            rows.append([f"{operation['model']}: {operation['operation']}", operation["us"], percent(share),
                         percent(operation.get("share_whole")), share])
    attention = [row[:4] for row in rows if "attention_" in row[0]]
    show("attention in bf16, as shares of the matrix rate", ["", "µs", "causal half", "whole"], attention)
    # Copies from and to the host are held back by what lies between, not by the GPU's memory.
    others = sorted((row for row in rows if "attention_" not in row[0] and "pinned" not in row[0]),
                    key=lambda row: row[4])
    show("operations in bf16 that are furthest from their limit", ["", "µs", "share"], [row[:3] for row in others[:12]])
    show("what would shorten a step most, at its limit", ["", "share of the step", "of its limit", "shorter by"],
         [[f"{kernel['model']}: {kernel['operation']}", percent(kernel["share"]), percent(kernel["of_ceiling"]),
           percent(kernel["held_back"])]
          for kernel in sorted((kernel for kernel in figures.get("kernels_gpu", []) if "held_back" in kernel),
                               key=lambda kernel: -kernel["held_back"])[:8]])
    show("kernels of one step under ncu", ["", "calls", "µs", "share", "GB/s", "SM"],
         [[kernel["kernel"][:70], kernel["calls"], kernel["us"], percent(kernel["share"]), kernel["gbytes_per_second"],
           percent(kernel["sm_share"])] for kernel in figures.get("step_under_ncu", []) if "kernel" in kernel][:15])


def placements(figures):
    show("where states are", ["", "seconds a step", "beside the device", "losses the same"],
         [[tier["placement"], tier["seconds"], tier["over_device"], tier.get("losses_same")]
          for tier in figures.get("tiers", [])])
    show("states of 7 B on the host", ["", "seconds a step", "without the optimizer", "GiB planned", "measured"],
         [[f"{large['tokens_a_step']} tokens", large["seconds"], large["seconds_without_optimizer"],
           gib(large["device_bytes"]), gib(large["measured_bytes"])]
          for large in figures.get("optimizer_on_host_gpu", [])])
    show("ranks that share the GPU", ["", "seconds a step", "lost", "losses"],
         [["one rank", stages["seconds_one_rank"], None, None] for stages in figures.get("stages_on_one_gpu", [])] +
         [["two stages", stages["seconds_two_ranks"], percent(stages["lost"]),
           "the same in fp32" if stages["fp32_same"] else "DIFFERENT in fp32"]
          for stages in figures.get("stages_on_one_gpu", [])] +
         [[grid["grid"], grid["seconds_a_step"], None, f"differ by {grid['losses_differ_by']}"]
          for grid in figures.get("ranks_on_one_gpu", [])])


def failures(figures):
    rows = [[f"stage {stage['stage']}", OUTCOMES.get(stage["status"], f"status {stage['status']}")]
            for stage in figures.get("stage", []) if stage["status"] != 0]
    rows += [[f"{test['program']}{'' if test['tool'] == 'none' else ' under ' + test['tool']}",
              "no GPU" if test["status"] == 77 else f"status {test['status']}"]
             for test in figures.get("tests", []) if test["status"] != 0]
    rows += [[size["model"], size["failed"].splitlines()[-1][:110] if size["failed"] else "without a word"]
             for size in figures.get("sizes_on_one_gpu", []) if "failed" in size]
    rows += [[case["case"], f"{who} has no figure"] for case in figures.get("compare_pytorch_gpu", [])
             for who, key in (("ranvier-train", "ranvier_tokens_per_second"), ("PyTorch", "ratio")) if case[key] is None]
    rows += [[f"other trainer {other['program']}", f"status {other['status']}"]
             for other in figures.get("others", []) if other["status"] != 0]
    rows += [[f"fault: {fault['flags']}", f"not '{fault['expected']}'"] for fault in figures.get("faults", [])
             if not fault["as_expected"]]
    rows += [[f"losses with {tier['placement']}", "differ from those on the device"] for tier in figures.get("tiers", [])
             if tier.get("losses_same") is False]
    show("failed", ["", ""], rows)
    if not rows:
        print("\nnothing failed")


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: summary.py FOLDER…      what run.sh --results wrote")
    figures = read(sys.argv[1:])
    for check in figures.get("check", []):
        print(f"{check['gpu']}, attention by {check['attention']}")
    for part in (stages, ceilings, trainings, operations, placements, failures):
        part(figures)


if __name__ == "__main__":
    main()
