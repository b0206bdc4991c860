#!/usr/bin/env bash
# Checks the order of folders in cmake/folders.txt. Files include their own and earlier folders only, by paths from the
# root. Each folder of sources is listed. Each README lists its folder's subfolders in their order. Prints file and line
# of each violation.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
mapfile -t tops < <(grep -v '^#' cmake/folders.txt | cut -d' ' -f1)
others=$(git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh' 2>/dev/null | cut -d/ -f1 | sort -u | grep -vxF -f <(printf '%s\n' "${tops[@]}" tests) || true)
if [ -n "$others" ]; then
  echo "cmake/folders.txt:1: lacks the folders" $others
  status=1
fi
find "${tops[@]}" -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk '
  function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
  BEGIN {
    while ((getline line < "cmake/folders.txt") > 0) {
      n = split(line, word, " ")
      if (line ~ /^#/ || n == 0) continue
      tops[word[1]] = 1
      for (i = 2; i <= n; i++) place[word[i] == "." ? word[1] : word[1] "/" word[i]] = ++last
    }
  }
  FNR == 1 {
    here = folder_of(FILENAME)
    if (!(here in place)) { print FILENAME ":1: " here " is not in cmake/folders.txt; add it"; bad = 1 }
  }
  /^[ \t]*#[ \t]*include[ \t]*("|<(ranvier|runtime|collectives|offload|models|actors|apps)\/)/ {
    target = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*["<](ranvier\/)?/, "", target)
    sub(/[">].*$/, "", target)
    top = target
    sub(/\/.*$/, "", top)
    if (!(top in tops)) {
      print FILENAME ":" FNR ": includes " target ", which is in no folder of cmake/folders.txt"
      bad = 1
      next
    }
    there = folder_of(target)
    if (!(there in place) || place[there] > place[here]) {
      print FILENAME ":" FNR ": includes " target ", but " there " comes after " here " in cmake/folders.txt"
      bad = 1
    }
  }
  END { exit bad }' || status=1

while read -r top folders; do
  wanted=$(tr ' ' '\n' <<<"$folders" | grep -vxF . || true)
  listed=$(sed -nE 's/^\| \[?`([a-z-]+)\/`.*/\1/p' "$top/README.md")
  if [ "$wanted" != "$listed" ]; then
    echo "$top/README.md:1: lists $(echo $listed), not the folders of cmake/folders.txt: $(echo $wanted)"
    status=1
  fi
done < <(grep -v '^#' cmake/folders.txt)
exit $status
