#!/bin/bash
# In the submission's container, once a GPU: NCCL's all-reduce over all of them.   mlperf_nccl.sh ARGUMENT...
# A container without the program is not a failure: this is noted, and the run continues.
set -u
program=$(command -v all_reduce_perf_mpi || command -v all_reduce_perf) || {
    echo "STEPMARK: not found: all_reduce_perf_mpi"
    exit 0
}
exec "$program" "$@"
