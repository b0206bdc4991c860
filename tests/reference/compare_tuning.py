"""Trains a part of a LLaMA, and adapters beside it, with ranvier-train and with PyTorch, from the same files, and compares.

usage: compare_tuning.py TRAINER GENERATOR FOLDER parts|adapters    FOLDER is emptied and filled; exit code 77: no transformers

Losses, gradient norms and final tensors as in compare_families.py. Adapters are PEFT's where it is installed, and else the
formula of its documentation; what is saved must be PEFT's files, and ranvier-generate must write the greedy text.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import compare_families as families
from compare_families import AutoModelForCausalLM, torch
from safetensors.torch import load_file, save_file

try:
    import peft
except ImportError:
    peft = None

PARTS = {
    "the last blocks": (r"layers\.[23]\.|model\.norm", None),
    "single matrices": (r"q_proj|up_proj|layers\.1\..*norm", r"layers\.0"),
    "all but the embedding": (None, "embed"),
}
GRIDS = {
    "1 rank": (1, []),
    "2 x 2": (4, ["--g-inter", 2, "--g-data", 2, "--shard", "zero3"]),
    "3 x 1": (3, ["--g-inter", 3, "--recompute", 1]),
    "all in files": (1, ["--offload", "infinity-nvme", "--nvme", "nvme"]),
}
RANK, ALPHA, TARGETS = 3, 6, ["q_proj", "v_proj", "down_proj"]


class Adapter(torch.nn.Module):
    """y = W x + alpha / r B A x, as PEFT has it."""

    def __init__(self, base, a, b):
        super().__init__()
        self.base_layer, self.a, self.b = base, torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, x):
        return self.base_layer(x) + ALPHA / RANK * (x @ self.a.T) @ self.b.T


def compare_parts(trainer, generator, folder, tokens):
    for case, (train, freeze) in PARTS.items():
        model = families.make_model("llama").double()
        for name, parameter in model.named_parameters():
            matched = train is None or re.search(train, name) is not None
            parameter.requires_grad = matched and not (freeze and re.search(freeze, name))
        before = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
        losses, norms = families.train_reference(model, tokens)
        given = [part for flag, value in (("--train", train), ("--freeze", freeze)) if value for part in (flag, value)]
        for grid, (ranks, flags) in GRIDS.items():
            name = f"{case}, {grid}"
            saved = folder / name.replace(" ", "-").replace(",", "")
            lines = families.train(trainer, folder, ranks, [*flags, *given], saved, folder / f"{name}.jsonl")
            opened = AutoModelForCausalLM.from_pretrained(saved)
            families.check(name, families.apart(lines, losses, norms,
                                                zip(opened.parameters(), model.parameters(), strict=True)))
            for tensor, parameter in opened.named_parameters():
                if tensor in before and not torch.equal(parameter.double(), before[tensor]):
                    sys.exit(f"{name}: {tensor} is frozen and has changed")


def make_adapter(folder, model):
    """B is not zero, so that A has gradients from the first step on."""
    folder.mkdir()
    torch.manual_seed(9)
    tensors = {}
    for name, module in model.named_modules():
        if name.split(".")[-1] in TARGETS:
            prefix = f"base_model.model.{name}."
            tensors[prefix + "lora_A.weight"] = 0.1 * torch.randn(RANK, module.in_features)
            tensors[prefix + "lora_B.weight"] = 0.1 * torch.randn(module.out_features, RANK)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, bias="none",
                  target_modules=TARGETS, fan_in_fan_out=False, base_model_name_or_path=str(folder.parent / "given"))
    (folder / "adapter_config.json").write_text(json.dumps(config))


def adapted(model, folder):
    """The model with the adapter of a folder, and what of it is trained by the names of PEFT's files."""
    model.requires_grad_(False)
    if peft is not None:
        model = peft.PeftModel.from_pretrained(model, folder, is_trainable=True)
        named = {name.replace(".default", ""): p for name, p in model.named_parameters() if "lora_" in name}
        return model.double(), named
    tensors = load_file(folder / "adapter_model.safetensors")
    named = {}
    for name in [name for name, _ in model.named_modules() if name.split(".")[-1] in TARGETS]:
        parent, key = name.rsplit(".", 1)
        a, b = f"base_model.model.{name}.lora_A.weight", f"base_model.model.{name}.lora_B.weight"
        adapter = Adapter(model.get_submodule(name), tensors[a].double(), tensors[b].double())
        setattr(model.get_submodule(parent), key, adapter)
        named |= {a: adapter.a, b: adapter.b}
    return model.double(), named


def compare_adapters(trainer, generator, folder, tokens):
    print(f"PEFT {peft.__version__}" if peft else "without PEFT")
    make_adapter(folder / "adapter", families.make_model("llama"))
    model, named = adapted(families.make_model("llama"), folder / "adapter")
    losses, norms = families.train_reference(model, tokens)
    for grid, (ranks, flags) in GRIDS.items():
        saved = folder / grid.replace(" ", "-")
        lines = families.train(trainer, folder, ranks, [*flags, "--init-adapter", folder / "adapter"], saved,
                               folder / f"{grid}.jsonl")
        ours = load_file(saved / "adapter_model.safetensors")
        if ours.keys() != named.keys():
            sys.exit(f"{grid}: the adapter's tensors are other ones: {ours.keys() ^ named.keys()}")
        families.check(grid, families.apart(lines, losses, norms, [(ours[name], p.detach()) for name, p in named.items()]))
    opened, _ = adapted(families.make_model("llama"), folder / "1-rank")
    text = families.run([generator, "--weights", folder / "given", "--adapter", folder / "1-rank", "--prompt",
                         families.PROMPT.decode(), "--tokens", families.DRAWN, "--temperature", 0, "--tokenizer", "bytes",
                         "--threads", 1], stdout=subprocess.PIPE).stdout
    expected = families.greedy_text(opened)
    print(f"text {text}")
    if text != expected:
        sys.exit(f"the text is {text}, of PyTorch {expected}")


def main():
    trainer, generator, folder, what = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "nvme").mkdir()
    torch.set_num_threads(1)
    tokens = families.make_tokens(folder / "tokens.txt")
    families.make_model("llama").save_pretrained(folder / "given", safe_serialization=True)
    (compare_parts if what == "parts" else compare_adapters)(trainer, generator, folder, tokens)


main()
