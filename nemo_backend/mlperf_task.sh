#!/bin/bash
# Run the submission's own run_and_time.sh, as run.sub does, once per GPU in its container. launch/slurm/task.sh has
# set the variables of slurm2pytorch (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), with a free port.
#   mlperf_task.sh WORKDIR LOGGER      LOGGER is the package that logs cache_clear; none if no caches were cleared
set -u
workdir=$1 logger=$2
# All ranks of a run need the same seed, and each run a different one. A run is one job.
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

# Slurm signals all of these processes. tee ignores the signals, so that it logs what the program prints at its end.
{
    log_cleared
    echo "SEED=$SEED"
    bash ./run_and_time.sh
} 2>&1 | (
    trap '' TERM INT USR1 USR2
    exec tee "$STEPMARK_PHASE_DIR/result_0.txt"
)
exit "${PIPESTATUS[0]}"
