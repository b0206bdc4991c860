#!/usr/bin/env bash
# Runs a training until it is done, however often it stops or fails on the way:
#
#   apps/restart_loop.sh [--failures N] [--pause SECONDS] -- \
#     mpirun -n 4 ranvier-train --data corpus.txt --checkpoint checkpoints --time-limit 4h
#
# It adds --resume auto, so that each run goes on from the newest checkpoint. A run that stopped by itself (exit status 75)
# is started again at once; one that lost a peer, a device or a process (76, 72, 128 and above, and 1, which is mpirun's
# own) after a pause that doubles with each failure in a row, at most N of them (10). All other failures are a person's to
# look at, and end the loop with their status. SIGTERM, SIGINT, SIGHUP and SIGUSR1 are passed on as SIGUSR1, which mpirun gives
# its ranks the time to take a checkpoint for, and end the loop with 75 after that run.
set -u

usage() {
  echo "usage: $0 [--failures N] [--pause SECONDS] -- COMMAND ARGUMENT..." >&2
  exit 64
}

failures=10 pause=10
while (($#)); do
  case $1 in
    --failures) failures=${2-} ;;
    --pause) pause=${2-} ;;
    --) break ;;
    *) usage ;;
  esac
  [[ ${2-} =~ ^[0-9]+$ ]] || usage
  shift 2
done
[[ ${1-} == -- && $# -gt 1 ]] || usage
shift

run='' stopping='' interrupted=''
stop() {
  stopping=yes interrupted=yes
  [[ -z $run ]] || kill -USR1 "$run" 2>/dev/null
}
trap stop TERM INT HUP USR1

# A signal interrupts wait; the run goes on until it ends.
wait_for_run() {
  local ended
  while :; do
    interrupted=''
    wait "$run"
    ended=$?
    ((ended == 127)) || status=$ended
    [[ -n $interrupted ]] || break
  done
}

in_a_row=0
while :; do
  # A session of its own (setsid), so that a signal to all of the loop's processes does not end the run early.
  setsid "$@" --resume auto &
  run=$!
  [[ -z $stopping ]] || kill -USR1 "$run" 2>/dev/null  # a signal came before there was whom to pass it on to
  began=$SECONDS
  status=255
  wait_for_run
  run=''
  case $status in
    0) exit 0 ;;
    75) in_a_row=0 ;;
    1 | 72 | 76 | 12[89] | 1[3-9]? | 2??)
      ((in_a_row = SECONDS - began > 3600 ? 1 : in_a_row + 1))
      if ((in_a_row > failures)); then
        echo "$0: $failures failures in a row, the last with status $status: giving up" >&2
        exit "$status"
      fi
      ;;
    *)
      echo "$0: status $status: not started again; apps/guides/resuming.md says what it means" >&2
      exit "$status"
      ;;
  esac
  [[ -z $stopping ]] || exit 75
  if ((in_a_row > 0)); then
    seconds=$((pause << (in_a_row < 6 ? in_a_row - 1 : 5)))
    echo "$0: status $status, failure $in_a_row of at most $failures in a row: again in $seconds s" >&2
    sleep "$seconds" &
    wait $!
    [[ -z $stopping ]] || exit 75
  else
    echo "$0: stopped: going on" >&2
  fi
done
