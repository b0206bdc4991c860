# shellcheck shell=bash
# Functions for the scripts of this folder; sourced, not run:
#
#   source "$(dirname "$0")/measuring.sh"  # changes to the repository's root; removes $folder when the script ends
#   rounds=3 build=build/release
#   read_flags rounds build -- "$@"        # --rounds N and --build FOLDER; arguments after -- become the array `more`
#   seconds=$(median "$folder/seconds")    # a missing figure ends the script: assign one figure per command, as bash
#                                          # ignores the status of a substitution in an argument
set -euo pipefail
script=$(realpath "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

read_flags() {  # <variables…> -- <arguments…>: `bucket_size` is the flag --bucket-size
  local names=" " name
  while [ "$1" != -- ]; do
    names+="$1 "
    shift
  done
  shift
  more=()
  while (($# > 0)); do
    if [ "$1" = -- ]; then
      more=("${@:2}")
      return
    fi
    name=${1#--} name=${name//-/_}
    if [ "$1" = "$name" ] || [[ $names != *" $name "* ]] || (($# < 2)); then
      awk '/^#   / { print; found = 1; next } found { exit }' "$script" | sed 's/^#  */usage: /; 2,$s/^usage: /       /' >&2
      exit 2
    fi
    printf -v "$name" %s "$2"
    shift 2
  done
}

random_tokens() {  # <file> <tokens> <vocabulary>: a token file of llm.c's kind
  perl -e 'my ($n, $v) = @ARGV; binmode STDOUT; srand 1; print pack "l<256", 20240520, 1, $n, (0) x 253;
           print pack "S<*", map { int rand $v } 1 .. $n' "$2" "$3" >"$1"
}

figures() { python3 -I -S tests/bench/figures.py "$@"; }  # -I -S: starts in half the time
value() { figures values "$2" "$1" "${@:3}"; }  # <key> <JSON lines> [<select>]: of each step, or of selected lines
median() {  # <file with a number per line>
  sort -g "$1" | awk -v file="$1" '{ s[NR] = $1 }
    END {
      if (NR == 0) { print "median: no figure in " file >"/dev/stderr"; exit 1 }
      print NR % 2 ? s[(NR + 1) / 2] : (s[NR / 2] + s[NR / 2 + 1]) / 2
    }'
}
load() { cut -d ' ' -f 1 /proc/loadavg; }  # of the machine, over the last minute
