#!/usr/bin/env bash
# Prints quoted or commented flags (--like-this) below apps/ with file and line, and fails if there are any: only apps/
# names flags; lower folders name the field in backquotes (runtime/base/error.hpp).
set -u
cd "$(dirname "$0")/.." || exit 2
folders=(runtime collectives offload models actors)
flag='--[a-z{"]'
in_literal="^[^\"]*(\"([^\"\\\\]|\\\\.)*\"[^\"]*)*\"(([^\"\\\\]|\\\\.)*[^\"\\\\-])?$flag"
in_comment="//.*[^-]$flag"
found=$(
  grep -rnE "$in_literal|$in_comment" "${folders[@]}" --include='*.[hc]pp' --include='*.cu' --include='*.cuh'
  grep -rnE "(^|[^-])$flag" "${folders[@]}" --include='*.md'
)
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
echo "flags below apps/: name the field in backquotes"
exit 1
