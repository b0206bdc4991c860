# Losses of --metrics files, for the stages that source this.
losses() { python3 tests/bench/figures.py values "$1" loss >"$1.losses"; }
difference() {  # <metrics> <metrics> <steps>: prints the largest difference of losses; fails above 0.002
  losses "$1"
  losses "$2"
  paste "$1.losses" "$2.losses" |
    awk -v steps="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d }
      END { printf "%.6f\n", worst; exit !(NR == steps && worst <= 0.002) }'
}
