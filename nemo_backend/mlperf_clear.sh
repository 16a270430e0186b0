#!/bin/bash
# Clear a node's caches and set its GPUs' boost slider, once before an MLPerf run. Both affect all users of the node,
# so a job that shares its nodes does not run this.   mlperf_clear.sh CLEAR(0|1) VBOOST
set -u
clear=$1 vboost=$2
PATH=$PATH:/usr/sbin:/sbin
host=${SLURMD_NODENAME:-$(hostname)}

as_root() { # a user who is not root needs sudo without a password
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo --non-interactive "$@"; fi
}

fail() {
    printf '{"event":"end","status":"error","message":"%s"}\n' "$1" >> "$STEPMARK_PHASE_DIR/events-rank$STEPMARK_RANK.jsonl"
    echo "stepmark: $1" >&2
    exit 1
}

if [ "$clear" = 1 ]; then
    sync
    as_root sysctl vm.drop_caches=3 ||
        fail "cannot drop the caches of $host: allow sysctl vm.drop_caches=3 in sudo, or pass --set=CLEAR_CACHES=false --set=MLPERF_DIVISION=open"
    echo "caches of $host are dropped"
fi
if [ "$vboost" -gt 0 ]; then
    as_root nvidia-smi boost-slider --vboost "$vboost" ||
        fail "cannot set the boost slider of $host: allow nvidia-smi boost-slider --vboost $vboost in sudo, or pass --set=VBOOST_VALUE=0"
    echo "the boost slider of $host is at $vboost"
fi
printf '{"event":"end","status":"done"}\n' >> "$STEPMARK_PHASE_DIR/events-rank$STEPMARK_RANK.jsonl"
