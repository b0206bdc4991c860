"""Runs of ranvier-train on one GPU, for the scripts of this folder: models, tokens, a run and its figures."""

import json
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import figures


@dataclass(frozen=True)
class Model:
    """Sizes of a model; `batch`: samples per microbatch."""
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    length: int
    batch: int
    flags: tuple = ()  # more flags of ranvier-train

    @property
    def tokens(self):
        """Tokens per microbatch."""
        return self.batch * self.length

    @property
    def parameters(self):
        return (self.layers * (12 * self.hidden**2 + 13 * self.hidden) +
                (self.vocabulary + self.length + 2) * self.hidden)

    @property
    def flops_per_token(self):
        """6 per parameter, and attention over all of T x T, as usual."""
        return 6 * self.parameters + 12 * self.layers * self.hidden * self.length


MODELS = {
    "gpt2-small": Model(12, 768, 12, 50257, 1024, 32),
    "774M": Model(36, 1280, 20, 50257, 1024, 16),
    "1.5B": Model(48, 1600, 25, 50257, 1024, 16),
    "1.3B": Model(24, 2048, 16, 50257, 2048, 4),
    "3B": Model(30, 2816, 22, 50257, 1024, 8, ("--gradient-dtype", "half")),
    # 16 bytes per parameter: 122 GiB are planned, of 139 of a large GPU.
    "7B": Model(32, 4096, 32, 50257, 1024, 8, ("--gradient-dtype", "half")),
    # For tests of scripts.
    "tiny": Model(2, 64, 2, 250, 32, 2),
}


def parse_model(text):
    """LAYERS,HIDDEN,HEADS,VOCABULARY,LENGTH,BATCH"""
    return Model(*map(int, text.split(",")))


def memory_bytes(kind, gpu=0):
    """The GPU's `used`, `free` or `total` memory as nvidia-smi prints it, or None."""
    try:
        done = subprocess.run(["nvidia-smi", "-i", str(gpu), f"--query-gpu=memory.{kind}",
                               "--format=csv,noheader,nounits"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return int(done.stdout) << 20
    except (OSError, ValueError):
        return None


def gpu_number(device):
    """1 for cuda:1."""
    return int(device.partition(":")[2] or 0)


def write_tokens(model, path, steps=16):
    if path.exists():
        return
    count = steps * model.tokens + 1
    draw = random.Random(1)
    path.write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) +
                     struct.pack(f"<{count}H", *(draw.randrange(model.vocabulary) for _ in range(count))))


def environment():
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def command_of(trainer, model, folder, microbatches=1, **flags):
    """Command of a run in bf16 with this number of microbatches per step; `flags` adds or replaces flags."""
    tokens = folder / f"{model.vocabulary}x{model.tokens}.bin"
    write_tokens(model, tokens)
    flags = {
        "data": tokens, "tokenizer": "none", "layers": model.layers, "hidden": model.hidden, "heads": model.heads,
        "vocab-size": model.vocabulary, "sequence-length": model.length, "batch-size": model.batch * microbatches,
        "microbatch-size": model.batch, "precision": "bf16", "device": "cuda:0",
    } | {name.replace("_", "-"): value for name, value in flags.items()}
    command = [str(trainer)]
    for name, value in flags.items():
        command += [f"--{name}", str(value)]
    return command + list(model.flags)


@dataclass
class Outcome:
    lines: list  # steps of --metrics
    log: str
    status: int
    seconds: float  # duration of the program
    used_bytes: int | None  # peak of nvidia-smi's used memory above its value before, including the driver's context

    def steady(self, key, skip=2):
        """Median of `key` over all steps but the first `skip`, if there are more; None if it is null in every step."""
        values = [line[key] for line in self.lines if line[key] is not None]
        return statistics.median(values[skip:] or values) if values else None

    @property
    def device_bytes(self):
        """Planned bytes on the device."""
        return figures.sum_of(self.lines[0]["memory"], ["device"], "metrics")


