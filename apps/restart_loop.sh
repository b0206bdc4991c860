#!/usr/bin/env bash
# Runs a training until it is done, however often it stops or fails on the way:
#
#   apps/restart_loop.sh [--failures N] [--pause SECONDS] -- \
#     mpirun -n 4 ranvier-train --data corpus.txt --checkpoint checkpoints --time-limit 4h
#
# It adds --resume auto, so that each run resumes from the newest checkpoint. A run that stopped by itself (exit status 75)
# is started again at once if it left a new checkpoint. A run that lost a peer, a device or a process (76, 72, 128 and
# above, and 1, mpirun's own) or stopped without a new checkpoint is started again after a pause. The pause doubles with
# each attempt without progress; after N of them in a row (default 10) the loop gives up with the last status. Progress is
# a new checkpoint in the folder of --checkpoint, or a run of more than an hour if the command names no such folder. All
# other failures need a person and end the loop with their status. SIGTERM, SIGINT, SIGHUP and SIGUSR1 are passed on as
# SIGUSR1, which leaves ranks the time to take a checkpoint, and end the loop with 75 after that run.
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

checkpoints=''
for ((i = 1; i <= $#; ++i)); do
  case ${!i} in
    --checkpoint=*) checkpoints=${!i#*=} ;;
    --checkpoint) next=$((i + 1)) && checkpoints=${!next-} ;;
  esac
done
newest() { ls "$checkpoints" 2>/dev/null | grep -E '^step-[0-9]+(\.[0-9]+)?$' | tail -1; }
has_progressed() {
  if [[ -n $checkpoints ]]; then [[ $(newest) != "$before" ]]; else ((SECONDS - began > 3600)); fi
}

in_a_row=0
while :; do
  before=$(newest)
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
    1 | 72 | 75 | 76 | 12[89] | 1[3-9]? | 2??)
      if has_progressed; then in_a_row=$((status != 75)); else ((++in_a_row)); fi
      if ((in_a_row > failures)) && [[ -z $stopping ]]; then
        echo "$0: $in_a_row attempts without a new checkpoint, the last with status $status: giving up" >&2
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
    echo "$0: status $status, attempt $in_a_row of at most $failures without progress: again in $seconds s" >&2
    sleep "$seconds" &
    wait $!
    [[ -z $stopping ]] || exit 75
  else
    echo "$0: stopped: resuming" >&2
  fi
done
