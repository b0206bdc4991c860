"""Predictions of ranvier-plan and collective_times for the rows of papers.py, and figures computed from them."""

import dataclasses
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# With these flags one candidate is left.
ONE_CANDIDATE = {"--collectives": "nccl", "--offload": "none", "--all-gather": "auto", "--reduce-scatter": "auto",
                 "--all-reduce": "auto", "--secondary-tier": "same"}


class TooLong(RuntimeError):
    pass


def profile_with(spec: str, folder: str) -> str:
    """A file of the profile NAME@KEY=VALUE,…: with another rate between nodes, per node ("node") or rank ("rank"),
    of a rank inside nodes ("inside") or between a GPU and its host ("copies"), in bytes a second, other bytes of a
    node's disks ("disk") or memory ("host") or of a GPU ("device"), or another share of the peak for half-precision
    products ("products")."""
    name, changes = spec.split("@")
    with open(os.path.join(TOP, "runtime/profiles", name + ".json"), encoding="utf-8") as file:
        profile = json.load(file)
    for change in changes.split(","):
        key, value = change.split("=")
        if key == "products":
            for dtype in set(profile["rates"]) - {"fp32"}:
                profile["rates"][dtype]["product"]["flops_per_second"] = (
                    float(value) * profile["peak_flops_per_second"][dtype])
        elif key == "copies":
            profile["rates"]["fp32"]["host_copy"]["bytes_per_second"] = float(value)
        elif key == "inside":
            profile["links"]["intra_node"]["bytes_per_second"] = float(value)
        elif key in ("disk", "host", "device"):
            profile[{"disk": "disk", "host": "host_memory", "device": "device_memory"}[key]] = int(float(value))
        else:
            field = {"node": "node_bytes_per_second", "rank": "bytes_per_second"}[key]
            profile["links"]["inter_node"][field] = float(value)
    path = os.path.join(folder, re.sub(r"[^\w.-]", "_", spec) + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(profile, file)
    return path


class Planner:
    """Predictions of ranvier-plan, each computed once."""

    def __init__(self, build: str, cpu_seconds: int):
        self.cpu_seconds = cpu_seconds
        self.folder = tempfile.TemporaryDirectory()
        self.program = os.path.join(build, "apps/ranvier-plan")
        self.collective_times = os.path.join(build, "tests/papers/collective_times")
        self.known: dict[tuple[str, ...], dict] = {}

    def close(self) -> None:
        self.folder.cleanup()

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (self.cpu_seconds, self.cpu_seconds + 1))

        words = [profile_with(word, self.folder.name) if "@" in word else word for word in words]
        done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit)
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise TooLong(f"not done after {self.cpu_seconds} s of a processor")
        return done

    def predict(self, flags: str) -> dict:
        """Of the one candidate that the flags leave, with NCCL. {} where it does not fit in memory. Flags that begin
        with "collective" are those of collective_times: milliseconds by algorithm."""
        words = tuple(flags.split())
        if words[0] == "collective":
            done = self.run([self.collective_times, *words[1:]])
            if done.returncode != 0:
                raise RuntimeError(done.stderr.strip())
            return json.loads(done.stdout)
        for flag, value in ONE_CANDIDATE.items():
            if flag not in words:
                words += (flag, value)
        if words not in self.known:
            done = self.run([self.program, *words, "--best", "1", "--jobs", "1", "--rows", "distinct", "--json"])
            lines = done.stdout.strip()
            if not lines:
                raise RuntimeError(f"ranvier-plan {flags}\n{done.stderr.strip()}")
            answer = json.loads(lines)
            if answer["candidates"] > 1 and (answer["simulated"] > 1 or answer["planned"] > 1):
                raise RuntimeError(f"ranvier-plan {flags}: {answer['planned']} candidates, where one was meant")
            refused = [why for why in answer["left_out"] if why.startswith("refused")]
            if refused and not answer["best"]:
                raise RuntimeError(f"ranvier-plan {flags}: {refused[0]}")
            if "what_if" in answer:  # memory of the requested machine, whether or not the profile's is enough
                self.known[words] = answer["what_if"][-1].get("best", {})
            else:
                self.known[words] = answer["best"][0] if answer["best"] else {}
        return self.known[words]


@dataclasses.dataclass
class Result:
    """`says` is the paper's figure, or the ends of its range; `of` computes it from the predictions of `flags`."""
    name: str
    what: str
    says: tuple[float, ...] | bool
    of: Callable[..., float | bool]
    flags: list[str]
    unit: str = ""
    heavy: bool = False


def fits(prediction: dict) -> bool:
    return bool(prediction)


def rate(prediction: dict) -> float:
    return prediction["tokens_per_second"]


def states(prediction: dict) -> float:
    return sum(prediction["device_bytes_by_kind"][kind] for kind in ("parameters", "gradients", "optimizer"))


def checkpoints(prediction: dict) -> float:
    """TB of activations off the devices, of 32 GPUs, in units of 2^40 as the paper's figure comes out."""
    return 32 * prediction["other_bytes_by_kind"]["activations"] / 2**40


def between(prediction: dict) -> float:
    return prediction["bytes_between_nodes"]


def tera(prediction: dict) -> float:
    """TFLOP/s of a device, as models need them: without recomputation."""
    return prediction["model_flops_per_second"] / 1e12


def tera_done(prediction: dict) -> float:
    """The same with recomputation, which the papers count: four passes for three."""
    return tera(prediction) * 4 / 3


def kept(pairs: tuple[dict, ...]) -> list[float]:
    """Pairs on few and on many GPUs: the remaining part of a GPU's rate, up to a common factor."""
    return [rate(many) / rate(few) for few, many in zip(pairs[::2], pairs[1::2])]


def first_keeps_most(*pairs: dict) -> bool:
    return max(kept(pairs)) == kept(pairs)[0]


def last_keeps_least(*pairs: dict) -> bool:
    return min(kept(pairs)) == kept(pairs)[-1]


def tera_of_large(small: dict, large: dict) -> float:
    """tera_done() of a batch of 16384, from those of 1024 and 2048: with more microbatches than stages a step takes as
    much longer for each."""
    seconds = small["step_seconds"] + (large["step_seconds"] - small["step_seconds"]) * (16384 - 1024) / 1024
    return tera_done(small) * small["step_seconds"] * 16 / seconds


def tera_of_deep(four: dict, eight: dict, layers: int = 128) -> float:
    """tera_done() of `layers` layers, from runs of 4 and 8: each layer adds the same time and the same work."""
    def at_depth(of: Callable[[dict], float]) -> float:
        return of(four) + (of(eight) - of(four)) * (layers - 4) / 4

    return at_depth(lambda p: tera_done(p) * p["step_seconds"]) / at_depth(lambda p: p["step_seconds"])
