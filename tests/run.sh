#!/usr/bin/env bash
# Installs missing dependencies, builds, and runs every test through one ctest.
#
# usage: tests/run.sh [CTEST ARGUMENT...]       for example: tests/run.sh -R "ring" or tests/run.sh -L unit
#
#   RANVIER_TESTS=quick    only the release build, without sanitizer builds of the unit tests and without fuzzing
#   RANVIER_CUDA=OFF       without the CUDA device and its emulation; default AUTO: on if there is a CUDA compiler
#
# Tests of the sanitizer builds have the prefix "asan" or "tsan". See tests/README.md for the labels.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${RANVIER_TESTS:-all}" in
  all) presets=(tsan asan release fuzz) ;;
  quick) presets=(release) ;;
  *) echo "tests/run.sh: RANVIER_TESTS is '$RANVIER_TESTS'; it takes all (the default) or quick" >&2; exit 2 ;;
esac

# First the dependencies of every build, then the others, while the sanitizer builds compile.
cmake/install_dependencies.sh
[ -r /etc/os-release ] && . /etc/os-release
optional=(--format)
if [ "${ID:-}:${VERSION_ID:-}" = debian:12 ]; then  # its packages of PyTorch, Chromium and Clang are known to work
  optional+=(--reference --browser)
  [ "${RANVIER_TESTS:-all}" != all ] || optional+=(--fuzz)
fi
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then optional+=(--cuda); fi
mkdir -p build/tests
cmake/install_dependencies.sh "${optional[@]}" > build/tests/installation.log 2>&1 &
installation=$!
trap wait EXIT  # for the packages, also after a failure

finish_installation() {
  local status=0
  wait "$installation" || status=$?
  cat build/tests/installation.log
  return "$status"
}

has_fuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address,undefined - -o /dev/null 2>/dev/null
}

# ThreadSanitizer of GCC 12 and 13 does not start if the kernel randomizes addresses widely.
fixed_addresses=(setarch "$(uname -m)" --addr-no-randomize)
"${fixed_addresses[@]}" true 2>/dev/null || fixed_addresses=()

: > build/tests/CTestTestfile.cmake
built=()
for preset in "${presets[@]}"; do
  [ "$preset" != release ] || finish_installation
  if [ "$preset" = fuzz ] && ! has_fuzzer; then
    echo "== no fuzzing: there is no clang++ with libFuzzer" >&2
    continue
  fi
  echo "== build: $preset"
  options=()
  # Set every time: the quickstart's build/release may lack the CUDA device. Kernels for one processor compile in half
  # the time: for the GPU of this machine, or without one, the oldest supported one.
  if [ "$preset" = release ]; then
    architecture=80-real
    if nvidia-smi -L 2>/dev/null | grep -q GPU; then architecture=native; fi
    options=("-DRANVIER_CUDA=${RANVIER_CUDA:-AUTO}" "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
  fi
  SECONDS=0
  "${fixed_addresses[@]}" cmake/build.sh "$preset" "${options[@]}"
  echo "== built: $preset, in $SECONDS s"
  built+=("$preset")
  echo "subdirs(\"$PWD/build/$preset\")" >> build/tests/CTestTestfile.cmake
done

echo "== test: ${built[*]}"
# Three times as many slots as cores, because jobs under mpirun wait most of their time.
"${fixed_addresses[@]}" ctest --test-dir build/tests --parallel $((3 * $(nproc))) --timeout 600 \
  --no-tests=error --output-on-failure "$@"
