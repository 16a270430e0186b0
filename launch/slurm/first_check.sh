#!/bin/bash
# The first phase of a job, one task on its first node. It checks that the programs of later phases exist, and then
# runs the backend's own check.   first_check.sh [PROGRAM...] -- COMMAND...
set -u

fail() {
    echo "stepmark check: $1; next: $2"
    exit 1
}

while [ "$1" != -- ]; do
    command -v "$1" > /dev/null || fail "program '$1' is not on PATH, but a later phase runs it" \
        "use an image or environment with the program (--image), or a run that does not need it"
    shift
done
shift
command -v "$1" > /dev/null || fail "the job has no program '$1', which runs the framework" \
    "use an image or environment with the framework (--image, or python launch/setup.py --site=NAME)"
exec "$@"
