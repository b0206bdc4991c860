#!/usr/bin/env bash
# Runs an MPI program on a cluster of 1 to 4 emulated hosts: network namespaces connected by links of limited rate.
#
#   tests/cluster/run.sh --hosts 2 --ranks-per-host 2 --rate 200mbit [--rank-rate 200mbit] [--mtu 60000]
#                        [--timeout 300] [--counters FILE] -- PROGRAM [ARGUMENT...]
#   tests/cluster/run.sh --check      prints whether this machine can do that
#
#   --rate       of each host's link to the others, in each direction, in tc's format; default: unlimited
#   --rank-rate  every rank gets its own host name and two links: one of this rate to the ranks of its host, one
#                with --rate to all others. MPI then cannot detect the hosts; set them in the program (--node-size).
#   --mtu        large packets, so that headers stay below 1 % of the counted bytes
#   --timeout    maximum seconds of the program; after that the status is 124
#   --counters   bytes and packets of every link while the program ran, as JSON

# The exit status is the program's; 77 with a line "skipped: ..." if the machine does not allow namespaces. Nothing is
# left behind, however this ends. All processes and interfaces are in namespaces without a name outside. These end with
# their first process, which the kernel ends with this script. Works without root if users may create namespaces.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() {
  echo "run.sh: $1" >&2
  sed -n 's/^# \{0,1\}//; 4,6p' "$0" >&2
  exit 2
}

skip() {
  echo "skipped: this machine does not allow network namespaces ($1)"
  exit 77
}

whole_number() {  # <flag> <value> <least> <most>
  [[ $2 =~ ^[0-9]+$ ]] && (($2 >= $3 && $2 <= $4)) || usage "$1 is '$2'; it takes a whole number from $3 to $4"
}

hosts=2 ranks_per_host=2 rate= rank_rate= mtu=60000 timeout=300 counters= check=
while (($# > 0)); do
  case $1 in
    --check) check=yes; shift; continue ;;
    --) shift; break ;;
    --hosts | --ranks-per-host | --rate | --rank-rate | --mtu | --timeout | --counters) (($# > 1)) || usage "$1 lacks its value" ;;
    *) usage "unknown flag '$1'; the program goes behind --" ;;
  esac
  case $1 in
    --hosts) whole_number "$1" "$2" 1 4; hosts=$2 ;;
    --ranks-per-host) whole_number "$1" "$2" 1 16; ranks_per_host=$2 ;;
    --rate) rate=$2 ;;
    --rank-rate) rank_rate=$2 ;;
    --mtu) whole_number "$1" "$2" 1280 65535; mtu=$2 ;;
    --timeout) whole_number "$1" "$2" 1 86400; timeout=$2 ;;
    --counters) counters=$2 ;;
  esac
  shift 2
done
for word in $rate $rank_rate; do
  [[ $word =~ ^[0-9]+([.][0-9]+)?[kmgt]?bit$ ]] || usage "'$word' is not a rate; write 200mbit or 10gbit"
done
[ -n "$check" ] || (($# > 0)) || usage "the program is missing; add it after --"

PATH=$PATH:/usr/sbin:/sbin
for tool in ip tc nsenter setpriv unshare mpirun; do
  command -v "$tool" >/dev/null || skip "'$tool' is missing; cmake/install_dependencies.sh installs it"
done

# The first process ends with `unshare`, which ends with this script, and all others end with the first.
enter=(setpriv --pdeathsig KILL -- unshare --net --mount --pid --uts --ipc --fork --kill-child --mount-proc)
[ "$(id -u)" -eq 0 ] || enter+=(--user --map-root-user)

reason=$("${enter[@]}" "$here/hosts.sh" check 2>&1) || skip "$(echo "${reason:-unknown}" | head -n 1)"
[ -z "$check" ] || exit 0

HOSTS=$hosts RANKS_PER_HOST=$ranks_per_host RATE=$rate RANK_RATE=$rank_rate MTU=$mtu TIMEOUT=$timeout COUNTERS=$counters \
  "${enter[@]}" "$here/hosts.sh" run "$@" 3>&2 2>/dev/null &  # `unshare` complains when its child is killed
entered=$!

# Ends the first process of the namespaces: `unshare` returns when all others have ended too.
end() {
  local status=$1 process
  for process in $(grep -ls "^PPid:[[:space:]]*$entered\$" /proc/[0-9]*/status); do
    process=${process#/proc/}
    kill -KILL "${process%/status}" 2>/dev/null || true
  done
  wait "$entered" 2>/dev/null || true
  exit "$status"
}
trap 'end 129' HUP
trap 'end 130' INT
trap 'end 143' TERM

status=0
wait "$entered" || status=$?
exit "$status"
