"""How fast PyTorch trains a GPT-2 on this machine's processor: one JSON line.

usage: pytorch_training.py LAYERS HIDDEN HEADS VOCABULARY LENGTH BATCH fp32|bf16 SECONDS

A step is what ranvier-train does in one: forward, loss, backward, clipping by the global norm, AdamW. The faster
of AdamW's two implementations is used. Allocator and threads come from the environment.
"""

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


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary, length):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Embedding(length, hidden)
        self.h = nn.ModuleList(Block(hidden, heads, length) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def main():
    layers, hidden, heads, vocabulary, length, batch = map(int, sys.argv[1:7])
    precision, seconds = sys.argv[7], float(sys.argv[8])
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    torch.set_flush_denormal(True)
    model = Gpt(layers, hidden, heads, vocabulary, length)
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizers = {foreach: torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), foreach=foreach)
                  for foreach in (False, True)}
    data = torch.randint(vocabulary, (16, batch, length + 1))

    def step(number, optimizer):
        tokens = data[number % len(data)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        begin = time.perf_counter()
        optimizer.step()
        return time.perf_counter() - begin

    for optimizer in optimizers.values():  # state and memory come into being here
        step(0, optimizer)
    optimizer_seconds = {foreach: min(step(i, optimizers[foreach]) for i in range(2)) for foreach in optimizers}
    foreach = min(optimizer_seconds, key=optimizer_seconds.get)

    times, end, number = [], time.perf_counter() + seconds, 0
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        step(number, optimizers[foreach])
        times.append(time.perf_counter() - begin)
        number += 1
    print(json.dumps({"torch": torch.__version__, "steps": len(times), "adamw_foreach": foreach,
                      "tokens_per_second": batch * length / statistics.median(times),
                      "tokens_per_second_best": batch * length / min(times)}))


if __name__ == "__main__":
    main()
