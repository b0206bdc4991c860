#!/usr/bin/env bash
# Prints quoted or commented flags (--like-this) below apps/ with file and line, and fails if there are any: only apps/
# names flags; lower folders name the field in backquotes (runtime/base/error.hpp).
set -u
cd "$(dirname "$0")/.." || exit 2
mapfile -t folders < <(sed -nE 's/^([a-z]+) .*/\1/p' cmake/folders.txt | grep -vx apps)
[ "${#folders[@]}" -gt 0 ] && ls -d "${folders[@]}" >/dev/null || exit 2
flag='--[a-z{"]'
in_literal="^[^\"]*(\"([^\"\\\\]|\\\\.)*\"[^\"]*)*\"(([^\"\\\\]|\\\\.)*([^\"\\\\-]|\\\\.))?$flag"
in_comment="//(.*[^-])?$flag"
found=$(
  grep -rnE "$in_literal|$in_comment" "${folders[@]}" --include='*.[hc]pp' --include='*.cu' --include='*.cuh'
  grep -rnE "(^|[^-])$flag" "${folders[@]}" --include='*.md'
)
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
echo "flags below apps/: name the field in backquotes"
exit 1
