#!/bin/sh
# mpirun's replacement for ssh: agent.sh HOST COMMAND... runs the command on an emulated host (see run.sh).
host=$1
shift
exec nsenter --net="/run/netns/$host" --uts="/run/uts/$host" -- sh -c "$*"
