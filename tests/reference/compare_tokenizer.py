"""Tokens of ranvier-tokenize, beside those of OpenAI's encoder for GPT-2 (encoder.py), said again in Python, on more
than a megabyte of English, code, Chinese, emoji, blanks of all kinds and bytes that are no UTF-8. Then tokens and the
text that they are decoded to, of tokenizers of every kind that is read, beside the tokenizers package.

usage: compare_tokenizer.py TOKENIZE THROUGH_TOKENS FOLDER [VOCABULARY]

FOLDER is emptied and filled. VOCABULARY is a folder with GPT-2's encoder.json and vocab.bpe; without it, one is learned
from a part of the text. Where tiktoken can be imported, with VOCABULARY, it has to say the same of what is UTF-8. The
tokenizers package learns vocabularies of its own from a part of the text; it reads an eighth of it with each, or with
RANVIER_LONG=1 all.
"""

import collections
import json
import os
import random
import shutil
import subprocess
import sys
import time
import unicodedata
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
    """(UTF-8, bytes that are partly invalid UTF-8)"""
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
        if "".join(best) in known:  # another pair produced this token before: only its first merge is used
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


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def kinds(hf, texts):
    """(name, tokenizer) of every kind, with vocabularies learned from the texts."""
    norms, cuts, decoders, Split = hf.normalizers, hf.pre_tokenizers, hf.decoders, hf.pre_tokenizers.Split
    size, pieces = 1500, [text[i:i + 200] for text in texts for i in range(0, len(text), 200)]

    def of_bytes(*steps, normalizer=None, added=()):
        made = hf.Tokenizer(hf.models.BPE())
        made.pre_tokenizer, made.decoder = cuts.Sequence([*steps]), decoders.ByteLevel()
        if normalizer:
            made.normalizer = normalizer
        made.train_from_iterator(pieces, hf.trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=cuts.ByteLevel.alphabet(), special_tokens=[END], show_progress=False))
        made.add_tokens([*added])
        return made

    def split(pattern, **options):
        return Split(hf.Regex(pattern), options.pop("behavior", "isolated"), **options)

    plain = cuts.ByteLevel(add_prefix_space=False, use_regex=False)
    yield "LLaMA 3", of_bytes(split(LLAMA3), plain)
    yield "Qwen2", of_bytes(split(LLAMA3.replace("{1,3}", "")), plain, normalizer=norms.NFC(), added=["<extra>"])
    yield "o200k", of_bytes(split(O200K, behavior="removed", invert=True), plain, normalizer=norms.NFKC())
    yield "digits, with a prefix", of_bytes(
        cuts.Digits(True), cuts.Punctuation("merged_with_next"), cuts.ByteLevel(add_prefix_space=True),
        normalizer=norms.Sequence([norms.NFKD(), norms.Lowercase(), norms.StripAccents()]))

    def of_characters(byte_fallback, fuses, pre_tokenizer=None):
        special = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if byte_fallback else [])
        made = hf.Tokenizer(hf.models.BPE(unk_token="<unk>"))
        made.normalizer = norms.Sequence([norms.Prepend("\u2581"), norms.Replace(" ", "\u2581")])
        made.pre_tokenizer = Split("\u2581", "merged_with_next")
        made.train_from_iterator(pieces, hf.trainers.BpeTrainer(vocab_size=size, limit_alphabet=300,
                                                                special_tokens=special, show_progress=False))
        parts = json.loads(made.to_str())
        parts["added_tokens"] = [token for token in parts["added_tokens"] if token["id"] < 3]
        parts["model"].update(byte_fallback=byte_fallback, fuse_unk=fuses)
        parts["pre_tokenizer"] = None
        if pre_tokenizer:
            parts["normalizer"] = None
        made = hf.Tokenizer.from_str(json.dumps(parts))
        if pre_tokenizer:
            made.pre_tokenizer = pre_tokenizer
        made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                          decoders.Strip(" ", 1, 0)])
        return made

    yield "LLaMA 2", of_characters(True, True)
    yield "metaspace, unknown", of_characters(False, False, cuts.Metaspace())

    def word_pieces(normalizer, pre_tokenizer):
        made = hf.Tokenizer(hf.models.WordPiece(unk_token="[UNK]"))
        made.normalizer, made.pre_tokenizer, made.decoder = normalizer, pre_tokenizer, decoders.WordPiece()
        made.train_from_iterator(pieces, hf.trainers.WordPieceTrainer(
            vocab_size=size, limit_alphabet=400, special_tokens=["[PAD]", "[UNK]", "[SEP]"], show_progress=False))
        return made

    yield "BERT", word_pieces(norms.BertNormalizer(), cuts.BertPreTokenizer())
    yield "BERT with case", word_pieces(norms.BertNormalizer(lowercase=False), cuts.BertPreTokenizer())


