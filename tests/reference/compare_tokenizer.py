"""Tokens of ranvier-tokenize, beside those of OpenAI's encoder for GPT-2 (encoder.py), said again in Python, on more
than a megabyte of English, code, Chinese, emoji, blanks of all kinds and bytes that are no UTF-8.

usage: compare_tokenizer.py TOKENIZE FOLDER [VOCABULARY]

FOLDER is emptied and filled. VOCABULARY is a folder with GPT-2's encoder.json and vocab.bpe; without it, one is learned
from a part of the text. Where tokenizers can be imported, and with VOCABULARY tiktoken, they have to say the same of
what is UTF-8.
"""

import collections
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

try:
    import regex
except ImportError:
    print("Skipped: python3 has no module regex (on Debian: cmake/install_dependencies.sh --reference)")
    sys.exit(77)

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
END = "<|endoftext|>"
MERGES = 400


def alphabet():
    """GPT-2's spelling of bytes, in the order of their tokens."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return {byte: chr(byte) for byte in printed} | {byte: chr(256 + i) for i, byte in enumerate(others)}


SPELLING = alphabet()


def spelled(word):
    return "".join(SPELLING[byte] for byte in word.encode("utf-8", "surrogateescape"))


def words(text):
    return (spelled(word) for word in regex.findall(PATTERN, text))


def mixed_text(here, chance):
    """(UTF-8, bytes of which some are no UTF-8)"""
    tree = here.parent.parent
    files = sorted(path for folder in "actors apps collectives models runtime tests".split()
                   for pattern in ("*.cpp", "*.hpp", "*.md", "*.sh", "*.py") for path in (tree / folder).rglob(pattern))
    code = "".join(path.read_text() for path in files)[:500_000]
    names = [word.strip("/*,;(){}") for word in code.split()]
    ends = ["", "", "", ",", ".", "'s", "'ll", "'re", "'d", "'"]
    english = " ".join(chance.choice(names) + chance.choice(ends) for _ in range(40_000))
    chinese = "".join(chr(chance.randrange(0x4e00, 0x9fa5)) if chance.random() < 0.9 else chance.choice("。，？！ 、「」１２\n")
                      for _ in range(60_000))
    blanks = [*range(0x9, 0x21), 0x85, 0xa0, 0x1680, 0x180e, *range(0x2000, 0x2010), 0x2028, 0x2029, 0x202f, 0x205f, 0x3000]
    kinds = [blanks, range(0x1f300, 0x1f64f), range(0x41, 0x17f), range(0x391, 0x3a1), range(0x410, 0x44f),
             range(0x5d0, 0x5ea), range(0x660, 0x669), range(0x905, 0x939), range(0x300, 0x36f), range(0x2150, 0x215f),
             range(0x3041, 0x3096), range(0x80, 0xc0)]
    every = "".join(chr(chance.choice(chance.choice(kinds))) * (1 if chance.random() < 0.95 else chance.randrange(1, 60))
                    for _ in range(60_000))
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467 "
    clean = "\n".join([english, code, chinese, every, english.upper()[:50_000], 500 * family])
    stray = [b"\xff", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\x80", b" \xfe the", b"\xe9t"]
    noise = b"".join(chance.choice(stray) if chance.random() < 0.3 else chance.randbytes(chance.randrange(1, 9))
                     for _ in range(20_000))
    return clean, clean.encode() + noise


def learned(text, folder):
    """Writes encoder.json and vocab.bpe with the merges that byte pair encoding learns from the text."""
    counts = collections.Counter(words(text))
    parts = {word: list(word) for word in counts if len(word) > 1}
    pairs, where = collections.Counter(), collections.defaultdict(set)

    def count(word, sign):
        for pair in zip(parts[word], parts[word][1:]):
            pairs[pair] += sign * counts[word]
            if sign > 0:
                where[pair].add(word)

    for word in parts:
        count(word, 1)
    merges, tokens = [], list(SPELLING.values())
    known = set(tokens)
    while len(merges) < MERGES:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if "".join(best) in known:  # another pair made it before: only the first merge of a token is one
            del pairs[best]
            continue
        for word in where.pop(best):
            count(word, -1)
            parts[word] = joined(parts[word], best)
            count(word, 1)
        merges.append(best)
        tokens.append("".join(best))
        known.add(tokens[-1])
    tokens.append(END)
    folder.mkdir(parents=True)
    (folder / "encoder.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))


def joined(parts, pair):
    out, i = [], 0
    while i < len(parts):
        both = i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair
        out.append(parts[i] + parts[i + 1] if both else parts[i])
        i += 1 + both
    return out


class Encoder:
    def __init__(self, folder):
        self.ids = json.loads((folder / "encoder.json").read_text())
        lines = (folder / "vocab.bpe").read_text().split("\n")[1:]
        self.merges = [tuple(line.split()) for line in lines if line]
        self.ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        self.known = {}

    def word(self, word):
        if word not in self.known:
            parts = list(word)
            while len(parts) > 1:
                best = min(zip(parts, parts[1:]), key=lambda pair: self.ranks.get(pair, float("inf")))
                if best not in self.ranks:
                    break
                parts = joined(parts, best)
            self.known[word] = [self.ids[part] for part in parts]
        return self.known[word]

    def __call__(self, text):
        return np.array([token for word in words(text) for token in self.word(word)])


def check(name, ours, theirs):
    same = min(len(ours), len(theirs))
    different = np.flatnonzero(ours[:same] != theirs[:same])
    if len(different) or len(ours) != len(theirs):
        at = different[0] if len(different) else same
        sys.exit(f"{name}: {len(ours)} tokens, beside {len(theirs)}; "
                 f"from token {at} on {ours[at:at + 5]}, beside {theirs[at:at + 5]}")
    print(f"{name}: {len(ours)} tokens are the same")


def main():
    tokenize, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    clean, mixed = mixed_text(Path(__file__).resolve().parent, random.Random(7))
    vocabulary = Path(sys.argv[3]) if len(sys.argv) > 3 else folder / "vocabulary"
    if len(sys.argv) <= 3:
        learned(clean[::8] + clean[:100_000], vocabulary)  # every kind of character, and words
    encoder = Encoder(vocabulary)

    def ours(name, content):
        text, tokens = folder / f"{name}.txt", folder / f"{name}.bin"
        text.write_bytes(content)
        subprocess.run([tokenize, text, "--tokenizer", f"gpt2:{vocabulary}", "--output", tokens], check=True,
                       timeout=120, stdout=subprocess.DEVNULL)
        return np.fromfile(tokens, dtype="<u2", offset=1024).astype(np.int64)

    begin = time.time()
    print(f"{len(mixed) / 1e6:.2f} MB, {len(mixed) - len(clean.encode())} bytes of it noise; {len(encoder.ids)} tokens")
    check("OpenAI's encoder", ours("mixed", mixed), encoder(mixed.decode("utf-8", "surrogateescape")))
    print(f"in {time.time() - begin:.1f} s")

    clean_tokens = ours("clean", clean.encode())
    bytes_of = {spelling: byte for byte, spelling in SPELLING.items()}
    try:
        if len(sys.argv) <= 3:  # it joins whatever is a token together, which is the same for GPT-2's vocabulary only
            raise ImportError
        import tiktoken
        ranks = {bytes(bytes_of[c] for c in token): i for token, i in encoder.ids.items() if token != END}
        encoding = tiktoken.Encoding("compared", pat_str=PATTERN, mergeable_ranks=ranks,
                                     special_tokens={END: encoder.ids[END]})
        check("tiktoken", clean_tokens, np.array(encoding.encode_ordinary(clean)))
    except ImportError:
        print("not beside tiktoken")
    try:
        import tokenizers
        hugging = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=encoder.ids, merges=encoder.merges))
        hugging.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        check("tokenizers", clean_tokens, np.array(hugging.encode(clean).ids))
    except ImportError:
        print("not beside tokenizers")


main()
