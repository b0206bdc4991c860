"""MB of text per second of tokenizer_bench and of the tokenizers package, on one thread, one JSON line per tokenizer.

usage: compare_tokenizers.py TOKENIZER_BENCH FILE TOKENIZER_JSON...

The package reads the text line by line, which is the quickest that it has, and at once; the tokens of the latter have
to be those of tokenizer_bench.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy as np
import tokenizers


def quickest(work, times):
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - begin)
    return best, result


def main():
    bench, file, paths = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    text = file.read_bytes().decode()
    lines = text.splitlines(keepends=True)
    megabytes = len(text.encode()) * 1e-6
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            tokens = Path(folder) / "tokens"
            command = [bench, path, file, "--threads", "1", "--specials", "token", "--write-tokens", tokens]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            ours = {line["case"]: line["mb_per_second"] for line in map(json.loads, printed.splitlines())}
            package = tokenizers.Tokenizer.from_file(path)
            whole, encoded = quickest(lambda: package.encode(text, add_special_tokens=False), 2)
            by_line, _ = quickest(lambda: package.encode_batch(lines, add_special_tokens=False), 3)
            decoding, _ = quickest(lambda: package.decode(encoded.ids), 2)
            if encoded.ids != np.fromfile(tokens, dtype="<i4").tolist():
                sys.exit(f"{path}: the tokens are others than those of tokenizers {tokenizers.__version__}")
            print(json.dumps({"bench": "tokenizers", "tokenizer": path, "bytes": len(text.encode()),
                              "encode": ours["encode"],
                              "encode, no word met before": ours["encode, no word met before"],
                              "decode": ours["decode"], "package": tokenizers.__version__,
                              "package, by line": round(megabytes / by_line, 2),
                              "package, at once": round(megabytes / whole, 2),
                              "package, decode": round(megabytes / decoding, 2)}), flush=True)


main()
