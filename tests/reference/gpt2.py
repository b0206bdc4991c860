"""GPT-2 in plain PyTorch, written from the architecture's description and nothing of Ranvier.

Pre-LayerNorm (eps 1e-5), causal attention, GELU in its tanh form, head tied to the embedding, no dropout.
Weights go by the Hugging Face names; linear weights are [in, out].

B samples of a batch, T tokens of a sample, C channels, H heads, V tokens in the vocabulary.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F


def shapes(layers, hidden, vocabulary, length):
    """Every parameter's shape by name."""
    c = hidden
    result = {"wte.weight": (vocabulary, c), "wpe.weight": (length, c)}
    for layer in range(layers):
        for name, shape in {
            "ln_1.weight": (c,), "ln_1.bias": (c,),
            "attn.c_attn.weight": (c, 3 * c), "attn.c_attn.bias": (3 * c,),
            "attn.c_proj.weight": (c, c), "attn.c_proj.bias": (c,),
            "ln_2.weight": (c,), "ln_2.bias": (c,),
            "mlp.c_fc.weight": (c, 4 * c), "mlp.c_fc.bias": (4 * c,),
            "mlp.c_proj.weight": (4 * c, c), "mlp.c_proj.bias": (c,),
        }.items():
            result[f"h.{layer}.{name}"] = shape
    result |= {"ln_f.weight": (c,), "ln_f.bias": (c,)}
    return result


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def logits(weights, tokens, heads):
    """[B, T, V] from tokens [B, T]."""
    batch, length = tokens.shape
    channels = weights["wte.weight"].shape[1]
    past = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()

    def norm(x, name):
        return F.layer_norm(x, (channels,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-5)

    def linear(x, name):
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def split(x):  # [B, H, T, C/H]
        return x.view(batch, length, heads, channels // heads).transpose(1, 2)

    x = weights["wte.weight"][tokens] + weights["wpe.weight"][:length]
    layer = 0
    while f"h.{layer}.ln_1.weight" in weights:
        h = f"h.{layer}"
        q, k, v = (split(part) for part in linear(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn").chunk(3, dim=-1))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(channels // heads)
        attention = scores.masked_fill(~past, -math.inf).softmax(dim=-1)
        mixed = (attention @ v).transpose(1, 2).reshape(batch, length, channels)
        x = x + linear(mixed, f"{h}.attn.c_proj")
        x = x + linear(gelu(linear(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc")), f"{h}.mlp.c_proj")
        layer += 1
    return norm(x, "ln_f") @ weights["wte.weight"].T


def read_tokens(path):
    """An llm.c .bin file (256 int32 of header, then uint16), or any other file as bytes."""
    if str(path).endswith(".bin"):
        magic, version, count = np.fromfile(path, dtype="<i4", count=3)
        if (magic, version) != (20240520, 1):
            raise ValueError(f"{path}: not an llm.c token file")
        return np.fromfile(path, dtype="<u2", offset=1024, count=count).astype(np.int64)
    return np.fromfile(path, dtype=np.uint8).astype(np.int64)


def train(tensors, tokens, *, heads, steps, batch_size, learning_rate, dtype=torch.float32, device="cpu",
          betas=(0.9, 0.95), epsilon=1e-8, weight_decay=0.1, clip=1.0, momentum=None):
    """AdamW, or SGD with `momentum` and without decay, on samples 0, 1, 2, … in order.

    Returns (losses, gradient norms, final tensors)."""
    weights = {name: torch.tensor(values, dtype=dtype, device=device, requires_grad=True)
               for name, values in tensors.items()}
    length = weights["wpe.weight"].shape[0]
    optimizer = torch.optim.AdamW(
        [{"params": [w for w in weights.values() if w.dim() == 2], "weight_decay": weight_decay},
         {"params": [w for w in weights.values() if w.dim() == 1], "weight_decay": 0.0}],
        lr=learning_rate, betas=betas, eps=epsilon)
    if momentum is not None:
        optimizer = torch.optim.SGD(weights.values(), lr=learning_rate, momentum=momentum)
    losses, norms = [], []
    for step in range(steps):
        first = step * batch_size
        samples = torch.tensor(np.stack([tokens[n * length : (n + 1) * length + 1]
                                         for n in range(first, first + batch_size)])).to(device)
        inputs, targets = samples[:, :-1], samples[:, 1:]
        loss = F.cross_entropy(logits(weights, inputs, heads).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), clip).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms, {name: w.detach().to(torch.float32).cpu().numpy() for name, w in weights.items()}