@dataclass
class Watch:
    """Peak of a GPU's used memory while the block runs."""
    gpu: int = 0
    most: int = 0
    before: int | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self):
        self.before = memory_bytes("used", self.gpu)
        self.thread = threading.Thread(target=self.look)
        if self.before is not None:
            self.thread.start()
        return self

    def look(self):
        while not self.ended.wait(0.3):
            self.most = max(self.most, memory_bytes("used", self.gpu) or 0)

    def __exit__(self, *_):
        self.ended.set()
        if self.before is not None:
            self.thread.join()

    @property
    def above(self):
        return None if self.before is None or not self.most else self.most - self.before


STOPPED = 75  # exit status of a run that was asked to stop (runtime/base/error.hpp)
DOES_NOT_FIT = 1  # exit status of --dry-run
RESERVE_MIB = 1024  # memory that the trainer leaves to the driver and to libraries (runtime/device/cuda_build.hpp)


def reason_to_leave_out(trainer, model, folder, more=(), **flags):
    """Why a run does not fit into the free memory, according to --dry-run; None if it fits."""
    command = command_of(trainer, model, folder, **flags) + list(more)
    free = memory_bytes("free", gpu_number(command[command.index("--device") + 1]))
    if "--device-memory" not in command:
        if free is None:
            return None
        command += ["--device-memory", f"{max((free >> 20) - RESERVE_MIB, 1)}MiB"]
    done = subprocess.run(command + ["--dry-run"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode != DOES_NOT_FIT:
        return None
    return "; ".join(figures.exceeded(done.stdout)) or done.stdout[-400:].strip() or "the plan does not fit"


def train(trainer, model, folder, limit=None, more=(), **flags):
    """One run. After `limit` seconds it is asked to stop after its current step; 30 s later it is killed."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = command_of(trainer, model, folder, metrics=metrics, **flags) + list(more)
    device = command[command.index("--device") + 1]
    begin = time.monotonic()
    with Watch(gpu_number(device)) as watch:
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, text=True)
        try:
            log, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            try:
                log, _ = process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                log, _ = process.communicate()
            log += f"\nended after {limit} s, its limit"
    try:
        lines = figures.records(metrics)
    except figures.Missing:
        lines = []
    return Outcome(lines, log, process.returncode, time.monotonic() - begin, watch.above)


def options_of(parser):
    """Arguments of a script that trains; `more` holds the arguments after --, flags of ranvier-train."""
    parser.add_argument("trainer")
    parser.add_argument("--steps", type=int, default=parser.get_default("steps") or 20)
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--products-file")
    parser.add_argument("--metrics", type=Path)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    options.more = sys.argv[end + 1:]
    return options


def print_figure(options, name, figure, evaluate, least_steps=1, **flags):
    """Trains MODELS[name] and prints `figure` as a JSON line, with the values that `evaluate` returns for the Outcome.

    A run that does not fit is not started and has the reason in `left_out`; a run that fails has it in `failed`.
    Returns whether it failed. Appends the lines of all steps to --metrics.
    """
    model = MODELS[name]
    flags |= {"device": options.device, "steps": options.steps}
    if options.products_file:
        flags["products_file"] = options.products_file
    figure |= {"model": name, "parameters": model.parameters, "tokens_per_step": model.tokens * flags["microbatches"],
               "flags": " ".join(options.more)}
    with tempfile.TemporaryDirectory() as folder:
        if reason := reason_to_leave_out(options.trainer, model, Path(folder), options.more, **flags):
            print(json.dumps(figure | {"left_out": reason}), flush=True)
            return False
        done = train(options.trainer, model, Path(folder), options.limit, options.more, **flags)
    figure |= {"steps": len(done.lines), "run_seconds": round(done.seconds, 1)}
    failed = done.status not in (0, STOPPED) or len(done.lines) < least_steps
    if failed:
        print(done.log[-3000:], file=sys.stderr)
        figure["failed"] = done.log[-400:].strip()
    else:
        in_steps = sum(line["seconds"] for line in done.lines)
        figure |= {"start_seconds": round(done.seconds - in_steps, 1),
                   "tokens_per_second": round(done.steady("tokens_per_second"), 1), "mfu": done.steady("mfu"),
                   "measured_mfu": done.steady("measured_mfu"), "measured_bytes": done.used_bytes} | evaluate(done)
    print(json.dumps(figure), flush=True)
    if options.metrics:
        with options.metrics.open("a") as file:
            file.writelines(json.dumps({"model": name, "flags": figure["flags"]} | line) + "\n" for line in done.lines)
    return failed
