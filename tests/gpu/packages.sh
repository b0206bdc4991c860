#!/usr/bin/env bash
# Packs what a build needs beside a compiler, CMake and CUDA, for a machine that has no more than those and no network:
# libraries and headers of this machine's packages (Debian, x86-64), every library that they need, and the headers of
# cudnn-frontend.
#
# usage: tests/gpu/packages.sh ARCHIVE.tar.xz      for tests/gpu/run.sh --packages ARCHIVE.tar.xz
set -euo pipefail

archive=$(realpath -m "${1:?usage: tests/gpu/packages.sh ARCHIVE.tar.xz}")
triple=x86_64-linux-gnu
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

boost=$(dpkg-query -W -f '${Package}\n' 'libboost-program-options1*' | sed -n 's/^libboost-program-options\(1\.[0-9]*\)\.[0-9]*$/\1/p' | tail -1)
packages=(doctest-dev libdnnl-dev libfmt-dev libopenmpi-dev libpcre2-dev liburing-dev libzstd-dev openmpi-bin openmpi-common
          zlib1g-dev "libboost$boost-dev" "libboost-program-options$boost-dev")
# Where their libraries are, beside their headers.
mapfile -t depends < <(dpkg-query -W -f '${Depends}, ' "${packages[@]}" | tr ',|' '\n\n' | awk 'NF { print $1 }' | sort -u |
  grep '^lib' | grep -vE '^lib(c6|gcc|stdc\+\+)')
for package in "${depends[@]}"; do
  dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' && packages+=("${package%:*}")
done

dpkg -L "${packages[@]}" |
  grep -E "^/usr/(include|lib/($triple|cmake)|share/(openmpi|pmix|cmake|doctest)|bin/(mpirun|orte|mpicc|opal))" |
  sort -u | while read -r file; do [ -d "$file" ] && [ ! -L "$file" ] || printf '%s\n' "$file"; done |
  tar --absolute-names -cf - --files-from=- | tar --transform 's,^/,,' -xf - -C "$stage"

# What those need, but for the C and C++ runtimes; and what the names of libraries without a version point to.
lib=$stage/usr/lib/$triple
needed() { find "$lib" "$stage/usr/bin" -type f \( -name '*.so*' -o -perm -u+x \) -exec ldd {} + 2>/dev/null; }
needed | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' |
  while read -r file; do [ -e "$lib/$(basename "$file")" ] || cp -L "$file" "$lib/"; done
find "$stage" -xtype l | while read -r link; do
  target=$(readlink -f "${link#"$stage"}") || continue
  rm "$link"
  cp -L "$target" "$link"
done

# Headers of cudnn-frontend, if cmake/install_dependencies.sh --cuda has fetched them.
frontend=$(cd "$(dirname "$0")/../.." && pwd)/build/cudnn-frontend/include
if [ -d "$frontend" ]; then cp -r "$frontend/." "$stage/usr/include/"; fi

XZ_OPT="-2 -T0" tar -C "$stage" -cJf "$archive" usr
echo "$archive: $(du -h "$archive" | cut -f1), unpacked $(du -sh "$stage" | cut -f1)"
