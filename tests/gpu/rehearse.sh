#!/usr/bin/env bash
# Runs every stage of run.sh where no GPU is: programs whose GPU is emulated, tiny models, and stand-ins (rehearsal/)
# for NVIDIA's tools. Scripts are tried this way, not kernels, and figures mean nothing.
#
# usage: tests/gpu/rehearse.sh BINARIES.tar.xz [ARGUMENTS OF run.sh…]
#   BINARIES   what `tests/gpu/binaries.sh BINARIES.tar.xz --emulated` packed
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] && [ -f "$1" ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/others"
cat > "$folder/others/rival" <<'END'
#!/bin/sh
for step in 1 2 3 4 5 6; do echo "step $step | loss 5.0 | ${step}00 tok/s"; done
END
chmod +x "$folder/others/rival"
PATH=$PWD/tests/gpu/rehearsal:$PATH tests/gpu/run.sh --binaries "$1" --build "$folder/build" \
  --results "$folder/results" --others "$folder/others" --only all --tiny "${@:2}"
