#!/usr/bin/env bash
# usage: run.sh SCRIPT ARGUMENT...      runs a script of this folder; exit code 77: skipped, PyTorch is missing
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

for python in "$here/../../build/reference-python/bin/python" python3 /usr/bin/python3; do
  # Only checks that they exist: importing PyTorch takes seconds, and the script does it again.
  "$python" -c 'import importlib.util as i, sys; sys.exit(not (i.find_spec("numpy") and i.find_spec("torch")))' 2>/dev/null &&
    exec "$python" "$here/$1" "${@:2}"
done

echo "No python3 with PyTorch and NumPy: on Debian 12 run cmake/install_dependencies.sh --reference"
[ -r /etc/os-release ] && . /etc/os-release
[ "${ID:-}:${VERSION_ID:-}" = debian:12 ] && exit 1
echo "Skipped: PyTorch is missing"
exit 77
