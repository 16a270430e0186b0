"""Run a suite of benchmarks as one night, compare it with earlier nights, and report changes.

Examples:
  python launch/nightly.py --suite=smoke
      run every cell once, repeat suspect cells, and judge each cell; the first ten nights only build the history
  python launch/nightly.py --suite=smoke --rehearse
      test the gate in a minute, with nights that are simulated from one real run
  python launch/nightly.py --suite=NAME --site=CLUSTER --junit=night.xml --html=night.html
      run the cells as jobs of a cluster, and write a report for CI and an HTML page
  python launch/nightly.py --suite=smoke --accept=jax-llama2_tiny --because='the new container is slower, and stays'
      make the new level of the cell its baseline, from the last night on
  python launch/nightly.py --list
      list the suites

The same command resumes an interrupted night. A suite is a file in configs/suites or $STEPMARK_HOME/suites;
docs/reference/suite_file.md lists its fields. Exit codes: 0 no regression was seen; 1 a run failed or could not be
started; 2 the request was wrong and nothing was started; 3 a regression, an invalid run, or too much noise to see the
change that the suite must detect.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import contextlib
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID, RequestError, RunError
from benchmarks.nightly import suites
from benchmarks.nightly.values import Suite
from benchmarks.request.resolve import command_of
from benchmarks.secret_rules import hidden
from benchmarks.text import aligned, plural, reasons_text
from benchmarks.values import Labels, Site, benchmark_fields
from benchmarks.verdict import Verdict
from launch.cli.command import refuse_more, run_main
from launch.slurm import job_flags
from launch.terminal import places
from launch.terminal.documents import NightPlan, Rehearsal, RehearsedNight
from launch.terminal.output import answer, document
from launch.terminal.progress import say

if TYPE_CHECKING:
    from benchmarks.nightly.rehearsal import Real
    from launch.running.runners import Runner

FLAGS = flags.FLAGS
flags.DEFINE_string("suite", None, "Suite, such as smoke: a file in configs/suites or $STEPMARK_HOME/suites.")
flags.DEFINE_string("site", None, "Where to run. (default: the suite's site, $STEPMARK_SITE or local)")
flags.DEFINE_string("output_dir", "results", "Folder of the runs; its folder nights/ has the records of the nights.")
flags.DEFINE_integer("max_reruns", None, "Maximum number of re-runs in a night. (default: from the suite)", 0)
flags.DEFINE_boolean("resume", True, "Continue an unfinished night.")
flags.DEFINE_float(
    "inject_slowdown", 0.0, "Slow every step by this fraction to test the gate; no baseline uses such runs.", 0, 10
)
flags.DEFINE_boolean("dry_run", False, "Show the cells without starting or writing anything.")
flags.DEFINE_boolean("list", False, "Show the suites.")
flags.DEFINE_boolean("rehearse", False, "Judge simulated nights to see each verdict; record nothing.")
flags.DEFINE_string("accept", None, "Cell whose new level becomes its baseline.")
flags.DEFINE_string("because", None, "Reason for --accept.")
flags.DEFINE_string("junit", None, "Write JUnit XML to this file.")
flags.DEFINE_string("markdown", None, "Also write Markdown to this file ($GITHUB_STEP_SUMMARY always gets it).")
flags.DEFINE_string("html", None, "Write an HTML page to this file.")
flags.adopt_module_key_flags(job_flags)

FIRST_FLAGS = ("suite", "site", "dry_run", "rehearse", "accept", "because", "junit", "html", "list")  # for --help
MODES = ("list", "accept", "dry_run", "rehearse")
LEVELS = {Verdict.WORSE, Verdict.BETTER}
NOT_REHEARSED = ("inject_slowdown", "junit", "markdown", "html")


def main(argv: list[str]) -> int:
    _refuse(argv)
    configs = places.configs()
    if FLAGS.list:
        known = [(name, _suite_line(name, configs)) for name in configs.names("suites")]
        answer(dict(known), "\n".join(aligned(known)))
        return EXIT_VALID
    if not FLAGS.suite:
        tried = FLAGS.rehearse or FLAGS.dry_run  # these start no night, so any suite is a good example
        usage = "--suite=smoke" if tried else "python launch/nightly.py --list"
        raise RequestError("--suite is missing", next_command=usage)
    suite = configs.row("suites", FLAGS.suite, Suite)
    site = configs.site(FLAGS.site or suite.site or os.environ.get("STEPMARK_SITE") or "local")
    cells = _cells(suite, site.name)
    if FLAGS.accept is not None:
        return _accept(suite, cells)
    act = _dry_run if FLAGS.dry_run else _rehearse if FLAGS.rehearse else _night
    return act(suite, cells, site, configs)


def _refuse(argv: list[str]) -> None:
    refuse_more(argv[1:], "python launch/nightly.py --help")
    modes = [name for name in MODES if getattr(FLAGS, name)]
    if len(modes) > 1:
        raise RequestError(f"--{modes[0]} and --{modes[1]} exclude each other", where="launch/nightly.py")
    idle = [name for name in NOT_REHEARSED if FLAGS.rehearse and FLAGS[name].present]
    if idle:
        raise RequestError(
            f"--rehearse does not accept --{idle[0]}: simulated nights have no report", where=f"--{idle[0]}"
        )
    if FLAGS.because is not None and FLAGS.accept is None:
        raise RequestError("--because needs --accept=CELL", where="--because")
    if FLAGS.max_reruns is not None:
        suites.refuse_budget(FLAGS.max_reruns, f"--max_reruns={FLAGS.max_reruns}")


def _cells(suite: Suite, site: str) -> list[suites.Cell]:
    """Return the cells of a suite. Raise RequestError if the suite is invalid."""
    suites.watched(suite)
    return suites.cells(suite, site, FLAGS.inject_slowdown)


def _suite_line(name: str, configs: Configs) -> str:
    """Return the line of a suite for --list. If the suite is invalid, the line gives the reason."""
    try:
        suite = configs.row("suites", name, Suite)
        count = len(_cells(suite, suite.site or "local"))
    except RequestError as error:
        return f"refused: {error.what}"
    path = configs.path("suites", name)
    own = "" if path.is_relative_to(configs.root) else f"\n{path}"
    return f"{suite.title} ({plural(count, 'cell')}){own}"


# --- a night --------------------------------------------------------------------------------------


def _runner(site: Site, configs: Configs, output_dir: Path, **of_the_job: Any) -> "Runner":
    from launch.cli.runners import runner_of
    from launch.running.runners import Job

    return runner_of(site, configs, output_dir, Job(**{"typed": job_flags.typed(), **of_the_job}))


def _budget(suite: Suite) -> int:
    return suite.rerun_budget if FLAGS.max_reruns is None else int(FLAGS.max_reruns)


def _night(suite: Suite, cells: list[suites.Cell], site: Site, configs: Configs) -> int:
    from benchmarks.nightly.records import Records
    from launch.campaigns.nights import outputs
    from launch.campaigns.nights.launcher import Launcher, NightRequest

    wanted = outputs.Outputs(FLAGS.junit, FLAGS.markdown, FLAGS.html)
    wanted.check()
    output_dir = Path(FLAGS.output_dir)
    asked = NightRequest(
        suite=suite,
        cells=cells,
        site=site,
        output_dir=output_dir,
        slowdown=FLAGS.inject_slowdown,
        budget=_budget(suite),
        resume=FLAGS.resume,
        typed=job_flags.typed(),
        command=["python", *(hidden(word) for word in sys.argv)],
        begins=wanted.remove_old,
    )

    def runners(labels: Labels, typed: Mapping[str, Any]) -> Any:
        return _runner(site, configs, output_dir, typed=typed or asked.typed, labels=labels)

    records = Records(output_dir, suite.name)
    code, report = Launcher(asked, runners, records).run()
    if report is not None:
        outputs.show(report, wanted, records.path(report.night))
        document(report)
    return code


def _dry_run(suite: Suite, cells: list[suites.Cell], site: Site, configs: Configs) -> int:
    from launch.campaigns.nights.outputs import plan_text

    meaning = _runner(site, configs, Path(FLAGS.output_dir)).resolve_offline
    benchmarks = {cell.name: meaning(cell.request) for cell in cells}
    text = plan_text(suite, cells, suites.watched(suite), benchmarks, site.name, _budget(suite))
    planned = {name: benchmark_fields(benchmark) for name, benchmark in benchmarks.items()}
    answer(NightPlan(suite=suite.name, site=site.name, rerun_budget=_budget(suite), cells=planned), text)
    return EXIT_VALID


def _rehearse(suite: Suite, cells: list[suites.Cell], site: Site, configs: Configs) -> int:
    from benchmarks.nightly import rehearsal

    real = rehearsal.newest_real(suite.name, cells, Path(FLAGS.output_dir)) or _real_now(
        suite, cells[0], site, configs
    )
    played = rehearsal.play(real, suite.name, suites.watched(suite), suite.must_detect)
    nights = [RehearsedNight(one.act.what, *one[1:]) for one in played]
    answer(Rehearsal(suite=suite.name, nights=nights), rehearsal.rehearsal_text(suite.name, real, played))
    return EXIT_VALID


def _real_now(suite: Suite, cell: suites.Cell, site: Site, configs: Configs) -> "Real":
    """Run a cell on this machine, in a temporary folder, and return its result for a rehearsal."""
    from benchmarks.nightly.rehearsal import Real, can_be_scaled
    from benchmarks.runs.campaign_record import result_of
    from benchmarks.runs.runfolder import new_run_id
    from launch.machine.processes import interrupted_once

    if site.slurm is not None:
        raise RequestError(
            f"a rehearsal needs a run of an earlier night; suite {suite.name} has no night on site {site.name} yet",
            where=f"--site={site.name}",
            why="a rehearsal does not submit jobs; repeat the command after the first night, or rehearse suite smoke",
            next_command="python launch/nightly.py --suite=smoke --rehearse",
        )
    with tempfile.TemporaryDirectory(prefix="stepmark-rehearsal-") as folder:
        runner = _runner(site, configs, Path(folder))
        benchmark = runner.resolve(cell.request)
        run_id = new_run_id(benchmark)
        say(f"{cell.name}: one real run, in a temporary folder")
        with interrupted_once(), contextlib.redirect_stdout(io.StringIO()):
            runner.start(benchmark, run_id)
        run = result_of(Path(folder) / run_id)
    if run is None or not can_be_scaled(run):
        reasons = [*run.reasons, *run.not_comparable] if run else []
        raise RunError(
            f"the run of {cell.name} cannot be used for a rehearsal: {reasons_text(reasons) or 'no result'}",
            next_command=command_of(cell.request, "run.py"),
        )
    return Real(cell, run, "(made just now)")


# --- other commands ---------------------------------------------------------------------------------


def _accept(suite: Suite, cells: list[suites.Cell]) -> int:
    from benchmarks.nightly.records import Records

    cell = suites.find_cell(cells, FLAGS.accept, suite.name)
    if not (FLAGS.because or "").strip():
        raise RequestError(
            "--because is missing",
            where=f"--accept={cell.name}",
            why="pass --because='...' with the reason for the new level, which Stepmark keeps with the decision",
        )
    records = Records(Path(FLAGS.output_dir), suite.name)
    since = max((one.night for one in records.accepted()[0] if one.cell == cell.name), default="")
    judged = {
        report.night: {one.verdict for found in report.cells if found.cell == cell.name for one in found.judgements}
        for report in records.read_newest()[0]
        if not report.slowed_by and report.night > since
    }
    if not any(LEVELS & verdicts for verdicts in judged.values()):
        raise RequestError(
            f"{cell.name} has no new level to accept: no night since the last accepted night is worse or better",
            where=f"--accept={cell.name}",
            why="accepting starts a new baseline, so the next ten nights of the cell would have no verdict",
            next_command=f"ls {shlex.quote(str(records.folder))}/*.md",
        )
    newest = max(night for night, verdicts in judged.items() if verdicts)
    new = records.accept(cell.name, newest, FLAGS.because)
    answer(new, f"{cell.name}: the level of night {new.night} is now the baseline ({new.because})")
    return EXIT_VALID


if __name__ == "__main__":
    run_main(main)
