#!/bin/bash
# The first phase of a job, one task on its first node. It checks that the programs of later phases exist, and then
# runs the backend's own check.   first_check.sh [PROGRAM...] -- COMMAND...
set -u

fail() {
    echo "stepmark check: $1; next: $2"
    exit 1
}

while [ "$1" != -- ]; do
    command -v "$1" > /dev/null || fail "there is no program '$1' on PATH; a later phase runs it" \
        "an image or environment that has it (--image), or a run without it"
    shift
done
shift
command -v "$1" > /dev/null || fail "the job has no program '$1', which runs the framework" \
    "an image or environment with the framework (--image; python launch/setup.py --site=NAME makes one)"
exec "$@"
