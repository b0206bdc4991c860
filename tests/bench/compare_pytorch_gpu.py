"""ranvier-train beside PyTorch on one GPU: in turns, medians, one JSON line per case.

usage: compare_pytorch_gpu.py TRAINER [--cases NAME,…] [--repeats 3] [--seconds 20] [--device cuda:0]
                              [--model LAYERS,HIDDEN,HEADS,VOCABULARY,LENGTH,BATCH] [-- FLAGS OF ranvier-train]

PyTorch has torch.compile, its fused attention, bf16 autocast over fp32 parameters, and the faster of its AdamWs;
ranvier-train keeps bf16 parameters beside fp32 master weights. A step is one microbatch of `batch` samples on either
side. FLOP are 6 per parameter and token and 12 · layers · hidden · length per token for attention. `ranvier_mfu` is the
share of the rate of a large matrix product that ranvier-train measured in the same run. --model: another one, in bf16.
What each run came to goes to stderr at once.
"""

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# layers, hidden, heads, vocabulary, length, batch
MODELS = {"gpt2-small": (12, 768, 12, 50257, 1024, 16), "1.3B": (24, 2048, 16, 50257, 2048, 4)}
CASES = [f"{model}-{precision}" for model in MODELS for precision in ("bf16", "fp32")]


def flops_per_token(model):
    layers, hidden, _, vocabulary, length, _ = MODELS[model]
    parameters = layers * (12 * hidden**2 + 13 * hidden) + (vocabulary + length + 2) * hidden
    return 6 * parameters + 12 * layers * hidden * length


def run_pytorch(case, options, compiled):
    model, precision = case.rsplit("-", 1)
    command = [sys.executable, HERE / "pytorch_training.py", *map(str, MODELS[model]), precision,
               str(options.seconds), "--device", options.device.split(":")[0], *(["--compile"] if compiled else [])]
    variables = dict(os.environ, TORCHINDUCTOR_FX_GRAPH_CACHE="1")  # later runs find what the first one compiled
    if ":" in options.device:
        variables["CUDA_VISIBLE_DEVICES"] = options.device.split(":")[1]
    done = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_ranvier(case, options, folder):
    model, precision = case.rsplit("-", 1)
    layers, hidden, heads, vocabulary, length, batch = MODELS[model]
    tokens, metrics = folder / f"{model}.bin", folder / "metrics.jsonl"
    if not tokens.exists():
        count = 16 * batch * length + 1
        draw = random.Random(1)
        tokens.write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) +
                           struct.pack(f"<{count}H", *(draw.randrange(vocabulary) for _ in range(count))))

    def lines(steps):
        command = ["mpirun", "-n", "1", "--bind-to", "none", options.trainer, "--data", tokens, "--layers", layers,
                   "--hidden", hidden, "--heads", heads, "--vocab-size", vocabulary, "--sequence-length", length,
                   "--batch-size", batch, "--microbatch-size", batch, "--precision", precision,
                   "--device", options.device, "--steps", steps, "--metrics", metrics, "--overwrite",
                   *options.flags]
        variables = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = subprocess.run(list(map(str, command)), env=variables, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{case}: ranvier-train ended with {done.returncode}:\n{done.stdout[-2000:]}")
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    probe = statistics.median(line["tokens_per_second"] for line in lines(5)[2:])
    steps = 2 + max(5, round(options.seconds * probe / (batch * length)))
    measured = lines(steps)[2:]
    return (statistics.median(line["tokens_per_second"] for line in measured),
            statistics.median(line["mfu"] or 0 for line in measured))


def say(case, who, rate):
    print(f"{case}: {who} {rate:.1f} tokens/s", file=sys.stderr, flush=True)
    return rate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    options.flags = sys.argv[end + 1:]
    if options.model:
        MODELS["given"] = tuple(map(int, options.model.split(",")))
        CASES[:] = ["given-bf16"]
        options.cases = CASES[0]
    for case in options.cases.split(","):
        if case not in CASES:
            sys.exit(f"--cases {case}: one of {', '.join(CASES)}")
        ranvier, shares, pytorch = [], [], []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.repeats):
                rate, share = run_ranvier(case, options, Path(folder))
                ranvier.append(say(case, "ranvier", rate))
                shares.append(share)
                result = run_pytorch(case, options, compiled=True)
                pytorch.append(say(case, "pytorch", result["tokens_per_second"]))
            eager = run_pytorch(case, options, compiled=False)
        flops = flops_per_token(case.rsplit("-", 1)[0])
        print(json.dumps({
            "bench": "compare_pytorch_gpu", "case": case, "device": result["device"], "torch": result["torch"],
            "ranvier_tokens_per_second": round(statistics.median(ranvier), 1),
            "pytorch_tokens_per_second": round(statistics.median(pytorch), 1),
            "ratio": round(statistics.median(r / p for r, p in zip(ranvier, pytorch)), 3),
            "ranvier_tflops": round(statistics.median(ranvier) * flops * 1e-12, 1),
            "pytorch_tflops": round(statistics.median(pytorch) * flops * 1e-12, 1),
            "ranvier_mfu": round(statistics.median(shares), 3),
            "pytorch_eager_tokens_per_second": round(eager["tokens_per_second"], 1),
            "ranvier_runs": [round(rate, 1) for rate in ranvier],
            "pytorch_runs": [round(rate, 1) for rate in pytorch]}), flush=True)


if __name__ == "__main__":
    main()
