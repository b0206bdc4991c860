"""How fast PyTorch trains a GPT-2, a LLaMA or a BERT on this machine's processor or its GPU: one JSON line.

usage: pytorch_training.py LAYERS HIDDEN HEADS VOCABULARY LENGTH BATCH fp32|bf16 SECONDS [--family gpt|llama|bert]
                           [--device cuda] [--compile whole|blocks|none]

A LLaMA's MLP has 8/3 of the channels, rounded up to 64; a BERT predicts every position.

A step is what ranvier-train does in one: forward, loss, backward, clipping by the global norm, AdamW. The fastest
of AdamW's implementations is used, and PyTorch's fused attention where it has one. Allocator and threads come from the
environment. --compile blocks: one block, which all share, and the head with the loss apart from it, which compiles in a
fraction of the time of a deep model as a whole. In fp32 products are in fp32, without TF32, as ranvier-train's are.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, hidden, heads, length):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden)
        self.register_buffer("future", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(hidden, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (hidden // self.heads) ** -0.5
            y = scores.masked_fill_(self.future[:length, :length], float("-inf")).softmax(dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, hidden))


class Block(nn.Module):
    def __init__(self, hidden, heads, length):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden)
        self.attn = Attention(hidden, heads, length)
        self.ln_2 = nn.LayerNorm(hidden)
        self.c_fc = nn.Linear(hidden, 4 * hidden)
        self.c_proj = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class RmsNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class LlamaBlock(nn.Module):
    def __init__(self, hidden, heads, length):
        super().__init__()
        inner = (8 * hidden // 3 + 63) // 64 * 64
        self.heads = heads
        self.norm_1, self.norm_2 = RmsNorm(hidden), RmsNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        half = hidden // heads // 2
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def rotated(self, x):
        first, second = x.float().chunk(2, dim=-1)
        cos, sin = self.cos[:x.shape[2]], self.sin[:x.shape[2]]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).split(hidden, dim=2))
        y = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, hidden))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class BertBlock(nn.Module):
    def __init__(self, hidden, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden, 1e-12), nn.LayerNorm(hidden, 1e-12)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(hidden, dim=2))
        y = F.scaled_dot_product_attention(q, k, v)
        x = self.norm_1(x + self.out(y.transpose(1, 2).reshape(batch, length, hidden)))
        return self.norm_2(x + self.down(F.gelu(self.up(x))))


class Gpt(nn.Module):
    """Or one of the others, by its blocks, and by what stands before and behind them."""

    def __init__(self, layers, hidden, heads, vocabulary, length, family):
        super().__init__()
        self.family = family
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Embedding(length, hidden) if family != "llama" else None
        block = {"gpt": Block, "llama": LlamaBlock, "bert": BertBlock}[family]
        self.h = nn.ModuleList(block(hidden, heads, length) for _ in range(layers))
        self.ln_f = RmsNorm(hidden) if family == "llama" else nn.LayerNorm(hidden)
        self.ln_0 = nn.LayerNorm(hidden) if family == "bert" else None
        self.transform = nn.Linear(hidden, hidden) if family == "bert" else None
        self.head = nn.Linear(hidden, vocabulary, bias=family == "bert")
        if family != "llama":
            self.head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        if self.wpe is not None:
            x = x + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        if self.ln_0 is not None:
            x = self.ln_0(x)
        for block in self.h:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        if self.transform is not None:
            x = F.gelu(self.transform(x))
        return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def parse():
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "heads", "vocabulary", "length", "batch"):
        parser.add_argument(name, type=int)
    parser.add_argument("precision", choices=("fp32", "bf16"))
    parser.add_argument("seconds", type=float)
    parser.add_argument("--family", choices=("gpt", "llama", "bert"), default="gpt")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compile", choices=("whole", "blocks", "none"), default="none")
    return parser.parse_args()


def fuses_on_processors():
    try:
        torch.optim.AdamW([nn.Parameter(torch.zeros(1))], fused=True)
    except (RuntimeError, TypeError):
        return False
    return True


def main():
    options = parse()
    on_gpu = options.device == "cuda"
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    torch.set_flush_denormal(True)
    model = Gpt(options.layers, options.hidden, options.heads, options.vocabulary, options.length,
                options.family).to(options.device)
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    # One set of states at a time: a large model has no room for several.
    ways = ["foreach"] if on_gpu else ["plain", "foreach"]
    if on_gpu or fuses_on_processors():
        ways.append("fused")
    data = torch.randint(options.vocabulary, (16, options.batch, options.length + 1), device=options.device)
    if options.compile != "none" and not hasattr(torch, "compile"):
        sys.exit(f"PyTorch {torch.__version__} has no torch.compile: install 2.0 or newer")
    run = torch.compile(model) if options.compile == "whole" else model
    if options.compile == "blocks":
        for block in model.h:
            block.compile()
        model.loss = torch.compile(model.loss)

    def now():
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    def make_optimizer(way):
        return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), foreach=way == "foreach",
                                 **({"fused": True} if way == "fused" else {}))

    def step(number, optimizer):
        """The seconds of the optimizer's part, on a processor; a GPU is not waited for."""
        tokens = data[number % len(data)]
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        begin = time.perf_counter()
        optimizer.step()
        return time.perf_counter() - begin

    def seconds_with(way):
        optimizer = make_optimizer(way)
        step(0, optimizer)  # state and memory come into being here
        if not on_gpu:
            return min(step(i, optimizer) for i in range(2))
        begin = now()
        for i in range(3):
            step(i, optimizer)
        return now() - begin

    seconds_by_way = {way: seconds_with(way) for way in ways}
    way = min(seconds_by_way, key=seconds_by_way.get)
    optimizer = make_optimizer(way)
    step(0, optimizer)

    times, end, number = [], now() + options.seconds, 0
    while len(times) < 3 or time.perf_counter() < end:
        begin = now()
        step(number, optimizer)
        times.append(now() - begin)
        number += 1
    tokens = options.batch * options.length
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name() if on_gpu else "cpu",
                      "compiled": options.compile, "steps": len(times), "adamw": way,
                      "tokens_per_second": tokens / statistics.median(times),
                      "tokens_per_second_best": tokens / min(times)}))


if __name__ == "__main__":
    main()
