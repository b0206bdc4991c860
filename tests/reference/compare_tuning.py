"""Trains a part of a model, or adapters beside it, with ranvier-train and with PyTorch, from the same files, and compares.

usage: compare_tuning.py PROGRAMS FOLDER FAMILY parts|adapters    FOLDER is emptied and filled; exit code 77: no transformers

Losses, gradient norms and final tensors as in compare_families.py. Adapters are PEFT's where it is installed, and else the
formula of its documentation; what is saved must be PEFT's files, merged weights must be PEFT's, and ranvier-generate must
write the greedy text.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import compare_families as families
from compare_families import ALPHA, RANK, Adapter, torch
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
TILES = {"tiles": (1, ["--tile", 2])}
TARGETS = {"llama": ["q_proj", "v_proj", "down_proj"], "bert": ["query", "value", "dense"],
           "roberta": ["query", "key", "output.dense"], "gpt2": ["c_attn", "mlp.c_proj", "c_fc"],
           "phi3": ["qkv_proj", "gate_up_proj"]}


def targets_of(model):
    """Names of the modules that get an adapter."""
    targets = TARGETS[model.config.model_type]
    return [name for name, _ in model.named_modules() if any(name.endswith("." + target) for target in targets)]


def stores_inputs_first(model):
    """Whether weights are [in, out], as in GPT-2's Conv1D."""
    return model.config.model_type == "gpt2"


def compare_parts(programs, folder, family, tokens):
    for case, (train, freeze) in PARTS.items():
        model = families.make_model(family).double()
        for name, parameter in model.named_parameters():
            matched = train is None or re.search(train, name) is not None
            parameter.requires_grad = matched and not (freeze and re.search(freeze, name))
        before = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
        losses, norms = families.train_reference(model, tokens)
        given = [part for flag, value in (("--train", train), ("--freeze", freeze)) if value for part in (flag, value)]
        for grid, (ranks, flags) in GRIDS.items():
            name = f"{case}, {grid}"
            saved = folder / name.replace(" ", "-").replace(",", "")
            lines = families.train(programs / "ranvier-train", folder, ranks, [*flags, *given], saved, folder / f"{name}.jsonl")
            opened = families.class_of(family).from_pretrained(saved)
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
    for name in targets_of(model):
        shape, prefix = model.get_submodule(name).weight.shape, f"base_model.model.{name}."
        outputs, inputs = reversed(shape) if stores_inputs_first(model) else shape
        tensors[prefix + "lora_A.weight"] = 0.1 * torch.randn(RANK, inputs)
        tensors[prefix + "lora_B.weight"] = 0.1 * torch.randn(outputs, RANK)
    targets = TARGETS[model.config.model_type]
    fan_in_fan_out = stores_inputs_first(model)
    if peft is not None:
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets,
                                                             fan_in_fan_out=fan_in_fan_out))
        peft.set_peft_model_state_dict(adapted, tensors)
        adapted.save_pretrained(folder)
        return
    save_file(tensors, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", task_type=None, r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, bias="none",
                  target_modules=targets, fan_in_fan_out=fan_in_fan_out, base_model_name_or_path=str(folder.parent / "given"))
    (folder / "adapter_config.json").write_text(json.dumps(config))


def adapted(model, folder):
    """The model with the adapter of a folder, and its trained tensors by the names of PEFT's files."""
    model.requires_grad_(False)
    if peft is not None:
        model = peft.PeftModel.from_pretrained(model, folder, is_trainable=True)
        named = {name.replace(".default", ""): p for name, p in model.named_parameters() if "lora_" in name}
        return model.double(), named
    tensors = load_file(folder / "adapter_model.safetensors")
    named = {}
    for name in targets_of(model):
        parent, key = name.rsplit(".", 1)
        a, b = f"base_model.model.{name}.lora_A.weight", f"base_model.model.{name}.lora_B.weight"
        adapter = Adapter(model.get_submodule(name), tensors[a].double(), tensors[b].double())
        setattr(model.get_submodule(parent), key, adapter)
        named |= {a: adapter.a, b: adapter.b}
    return model.double(), named


def merged(family, folder):
    """The tensors of a model with the adapter of a folder added to its weights, by the names of the model."""
    model, named = adapted(families.make_model(family), folder)
    if peft is not None:
        return dict(model.merge_and_unload().named_parameters())
    base = families.make_model(family)
    tensors = {name: p.double() for name, p in base.named_parameters()}
    for name in [name for name in named if name.endswith("lora_A.weight")]:
        product = named[name.replace("lora_A", "lora_B")] @ named[name]
        product = product.T if stores_inputs_first(base) else product
        tensors[name.replace("base_model.model.", "").replace("lora_A.", "")] += ALPHA / RANK * product
    return tensors


def compare_adapters(programs, folder, family, tokens):
    print(f"PEFT {peft.__version__}" if peft else "without PEFT")
    make_adapter(folder / "adapter", families.make_model(family))
    masks = family in families.MASKED_FAMILIES
    model, named = adapted(families.make_model(family), folder / "adapter")
    losses, norms = families.train_reference(model, tokens, masks)
    checkpoints = folder / "checkpoints"
    for grid, (ranks, flags) in (GRIDS | TILES).items():
        saved = folder / grid.replace(" ", "-")
        if grid in TILES:
            flags = [*flags, "--checkpoint", checkpoints]
        lines = families.train(programs / "ranvier-train", folder, ranks, [*flags, "--init-adapter", folder / "adapter"], saved,
                               folder / f"{grid}.jsonl")
        ours = load_file(saved / "adapter_model.safetensors")
        if ours.keys() != named.keys():
            sys.exit(f"{grid}: the adapter's tensors are other ones: {ours.keys() ^ named.keys()}")
        families.check(grid, families.apart(lines, losses, norms, [(ours[name], p.detach()) for name, p in named.items()]))

    families.run([programs / "ranvier-checkpoint", "export", checkpoints, "--merge", "-o", folder / "merged"])
    whole = dict(families.class_of(family).from_pretrained(folder / "merged").named_parameters())
    for name, tensor in merged(family, folder / "tiles").items():
        distance = torch.linalg.vector_norm(whole[name] - tensor) / torch.linalg.vector_norm(tensor)
        if not distance <= 1e-6:
            sys.exit(f"merged {name} is {distance:.1e} apart")

    if masks:
        return
    drawn = families.letters(family)
    opened, _ = adapted(families.make_model(family), folder / "1-rank")
    text = families.run([programs / "ranvier-generate", "--weights", folder / "given", "--adapter", folder / "1-rank", "--prompt",
                         families.PROMPT.decode(), "--tokens", drawn, "--temperature", 0, "--tokenizer", "bytes",
                         "--threads", 1], stdout=subprocess.PIPE).stdout
    expected = families.greedy_text(opened, drawn)
    print(f"text {text}")
    if text != expected:
        sys.exit(f"the text is {text}, of PyTorch {expected}")


def main():
    programs, folder, family, what = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    families.prepare(folder)
    tokens = families.make_tokens(folder / "tokens.txt", families.FIRST_TOKEN if family in families.MASKED_FAMILIES else 0)
    families.make_model(family).save_pretrained(folder / "given", safe_serialization=True)
    (compare_parts if what == "parts" else compare_adapters)(programs, folder, family, tokens)


main()