def compare_kinds(through_tokens, folder, clean):
    try:
        import tokenizers as hf
    except ImportError:
        print("not beside tokenizers")
        return
    begin = time.time()
    # Characters no newer than the package's Unicode tables, and spellings of special tokens.
    known = "".join(c for c in clean if unicodedata.ucd_3_2_0.category(c) != "Cn")
    part = known if os.environ.get("RANVIER_LONG") == "1" else known[::len(known) // 16] + "".join(
        known[i:i + len(known) // 64] for i in range(0, len(known), len(known) // 8))
    spelled = ["<|endoftext|>", "[SEP]", " </s>", "<extra>", "don't", " . ,",
               "\u2581", "\u0120", "##a", "e\u0301", "\ufb01"]
    text = part + " ".join(spelled * 50) + "a"
    (folder / "part.txt").write_bytes(text.encode())
    for name, made in kinds(hf, [known[i:i + 3000] for i in range(0, len(known), 40_000)]):
        file = folder / f"{name}.json"
        file.write_text(made.to_str())
        subprocess.run([through_tokens, file, "token", folder / "part.txt", folder / "part.bin", folder / "back.txt"],
                       check=True, timeout=120)
        theirs = made.encode(text, add_special_tokens=False).ids
        check(f"tokenizers: {name}", np.fromfile(folder / "part.bin", dtype="<i4"), np.array(theirs))
        ours, decoded = (folder / "back.txt").read_bytes().decode("utf-8", "replace"), made.decode(theirs)
        if ours != decoded:
            at = next((i for i, (a, b) in enumerate(zip(ours, decoded)) if a != b), min(len(ours), len(decoded)))
            sys.exit(f"{name}: decoded, {ours[at - 20:at + 20]!r}, beside {decoded[at - 20:at + 20]!r}, from {at} on")
    print(f"{len(text.encode()) / 1e6:.2f} MB of each kind in {time.time() - begin:.1f} s")


def main():
    tokenize, through_tokens, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    clean, mixed = mixed_text(Path(__file__).resolve().parent, random.Random(7))
    vocabulary = Path(sys.argv[4]) if len(sys.argv) > 4 else folder / "vocabulary"
    if len(sys.argv) <= 4:
        learned(clean[::8] + clean[:100_000], vocabulary)  # every kind of character, and words
    encoder = Encoder(vocabulary)

    def ours(name, content):
        text, tokens = folder / f"{name}.txt", folder / f"{name}.bin"
        text.write_bytes(content)
        subprocess.run([tokenize, text, "--tokenizer", vocabulary, "--special-tokens", "none", "--output", tokens], check=True,
                       timeout=120, stdout=subprocess.DEVNULL)
        return np.fromfile(tokens, dtype="<u2", offset=1024).astype(np.int64)

    begin = time.time()
    print(f"{len(mixed) / 1e6:.2f} MB, {len(mixed) - len(clean.encode())} bytes of it noise; {len(encoder.ids)} tokens")
    check("OpenAI's encoder", ours("mixed", mixed), encoder(mixed.decode("utf-8", "surrogateescape")))
    print(f"in {time.time() - begin:.1f} s")

    clean_tokens = ours("clean", clean.encode())
    bytes_of = {spelling: byte for byte, spelling in SPELLING.items()}
    try:
        if len(sys.argv) <= 4:  # joins any characters that form a token: equivalent for GPT-2's vocabulary only
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
    compare_kinds(through_tokens, folder, clean)


if __name__ == "__main__":
    main()
