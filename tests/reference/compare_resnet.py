"""Trains small wide residual networks with ranvier-train and with plain torch.nn, from the same files, and compares.

usage: compare_resnet.py TRAINER FOLDER CASE      FOLDER is emptied and filled

Each grid and placement of GRIDS must have the losses of PyTorch in double precision within 1e-5 and the gradient norms and
final tensors, running statistics among them, within 1e-4, step by step. PyTorch normalises each microbatch by itself, as
ranvier-train does; of a batch's running statistics it takes the mean over the microbatches.

A gradient jumps where a relu opens, and rounding decides of what is near zero: with biases of about zero PyTorch's own norms in
fp32 and fp64 are apart by 2e-2. So norms' biases are about 1 or -1, with weights of 0.4: about one number of a hundred is on
the other side of zero than the others of its channel, and hardly any is so near that rounding decides.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import safetensors

STEPS, BATCH, MICROBATCH, RATE, CLASSES, MOMENTUM = 20, 12, 4, 3e-5, 10, 0.1
TOLERANCE = {"loss": 1e-5, "norm": 1e-4, "tensor": 1e-4}
# Blocks, width, pixels per side, and the source of images.
CASES = {"cifar": ((1, 2, 1, 1), 2, 32), "pooled": ((1, 1, 1, 1), 1, 72)}
CHANNELS, EXPANSION = 4, 4
GRIDS = {
    "1 rank": (1, []),
    "2 x 3": (6, ["--g-inter", 2, "--g-data", 3]),
    "3 x 1": (3, ["--g-inter", 3, "--recompute", 1]),
    "zero3": (3, ["--g-data", 3, "--shard", "zero3"]),
    "all in files": (1, ["--offload", "infinity-nvme", "--nvme", "nvme"]),
}


class Block(nn.Module):
    def __init__(self, channels, inner, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = None
        if channels != out or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


class Network(nn.Module):
    """The names of torchvision's ResNet."""

    def __init__(self, blocks, width, size):
        super().__init__()
        small = size <= 64
        self.conv1 = nn.Conv2d(3, CHANNELS, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(CHANNELS)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        channels = CHANNELS
        for row, count in enumerate(blocks):
            base, layers = CHANNELS << row, []
            for block in range(count):
                layers.append(Block(channels, base * width, base * EXPANSION, 2 if row > 0 and block == 0 else 1))
                channels = base * EXPANSION
            setattr(self, f"layer{row + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        for row in range(4):
            x = getattr(self, f"layer{row + 1}")(x)
        return self.fc(x.mean((2, 3)))


def philox(key, counter):
    """Philox4x32-10, of arrays."""
    low, high = (np.uint64(word) for word in key)
    a, b, c, d = (np.asarray(word, np.uint64) for word in counter)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = second >> shift ^ b ^ low, second & mask, first >> shift ^ d ^ high, first & mask
        low, high = (low + np.uint64(0x9E3779B9)) & mask, (high + np.uint64(0xBB67AE85)) & mask
    return np.stack(np.broadcast_arrays(a, b, c, d), -1)


def synthetic(size, count=STEPS * BATCH, classes=CLASSES):
    """The first images of --data synthetic."""
    bytes_of_image, images, labels = 3 * size * size, [], []
    for n in range(count):
        label = int(philox((0, 0), (0, n, 0, 0))[0]) % classes
        shades = (philox((0, 0), (0, label, 0, 1)) & np.uint64(0xFF))[:3]
        words = philox((0, 0), (np.arange((bytes_of_image + 15) // 16), n, 0, 2)).reshape(-1)
        noise = words.astype("<u4").view(np.uint8)[:bytes_of_image].astype(np.uint64).reshape(3, size, size)
        images.append(((noise + shades[:, None, None]) // np.uint64(2)).astype(np.uint8))
        labels.append(label)
    return np.stack(images), np.array(labels)


def cifar(folder):
    """Files in CIFAR-10's format, with images that show their class."""
    generator = np.random.default_rng(5)
    labels = generator.integers(0, CLASSES, STEPS * BATCH)
    images = generator.integers(0, 160, (len(labels), 3, 32, 32)) + 9 * labels[:, None, None, None]
    images = images.astype(np.uint8)
    folder.mkdir()
    records = np.concatenate([labels[:, None].astype(np.uint8), images.reshape(len(labels), -1)], 1)
    records[:90].tofile(folder / "data_batch_1.bin")
    records[90:].tofile(folder / "data_batch_2.bin")
    return images, labels


def train_reference(model, images, labels):
    """Losses and gradient norms; the model has the last step's weights and statistics."""
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64)[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64)[:, None, None]
    pixels = (torch.from_numpy(images).double() / 255 - mean) / deviation
    targets = torch.from_numpy(labels).long()
    trained = list(model.parameters())
    optimizer = torch.optim.AdamW([dict(params=[p for p in trained if p.dim() > 1], weight_decay=0.1),
                                   dict(params=[p for p in trained if p.dim() == 1], weight_decay=0.0)], lr=RATE,
                                  betas=(0.9, 0.95), eps=1e-8)
    running = {name: buffer for name, buffer in model.named_buffers() if "running" in name}
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # keep the statistics of each microbatch
    averages = {name: buffer.clone() for name, buffer in running.items()}
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, seen = 0.0, {name: 0.0 for name in running}
        for first in range(step * BATCH, (step + 1) * BATCH, MICROBATCH):
            part = slice(first, first + MICROBATCH)
            one = nn.functional.cross_entropy(model(pixels[part]), targets[part], reduction="sum") / BATCH
            one.backward()
            loss += one.item()
            for name, buffer in running.items():
                seen[name] = seen[name] + buffer * (MICROBATCH / BATCH)
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in trained]))
        for parameter in trained:
            parameter.grad.mul_(min(1.0, 1.0 / norm.item()))
        optimizer.step()
        for name, average in averages.items():
            average.mul_(1 - MOMENTUM).add_(seen[name], alpha=MOMENTUM)
        losses.append(loss)
        norms.append(norm.item())
    for name, buffer in running.items():
        buffer.copy_(averages[name])
    return losses, norms


def train(trainer, folder, data, ranks, flags, saved, metrics):
    """Runs ranvier-train on the same files; returns the lines of its metrics."""
    flags = [folder / "nvme" if flag == "nvme" else flag for flag in flags]
    command = ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", trainer, "--init-from", folder / "given", "--data",
               data, "--shuffle", "off", "--batch-size", BATCH, "--microbatch-size", MICROBATCH, "--steps",
               STEPS, "--learning-rate", RATE, "--warmup-steps", 0, "--lr-decay", "constant", "--threads", 1, "--save", saved,
               "--metrics", metrics, *flags]
    command = [str(part) for part in command]
    print(" ".join(command), flush=True)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    subprocess.run(command, env=environment, check=True, timeout=200, stdin=subprocess.DEVNULL)
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def tensors_of(model):
    return {name: value.detach().numpy() for name, value in model.state_dict().items() if not name.endswith("tracked")}


def main():
    trainer, folder, case = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "nvme").mkdir(parents=True)
    (folder / "given").mkdir()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    blocks, width, size = CASES[case]
    model = Network(blocks, width, size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # without zeros and ones: an omitted one must show
            if parameter.dim() == 1:
                centre = torch.zeros_like(parameter)
                if "bn" in name or "downsample" in name:
                    centre = centre + 0.4 if name.endswith("weight") else centre + 1 - 2 * (torch.arange(len(centre)) % 2)
                parameter.copy_(centre + 0.1 * torch.randn_like(parameter))
    safetensors.write(folder / "given" / "model.safetensors", tensors_of(model))
    (folder / "given" / "config.json").write_text(json.dumps(
        {"model_type": "wide_resnet", "blocks": blocks, "hidden_size": CHANNELS, "width_factor": width, "image_size": size,
         "num_labels": CLASSES}))
    data = folder / "cifar" if case == "cifar" else "synthetic"
    images, labels = cifar(data) if case == "cifar" else synthetic(size)
    model = model.double()
    losses, norms = train_reference(model, images, labels)
    print(f"torch {torch.__version__}: loss {losses[0]:.6f} -> {losses[-1]:.6f}")

    for name, (ranks, flags) in GRIDS.items():
        saved = folder / name.replace(" ", "-")
        lines = train(trainer, folder, data, ranks, flags, saved, folder / f"{name}.jsonl")
        ours, theirs = safetensors.read(saved / "model.safetensors"), tensors_of(model)
        if ours.keys() != theirs.keys():
            sys.exit(f"{name}: tensors {ours.keys() ^ theirs.keys()} are not in both")
        worst = {
            "loss": max(abs(line["loss"] - loss) / loss for line, loss in zip(lines, losses, strict=True)),
            "norm": max(abs(line["grad_norm"] - norm) / norm for line, norm in zip(lines, norms, strict=True)),
            "tensor": max(np.linalg.norm(ours[tensor] - theirs[tensor]) / np.linalg.norm(theirs[tensor]) for tensor in ours),
        }
        print(f"{case}, {name}: apart by at most {worst}")
        for kind, tolerance in TOLERANCE.items():
            if not worst[kind] <= tolerance:
                sys.exit(f"{case}, {name}: {kind} is {worst[kind]:.1e} apart, more than {tolerance}")


if __name__ == "__main__":
    main()
