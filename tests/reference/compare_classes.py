"""Trains BERT and RoBERTa to tell classes of texts, with ranvier-train and with transformers, from the same files.

usage: compare_classes.py TRAINER FOLDER FAMILY    FOLDER is emptied and filled; exit code 77: no transformers

Losses, gradient norms and final tensors as in compare_families.py; transformers' ...ForSequenceClassification must open what
is saved, with the same names of classes, and tell texts apart as often as ranvier-train says of them. A head that the
weights to begin with do not have is drawn, and leaves all else as it was. Adapters train with the head beside them, from files
as PEFT has them and to such files; where PEFT is installed it writes the former and opens the latter.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import compare_families as families
from compare_families import ALPHA, RANK, Adapter, torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSequenceClassification

try:
    import peft
except ImportError:
    peft = None

LABELS = ["calm", "loud", "wild"]
PREFIX = "base_model.model."
TEXTS, KEPT = families.STEPS * families.BATCH + 30, 30
GRIDS = families.GRIDS | {"tiles": (2, ["--tile", 2, "--g-inter", 2, "--recompute", 1])}


def make_model(family, kind=AutoModelForSequenceClassification, **more):
    """Without zeros and ones: an omitted parameter, or one added twice, must change the result."""
    name, options = families.MASKED_FAMILIES[family]
    torch.manual_seed(7)
    model = kind.from_config(AutoConfig.for_model(name, **(options | more)), attn_implementation="eager")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in parameter_name.lower() else 0.0
            parameter.copy_(centre + 0.08 * torch.randn_like(parameter))
    return model


def make_texts(path):
    """Texts of all lengths, some too long, whose letters mostly determine their class."""
    generator = torch.Generator().manual_seed(5)
    samples = []
    for _ in range(TEXTS):
        label = int(torch.randint(len(LABELS), (1,), generator=generator))
        length = int(torch.randint(1, families.LENGTH + 6, (1,), generator=generator))
        draws = torch.randint(12, (length,), generator=generator)
        samples.append(("".join(chr(ord("a") + 4 * label + int(draw)) for draw in draws), label))
    path.write_text("".join(json.dumps({"text": text, "class": LABELS[label]}) + "\n" for text, label in samples))
    return samples


def batch_of(samples, padding):
    tokens = [list(text.encode())[:families.LENGTH] for text, _ in samples]
    inputs = torch.tensor([row + [padding] * (families.LENGTH - len(row)) for row in tokens])
    mask = torch.tensor([[1] * len(row) + [0] * (families.LENGTH - len(row)) for row in tokens])
    return dict(input_ids=inputs, attention_mask=mask), torch.tensor([label for _, label in samples])


def train_reference(model, samples):
    def loss_of(step):
        inputs, labels = batch_of(samples[step * families.BATCH:(step + 1) * families.BATCH], model.config.pad_token_id)
        return model(**inputs, labels=labels).loss

    return families.reference_steps(model, loss_of)


def run(trainer, folder, ranks, flags):
    flags = [folder / "nvme" if flag == "nvme" else flag for flag in flags]
    return families.run(["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", trainer, "--data", folder / "texts.jsonl",
                         "--label-field", "class", "--tokenizer", "bytes", "--sequence-length", families.LENGTH, "--threads", 1,
                         *flags], stdout=subprocess.PIPE, text=True).stdout


def train(trainer, folder, ranks, flags, metrics):
    run(trainer, folder, ranks, ["--shuffle", "off", "--batch-size", families.BATCH, "--microbatch-size", 2, "--steps",
                                 families.STEPS, "--learning-rate", families.RATE, "--warmup-steps", 0, "--lr-decay", "constant",
                                 "--seed", families.SEED, "--validation-split", KEPT / TEXTS, "--metrics", metrics, *flags])
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def check_validation(name, line, output, labels):
    accuracy = (output.logits.argmax(1) == labels).double().mean().item()
    if abs(line["validation_loss"] - output.loss.item()) > 1e-5 or abs(line["validation_accuracy"] - accuracy) > 1e-12:
        sys.exit(f"{name}: the validation has loss {line['validation_loss']} and accuracy {line['validation_accuracy']}, of "
                 f"transformers {output.loss.item()} and {accuracy}")


def make_adapter(folder, model, whole):
    """Adapters not only for queries and values, and a new head. B is not zero: A has gradients in the first step."""
    torch.manual_seed(9)
    tensors = {}
    for name, module in model.named_modules():
        if name.endswith((".query", ".value")):
            tensors[f"{PREFIX}{name}.lora_A.weight"] = 0.1 * torch.randn(RANK, module.in_features)
            tensors[f"{PREFIX}{name}.lora_B.weight"] = 0.1 * torch.randn(module.out_features, RANK)
    for name, parameter in model.named_parameters():
        if any(part in whole for part in name.split(".")):
            tensors[PREFIX + name] = parameter.detach() + 0.05 * torch.randn_like(parameter)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", task_type="SEQ_CLS", r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, bias="none",
                  target_modules=["query", "value"], modules_to_save=whole, base_model_name_or_path=str(folder.parent / "given"))
    (folder / "adapter_config.json").write_text(json.dumps(config))
    if peft is not None:
        opened = peft.PeftModel.from_pretrained(model, folder)
        shutil.rmtree(folder)
        opened.save_pretrained(folder)


def compare_adapters(trainer, folder, family, samples, names):
    print(f"PEFT {peft.__version__}" if peft else "without PEFT")
    whole = ["classifier", "pooler"] if family == "bert" else ["classifier"]
    make_adapter(folder / "adapter", make_model(family, **names), whole)
    model = make_model(family, **names).requires_grad_(False)
    trained = {}
    for name, tensor in load_file(folder / "adapter" / "adapter_model.safetensors").items():
        place = name.removeprefix(PREFIX)
        if "lora_" not in name:
            trained[name] = model.get_parameter(place).requires_grad_()
            trained[name].data.copy_(tensor)
        elif name.endswith("lora_A.weight"):
            place = place.removesuffix(".lora_A.weight")
            other = name.replace("lora_A", "lora_B")
            parent, key = place.rsplit(".", 1)
            adapter = Adapter(model.get_submodule(place), tensor,
                              load_file(folder / "adapter" / "adapter_model.safetensors")[other])
            setattr(model.get_submodule(parent), key, adapter)
            trained |= {name: adapter.a, other: adapter.b}
    model = model.double()
    losses, norms = train_reference(model, samples)
    inputs, labels = batch_of(samples[-KEPT:], model.config.pad_token_id)
    with torch.no_grad():
        output = model(**inputs, labels=labels)
    for grid in ("1 rank", "2 x 2"):
        ranks, flags = families.GRIDS[grid]
        name = f"{family}, adapters, {grid}"
        saved = folder / f"adapters-{grid.replace(' ', '-')}"
        lines = train(trainer, folder, ranks, [*flags, "--init-from", folder / "given", "--init-adapter", folder / "adapter",
                                               "--save", saved], folder / f"adapters {grid}.jsonl")
        ours = load_file(saved / "adapter_model.safetensors")
        if ours.keys() != trained.keys():
            sys.exit(f"{name}: the adapter's tensors are other ones: {ours.keys() ^ trained.keys()}")
        families.check(name, families.apart(lines, losses, norms, [
            (ours[tensor], p.detach()) for tensor, p in trained.items() if not tensor.endswith(families.NO_SLOPE)]))
        check_validation(name, lines[-1], output, labels)
        if peft is not None:
            opened = peft.PeftModel.from_pretrained(make_model(family, **names), saved).double().eval()
            with torch.no_grad():
                distance = (opened(**inputs).logits - output.logits).abs().max().item()
            print(f"{name}: logits of PEFT with what was saved are {distance:.1e} apart")
            if not distance <= 1e-4:
                sys.exit(f"{name}: logits of PEFT with what was saved are {distance:.1e} apart")


def main():
    trainer, folder, family = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    families.prepare(folder)
    samples = make_texts(folder / "texts.jsonl")
    names = dict(id2label=dict(enumerate(LABELS)), label2id={label: n for n, label in enumerate(LABELS)})
    model = make_model(family, **names)
    model.save_pretrained(folder / "given", safe_serialization=True)
    model = model.double()
    losses, norms = train_reference(model, samples)
    inputs, labels = batch_of(samples[-KEPT:], model.config.pad_token_id)
    with torch.no_grad():
        output = model(**inputs, labels=labels)

    for grid, (ranks, flags) in GRIDS.items():
        saved = folder / grid.replace(" ", "-")
        lines = train(trainer, folder, ranks, [*flags, "--init-from", folder / "given", "--save", saved], folder / f"{grid}.jsonl")
        opened, report = AutoModelForSequenceClassification.from_pretrained(saved, output_loading_info=True)
        wrong = {key: value for key, value in report.items() if value}
        if wrong or type(opened) is not type(model) or opened.config.id2label != names["id2label"]:
            sys.exit(f"{grid}: transformers opens what was saved as a {type(opened)} with {wrong}, {opened.config.id2label}")
        families.check(f"{family}, {grid}", families.apart(lines, losses, norms, families.sloped(opened, model)))
        check_validation(grid, lines[-1], output, labels)
    compare_adapters(trainer, folder, family, samples, names)

    # From masked-language-model weights: only the head is new.
    masks = make_model(family, AutoModelForMaskedLM)
    masks.save_pretrained(folder / "masks", safe_serialization=True)
    run(trainer, folder, 1, ["--init-from", folder / "masks", "--steps", 1, "--learning-rate", 0, "--save", folder / "begun"])
    begun = AutoModelForSequenceClassification.from_pretrained(folder / "begun")
    if begun.config.id2label != names["id2label"]:
        sys.exit(f"the classes of a head that is new are {begun.config.id2label}")
    body = dict(masks.base_model.named_parameters())
    new = 0
    for name, parameter in begun.named_parameters():
        part = name.split(".", 1)[1]
        if part in body:
            if not torch.equal(parameter, body[part]):
                sys.exit(f"{name} is not what it was")
        else:
            new += 1
            spread = parameter.std().item() if parameter.dim() > 1 else 0.02 + parameter.abs().max().item()
            if not 0.015 < spread < 0.025:
                sys.exit(f"{name} is not as a new one is: {spread}")
    if new != 4:
        sys.exit(f"{new} tensors are new, not 4")


main()
