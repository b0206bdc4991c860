"""ranvier-train beside PyTorch on one GPU: in turns, medians, one JSON line per case.

usage: compare_pytorch_gpu.py TRAINER [--cases MODEL-bf16,MODEL-fp32,…] [--repeats 3] [--seconds 20] [--limit 600]
                              [--vocabularies own,padded] [--compile whole] [--no-eager] [--device cuda:0]
                              [--pytorch-device cuda] [--products-file FILE]
                              [--model LAYERS,HIDDEN,HEADS,VOCABULARY,LENGTH,BATCH] [-- FLAGS OF ranvier-train]

PyTorch has torch.compile (--compile: whole, blocks or none, as in pytorch_training.py), its fused attention, bf16
autocast over fp32 parameters, and the faster of its AdamWs; ranvier-train keeps bf16 parameters beside fp32 master
weights. A step is one microbatch of `batch` samples on either side. `padded`: PyTorch's model has a vocabulary of the
next multiple of 128, as those who want it fast give it; ratios are to the faster one. Either side is compared by tokens
per second; FLOP are 6 per parameter and token and 12 · layers · hidden · length per token for attention, of all T × T.
`ranvier_mfu` is the share of the data sheet's rate, `ranvier_measured_mfu` that of a large matrix product's rate in the
same run. --model: another one, in bf16. --limit: seconds per run, after which it counts as failed. Each run has a JSON
line of its own as soon as it ends (`compare_pytorch_gpu_run`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_training import MODELS, parse_model, train

HERE = Path(__file__).resolve().parent
CASES = ["gpt2-small-bf16", "1.3B-bf16", "gpt2-small-fp32", "1.3B-fp32"]


def run_pytorch(case, options, padded, compiled):
    """What pytorch_training.py printed; None if it failed."""
    name, precision = case.rsplit("-", 1)
    model = MODELS[name]
    vocabulary = (model.vocabulary + 127) // 128 * 128 if padded else model.vocabulary
    command = [sys.executable, HERE / "pytorch_training.py",
               *map(str, (model.layers, model.hidden, model.heads, vocabulary, model.length, model.batch)), precision,
               str(options.seconds), "--device", options.pytorch_device, "--compile", compiled]
    variables = dict(os.environ, TORCHINDUCTOR_FX_GRAPH_CACHE="1")  # later runs find what the first one compiled
    if ":" in options.device:
        variables["CUDA_VISIBLE_DEVICES"] = options.device.split(":")[1]
    try:
        done = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True,
                              timeout=options.limit)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{case}: PyTorch: {error}", file=sys.stderr, flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def run_ranvier(case, options, folder):
    """The training's Outcome; None if it failed."""
    name, precision = case.rsplit("-", 1)
    remembers = options.products_file and precision != "fp32"  # whose products are never measured
    flags = {"products_file": options.products_file} if remembers else {}

    def measure(steps):
        done = train(options.trainer, MODELS[name], folder, options.limit, options.flags, precision=precision,
                     device=options.device, steps=steps, **flags)
        if done.status == 0 and done.lines:
            return done
        print(f"{case}: ranvier-train ended with {done.status}:\n{done.log[-2000:]}", file=sys.stderr, flush=True)
        return None

    probe = measure(5)
    return probe and measure(2 + max(5, round(options.seconds / probe.steady("seconds"))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--vocabularies", default="own,padded")
    parser.add_argument("--no-eager", dest="eager", action="store_false")
    parser.add_argument("--compile", choices=("whole", "blocks", "none"), default="whole")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--pytorch-device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--products-file")
    parser.add_argument("--model")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    options.flags = sys.argv[end + 1:]
    if options.model:
        MODELS["given"] = parse_model(options.model)
        options.cases = "given-bf16"
    vocabularies = options.vocabularies.split(",")
    if not vocabularies or set(vocabularies) - {"own", "padded"}:
        sys.exit(f"--vocabularies {options.vocabularies}: own, padded or both")
    cases = options.cases.split(",")
    for case in cases:
        name, _, precision = case.rpartition("-")
        if name not in MODELS or precision not in ("bf16", "fp32"):
            sys.exit(f"--cases {case}: one of {', '.join(MODELS)}, and -bf16 or -fp32")

    failed = False
    for case in cases:
        rates, results = {"ranvier": [], "own": [], "padded": []}, []

        def keep(who, rate):
            if rate is not None:
                print(json.dumps({"bench": "compare_pytorch_gpu_run", "case": case, "who": who,
                                  "tokens_per_second": round(rate, 1)}), flush=True)
                rates[who].append(rate)

        shares = {"mfu": [], "measured_mfu": []}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.repeats):
                if ranvier := run_ranvier(case, options, Path(folder)):
                    keep("ranvier", ranvier.steady("tokens_per_second"))
                    for share, values in shares.items():
                        values += [value] if (value := ranvier.steady(share)) is not None else []
                for vocabulary in vocabularies:
                    if result := run_pytorch(case, options, vocabulary == "padded", options.compile):
                        results.append(result)
                        keep(vocabulary, result["tokens_per_second"])
            eager = run_pytorch(case, options, padded=False, compiled="none") if options.eager else None
        medians = {who: round(statistics.median(values), 1) if values else None for who, values in rates.items()}
        pytorch = max((medians[which] for which in vocabularies if medians[which]), default=None)
        ranvier = medians["ranvier"]
        failed |= ranvier is None or pytorch is None
        tflops = MODELS[case.rpartition("-")[0]].flops_per_token * 1e-12
        print(json.dumps({
            "bench": "compare_pytorch_gpu", "case": case, "device": results[0]["device"] if results else None,
            "torch": results[0]["torch"] if results else None, "compiled": options.compile,
            "ranvier_tokens_per_second": ranvier, "pytorch_tokens_per_second": medians["own"],
            "pytorch_padded_tokens_per_second": medians["padded"],
            "ratio": round(ranvier / pytorch, 3) if ranvier and pytorch else None,
            "ranvier_tflops": round(ranvier * tflops, 1) if ranvier else None,
            "pytorch_tflops": round(pytorch * tflops, 1) if pytorch else None,
            **{f"ranvier_{share}": round(statistics.median(values), 3) if values else None
               for share, values in shares.items()},
            "pytorch_eager_tokens_per_second": round(eager["tokens_per_second"], 1) if eager else None,
            "ranvier_runs": [round(rate, 1) for rate in rates["ranvier"]],
            "pytorch_runs": [round(rate, 1) for which in vocabularies for rate in rates[which]]}), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
