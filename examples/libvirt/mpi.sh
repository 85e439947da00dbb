#!/bin/sh
# Runs an MPI program on all machines of the run, with a process for each of their CPUs.
set -eu
slots=$(awk -F 'slots=' '{sum += $2} END {print sum}' "$TRADEWIND_HOSTFILE")
exec mpirun --allow-run-as-root --hostfile "$TRADEWIND_HOSTFILE" -np "$slots" "$@"
