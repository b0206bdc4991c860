#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test through one ctest.
#
# usage: tests/run.sh [CTEST ARGUMENT...]       for example: tests/run.sh -R "ring" or tests/run.sh -L unit
#
#   RANVIER_TESTS=quick    the release build only, without the sanitizers' builds of the unit tests and without fuzzing
#   RANVIER_CUDA=OFF       without the CUDA device and its emulation; default AUTO, where a CUDA compiler is
#
# Tests of the sanitizer builds carry "asan" or "tsan" before their names. See tests/README.md for the labels.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -r /etc/os-release ] && . /etc/os-release
optional=()  # PyTorch, and Clang with libFuzzer, where the distribution has packages that are known to work
if [ "${ID:-}:${VERSION_ID:-}" = debian:12 ]; then
  optional=(--reference)
  [ "${RANVIER_TESTS:-all}" != all ] || optional+=(--fuzz)
fi
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then optional+=(--cuda); fi
cmake/install_dependencies.sh "${optional[@]}"

has_fuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address,undefined - -o /dev/null 2>/dev/null
}

presets=(release)
case "${RANVIER_TESTS:-all}" in
  all)
    presets+=(asan tsan)
    if has_fuzzer; then presets+=(fuzz); else echo "== no fuzzing: there is no clang++ with libFuzzer" >&2; fi
    ;;
  quick) ;;
  *) echo "tests/run.sh: RANVIER_TESTS is '$RANVIER_TESTS'; it takes all (the default) or quick" >&2; exit 2 ;;
esac

# ThreadSanitizer of GCC 12 and 13 does not start where the kernel spreads mappings widely.
fixed_addresses=(setarch "$(uname -m)" --addr-no-randomize)
"${fixed_addresses[@]}" true 2>/dev/null || fixed_addresses=()

mkdir -p build/tests
: > build/tests/CTestTestfile.cmake
for preset in "${presets[@]}"; do
  echo "== build: $preset"
  options=()
  # Said anew each time: what the quickstart left in build/release may be without it.
  [ "$preset" != release ] || options=("-DRANVIER_CUDA=${RANVIER_CUDA:-AUTO}")
  SECONDS=0
  "${fixed_addresses[@]}" cmake/build.sh "$preset" "${options[@]}"
  echo "== built: $preset, in $SECONDS s"
  echo "subdirs(\"$PWD/build/$preset\")" >> build/tests/CTestTestfile.cmake
done

echo "== test: ${presets[*]}"
"${fixed_addresses[@]}" ctest --test-dir build/tests --parallel "$(nproc)" --timeout 600 --no-tests=error \
  --output-on-failure "$@"
