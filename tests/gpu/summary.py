"""Tables of the figures that the stages of run.sh wrote: tokens per second, MFU, memory and plan, comparisons, failures.

usage: summary.py [--markdown] FOLDER…      folders that run.sh --results wrote, of one or several calls
  --markdown   rows for tests/bench/RESULTS.md instead, under its titles and columns
"""

import json
import re
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


def trained(figures):
    return [size for size in figures.get("sizes_on_one_gpu", []) if "tokens_per_second" in size]


def flags_of(figure):
    """The flags that tell trainings of one model apart."""
    return " ".join(f"--{name} {value}" for name, value in re.findall(r"--(attention\S*) (\S+)", figure["flags"]))


def trainings(figures):
    rows = [[f"{size['model']} {flags_of(size)}".strip(), size["microbatches"], number(size["tokens_per_second"]),
             size["tflops"], percent(size["mfu"]), percent(size["measured_mfu"]), gib(size["measured_bytes"]),
             gib(size["planned_bytes"]), size["start_seconds"]] for size in trained(figures)]
    show("trainings in bf16; TFLOP/s count all of T × T in attention",
         ["", "microbatches", "tokens/s", "TFLOP/s", "MFU", "of measured", "GiB", "GiB planned", "start s"], rows)
    compared = figures.get("compare_pytorch_gpu", [])
    whole = {case["case"] for case in compared}
    show("compared with PyTorch, in turns", ["", "tokens/s", "PyTorch", "padded", "ratio"],
         [[case["case"], number(case["ranvier_tokens_per_second"]), number(case["pytorch_tokens_per_second"]),
           number(case["pytorch_padded_tokens_per_second"]), case["ratio"]] for case in compared])
    show("single runs of comparisons that were cut off", ["", "tokens/s"],
         [[f"{run['case']}: {run['who']}", number(run["tokens_per_second"])]
          for run in figures.get("compare_pytorch_gpu_run", []) if run["case"] not in whole])
    show("other trainers", ["", "tokens/s"],
         [[other["program"], number(other["tokens_per_second"])] for other in figures.get("others", [])])


def left_out(figures):
    show("left out, as memory is too small", ["", ""],
         [[f"{run['model']} {flags_of(run)}".strip() if run["bench"] == "sizes_on_one_gpu" else
           f"{run['model']}, AdamW at {run['step_at']}", run["left_out"]]
          for bench in ("sizes_on_one_gpu", "optimizer_on_host_gpu") for run in figures.get(bench, [])
          if "left_out" in run])


def checks(figures):
    rows = []
    tests = figures.get("tests", [])
    for tool in dict.fromkeys(test["tool"] for test in tests):
        files = [test for test in tests if test["tool"] == tool]
        rows.append([tool or "alone", len(files), sum(test["status"] == 0 for test in files)])
    show("test files", ["", "done", "passed"], rows)
    show("losses of 50 steps compared with the cpu device", ["", "", "worst relative difference"],
         [[loss["who"], loss["precision"], f"{loss['worst_relative_difference']:.1e}"]
          for loss in figures.get("compare_losses", [])])


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


def stepped(figures):
    return [run for run in figures.get("optimizer_on_host_gpu", []) if "seconds" in run]


def placements(figures):
    show("where states are", ["", "seconds per step", "of the device's", "losses the same"],
         [[tier["placement"], tier["seconds"], tier["over_device"], tier.get("losses_same")]
          for tier in figures.get("tiers", [])])
    show("optimizer states on the host", ["", "tokens/s", "seconds per step", "without the optimizer", "GiB", "GiB planned"],
         [[f"{large['model']}, AdamW at {large['step_at']}", number(large["tokens_per_second"]), large["seconds"],
           large["seconds_without_optimizer"], gib(large["measured_bytes"]), gib(large["device_bytes"])]
          for large in stepped(figures)])
    show("ranks that share the GPU", ["", "seconds per step", "lost", "losses"],
         [["one rank", stages["seconds_one_rank"], None, None] for stages in figures.get("stages_on_one_gpu", [])] +
         [["two stages", stages["seconds_two_ranks"], percent(stages["lost"]),
           "the same in fp32" if stages["fp32_same"] else "DIFFERENT in fp32"]
          for stages in figures.get("stages_on_one_gpu", [])] +
         [[grid["grid"], grid["seconds_a_step"], None, f"differ by {grid['losses_differ_by']}"]
          for grid in figures.get("ranks_on_one_gpu", [])])


