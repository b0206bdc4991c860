#!/usr/bin/env bash
# Packs a build's dependencies for a machine with only a compiler, CMake and CUDA, and without a network. The archive has
# libraries and headers of this machine's packages (Debian, x86-64), their dependencies, mpirun, and cudnn-frontend.
#
# usage: tests/gpu/packages.sh ARCHIVE.tar.xz [--without-cudnn]      for tests/gpu/run.sh --packages ARCHIVE.tar.xz
#   --without-cudnn   pack without cudnn-frontend's headers: builds have no attention by cuDNN
set -euo pipefail

archive=$(realpath -m "${1:?usage: tests/gpu/packages.sh ARCHIVE.tar.xz [--without-cudnn]}")
root=$(cd "$(dirname "$0")/../.." && pwd)
frontend=$root/build/cudnn-frontend/include
if [ ! -f "$frontend/cudnn_frontend.h" ] && [ "${2:-}" != --without-cudnn ]; then
  echo "packages.sh: cudnn-frontend's headers are not in $frontend: cmake/install_dependencies.sh --cuda fetches them," \
    "--without-cudnn does without" >&2
  exit 1
fi
triple=x86_64-linux-gnu
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

boost=$(dpkg-query -W -f '${Package}\n' 'libboost-program-options1*' | sed -n 's/^libboost-program-options\(1\.[0-9]*\)\.[0-9]*$/\1/p' | tail -1)
packages=(doctest-dev libdnnl-dev libfmt-dev libopenmpi-dev libpcre2-dev liburing-dev libutf8proc-dev
          libxxhash-dev libzstd-dev openmpi-bin openmpi-common zlib1g-dev "libboost$boost-dev" "libboost-context$boost-dev" "libboost-program-options$boost-dev")
# Packages of the libraries that belong to the headers.
mapfile -t depends < <(dpkg-query -W -f '${Depends}, ' "${packages[@]}" | tr ',|' '\n\n' | awk 'NF { print $1 }' | sort -u |
  grep '^lib' | grep -vE '^lib(c6|gcc|stdc\+\+)')
for package in "${depends[@]}"; do
  dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' && packages+=("${package%:*}")
done

dpkg -L "${packages[@]}" |
  grep -E "^/usr/(include|lib/($triple|cmake)|share/(openmpi|pmix|cmake|doctest)|bin/(orted|orterun)$)" |
  sort -u | while read -r file; do [ -d "$file" ] && [ ! -L "$file" ] || printf '%s\n' "$file"; done |
  tar --absolute-names -cf - --files-from=- | tar --transform 's,^/,,' -xf - -C "$stage"

# Their dependencies without the C and C++ runtimes, and the targets of links to other packages.
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

# A library's DT_RUNPATH would disable the program's DT_RPATH for its dependencies: it becomes a DT_RPATH as well.
python3 - "$lib" <<'END'
import pathlib
import struct
import sys

PT_DYNAMIC, DT_RPATH, DT_RUNPATH = 2, 15, 29
for path in pathlib.Path(sys.argv[1]).rglob("*.so*"):
    if path.is_symlink() or not path.is_file() or path.open("rb").read(5) != b"\x7fELF\x02":
        continue
    data = bytearray(path.read_bytes())
    headers, = struct.unpack_from("<Q", data, 0x20)
    header_bytes, count = struct.unpack_from("<HH", data, 0x36)
    for i in range(count):
        kind, _, begin, _, _, length = struct.unpack_from("<IIQQQQ", data, headers + i * header_bytes)
        for at in range(begin, begin + length, 16) if kind == PT_DYNAMIC else ():
            if struct.unpack_from("<Q", data, at)[0] == DT_RUNPATH:
                struct.pack_into("<Q", data, at, DT_RPATH)
    path.write_bytes(data)
END

# Only these programs find the libraries: the system has others of the same names. Debian creates the name `mpirun` when
# its packages are installed.
mkdir "$stage/usr/libexec"
mv "$stage"/usr/bin/* "$stage/usr/libexec/"
cat > "$stage/usr/bin/orterun" <<'END'
#!/bin/sh
usr=$(dirname "$(dirname "$(realpath "$0")")")
lib=$usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH="$lib:$lib/openmpi/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$usr/libexec/$(basename "$0")" "$@"
END
chmod +x "$stage/usr/bin/orterun"
cp "$stage/usr/bin/orterun" "$stage/usr/bin/orted"
ln -s orterun "$stage/usr/libexec/mpirun"
cp "$stage/usr/bin/orterun" "$stage/usr/bin/mpirun"

if [ -d "$frontend" ]; then
  cp -r "$frontend/." "$stage/usr/include/"
else
  echo "packages.sh: without cudnn-frontend: builds have no attention by cuDNN" >&2
fi

XZ_OPT="-3 -T0" tar -C "$stage" -cJf "$archive" usr
echo "$archive: $(du -h "$archive" | cut -f1), unpacked $(du -sh "$stage" | cut -f1)"
