#!/usr/bin/env bash
# Installs a complete build into a temporary folder, moves it, and there configures, builds and runs
# apps/example-project. Its loss must fall, and one pipeline stage and two must end with the same weights.
#
# usage: tests/install/run.sh BUILD        CMAKE, CXX and MPIEXEC replace the programs on the PATH
set -euo pipefail
build=$(realpath "${1:?usage: tests/install/run.sh BUILD}")
source=$(realpath "$(dirname "$0")/../..")
cmake=${CMAKE:-cmake}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "tests/install/run.sh: $*" >&2
  exit 1
}

"$cmake" --install "$build" --prefix "$work/first" >install.log || fail "no installation: $(tail -5 install.log)"
mv first prefix  # no file may contain the installation path
prefix=$work/prefix
headers=$prefix/include/ranvier

for program in "$prefix"/bin/ranvier-*; do
  name=$(basename "$program")
  for made in "man/man1/$name.1" "bash-completion/completions/$name" "zsh/site-functions/_$name"; do
    grep -q -- "${name//-/.\\?.}" "$prefix/share/$made" || fail "share/$made is not installed, or invalid"
  done
done
if grep -rF -e "$source" -e "$build" --include='*.cmake' "$prefix"; then
  fail "the package names folders of the build"
fi
instructions=$(sed -n 's/^set(patterns "\(.*\)")$/\1/p' "$source/cmake/RanvierInstalledIncludes.cmake")
[ -n "$instructions" ] || fail "the list of instructions that headers must not depend on is missing"
if grep -rlE "$instructions" "$headers"; then
  fail "headers depend on the processor that they are compiled for"
fi
grep -rhoE '#include "[^"]+"' "$headers" | cut -d'"' -f2 | sort -u | while read -r name; do
  [ -f "$prefix/include/$name" ] || fail "installed headers include $name, which is not installed"
done

# Headers of the project itself, with the names of Ranvier's headers.
cp -r "$headers" own
find own -type f -exec sed -i '1i #error a header of the project was taken for one of Ranvier' {} +

cp -r "$prefix/share/ranvier/example-project" example
"$cmake" -S example -B built -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS="-I$work/own" \
  >configure.log 2>&1 || { cat configure.log; fail "the example was not configured"; }
"$cmake" --build built >build.log 2>&1 || { cat build.log; fail "the example was not built"; }

train() {  # train STAGES NAME STEPS RATE FLAG...
  "${MPIEXEC:-mpirun}" --oversubscribe --bind-to none -n "$1" built/shift-train --g-inter "$1" \
    --data "$source/README.md" --layers 2 --hidden 32 --heads 2 --sequence-length 32 --batch-size 8 \
    --microbatch-size 2 --pipeline-limit 2 --learning-rate "$4" --steps "$3" --threads 1 --metrics "metrics-$2" \
    --save "weights-$2.safetensors" "${@:5}" >"log-$2" 2>&1 || { cat "log-$2"; fail "no training of $2"; }
}
train 1 one 40 3e-3
train 2 two 40 3e-3

cmp weights-one.safetensors weights-two.safetensors || fail "weights differ between one stage and two"
losses() { grep -o '"loss":[^,]*' "metrics-$1" | cut -d: -f2; }
[ "$(losses one)" = "$(losses two)" ] || fail "losses differ between one stage and two"
losses one |
  awk 'NR == 1 { first = $1 } END { print "loss", first, "to", $1; exit !(NR == 40 && $1 < 0.8 * first) }' ||
  fail "the loss does not fall"

train 1 again 1 0 --init-from weights-one.safetensors
cmp weights-one.safetensors weights-again.safetensors || fail "--save wrote other weights than --init-from"
