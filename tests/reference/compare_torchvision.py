"""Has torchvision's wide_resnet50_2 and ranvier-train read each other's weights, and compares what they tell.

usage: compare_torchvision.py TRAINER FOLDER      FOLDER is emptied and filled; exit code 77: there is no torchvision

torchvision's state_dict, running statistics and counts of batches included, is evaluated by --init-from without a config.json.
After two steps of training the saved tensors go back by load_state_dict. Losses are the same within 1e-5, and so is the number
of images whose class is told.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import safetensors
from compare_resnet import synthetic

try:
    from torchvision.models import wide_resnet50_2
except ImportError:
    print("Skipped: torchvision is not installed")
    sys.exit(77)

SIZE, CLASSES, IMAGES, TOLERANCE = 224, 1000, 4, 1e-5


def pixels_of(images):
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    return (torch.from_numpy(images).float() / 255 - mean) / deviation


def run(trainer, metrics, *flags):
    """The last line of ranvier-train's metrics."""
    command = [str(part) for part in (trainer, "--data", "synthetic", "--batch-size", IMAGES, "--microbatch-size", IMAGES,
                                      "--threads", 2, "--metrics", metrics, *flags)]
    print(" ".join(command), flush=True)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    subprocess.run(command, env=environment, check=True, timeout=250, stdin=subprocess.DEVNULL)
    return json.loads(metrics.read_text().splitlines()[-1])


def compare(what, model, pixels, targets, line):
    model.eval()
    with torch.no_grad():
        logits = model(pixels)
    loss = nn.functional.cross_entropy(logits, targets).item()
    accuracy = (logits.argmax(1) == targets).double().mean().item()
    apart = abs(line["validation_loss"] - loss) / loss
    print(f"{what}: loss {loss:.6f}, {apart:.1e} apart; accuracy {accuracy}")
    if not apart <= TOLERANCE:
        sys.exit(f"{what}: losses are {apart:.1e} apart, more than {TOLERANCE}")
    if line["validation_accuracy"] != accuracy:
        sys.exit(f"{what}: ranvier-train's accuracy is {line['validation_accuracy']}, torchvision's {accuracy}")


def main():
    trainer, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "given").mkdir(parents=True)
    torch.set_num_threads(2)
    torch.manual_seed(3)
    images, labels = synthetic(SIZE, IMAGES, CLASSES)
    pixels, targets = pixels_of(images), torch.from_numpy(labels).long()
    model = wide_resnet50_2()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # without zeros and ones: an omitted parameter must change the result
            module.weight.data.uniform_(0.3, 0.7)
            module.bias.data.normal_(0, 0.1)
    with torch.no_grad():
        for _ in range(3):
            model.train()(pixels)
        model.fc.weight.mul_(10)
    given = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    safetensors.write(folder / "given" / "model.safetensors", given)
    line = run(trainer, folder / "evaluated.jsonl", "--init-from", folder / "given", "--eval-only", "--eval-samples",
               IMAGES)
    compare("torchvision's weights", model, pixels, targets, line)

    saved = folder / "saved"
    run(trainer, folder / "trained.jsonl", "--init-from", folder / "given", "--steps", 2, "--shuffle", "off", "--learning-rate",
        1e-4, "--save", saved)
    trained = {name: torch.tensor(values) for name, values in safetensors.read(saved / "model.safetensors").items()}
    model.load_state_dict(trained)
    line = run(trainer, folder / "again.jsonl", "--init-from", saved, "--eval-only", "--eval-samples", IMAGES)
    compare("trained weights in torchvision", model, pixels, targets, line)
    moved = (trained["layer4.2.bn3.running_var"] - torch.from_numpy(given["layer4.2.bn3.running_var"])).abs().max().item()
    if not moved > 0:
        sys.exit("running statistics did not change")


if __name__ == "__main__":
    main()
