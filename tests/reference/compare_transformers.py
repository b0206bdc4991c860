"""Weights as Hugging Face's transformers and Ranvier exchange them: each opens what the other saved and computes the same.

usage: compare_transformers.py TRAINER GENERATOR FOLDER      FOLDER is emptied and filled; exit code 77: no transformers

What ranvier-train saves must open with GPT2LMHeadModel without a tensor missing or left over, and must have there the
validation loss that ranvier-train said and the greedy text that ranvier-generate writes; in several files (--save-file-size)
it must open alike. What save_pretrained() writes, in
fp32, bf16 and fp16, in one file and in several with an index, must have the same loss and text in Ranvier.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.remove(str(Path(__file__).resolve().parent))  # its safetensors.py is not the package
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", USE_TF="0", USE_JAX="0")
try:
    import torch
    import transformers
    from transformers import AutoModel, AutoModelForCausalLM, GPT2LMHeadModel
except ImportError as missing:
    print(f"Skipped: {missing}")
    sys.exit(77)

LAYERS, HIDDEN, HEADS, LENGTH, BATCH = 3, 48, 3, 32, 4
PROMPT, DRAWN = b"the nodes ", 20
SPLIT, TOLERANCE = 0.25, 2e-6


def run(program, *flags):
    flags = [str(flag) for flag in flags]
    return subprocess.run([program, *flags], check=True, timeout=120, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE).stdout


def train(trainer, data, folder, *flags):
    """The validation loss after the last step."""
    metrics = folder / "metrics.jsonl"
    run(trainer, "--data", data, "--batch-size", BATCH, "--validation-split", SPLIT, "--threads", 1, "--metrics", metrics,
        *flags)
    return json.loads(metrics.read_text().splitlines()[-1])["validation_loss"]


def loss_of(model, data):
    """Over all validation samples, in ranvier-train's order."""
    tokens = torch.tensor(list(data.read_bytes()))
    tokens = tokens[len(tokens) - int(SPLIT * len(tokens)):]
    samples = (len(tokens) - 1) // LENGTH
    windows = torch.stack([tokens[n * LENGTH:n * LENGTH + LENGTH + 1] for n in range(samples)])
    with torch.no_grad():
        logits = model(windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()


def text_of(model):
    tokens = list(PROMPT)
    for _ in range(DRAWN):
        with torch.no_grad():
            tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
    return bytes(tokens) + b"\n"


def check(name, loss, text, model, data):
    expected = loss_of(model, data)
    difference = abs(loss - expected) / expected
    print(f"{name}: loss {loss:.7f}, of transformers {expected:.7f}, apart {difference:.1e}; text {text[:30]}…")
    if difference > TOLERANCE:
        sys.exit(f"{name}: the losses are further apart than {TOLERANCE}")
    if text != text_of(model):
        sys.exit(f"{name}: the text is {text}, of transformers {text_of(model)}")


def main():
    trainer, generator, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    torch.set_num_threads(1)
    words = ["node ", "nerve ", "axon ", "signal ", "myelin ", "the ", "gap\n"]
    data = folder / "text.txt"
    random.seed(7)
    data.write_text("".join(random.choice(words) for _ in range(1500)))

    def generate(weights):
        return run(generator, "--weights", weights, "--prompt", PROMPT.decode(), "--tokens", DRAWN, "--temperature", 0,
                   "--tokenizer", "bytes", "--threads", 1)

    saved = folder / "saved"
    loss = train(trainer, data, folder, "--layers", LAYERS, "--hidden", HIDDEN, "--heads", HEADS, "--sequence-length",
                 LENGTH, "--steps", 40, "--learning-rate", 1e-2, "--save", saved)
    model, report = GPT2LMHeadModel.from_pretrained(saved, output_loading_info=True)
    wrong = {key: value for key, value in report.items() if value}
    if wrong:
        sys.exit(f"transformers opens what was saved with {wrong}")
    model.eval()
    check("saved by Ranvier", loss, generate(saved), model.double(), data)

    sharded = folder / "sharded"
    run(trainer, "--data", data, "--init-from", saved, "--steps", 1, "--batch-size", BATCH, "--learning-rate", 0,
        "--threads", 1, "--save", sharded, "--save-file-size", "100KiB")
    files = sorted(path.name for path in sharded.glob("*.safetensors"))
    if len(files) < 2 or not (sharded / "model.safetensors.index.json").exists():
        sys.exit(f"--save-file-size: there are {files}")
    for auto in AutoModel, AutoModelForCausalLM:
        opened, report = auto.from_pretrained(sharded, output_loading_info=True)
        wrong = {key: value for key, value in report.items() if value}
        whole = auto.from_pretrained(saved).state_dict()
        differ = [name for name, tensor in opened.state_dict().items() if not torch.equal(tensor, whole[name])]
        if wrong or differ:
            sys.exit(f"{auto.__name__} opens {len(files)} files with {wrong}, and has other {differ}")
    print(f"opened by transformers from {len(files)} files")

    for dtype in torch.float32, torch.bfloat16, torch.float16:
        for size in "10GB", "100KB":
            name = f"{str(dtype).removeprefix('torch.')}-{size}"
            given = folder / name
            rounded = GPT2LMHeadModel.from_pretrained(saved).to(dtype)
            rounded.save_pretrained(given, safe_serialization=True, max_shard_size=size)
            files = sorted(path.name for path in given.glob("*.safetensors"))
            indexed = (given / "model.safetensors.index.json").exists()
            if indexed != (size == "100KB") or (len(files) > 1) != indexed:
                sys.exit(f"{name}: transformers saved {files}")
            loss = train(trainer, data, folder, "--init-from", given, "--steps", 1, "--learning-rate", 0)
            check(f"saved by transformers, {name}, {len(files)} files", loss, generate(given), rounded.double().eval(), data)


main()
