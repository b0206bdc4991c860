#!/usr/bin/env bash
# Runs clang-tidy on the C++ sources and headers that changed since BASE, one file at a time. So it also finds missing
# #include lines that unity builds hide.
#
# usage: cmake/tidy.sh [--seconds N] [--build FOLDER] [BASE]      exit code 77: it cannot be run here
#   --seconds   starts no more files after N seconds and prints the number of skipped files; newest changes first
#   --build     configured build folder, default build/release
#   BASE        commit; default: where this branch left origin/main, or else the commit before the last
#
# Uses clang-tidy of build/clang-tidy (cmake/install_dependencies.sh --format), or version 14 or newer on the PATH.
# Versions before 16 skip tests/, which capture structured bindings.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=
build=build/release
base=
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds | --build)
      [ $# -ge 2 ] || { echo "tidy.sh: $1 needs a value" >&2; exit 2; }
      declare "${1#--}=$2"
      shift
      ;;
    -*) echo "tidy.sh: unknown argument '$1'; it takes --seconds, --build and a commit" >&2; exit 2 ;;
    *) base=$1 ;;
  esac
  shift
done

skip() {
  echo "$*" >&2
  exit 77
}
tidy=build/clang-tidy/clang_tidy/data/bin/clang-tidy
"$tidy" --version >/dev/null 2>&1 || tidy=clang-tidy
command -v "$tidy" >/dev/null ||
  skip "There is no clang-tidy: run cmake/install_dependencies.sh --format, or apt-get install clang-tidy"
[ -f "$build/compile_commands.json" ] || skip "There is no $build/compile_commands.json: run cmake --preset release"
git rev-parse --verify --quiet HEAD >/dev/null || skip "Not a git checkout, which would know what changed"

if [ -z "$base" ]; then
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] || base=HEAD~1
  git rev-parse --verify --quiet "$base^{commit}" >/dev/null || skip "There is no commit before this one"
else
  base=$(git merge-base HEAD "$base")
fi

# Sources in a group of RANVIER_JOIN have no compile command; they get the group's command.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '
  function entry(command, file) {
    printf "%s{\n%s\n%s\n\"file\": \"%s\"\n}", separator, directory, command, file
    separator = ",\n"
  }
  BEGIN { print "[" }
  /^ *"directory":/ { directory = $0 }
  /^ *"command":/ { command = $0 }
  /^ *"file":/ {
    file = $0
    sub(/^ *"file": "/, "", file)
    sub(/".*/, "", file)
    if (file !~ /\/Unity\/unity_[^\/]*_cxx\.cxx$/) { entry(command, file); next }
    while ((getline line < file) > 0) {
      if (line !~ /^#include "/) continue
      split(line, parts, "\"")
      alone = command
      while ((at = index(alone, file)) > 0)
        alone = substr(alone, 1, at - 1) "\001" substr(alone, at + length(file))
      gsub(/\001/, parts[2], alone)
      entry(alone, parts[2])
    }
    close(file)
  }
  END { print "\n]" }' "$build/compile_commands.json" >"$work/compile_commands.json"

paths=('*.cpp' '*.hpp' ':!*cuda*')
version=$("$tidy" --version | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p')
[ "${version:-0}" -ge 16 ] || paths+=(':!tests/')
changed() {
  git diff --name-only HEAD -- "${paths[@]}"  # not committed
  git log --name-only --format= "$base..HEAD" -- "${paths[@]}"
  git diff --name-only "$base" -- "${paths[@]}"
}
# Skips sources without a compile command in this build; headers get a neighbour's command. Also skips sources with
# <omp.h>: Clang may lack it, and cannot read GCC's.
mapfile -t files < <(changed | awk '!known[$0]++' | while IFS= read -r file; do
  [ -f "$file" ] && ! grep -q '^#include <omp\.h>' "$file" || continue
  [ "$file" != "${file%.cpp}" ] && ! grep -qF "\"$PWD/$file\"" "$work/compile_commands.json" || echo "$file"
done)
if [ ${#files[@]} -eq 0 ]; then
  echo "No C++ file changed since $(git rev-parse --short "$base")"
  exit 0
fi

read_one() {
  if [ -n "$seconds" ] && [ $(($(date +%s) - begun)) -ge "$seconds" ]; then
    echo "$1" >>"$work/left-out"
    return 0
  fi
  # It counts on standard error what it does not show.
  "$tidy" --quiet -p "$work" "$1" 2>"$work/messages.$$" && return 0
  grep -v 'warnings\? .*generated\.$' "$work/messages.$$" >&2
  return 1
}
begun=$(date +%s)
export -f read_one
export begun seconds tidy work
status=0
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 1 bash -c 'read_one "$1"' read_one || status=1

left=0
[ ! -f "$work/left-out" ] || left=$(wc -l <"$work/left-out")
from=$(git rev-parse --short "$base")
echo "clang-tidy $version read $((${#files[@]} - left)) of ${#files[@]} C++ files that changed since $from"
[ "$left" -eq 0 ] || echo "$left were left out after $seconds s: run cmake/tidy.sh $from"
exit "$status"
