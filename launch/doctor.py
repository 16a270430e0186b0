"""Looks at every node of a site before a run does, and at the logs of a run that failed: what was first, what helps.

Examples:
  python launch/doctor.py --site=NAME
      all nodes that are up: one job, an answer from each, a table, and lists of passing and failing nodes
  python launch/doctor.py --site=NAME --nodelist=node[1-8] --json
      these nodes; the report as JSON
  python launch/doctor.py --site=NAME --dry_run
      show the job; submit nothing
  python launch/doctor.py
      this machine: its GPUs and what is wrong with them, the launcher, the environments, Slurm's commands
  python launch/doctor.py --xla_flags="--xla_gpu_graph_level=0 --xla_gpu_enable_command_buffer="
      these flags alone: what each is for, whether the installed jaxlib knows it, what to use instead
  python launch/doctor.py LOG...
      why a run failed: files, folders, a run's folder or patterns, also .gz; the earliest cause, its line, what helps
  python launch/doctor.py --list_symptoms
      what is known of failures

What needs hardware is `not checked` without it, never `ok`. Exit codes: 0 all nodes pass (warnings are allowed);
1 the preflight itself failed; 2 the request was wrong, nothing was started, or a flag is refused; 3 some node fails,
or the logs show a failure.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import os
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.preflight.report import report_text
from benchmarks.values import JobOptions, Site, json_text
from launch.cli import run_main
from launch.command_line import places
from launch.slurm import job_flags
from launch.slurm.options import choose, refuse_without_slurm

flags.adopt_module_key_flags(job_flags)  # so that --help shows them
SITE = flags.DEFINE_string("site", "local", "The site whose nodes are looked at.")
NODES = flags.DEFINE_integer("nodes", None, "So many nodes, whichever Slurm gives; all that are up without it.")
OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "The folder that gets a folder with answers and report.")
LIMIT = flags.DEFINE_float(
    "limit", 120, "Seconds without a further answer after which the silent nodes fail.", lower_bound=1
)
QUEUE_LIMIT = flags.DEFINE_float("queue_limit", 600, "Seconds the job may wait for its nodes.", lower_bound=1)
JSON = flags.DEFINE_boolean("json", False, "Print the report, or the diagnosis of logs, as JSON.")
DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Show the job; submit nothing, write nothing.")
XLA_FLAGS = flags.DEFINE_string(
    "xla_flags", None, "Check these flags of XLA, as XLA_FLAGS holds them, and nothing else."
)
LIST_SYMPTOMS = flags.DEFINE_boolean("list_symptoms", False, "Show what is known of failures, and nothing else.")


def main(argv: list[str]) -> int:
    if LIST_SYMPTOMS.value:
        return _list_symptoms(argv[1:])
    if argv[1:]:
        return _logs(argv[1:])
    if XLA_FLAGS.value is not None:
        return _xla_flags(XLA_FLAGS.value)
    site = places.configs().site(SITE.value)
    if site.slurm is None:
        return _this_machine(site)
    if NODES.value is not None and NODES.value < 1:
        raise RequestError(f"--nodes={NODES.value}: it must be 1 or more", where="--nodes")
    options = choose(site, job_flags.typed(), os.environ)
    return _preflight(site, options)


def _logs(places_of_logs: list[str]) -> int:
    from benchmarks.diagnosis.text import diagnosis_text
    from launch.checks.diagnosing import diagnosis_of

    _refuse_flags(places_of_logs[0], "logs are read where they are")
    found = diagnosis_of(places_of_logs)
    print(json_text(found).rstrip() if JSON.value else diagnosis_text(found))
    return EXIT_INVALID if found.failed else EXIT_VALID


def _list_symptoms(places_of_logs: list[str]) -> int:
    from benchmarks.diagnosis.symptoms import read_symptoms
    from benchmarks.diagnosis.text import symptoms_text

    if places_of_logs:
        raise RequestError(f"--list_symptoms reads no log: '{places_of_logs[0]}'", where="--list_symptoms")
    _refuse_flags("--list_symptoms", "it lists a table")
    table = read_symptoms(places.configs().root).table
    print(json_text(table.symptoms).rstrip() if JSON.value else symptoms_text(table))
    return EXIT_VALID


def _refuse_flags(beside: str, why: str) -> None:
    own = [flag.name for flag in (SITE, NODES, OUTPUT_DIR, LIMIT, QUEUE_LIMIT, DRY_RUN, XLA_FLAGS) if flag.present]
    given = own + list(job_flags.typed())
    if given:
        raise RequestError(f"--{given[0]} has no effect beside {beside}", where=f"--{given[0]}", why=why)


def _xla_flags(text: str) -> int:
    from launch.checks.flags_check import report

    given = [flag.name for flag in (SITE, NODES, DRY_RUN) if flag.present] + list(job_flags.typed())
    if given:
        raise RequestError(
            f"--{given[0]} has no effect beside --xla_flags",
            where="--xla_flags",
            why="the flags are checked on this machine; a job checks its own in its first phase",
        )
    table, code = report(text, as_json=bool(JSON.value))
    print(table)
    return code


def _this_machine(site: Site) -> int:
    from launch.preflight.machine import report

    refuse_without_slurm(site, job_flags.typed())
    for flag in (NODES, DRY_RUN):
        if flag.value:
            raise RequestError(f"--{flag.name} is for a site with Slurm", where=f"--site={site.name}")
    text, code = report(as_json=bool(JSON.value))
    print(text)
    return code


def _preflight(site: Site, options: JobOptions) -> int:
    from launch.preflight import advice, asking, job, running
    from launch.preflight.waiting import Limits, say
    from launch.slurm.client import Slurm

    output_dir = Path(OUTPUT_DIR.value)
    if DRY_RUN.value:
        planned = asking.sketch(site, options, NODES.value, output_dir, LIMIT.value, places.configs())
        if NODES.value is None and not options.nodelist:
            say("1 node stands for all that are up: a dry run does not ask Slurm (--nodes=N shows another number)")
        print(job.render_preflight(planned), end="")
        return EXIT_VALID
    preflight = asking.prepare(site, options, NODES.value, output_dir, LIMIT.value, places.configs())
    limits = Limits(queue_seconds=QUEUE_LIMIT.value, quiet_seconds=LIMIT.value)
    report = running.run(preflight, Slurm(site, on_wait=say), limits)
    print(
        json_text(report).rstrip()
        if JSON.value
        else f"{report_text(report)}\n{advice.lists(report, preflight.folder)}"
    )
    return EXIT_VALID if report.passed else EXIT_INVALID


if __name__ == "__main__":
    run_main(main)
