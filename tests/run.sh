#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test through one ctest.
#
# usage: tests/run.sh [CTEST ARGUMENT...]       for example: tests/run.sh -R "ring" or tests/run.sh -L unit
#
#   RANVIER_TESTS=quick    the release build only, without the sanitizers' builds of the unit tests
#
# Tests of the sanitizer builds carry "asan" or "tsan" before their names. See tests/README.md for the labels.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -r /etc/os-release ] && . /etc/os-release
reference=()  # PyTorch, where the distribution has a package that is known to work
[ "${ID:-}:${VERSION_ID:-}" = debian:12 ] && reference=(--reference)
cmake/install_dependencies.sh "${reference[@]}"

presets=(release)
case "${RANVIER_TESTS:-all}" in
  all) presets+=(asan tsan) ;;
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
  "${fixed_addresses[@]}" cmake/build.sh "$preset"
  echo "subdirs(\"$PWD/build/$preset\")" >> build/tests/CTestTestfile.cmake
done

echo "== test: ${presets[*]}"
"${fixed_addresses[@]}" ctest --test-dir build/tests --parallel "$(nproc)" --timeout 600 --no-tests=error \
  --output-on-failure "$@"
