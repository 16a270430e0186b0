#!/bin/bash
# Every task of a job runs under this: it tells the program which rank it is and where the others are, and writes
# down how the program ended.   task.sh PROGRAM [ARGUMENT...]
# From the job script: STEPMARK_PHASE_DIR; STEPMARK_COORDINATOR=HOST:PORT, where the first rank can be reached; and
# STEPMARK_BIND=gpu where each task has a GPU of its own.
set -u

now() {
    local time=${EPOCHREALTIME:-$(date +%s.%N)} # bash before 5 has no such variable
    echo "${time/,/.}"
}

rank=$SLURM_PROCID
host=${SLURMD_NODENAME:-$(hostname)}

export STEPMARK_RANK=$rank
# What torch's env:// reads. Every node of a phase has as many tasks as the others.
export RANK=$rank WORLD_SIZE=$SLURM_STEP_NUM_TASKS
export LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE=$((SLURM_STEP_NUM_TASKS / SLURM_STEP_NUM_NODES))
export NODE_RANK=$SLURM_NODEID GROUP_RANK=$SLURM_NODEID
export MASTER_ADDR=${STEPMARK_COORDINATOR%:*} MASTER_PORT=${STEPMARK_COORDINATOR##*:}
if [ "$WORLD_SIZE" = 1 ]; then unset STEPMARK_COORDINATOR; fi # there is nobody to wait for

bound=() binding=null
# shellcheck source=launch/slurm/numa.sh
if [ "${STEPMARK_BIND:-}" = gpu ]; then . "${BASH_SOURCE[0]%/*}/numa.sh"; fi

# Slurm tells the program too; this shell must outlive it. A trap, not '', which the program would inherit.
trap : TERM USR1 USR2

${bound[@]+"${bound[@]}"} "$@"
code=$?

# The shell's 128 + N is signal N; but 130 is how a worker ends that was told to stop.
ended=$code
if ((code > 128 && code < 193 && code != 130)); then ended=$((128 - code)); fi
# The rank that failed first is why the others are ended: its code is the job's. Only the first link can be made,
# and that even on a full disk. It also names the rank, since the clocks of nodes differ.
if ((code != 0)); then ln -s "$code rank $rank" "$STEPMARK_PHASE_DIR/first-failure" 2> /dev/null; fi
printf '{"rank":%d,"exit_code":%d,"time":%s,"host":"%s","binding":%s}\n' \
    "$rank" "$ended" "$(now)" "$host" "$binding" \
    >> "$STEPMARK_PHASE_DIR/exits-rank$rank.jsonl"
exit "$code"