def failures(figures):
    rows = [[f"stage {stage['stage']}", OUTCOMES.get(stage["status"], f"status {stage['status']}")]
            for stage in figures.get("stage", []) if stage["status"] != 0]
    rows += [[f"{test['program']}: {test['file']}{' under ' + test['tool'] if test['tool'] else ''}",
              "no GPU" if test["status"] == 77 else f"status {test['status']}"]
             for test in figures.get("tests", []) if test["status"] != 0]
    rows += [[run["model"], run["failed"].splitlines()[-1][:110] if run["failed"] else "without a word"]
             for bench in ("sizes_on_one_gpu", "optimizer_on_host_gpu") for run in figures.get(bench, [])
             if "failed" in run]
    rows += [["cuDNN", "fails: attention was computed by our own kernels"]
             for check in figures.get("check", []) if check["attention"] == "ranvier"]
    rows += [[f"losses of {loss['who']}, {loss['precision']}", f"differ by {loss['worst_relative_difference']:.1e}"]
             for loss in figures.get("compare_losses", []) if not loss["within"]]
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


def markdown(figures):
    """Every table of RESULTS.md that has rows: title, columns, rows."""
    check = figures.get("check", [{}])[-1]
    where = [check.get("gpu"), check.get("commit")]

    def table(title, columns, rows):
        if not rows:
            return
        columns = [*columns, "GPU", "commit"]
        print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for row in rows:
            print(f"| {' | '.join('–' if cell in (None, '') else str(cell) for cell in [*row, *where])} |")

    table("Training: `sizes_on_one_gpu.py`",
          ["model", "flags", "microbatches", "tokens/s", "share of 989 TFLOP/s", "share of the measured rate", "memory, GiB",
           "plan, GiB"],
          [[size["model"], flags_of(size), size["microbatches"], number(size["tokens_per_second"]), percent(size["mfu"]),
            percent(size["measured_mfu"]), gib(size["measured_bytes"]), gib(size["planned_bytes"])]
           for size in trained(figures)])
    table("PyTorch: `compare_pytorch_gpu.py`",
          ["case", "tokens/s", "PyTorch, tokens/s", "PyTorch with a padded vocabulary", "ratio to the faster one"],
          [[case["case"], number(case["ranvier_tokens_per_second"]), number(case["pytorch_tokens_per_second"]),
            number(case["pytorch_padded_tokens_per_second"]), case["ratio"]]
           for case in figures.get("compare_pytorch_gpu", [])])
    table("Optimizer states on the host: `optimizer_on_host_gpu.py`",
          ["model", "AdamW at", "tokens per step", "tokens/s", "seconds per step", "without the optimizer", "memory, GiB",
           "plan, GiB"],
          [[run["model"], run["step_at"], number(run["tokens_per_step"]), number(run["tokens_per_second"]), run["seconds"],
            run["seconds_without_optimizer"], gib(run["measured_bytes"]), gib(run["device_bytes"])]
           for run in stepped(figures)])
    table("Operations: `ops_bench cuda`",
          ["model", "operation", "dtype", "µs", "share of a copy", "share of a product", "share with all of T × T"],
          [[one["model"], one["operation"], one["dtype"], one["us"], percent(one.get("share_of_copy")),
            percent(one.get("share_of_matmul")), percent(one.get("share_whole"))]
           for one in figures.get("operation", [])])


def main():
    folders = [argument for argument in sys.argv[1:] if argument != "--markdown"]
    if not folders or folders[0].startswith("-"):
        sys.exit("usage: summary.py [--markdown] FOLDER…      folders that run.sh --results wrote")
    figures = read(folders)
    if "--markdown" in sys.argv:
        return markdown(figures)
    for check in figures.get("check", []):
        print(f"{check['gpu']}, {check['free_mib'] / 1024:.1f} of {check['total_mib'] / 1024:.1f} GiB free, commit "
              f"{check['commit'] or 'unknown'}, attention by {check['attention']}")
    for part in (stages, checks, ceilings, trainings, left_out, operations, placements, failures):
        part(figures)


if __name__ == "__main__":
    main()
