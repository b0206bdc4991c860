#!/usr/bin/env bash
# Runs the checks of .clang-tidy over the C++ sources that changed since BASE, by clang-tidy of any version from 14 on. It
# reads each source alone, so that it finds as well what lacks an #include and compiles only together with others. Tests
# capture structured bindings, which Clang knows from version 16 on: an older one leaves tests/ out.
#
# usage: cmake/tidy.sh [BASE]      BASE: a commit, default origin/main; build/release must have been configured
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-origin/main}

command -v clang-tidy >/dev/null || { echo "There is no clang-tidy: apt-get install clang-tidy" >&2; exit 1; }
commands=build/release/compile_commands.json
[ -f "$commands" ] || { echo "There is no $commands: run cmake --preset release" >&2; exit 1; }

paths=('*.cpp' ':!*_cuda.cpp')
version=$(clang-tidy --version | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p')
[ "${version:-0}" -ge 16 ] || paths+=(':!tests/')
mapfile -d '' -t sources < <(git diff -z --name-only --diff-filter=d --merge-base "$base" -- "${paths[@]}")
[ ${#sources[@]} -gt 0 ] || { echo "No C++ source changed since $base"; exit 0; }

# A source that RANVIER_JOIN put into a group has no command of its own; clang-tidy takes that of its likest neighbour.
printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 1 clang-tidy --quiet -p build/release
