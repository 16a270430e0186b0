#!/bin/bash
# Every task of a job runs this script, which sets the program's rank and the address of the first rank, and records
# how the program ended.   task.sh PROGRAM [ARGUMENT...]
# From the job script: STEPMARK_PHASE_DIR; STEPMARK_COORDINATOR=HOST:PORT, the address of the first rank; and
# STEPMARK_BIND=gpu if each task has its own GPU.
set -u

now() {
    local time=${EPOCHREALTIME:-$(date +%s.%N)} # bash before 5 has no such variable
    echo "${time/,/.}"
}

rank=$SLURM_PROCID
host=${SLURMD_NODENAME:-$(hostname)}

export STEPMARK_RANK=$rank
# The variables that torch's env:// reads. Every node of a phase has the same number of tasks.
export RANK=$rank WORLD_SIZE=$SLURM_STEP_NUM_TASKS
export LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE=$((SLURM_STEP_NUM_TASKS / SLURM_STEP_NUM_NODES))
export NODE_RANK=$SLURM_NODEID GROUP_RANK=$SLURM_NODEID
export MASTER_ADDR=${STEPMARK_COORDINATOR%:*} MASTER_PORT=${STEPMARK_COORDINATOR##*:}
if [ "$WORLD_SIZE" = 1 ]; then unset STEPMARK_COORDINATOR; fi # a single task does not wait for other tasks

bound=() binding=null
# shellcheck source=launch/slurm/numa.sh
if [ "${STEPMARK_BIND:-}" = gpu ]; then . "${BASH_SOURCE[0]%/*}/numa.sh"; fi

# Slurm signals this shell and the program. The trap keeps the shell alive until the program ends. An empty trap ('')
# would also make the program ignore the signals.
trap : TERM USR1 USR2

${bound[@]+"${bound[@]}"} "$@"
code=$?

# The shell reports signal N as 128 + N. But 130 is the exit code of a worker that was stopped.
ended=$code
if ((code > 128 && code < 193 && code != 130)); then ended=$((128 - code)); fi
# Slurm ends the other ranks after the first failure, so the job takes the exit code of that rank. Only the first rank
# can make this link, even on a full disk. The link names the rank, because the clocks of nodes differ.
if ((code != 0)); then ln -s "$code rank $rank" "$STEPMARK_PHASE_DIR/first-failure" 2> /dev/null; fi
printf '{"rank":%d,"exit_code":%d,"time":%s,"host":"%s","binding":%s}\n' \
    "$rank" "$ended" "$(now)" "$host" "$binding" \
    >> "$STEPMARK_PHASE_DIR/exits-rank$rank.jsonl"
exit "$code"
