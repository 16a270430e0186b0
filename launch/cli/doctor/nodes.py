"""Every node of a site: one job, an answer from each, a table, and lists of passing and failing nodes.

    python launch/doctor.py nodes --site=NAME                   all nodes that are up
    python launch/doctor.py nodes --site=NAME --nodelist=node[1-8] --json
    python launch/doctor.py nodes --site=NAME --dry_run         show the job; submit nothing

What needs hardware is `not checked` without it, never `ok`. Exit codes: 0 all nodes pass (warnings are allowed);
1 the preflight itself failed; 2 the request was wrong and nothing was started; 3 a node fails.
"""

import os
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.preflight.report import report_text
from launch.cli.command import refuse_more
from launch.preflight import nodes as preflights
from launch.slurm import job_flags
from launch.slurm.client import Slurm
from launch.slurm.options import choose, refuse_without_slurm
from launch.slurm.waiting import Limits
from launch.terminal import places
from launch.terminal.output import answer, text_alone
from launch.terminal.progress import say

SITE = flags.DEFINE_string("site", "local", "The site whose nodes are checked.")
NODES = flags.DEFINE_integer(
    "nodes", None, "So many nodes, whichever Slurm gives; all that are up without it.", lower_bound=1
)
OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "The folder that gets a folder with answers and report.")
LIMIT = flags.DEFINE_float(
    "limit", 120, "Seconds without a further answer after which the silent nodes fail.", lower_bound=1
)
NOT_STARTED = "--queue_limit=<seconds> to wait longer, --nodelist=<idle nodes>, or --noexclusive"
QUEUE_LIMIT = flags.DEFINE_float("queue_limit", 600, "Seconds the job may wait for its nodes.", lower_bound=1)
DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Show the job; submit nothing, write nothing.")
flags.adopt_module_key_flags(job_flags)


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/doctor.py nodes --site=NAME")
    configs = places.configs()
    site = configs.site(SITE.value)
    if site.slurm is None:
        refuse_without_slurm(site, job_flags.typed())
        raise RequestError(
            f"site {site.name} has no Slurm to ask for nodes",
            where=f"--site={site.name}",
            next_command="python launch/doctor.py machine     (checks this machine)",
        )
    options = choose(site, job_flags.typed(), os.environ)
    output_dir = Path(OUTPUT_DIR.value)
    if DRY_RUN.value:
        planned = preflights.sketch(site, options, NODES.value, output_dir, LIMIT.value, configs)
        if NODES.value is None and not options.nodelist:
            say("1 node stands for all that are up: a dry run does not ask Slurm (--nodes=N shows another number)")
        script = preflights.render_preflight(planned)
        text_alone(script)
        return EXIT_VALID
    preflight = preflights.prepare(site, options, NODES.value, output_dir, LIMIT.value, configs)
    limits = Limits(queue_seconds=QUEUE_LIMIT.value, quiet_seconds=LIMIT.value, way_on=NOT_STARTED)
    report = preflights.run(preflight, Slurm(site), limits)
    answer(report, lambda: f"{report_text(report)}\n{preflights.next_steps(report, preflight.folder)}")
    return EXIT_VALID if report.passed else EXIT_INVALID
