"""Trainings of ranvier-train on one GPU, for the scripts of this folder: models, tokens, a run and what it came to."""

import json
import os
import random
import signal
import statistics
import struct
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Model:
    """A step is one microbatch of `batch` samples."""
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    length: int
    batch: int
    flags: tuple = ()  # of ranvier-train, beside those for the sizes

    @property
    def tokens(self):
        return self.batch * self.length

    @property
    def parameters(self):
        return (self.layers * (12 * self.hidden**2 + 13 * self.hidden) +
                (self.vocabulary + self.length + 2) * self.hidden)

    @property
    def flops_per_token(self):
        """6 per parameter, and attention over all of T x T, as is the custom."""
        return 6 * self.parameters + 12 * self.layers * self.hidden * self.length


MODELS = {
    "gpt2-small": Model(12, 768, 12, 50257, 1024, 32),
    "774M": Model(36, 1280, 20, 50257, 1024, 16),
    "1.5B": Model(48, 1600, 25, 50257, 1024, 16),
    "1.3B": Model(24, 2048, 16, 50257, 2048, 4),
    # 16 bytes a parameter: 122 GiB are planned, where a GPU has 139.
    "7B": Model(32, 4096, 32, 50257, 1024, 8, ("--gradient-dtype", "half")),
    # To try scripts where computing is slow.
    "tiny": Model(2, 64, 2, 250, 32, 2),
}


def parse_model(text):
    """LAYERS,HIDDEN,HEADS,VOCABULARY,LENGTH,BATCH"""
    return Model(*map(int, text.split(",")))


def used_bytes(gpu=0):
    """What nvidia-smi sees taken of the GPU, or None."""
    try:
        done = subprocess.run(["nvidia-smi", "-i", str(gpu), "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return int(done.stdout) << 20
    except (OSError, ValueError):
        return None


def write_tokens(model, path, steps=16):
    if path.exists():
        return
    count = steps * model.tokens + 1
    draw = random.Random(1)
    path.write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) +
                     struct.pack(f"<{count}H", *(draw.randrange(model.vocabulary) for _ in range(count))))


def environment():
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def command_of(trainer, model, folder, **flags):
    """A training in bf16; `flags` are more of them, or other values."""
    tokens = folder / f"{model.vocabulary}x{model.tokens}.bin"
    write_tokens(model, tokens)
    flags = {
        "data": tokens, "tokenizer": "none", "layers": model.layers, "hidden": model.hidden, "heads": model.heads,
        "vocab-size": model.vocabulary, "sequence-length": model.length, "batch-size": model.batch,
        "microbatch-size": model.batch, "precision": "bf16", "device": "cuda:0",
    } | {name.replace("_", "-"): value for name, value in flags.items()}
    command = [str(trainer)]
    for name, value in flags.items():
        command += [f"--{name}", str(value)]
    return command + list(model.flags)


@dataclass
class Outcome:
    lines: list  # of --metrics
    log: str
    status: int
    seconds: float  # from the start to the end of the program
    used_bytes: int | None  # the most that nvidia-smi saw taken above what was before, the driver's context included

    def steady(self, key, skip=2):
        """Median of a step's `key`, without the first steps where there are more."""
        values = [line[key] for line in self.lines if line[key] is not None]
        return statistics.median(values[skip:] or values) if values else None

    @property
    def device_bytes(self):
        """What the plan has on the device."""
        others = ("pinned", "host", "nvme")
        return sum(bytes_ for kind, bytes_ in self.lines[0]["memory"].items() if kind not in others)


@dataclass
class Watch:
    """The most memory of a GPU that is taken while the block runs."""
    gpu: int = 0
    most: int = 0
    before: int | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self):
        self.before = used_bytes(self.gpu)
        self.thread = threading.Thread(target=self.look)
        if self.before is not None:
            self.thread.start()
        return self

    def look(self):
        while not self.ended.wait(0.3):
            self.most = max(self.most, used_bytes(self.gpu) or 0)

    def __exit__(self, *_):
        self.ended.set()
        if self.before is not None:
            self.thread.join()

    @property
    def above(self):
        return None if self.before is None or not self.most else self.most - self.before


def train(trainer, model, folder, limit=None, more=(), **flags):
    """One training. After `limit` seconds it is asked to end with its step, 30 s later it is made to."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = command_of(trainer, model, folder, metrics=metrics, **flags) + list(more)
    device = command[command.index("--device") + 1]
    begin = time.monotonic()
    with Watch(int(device.partition(":")[2] or 0)) as watch:
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
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    return Outcome(lines, log, process.returncode, time.monotonic() - begin, watch.above)
