"""Check this machine, a site's nodes or XLA's flags before a run, or find out from logs why a run failed.

    python launch/doctor.py                                     this machine
    python launch/doctor.py nodes --site=NAME                   every node of a site
    python launch/doctor.py logs LOG...                         why a run failed: the earliest cause, and a fix to try

Exit codes: 0 no problem (warnings are allowed); 1 a check could not be run; 2 the request was wrong, or a flag is
refused; 3 a machine or node fails a check, or the logs show a failure.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import os
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from launch.cli.command import refuse_more
from launch.cli.subcommands import Subcommand, Subcommands
from launch.slurm import job_flags
from launch.terminal.output import answer, text_only

OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "Folder of the runs; `nodes` adds a folder for its check.")
SITE = flags.DEFINE_string("site", "local", "Site whose nodes to check.")
NODES = flags.DEFINE_integer(
    "nodes", None, "Number of nodes to check. (default: all nodes that are up)", lower_bound=1
)
LIMIT = flags.DEFINE_float("limit", 120, "Maximum seconds to wait for the next node's answer.", lower_bound=1)
QUEUE_LIMIT = flags.DEFINE_float("queue_limit", 600, "Seconds that the job may wait for its nodes.", lower_bound=1)
DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Show the job without submitting it or writing files.")


def machine(argv: list[str]) -> int:
    """Check this machine: its GPUs, the launcher, the environments and the container programs.

        python launch/doctor.py machine
        python launch/doctor.py machine --json

    If this machine lacks the hardware for a check, it shows `not checked`, never `ok`. Exit code 3: a check fails.
    """
    from launch.preflight.machine import report

    refuse_more(argv[1:], "python launch/doctor.py machine")
    data, text, code = report()
    answer(data, text)
    return code


def nodes(argv: list[str]) -> int:
    """Check every node of a site with one job, and list the passing and the failing nodes.

        python launch/doctor.py nodes --site=NAME                   all nodes that are up
        python launch/doctor.py nodes --site=NAME --nodelist=node[1-8] --json
        python launch/doctor.py nodes --site=NAME --dry_run         show the job; submit nothing

    If a node lacks the hardware for a check, it shows `not checked`, never `ok`. Exit codes: 0 all nodes pass, even
    with warnings; 1 the preflight could not run; 2 the request was wrong and nothing was started; 3 a node fails.
    """
    from benchmarks.preflight.report import report_text
    from launch.preflight import nodes as preflights
    from launch.slurm.client import Slurm
    from launch.slurm.options import choose, refuse_without_slurm
    from launch.slurm.waiting import Limits
    from launch.terminal import places
    from launch.terminal.progress import say

    refuse_more(argv[1:], "python launch/doctor.py nodes --help")
    configs = places.configs()
    site = configs.site(SITE.value)
    if site.slurm is None:
        refuse_without_slurm(site, job_flags.typed())
        raise RequestError(
            f"site {site.name} has no Slurm and therefore no nodes to check",
            where=f"--site={site.name}",
            next_command="python launch/doctor.py machine",
        )
    options = choose(site, job_flags.typed(), os.environ)
    output_dir = Path(OUTPUT_DIR.value)
    if DRY_RUN.value:
        planned = preflights.sketch(site, options, NODES.value, output_dir, LIMIT.value, configs)
        if NODES.value is None and not options.nodelist:
            say("this dry run shows 1 node, because it does not ask Slurm; pass --nodes=N for another number")
        text_only(preflights.render_preflight(planned))
        return EXIT_VALID
    preflight = preflights.prepare(site, options, NODES.value, output_dir, LIMIT.value, configs)
    further = f"--queue_limit={QUEUE_LIMIT.value * 2:g}"
    limits = Limits(queue_seconds=QUEUE_LIMIT.value, quiet_seconds=LIMIT.value, further=further)
    report = preflights.run(preflight, Slurm(site), limits)
    answer(report, lambda: f"{report_text(report)}\n{preflights.next_steps(report, preflight.folder)}")
    return EXIT_VALID if report.passed else EXIT_INVALID


def logs(argv: list[str]) -> int:
    """Find why a run failed: the earliest cause in its logs, the line of the log, and a fix to try.

        python launch/doctor.py logs LOG...                         files (also compressed), folders, runs or patterns
        python launch/doctor.py logs results/RUN --json
        kubectl logs POD | python launch/doctor.py logs -           the output of another program

    Exit code 3: the logs show a failure, or they do not show the end of training.
    """
    from benchmarks.doctor.text import diagnosis_text
    from benchmarks.runs.diagnosing import diagnosis_of
    from benchmarks.runs.find_runs import place_of

    if not argv[1:]:
        raise RequestError("a log is missing", next_command="python launch/doctor.py logs --help")
    found = diagnosis_of([str(place_of(name, Path(OUTPUT_DIR.value))) for name in argv[1:]])
    answer(found, lambda: diagnosis_text(found))
    return EXIT_INVALID if found.failed else EXIT_VALID


def xla_flags(argv: list[str]) -> int:
    """Explain XLA's flags: the purpose of each, whether the installed jaxlib knows it, and its successor.

        python launch/doctor.py flags "--xla_gpu_graph_level=0 --xla_gpu_enable_command_buffer="

    The check runs on this machine; a job checks its own flags in its first phase. Exit code 2: a flag is refused.
    """
    from launch.checks.flags_check import report

    data, text, code = report(" ".join(argv[1:]))
    answer(data, text)
    return code


def _xla_flags_last(arguments: list[str]) -> list[str]:
    """Move XLA's flags behind `--`, so that absl does not parse them as flags of the command."""
    of_xla = [word for word in arguments if not word.strip() or word.lstrip().startswith("--xla")]
    return [*(word for word in arguments if word not in of_xla), "--", *of_xla]


SUBCOMMANDS = Subcommands(
    "doctor",
    __doc__,
    {
        "machine": Subcommand(machine),
        "nodes": Subcommand(nodes, (SITE, NODES, OUTPUT_DIR, LIMIT, QUEUE_LIMIT, DRY_RUN, job_flags)),
        "logs": Subcommand(logs, (OUTPUT_DIR,)),
        "flags": Subcommand(xla_flags, (), _xla_flags_last),
    },
    lambda arguments: "machine" if all(word.startswith("-") for word in arguments) else "logs",
)

if __name__ == "__main__":
    SUBCOMMANDS.run()
