"""How fast PyTorch trains WideResNet-50-2 on this machine's processor: one JSON line.

usage: pytorch_images.py SIZE CLASSES BATCH fp32|bf16 SECONDS [--compile whole|none]

torchvision's architecture on random images of SIZE × SIZE. A step is what ranvier-train does in one: forward, loss,
backward, clipping by the global norm, AdamW. The faster of PyTorch's layouts of images is used, and of AdamW's
implementations.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BLOCKS, CHANNELS, WIDTH, EXPANSION = (3, 4, 6, 3), 64, 2, 4


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
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(self.bn3(self.conv3(y)) + shortcut, inplace=True)


class Network(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, CHANNELS, 7, 2, 3, bias=False), nn.BatchNorm2d(CHANNELS)
        layers, channels = [], CHANNELS
        for row, count in enumerate(BLOCKS):
            base = CHANNELS << row
            for block in range(count):
                layers.append(Block(channels, base * WIDTH, base * EXPANSION, 2 if row > 0 and block == 0 else 1))
                channels = base * EXPANSION
        self.blocks = nn.Sequential(*layers)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


class Training:
    """With one layout and one implementation of AdamW."""

    def __init__(self, options, layout, foreach):
        torch.manual_seed(1)
        self.precision = options.precision
        model = Network(options.classes).to(memory_format=layout)
        self.parameters = list(model.parameters())
        groups = [{"params": [p for p in self.parameters if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in self.parameters if p.dim() == 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), foreach=foreach)
        images = torch.randn(options.batch, 3, options.size, options.size)
        self.images = images.to(memory_format=layout)
        self.targets = torch.randint(options.classes, (options.batch,))
        self.run = torch.compile(model) if options.compile == "whole" else model

    def seconds_of_step(self):
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            loss = F.cross_entropy(self.run(self.images), self.targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("size", "classes", "batch"):
        parser.add_argument(name, type=int)
    parser.add_argument("precision", choices=("fp32", "bf16"))
    parser.add_argument("seconds", type=float)
    parser.add_argument("--compile", choices=("whole", "none"), default="none")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    torch.set_flush_denormal(True)
    tried = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        for foreach in (False, True):
            training = Training(options, layout, foreach)
            training.seconds_of_step()  # state and memory come into being here
            tried[layout, foreach] = min(training.seconds_of_step() for _ in range(2))
    layout, foreach = min(tried, key=tried.get)
    training = Training(options, layout, foreach)
    training.seconds_of_step()
    times, end = [], time.perf_counter() + options.seconds
    while len(times) < 3 or time.perf_counter() < end:
        times.append(training.seconds_of_step())
    print(json.dumps({"torch": torch.__version__, "compiled": options.compile, "steps": len(times),
                      "layout": str(layout).removeprefix("torch."), "adamw": "foreach" if foreach else "plain",
                      "images_per_second": options.batch / statistics.median(times),
                      "images_per_second_best": options.batch / min(times)}))


if __name__ == "__main__":
    main()
