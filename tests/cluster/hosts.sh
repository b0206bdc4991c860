#!/usr/bin/env bash
# The inside of run.sh, as the first process of fresh namespaces: makes the hosts, starts mpirun, counts.
#
#   run      each host is a namespace with `between`, its link to the others, and `control`, for mpirun's daemons
#            alone, so that `between` carries nothing but the ranks' messages. With RANK_RATE each rank is such a
#            namespace and has `inside` as well, the link to the ranks of its host.
#   check    makes and limits one link; fails with the reason if that is not allowed
#
# Not to be started by hand: it mounts over /run and /etc/hosts.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# A queue of this size never drops a packet: TCP has less in flight.
queue=67108864
# More than the largest packet, so that none is split; 10 ms at 200 Mbit/s.
burst=262144

# Also the location of namespaces and of Open MPI's files: removed with the mounts.
private_places() {
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /dev/shm
  mkdir /run/netns /run/uts /run/mpi
}

limit() {  # <rate> <ip or tc, with the namespace> <device>: limits the rate of its sending
  [ -z "$1" ] || "${@:3}" qdisc add dev "$2" root tbf rate "$1" burst "$burst" limit "$queue"
}

bridge() {  # <name>
  ip link add "$1" mtu "$MTU" type bridge stp_state 0 forward_delay 0 mcast_snooping 0
  ip link set "$1" up
}

link() {  # <namespace> <device in it> <bridge> <rate>
  local far=$1.$2
  ip link add "$far" mtu "$MTU" type veth peer name "$2" mtu "$MTU" netns "$1"
  ip link set "$far" master "$3" up
  ip -n "$1" link set "$2" up
  limit "$4" "$2" tc -n "$1"
  limit "$4" "$far" tc
}

# A namespace with a host name. A connection's window is wide from the start and stays wide after a pause; only a lost
# packet narrows it. So measurements show the link, not TCP's estimates of it. Unsent data wait at the sender
# (tcp_notsent_lowat), not in a socket of megabytes, where MPI's replies would wait behind them.
host() {  # <name> <between's address> <control's address>
  ip netns add "$1"
  touch "/run/uts/$1"
  unshare --uts="/run/uts/$1" hostname "$1"
  nsenter --net="/run/netns/$1" sh -c '
    cd /proc/sys/net
    echo 1 >ipv6/conf/default/disable_ipv6
    echo reno >ipv4/tcp_congestion_control
    echo 0 >ipv4/tcp_slow_start_after_idle
    echo 131072 >ipv4/tcp_notsent_lowat
    echo "4096 4194304 16777216" >ipv4/tcp_rmem
    echo "4096 1048576 4194304" >ipv4/tcp_wmem' 2>/dev/null || true
  ip -n "$1" link set lo up
  link "$1" between between "$RATE"
  link "$1" control control ""
  ip -n "$1" address add "$2/16" dev between
  ip -n "$1" address add "$3/16" dev control
  echo "$3 $1" >>/run/hosts
}

make_hosts() {
  local h i name
  echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 2>/dev/null || true
  ip link set lo up
  bridge between
  bridge control
  ip address add 10.78.255.254/16 dev control
  printf '127.0.0.1 localhost\n10.78.255.254 launcher\n' >/run/hosts
  for ((h = 0; h < HOSTS; ++h)); do
    if [ -z "$RANK_RATE" ]; then
      host "host$h" "10.77.$h.1" "10.78.$h.1"
      slots+=("host$h:$RANKS_PER_HOST")
      continue
    fi
    bridge "inside$h"
    for ((i = 1; i <= RANKS_PER_HOST; ++i)); do
      name=rank$((h * RANKS_PER_HOST + i - 1))
      host "$name" "10.77.$h.$i" "10.78.$h.$i"
      link "$name" inside "inside$h" "$RANK_RATE"
      ip -n "$name" route add "10.77.$h.0/24" dev inside src "10.77.$h.$i"
      slots+=("$name:1")
    done
  done
  hostname launcher
  mount --bind /run/hosts /etc/hosts
}

