"""ranvier-generate compared with llama.cpp on the same weights: tokens per second, in turns, one JSON line per case.

usage: compare_llama_cpp.py GENERATOR LLAMA_CPP [--precisions fp32,bf16] [--threads 1,2] [--tokens 128] [--rounds 5]

GENERATOR is the program ranvier-generate, LLAMA_CPP a build folder of llama.cpp with bin/llama-bench:

  cmake -S llama.cpp -B llama.cpp/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF
  ninja -C llama.cpp/build llama-bench

The model is a LLaMA with random weights, as many as GPT-2 small has. Both programs start with an empty cache and draw
one token at a time. Loading and the first token do not count.
"""

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "reference")]
import figures
import safetensors

LAYERS, HIDDEN, HEADS, FFN, VOCABULARY, CONTEXT, EPSILON, THETA = 12, 768, 12, 2048, 50257, 1024, 1e-5, 10000.0
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": LAYERS,
          "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
          "intermediate_size": FFN, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
          "rms_norm_eps": EPSILON, "rope_theta": THETA, "hidden_act": "silu", "tie_word_embeddings": True}
F32, BF16 = 0, 30  # GGUF's types of tensors
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def random_weights():
    """Tensors by Hugging Face's names."""
    random = np.random.default_rng(1)

    def matrix(rows, columns):
        return random.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)

    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN),
               "model.norm.weight": np.ones(HIDDEN, dtype=np.float32)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in NAMES:
            if name.endswith("layernorm"):
                tensors[f"{prefix}{name}.weight"] = np.ones(HIDDEN, dtype=np.float32)
            else:
                rows = FFN if name in ("mlp.gate_proj", "mlp.up_proj") else HIDDEN
                tensors[f"{prefix}{name}.weight"] = matrix(rows, FFN if name == "mlp.down_proj" else HIDDEN)
    return tensors


def gguf_tensors(tensors):
    """Tensors by GGUF's names; there, the two halves of a head that a rotation pairs are interleaved."""
    for name, values in tensors.items():
        parts = name.removeprefix("model.").removesuffix(".weight").split(".", 2)
        if parts[0] == "layers":
            if parts[2] in ("self_attn.q_proj", "self_attn.k_proj"):
                halves = values.reshape(HEADS, 2, HIDDEN // HEADS // 2, HIDDEN)
                values = halves.swapaxes(1, 2).reshape(values.shape)
            yield f"blk.{parts[1]}.{NAMES[parts[2]]}.weight", values
        else:
            yield {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[parts[0]], values


def bf16_bits(values):
    """Rounds to nearest even; the values have no NaN."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def write_gguf(path, tensors, precision):
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def entry(key, value):
        kind, packed = {int: (4, lambda: struct.pack("<I", value)), float: (6, lambda: struct.pack("<f", value)),
                        str: (8, lambda: text(value))}[type(value)]
        return text(key) + struct.pack("<i", kind) + packed()

    facts = {"general.architecture": "llama", "general.name": "random", "llama.block_count": LAYERS,
             "llama.context_length": CONTEXT, "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN,
             "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": HEADS,
             "llama.attention.layer_norm_rms_epsilon": EPSILON, "llama.rope.freq_base": THETA,
             "llama.rope.dimension_count": HIDDEN // HEADS, "llama.vocab_size": VOCABULARY,
             "tokenizer.ggml.model": "no_vocab"}
    named = list(gguf_tensors(tensors))
    header = struct.pack("<4sIqq", b"GGUF", 3, len(named), len(facts))
    header += b"".join(entry(key, value) for key, value in facts.items())
    offset = 0
    for name, values in named:
        narrow = precision == "bf16" and values.ndim == 2
        header += text(name) + struct.pack("<I", values.ndim)
        header += struct.pack(f"<{values.ndim}q", *reversed(values.shape))
        header += struct.pack("<iQ", BF16 if narrow else F32, offset)
        size = values.size * (2 if narrow else 4)
        offset += size + -size % 32
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 32))
        for _, values in named:
            narrow = precision == "bf16" and values.ndim == 2
            data = (bf16_bits(values) if narrow else np.ascontiguousarray(values, dtype="<f4")).tobytes()
            file.write(data + bytes(-len(data) % 32))


def run_ranvier(options, folder, precision, threads):
    command = [options.generator, "--weights", folder, "--precision", precision, "--tokenizer", "bytes", "--prompt",
               "a", "--tokens", str(options.tokens), "--context", str(CONTEXT), "--threads", str(threads)]
    return generated_rate(subprocess.run(command, check=True, capture_output=True).stderr.decode())


def generated_rate(printed):
    """ranvier-generate prints its rate only on the console."""
    return figures.number(printed, "tokens", "tokens/s")


def run_llama_cpp(options, folder, precision, threads):
    command = [options.llama_cpp / "bin" / "llama-bench", "-m", folder / f"{precision}.gguf", "-t", str(threads), "-p",
               "0", "-n", str(options.tokens), "-r", "1", "-o", "json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(printed)[0]["avg_ts"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("generator", type=Path)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tensors = random_weights()
        safetensors.write(folder / "model.safetensors", tensors)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        for precision in options.precisions.split(","):
            write_gguf(folder / f"{precision}.gguf", tensors, precision)
        for precision in options.precisions.split(","):
            for threads in map(int, options.threads.split(",")):
                rates = [(run_ranvier(options, folder, precision, threads),
                          run_llama_cpp(options, folder, precision, threads)) for _ in range(options.rounds)]
                ours, theirs = (statistics.median(rate) for rate in zip(*rates))
                print(json.dumps({"bench": "llama.cpp", "parameters": sum(t.size for t in tensors.values()),
                                  "precision": precision, "threads": threads, "tokens": options.tokens,
                                  "ranvier_tokens_per_second": round(ours, 1),
                                  "llama_cpp_tokens_per_second": round(theirs, 1),
                                  "ratio": round(statistics.median(a / b for a, b in rates), 3)}), flush=True)


if __name__ == "__main__":
    main()
