#!/usr/bin/env bash
# ranvier-train compared with PyTorch, one JSON line per case. Arguments are passed on to compare_pytorch.py.
#
# usage: tests/bench/run.sh [--cases 6x384-fp32,gpt2-small-bf16,wide-resnet-50-2-fp32,…] [--repeats 3] …
set -euo pipefail
cd "$(dirname "$0")/../.."

cmake/install_dependencies.sh --reference
cmake/build.sh release ranvier-train >&2
for python in python3 /usr/bin/python3; do
  "$python" -c 'import torch' 2>/dev/null &&
    exec "$python" tests/bench/compare_pytorch.py build/release/apps/ranvier-train "$@"
done
echo "tests/bench/run.sh: no python3 with PyTorch, which Debian 12 packages as python3-torch" >&2
exit 1
