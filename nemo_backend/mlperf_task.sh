#!/bin/bash
# In the submission's container, once a GPU: its own run_and_time.sh, as run.sub starts it. launch/slurm/task.sh has set
# what slurm2pytorch would (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), with a port that is free.
#   mlperf_task.sh WORKDIR LOGGER      LOGGER writes cache_clear where the caches were cleared; none: they were not
set -u
workdir=$1 logger=$2
# All ranks must draw the same, and each run another: a run is a job.
export SEED=${SEED:-${SLURM_JOB_ID:?}}
cd "$workdir" || exit 1

log_cleared() {
    case $logger in
        mlperf_common) python3 -c 'from mlperf_common.callbacks import mllogger
mllogger.event(key=mllogger.constants.CACHE_CLEAR, value=True)' ;;
        mlperf_logging) python3 -c 'from mlperf_logging import mllog
mllog.get_mllogger().event(key=mllog.constants.CACHE_CLEAR, value=True)' ;;
    esac
}

if [ "$STEPMARK_RANK" != 0 ]; then exec bash ./run_and_time.sh; fi

# The process that keeps the log must outlive the program: Slurm signals both.
{
    log_cleared
    echo "SEED=$SEED"
    bash ./run_and_time.sh
} 2>&1 | (
    trap '' TERM INT USR1 USR2
    exec tee "$STEPMARK_PHASE_DIR/result_0.txt"
)
exit "${PIPESTATUS[0]}"