devices() { [ -z "$RANK_RATE" ] && echo between || echo "between inside"; }

# Prints a line per link: namespace, device, bytes and packets in, bytes and packets out.
count() {
  local name device
  for name in $(cut -d ' ' -f 2 /run/hosts | grep -v -e localhost -e launcher); do
    for device in $(devices); do
      nsenter --net="/run/netns/$name" awk -v name="$name" -v device="$device" \
        '{ sub(":", " ") } $1 == device { print name, device, $2, $3, $10, $11 }' /proc/net/dev
    done
  done
}

drops() {  # <namespace> <device>: packets that a full queue dropped, in both directions
  { tc -n "$1" -s qdisc show dev "$2"; tc -s qdisc show dev "$1.$2"; } | awk '
    /dropped/ { sub(",", ""); for (i = 1; i < NF; ++i) if ($i ~ /dropped/) lost += $(i + 1) } END { print lost + 0 }'
}

write_counters() {  # <before> <after>, as count() printed them
  local name device rest
  while read -r name device rest; do
    echo "$name $device $rest $(drops "$name" "$device")"
  done <<<"$2" | awk -v before="$1" -v hosts="$HOSTS" -v ranks_per_host="$RANKS_PER_HOST" '
    BEGIN {
      lines = split(before, line, "\n")
      for (l = 1; l <= lines; ++l) {
        split(line[l], f, " ")
        for (i = 3; i <= 6; ++i) old[f[1], f[2], i] = f[i]
      }
      printf "{\"hosts\": %d, \"ranks_per_host\": %d, \"links\": [", hosts, ranks_per_host
    }
    {
      host = $1
      if (sub("rank", "", host)) host = int(host / ranks_per_host); else sub("host", "", host)
      printf "%s\n  {\"name\": \"%s\", \"host\": %d, \"link\": \"%s\"", (NR > 1 ? "," : ""), $1, host, $2
      printf ", \"bytes_in\": %.0f, \"packets_in\": %.0f", $3 - old[$1, $2, 3], $4 - old[$1, $2, 4]
      printf ", \"bytes_out\": %.0f, \"packets_out\": %.0f", $5 - old[$1, $2, 5], $6 - old[$1, $2, 6]
      printf ", \"dropped\": %d}", $7
    }
    END { printf "]}\n" }'
}

run() {
  exec 2>&3 3>&-  # run.sh separates the errors of `unshare`
  local slots=() before after status=0
  private_places
  make_hosts
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  local mpi=(mpirun -n "$((HOSTS * RANKS_PER_HOST))" --host "$(IFS=,; echo "${slots[*]}")" --map-by slot --bind-to none
             --mca plm rsh --mca plm_rsh_agent "$here/agent.sh" --mca plm_rsh_no_tree_spawn 1
             --mca orte_tmpdir_base /run/mpi --mca oob_tcp_if_include control
             --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include between)
  # Open MPI would write a long message to the peer's memory ("put") in one piece. Replies to the peer's own
  # messages would wait behind it, so that the two directions alternate.
  export OMPI_MCA_btl_tcp_flags=${OMPI_MCA_btl_tcp_flags:-send}
  before=$(count)
  timeout --kill-after=5 "$TIMEOUT" "${mpi[@]}" "$@" </dev/null || status=$?
  after=$(count)
  [ "$status" -ne 124 ] || echo "run.sh: the program did not end within $TIMEOUT s and was killed" >&2
  [ -z "$COUNTERS" ] || write_counters "$before" "$after" >"$COUNTERS"
  return "$status"
}

check() {
  MTU=60000
  private_places
  ip netns add host
  bridge between
  link host between between 200mbit
  touch /run/uts/host
  unshare --uts=/run/uts/host hostname host
  nsenter --net=/run/netns/host --uts=/run/uts/host true
}

"$@"
