#!/usr/bin/env bash
# Collectives between two emulated hosts of two ranks (tests/cluster), beside what the links allow.
#
#   tests/bench/collectives_cluster.sh [--rate MBIT] [--sizes 16MiB,32MiB,64MiB,128MiB] [--repeat 3]
#                                      [--collectives all-gather,reduce-scatter,all-reduce] [--build build/release]
#
# All algorithms of a cluster and size take turns in one job. Three clusters and cuts:
#
#   shared link       each host has one link of the rate, which its ranks share; in chunks, as training cuts. Only
#                     all-gathers without --collectives
#   own links whole   each rank has a link of the rate inside its host and another out of it, so that both kinds take
#                     equal time; pieces go whole, as PaRO §3.3 counts
#   own links chunks  the same links, in chunks: then those of H-Ring use both kinds at the same time as well
#
# One JSON line per algorithm and size: `seconds`, the median; `links_allow`, the seconds that the busiest link needs
# for its bytes and, of whole pieces, those of one step after the other; `share`, the second over the first; `ratio`
# of the baseline's seconds (ring, H-Ring with links of their own) to these, and `links_allow_ratio`. And one
# line per cluster and size about the cost model on the links as measured: which algorithm it predicts to be
# fastest, and the fastest one's seconds over that one's.
set -euo pipefail
cd "$(dirname "$0")/../.."
rate=200 sizes=16MiB,32MiB,64MiB,128MiB repeat=3 collectives=all-gather build=build/release
while (($# > 0)); do
  case $1 in
    --rate) rate=${2%mbit} ;;
    --sizes) sizes=$2 ;;
    --repeat) repeat=$2 ;;
    --collectives) collectives=$2 ;;
    --build) build=$2 ;;
    *) echo "usage: $0 [--rate MBIT] [--sizes LIST] [--repeat N] [--collectives LIST] [--build FOLDER]" >&2; exit 2 ;;
  esac
  shift 2
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

bench() {  # <case> <baseline> <flags of run.sh> <flags of ranvier-bench>
  local name=$1 baseline=$2
  # A link's measurement, a warm-up and the repetitions, at half of what the links allow.
  tests/cluster/run.sh --hosts 2 --ranks-per-host 2 --rate "${rate}mbit" --timeout 3000 $3 -- \
    "$build/apps/ranvier-bench" --write-links "$folder/links.json" --overwrite --sizes "$sizes" --repeat "$repeat" \
    --seconds 2900 $4 >"$folder/lines" || { local status=$?; cat "$folder/lines"; exit $status; }
  awk -v name="$name" -v baseline="$baseline" -v rate="$rate" -v load="$(cut -d ' ' -f 1 /proc/loadavg)" '
    function value(key,   text) {
      if (!match($0, "\"" key "\":\"?[^,}\"]*")) return ""
      text = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
      sub("\"", "", text)
      return text
    }
    # In units of the seconds of one piece of four on one link.
    function pieces(algorithm) { return (operation == "all-reduce" ? 2 : 1) * pieces_once(algorithm) }
    function pieces_once(algorithm) {
      if (name == "shared link") return algorithm == "ring" ? 3 : 2
      if (algorithm == "ring") return 3
      if (algorithm == "ho-ring") return 2
      return name == "own links whole" ? 3 : 2
    }
    function summary(   a, seconds, allowed) {
      for (a = 1; a <= count; ++a) {
        printf "{\"bench\": \"collectives\", \"case\": \"%s\", \"mbit\": %s, \"collective\": \"%s\", \"bytes\": %d, \"algorithm\": \"%s\", \"seconds\": %.4f", name, rate, operation, size, algorithm[a], took[a]
        if (algorithm[a] != "mpi") {
          allowed = pieces(algorithm[a]) * size / 4 / (rate * 1e6 / 8)
          printf ", \"links_allow\": %.4f, \"share\": %.3f", allowed, allowed / took[a]
        }
        printf ", \"ratio\": %.3f", base / took[a]
        if (algorithm[a] != "mpi") printf ", \"links_allow_ratio\": %.3f", pieces(baseline) / pieces(algorithm[a])
        printf ", \"load\": %s}\n", load
      }
      printf "{\"bench\": \"cost model\", \"case\": \"%s\", \"collective\": \"%s\", \"bytes\": %d, \"chosen\": \"%s\", \"fastest\": \"%s\", \"fastest_over_chosen\": %.3f}\n", name, operation, size, algorithm[chosen], algorithm[fastest], took[fastest] / took[chosen]
      count = 0
    }
    /"links":/ { next }
    {
      if (count > 0 && (value("bytes") != size || value("collective") != operation)) summary()
      operation = value("collective")
      size = value("bytes")
      algorithm[++count] = value("algorithm")
      took[count] = value("seconds")
      if (algorithm[count] == baseline) base = took[count]
      if (count == 1) { chosen = fastest = 1; least = value("predicted_seconds") }
      if (algorithm[count] == "mpi") next
      if (took[count] < took[fastest]) fastest = count
      if (value("predicted_seconds") + 0 < least + 0) { chosen = count; least = value("predicted_seconds") }
    }
    END { if (count > 0) summary() }' "$folder/lines"
}

plans=ring,recursive,hierarchical,h-ring,ho-ring
[[ $collectives != *all-reduce* ]] || plans+=,torus
bench "shared link" ring "" "--collectives $collectives --algorithms $plans,mpi"
bench "own links whole" h-ring "--rank-rate ${rate}mbit" \
  "--node-size 2 --collectives all-gather --algorithms ring,hierarchical,h-ring,ho-ring --chunk-size 1GiB"
bench "own links chunks" h-ring "--rank-rate ${rate}mbit" \
  "--node-size 2 --collectives all-gather --algorithms ring,hierarchical,h-ring,ho-ring,mpi"
