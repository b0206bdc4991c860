#!/usr/bin/env bash
# Runs run.sh on a machine without a GPU: programs whose GPU is emulated (tests/emulation), tiny models, and stand-ins
# (rehearsal/) for NVIDIA's tools. This tries the scripts, not the kernels, and its figures mean nothing.
#
# usage: tests/gpu/rehearse.sh [--build FOLDER] [ARGUMENTS OF run.sh…]
#   --build   folder of a build with the CUDA device; build/release
# Without arguments of run.sh: the calls A, B and C.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/release
if [ "${1:-}" = --build ]; then
  build=${2:?rehearse.sh: --build needs a folder}
  shift 2
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
take() {  # <program in the build folder> <its name in an archive of binaries.sh>
  [ -x "$build/$1" ] || { echo "rehearse.sh: $build/$1 is missing: build the target $(basename "$1") first" >&2; exit 1; }
  mkdir -p "$folder/programs/$(dirname "$2")"
  ln -s "$(realpath "$build/$1")" "$folder/programs/$2"
}
for program in train generate; do take "tests/emulation/ranvier-$program-emulated" "apps/ranvier-$program"; done
for room in runtime models; do
  take "tests/$room/ranvier_${room}_emulated_tests" "tests/$room/ranvier_${room}_gpu_tests"
done
take tests/bench/ops_bench_emulated tests/bench/ops_bench
take tests/bench/file_bench tests/bench/file_bench
mkdir "$folder/others"
cat > "$folder/others/rival" <<'END'
#!/bin/sh
for step in 1 2 3 4 5 6; do echo "step $step | loss 5.0 | ${step}00 tok/s"; done
END
chmod +x "$folder/others/rival"

export PATH=$PWD/tests/gpu/rehearsal:$PATH
rehearse() {  # <name> <arguments of run.sh…>
  tests/gpu/run.sh --binaries "$folder/programs" --build "$folder/build" --results "$folder/$1" \
    --others "$folder/others" --tiny "${@:2}"
}
if [ $# -gt 0 ]; then
  rehearse results "$@"
else
  for call in A B C; do rehearse "$call" --call "$call"; done
  python3 tests/gpu/summary.py --markdown "$folder"/[ABC]
fi
