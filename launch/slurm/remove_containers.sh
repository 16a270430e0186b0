#!/bin/bash
# Runs on a node, outside a container, when a job of Stepmark ends. Removes the container of the job, and containers of
# this user's killed jobs. Pyxis keeps a named container as pyxis_NAME or, with container_scope=job, as
# pyxis_JOB_NAME.   remove_containers.sh RUNNING_JOB...      the user's jobs in the queue, or the word unknown
set -u
running=" $* "
unset "${!ENROOT_@}" # as pyxis, which does not pass these variables to enroot

status=0
for container in $(enroot list); do
    [[ $container =~ ^pyxis_([0-9]+_)?stepmark-([0-9]+)-[0-9]+$ ]] || continue
    job=${BASH_REMATCH[2]}
    if [ "$job" != "$SLURM_JOB_ID" ] && [[ $running == *" $job "* || $running == *" unknown "* ]]; then continue; fi
    enroot remove --force "$container" || status=1
done
exit "$status"
