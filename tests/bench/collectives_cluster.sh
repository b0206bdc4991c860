#!/usr/bin/env bash
# Collectives between two emulated hosts of two ranks (tests/cluster), compared with the links' limit.
#
#   tests/bench/collectives_cluster.sh [--rate MBIT] [--sizes 16MiB,32MiB,64MiB,128MiB] [--repeat 3]
#                                      [--collectives all-gather,reduce-scatter,all-reduce] [--build build/release]
#                                      [--cluster tests/cluster/run.sh]

# All algorithms of a case and size take turns in one job. Cases:
#   shared link       one link of the rate per host, shared by its ranks; messages in collective chunks, as in training.
#                     Other collectives than all-gather only here
#   own links whole   two links of the rate per rank, one inside its host and one to the other; both take equal time.
#                     Messages are not split, as in PaRO §3.3
#   own links chunks  the same links, in collective chunks: then H-Ring uses both kinds of links at once, too
#
# One JSON line per algorithm and size. `seconds`: median. `links_allow`: seconds that the busiest link needs for its
# bytes; without chunks, the sum over steps. `share`: `links_allow` over `seconds`. `ratio`: the baseline's seconds over
# these (baseline: ring, or H-Ring with two links per rank); `links_allow_ratio`: the same of `links_allow`.
# One line per case and size for the cost model on measured links: the algorithm that it predicts to be the fastest, and
# the fastest algorithm's seconds over that one's.
source "$(dirname "$0")/measuring.sh"
rate=200 sizes=16MiB,32MiB,64MiB,128MiB repeat=3 collectives=all-gather build=build/release
cluster=tests/cluster/run.sh
read_flags rate sizes repeat collectives build cluster -- "$@"
rate=${rate%mbit}

bench() {  # <case> <baseline> <flags of run.sh> <flags of ranvier-bench>
  local name=$1 baseline=$2
  # Time for measuring a link, a warm-up and the repetitions, at half of the links' rate.
  "$cluster" --hosts 2 --ranks-per-host 2 --rate "${rate}mbit" --timeout 3000 $3 -- \
    "$build/apps/ranvier-bench" --write-links "$folder/links.json" --overwrite --sizes "$sizes" --repeat "$repeat" \
    --seconds 2900 $4 >"$folder/lines" || { local status=$?; cat "$folder/lines"; exit $status; }
  awk -v name="$name" -v baseline="$baseline" -v rate="$rate" -v load="$(load)" '
    function value(key,   text) {
      if (!match($0, "\"" key "\":\"?[^,}\"]*")) return ""
      text = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
      sub("\"", "", text)
      return text
    }
    function required(key,   text) {
      text = value(key)
      if (text == "") { print "collectives_cluster.sh: ranvier-bench printed no " key ": " $0 >"/dev/stderr"; failed = 1; exit 1 }
      return text
    }
    # Seconds in units of a quarter of the bytes on one link.
    function pieces(algorithm) { return (operation == "all-reduce" ? 2 : 1) * pieces_once(algorithm) }
    function pieces_once(algorithm) {
      if (name == "shared link") return algorithm == "ring" ? 3 : 2
      if (algorithm == "ring") return 3
      if (algorithm == "ho-ring") return 2
      return name == "own links whole" ? 3 : 2
    }
    function summary(   a, seconds, allowed) {
      if (base == "") { print "collectives_cluster.sh: ranvier-bench printed no " baseline >"/dev/stderr"; failed = 1; exit 1 }
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
      base = ""
    }
    !/^\{/ || /"links":/ { next }
    {
      if (count > 0 && (required("bytes") != size || required("collective") != operation)) summary()
      operation = required("collective")
      size = required("bytes")
      algorithm[++count] = required("algorithm")
      took[count] = required("seconds")
      if (algorithm[count] == baseline) base = took[count]
      if (count == 1) { chosen = fastest = 1; least = required("predicted_seconds") }
      if (algorithm[count] == "mpi") next
      if (took[count] < took[fastest]) fastest = count
      predicted = required("predicted_seconds")
      if (predicted + 0 < least + 0) { chosen = count; least = predicted }
    }
    END {
      if (failed) exit 1
      if (count == 0) { print "collectives_cluster.sh: ranvier-bench printed no collective" >"/dev/stderr"; exit 1 }
      summary()
    }' "$folder/lines"
}

plans=ring,recursive,hierarchical,h-ring,ho-ring
[[ $collectives != *all-reduce* ]] || plans+=,torus
bench "shared link" ring "" "--collectives $collectives --algorithms $plans,mpi"
bench "own links whole" h-ring "--rank-rate ${rate}mbit" \
  "--node-size 2 --collectives all-gather --algorithms ring,hierarchical,h-ring,ho-ring --chunk-size 1GiB"
bench "own links chunks" h-ring "--rank-rate ${rate}mbit" \
  "--node-size 2 --collectives all-gather --algorithms ring,hierarchical,h-ring,ho-ring,mpi"
