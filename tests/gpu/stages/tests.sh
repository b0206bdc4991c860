# The tests on the GPU, a process per test file: a kernel that reads where nothing is takes the rest of its process with
# it. Several run at once. With arguments, only some files under a tool: tests.sh "norm operators" compute-sanitizer …
files=${1:-} tool=${*:2}
[ -z "$tiny" ] || files="dropout elementwise unknown_algorithm"
export tool lock
lock=$(mktemp)
trap 'rm -f "$lock"' EXIT

run() {  # <program> [<file>]: its output if it fails, and its figure
  local begin=$SECONDS status=0 name said
  name=$(basename "${2:-whole}" _test.cpp)
  # shellcheck disable=SC2086  # words
  said=$(timeout --foreground 75 $tool "$1" --no-intro ${2:+"--source-file=*$2"} 2>&1) || status=$?
  {
    flock 9  # one at a time
    [ "$status" -ne 0 ] || said=$(tail -1 <<<"$said")
    echo "-- $(basename "$1") $name: status $status"$'\n'"$said"
    printf '{"bench": "tests", "tool": "%s", "program": "%s", "file": "%s", "status": %d, "seconds": %d}\n' \
      "${tool:+$(cut -d ' ' -f 3 <<<"$tool")}" "$(basename "$1")" "$name" "$status" $((SECONDS - begin))
  } 9>"$lock"
  return $((status != 0))  # xargs would end at 255
}
export -f run

jobs=() alone=()
for program in "$build"/tests/*/ranvier_*_gpu_*test*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  if [[ $program != *_gpu_tests ]]; then  # fails on purpose, on the GPU alone
    [ -n "$files" ] || alone+=("$program")
    continue
  fi
  listed=$("$program" --reporters=xml --list-test-cases) || { echo "$listed"; exit 1; }
  while read -r file; do
    case "$(basename "$file" _test.cpp)" in
      # These measure times; an algorithm that cuBLASLt cannot know may crash, and comes last.
      *_choice | cuda_overlap | unknown_algorithm) alone+=("$program $file") ;;
      *) jobs+=("$program $file") ;;
    esac
  done < <(sed -n 's/.*filename="\([^"]*\)".*/\1/p' <<<"$listed" | sort -u)
done
some() {  # <jobs…>: those of `files`, in its order
  [ -n "$files" ] || { printf '%s\n' "$@"; return; }
  local file
  for file in $files; do printf '%s\n' "$@" | grep "/${file}_test.cpp$" || true; done
}
failed=0
some "${jobs[@]}" | xargs -r -L 1 -P 6 bash -c 'run "$@"' _ || failed=1
some "${alone[@]}" | sort | xargs -r -L 1 bash -c 'run "$@"' _ || failed=1
exit "$failed"
