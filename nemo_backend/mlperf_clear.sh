#!/bin/bash
# On a node itself, once, before an MLPerf run: the caches, and the GPUs' boost slider. Both change the node for
# everybody on it, so a job that shares its nodes never comes here.   mlperf_clear.sh CLEAR(0|1) VBOOST
set -u
clear=$1 vboost=$2
PATH=$PATH:/usr/sbin:/sbin
host=${SLURMD_NODENAME:-$(hostname)}

as_root() { # where the user is not root, sudo must be allowed without a password
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
        fail "the caches of $host could not be dropped (sysctl vm.drop_caches=3): allow it by sudo, or --set=CLEAR_CACHES=false --set=MLPERF_DIVISION=open"
    echo "caches of $host are dropped"
fi
if [ "$vboost" -gt 0 ]; then
    as_root nvidia-smi boost-slider --vboost "$vboost" ||
        fail "the boost slider of $host could not be set (nvidia-smi boost-slider --vboost $vboost): allow it by sudo, or --set=VBOOST_VALUE=0"
    echo "the boost slider of $host is at $vboost"
fi
printf '{"event":"end","status":"done"}\n' >> "$STEPMARK_PHASE_DIR/events-rank$STEPMARK_RANK.jsonl"
