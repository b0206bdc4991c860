#!/usr/bin/env bash
# Formats the tracked C++ and CUDA files with .clang-format. With --check, lists files that are not formatted and lines
# longer than 120 columns, and exits with 1 if there are any.
#
# usage: cmake/format.sh [--check]      exit code 77: clang-format of the required version is missing
#
# Requires one version, because versions format differently: on the PATH, or in build/clang-format
# (cmake/install_dependencies.sh --format).
set -euo pipefail
cd "$(dirname "$0")/.."
version=19.1.7

check=
case "${1:-}" in
  '') ;;
  --check) check=1 ;;
  *) echo "format.sh: unknown argument '$1'; it takes --check" >&2; exit 2 ;;
esac

formatter=
for candidate in build/clang-format/clang_format/data/bin/clang-format clang-format; do
  if "$candidate" --version 2>/dev/null | grep -qF "version $version"; then formatter=$candidate; fi
done
if [ -z "$formatter" ]; then
  echo "No clang-format $version: run cmake/install_dependencies.sh --format" >&2
  exit 77
fi
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "Not a git checkout, which would know the files" >&2
  exit 77
fi

files() { git ls-files -z '*.cpp' '*.hpp' '*.cu' '*.cuh'; }
if [ -z "$check" ]; then
  files | xargs -0 -P "$(nproc)" -n 32 "$formatter" -i
  exit 0
fi

status=0
files | xargs -0 -P "$(nproc)" -n 32 "$formatter" --dry-run --Werror --ferror-limit=1 || status=1
# Counts columns; awk would count bytes.
if files | LC_ALL=C.UTF-8 xargs -0 grep -nHE '^.{121}' | sed 's/^\([^:]*:[0-9]*\):.*/\1: more than 120 columns/' | grep .; then
  status=1
fi
[ "$status" -eq 0 ] || echo "cmake/format.sh formats all; it leaves long strings and comments to be broken by hand" >&2
exit "$status"
