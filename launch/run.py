"""Measure how fast this machine or a cluster trains an LLM.

Examples:
  python launch/run.py --backend=jax --model=llama2_tiny
      train a tiny Llama 2 with MaxText on this machine's CPU
  python launch/run.py --backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64 --dry_run
      show the plan of a run on a cluster, and what to expect of the run
  python launch/run.py --list --hardware=h100
      show the models, tasks and recipes for a GPU type

A flag that you omit takes the recipe's value. To start a sweep, list several values with commas in a flag marked *.
Exit codes: 0 done and valid; 1 the run failed; 2 the request was wrong and nothing was started; 3 the result is
invalid; 130 interrupted.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks.errors import EXIT_CODES, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_VALID, RequestError
from launch.cli import request_flags
from launch.cli.command import Words, refuse_more, run_main
from launch.slurm import job_flags
from launch.terminal import output

if TYPE_CHECKING:  # --help does not load these
    from benchmarks.configs import Configs
    from benchmarks.request.resolve import Request
    from benchmarks.sweeps.sweep import CheckedCells
    from benchmarks.values import Benchmark, Site
    from launch.running.runners import Runner
    from launch.terminal.documents import DryRun, DrySweep

FLAGS = flags.FLAGS
flags.DEFINE_integer(
    "repeats",
    None,
    "Number of runs of each benchmark. (default: 1, or 6 if --pgle has several values)",
    lower_bound=1,
)
flags.DEFINE(
    Words(("none", "nsys", "xplane", "nccl")),
    "profile",
    "none",
    "Record a profile. A profiled run cannot be compared.",
)
flags.DEFINE_string("profile_ranks", None, "Ranks that nsys records, such as 0,1,8-15. (default: from the recipe)")
flags.DEFINE_integer("profile_start_step", None, "First step to record; steps start at 0. (default: from the recipe)")
flags.DEFINE_integer("profile_stop_step", None, "Last step to record. (default: from the recipe)")
flags.DEFINE_boolean("profile_gpu_metrics", False, "With nsys, also sample the counters of the GPUs.")
flags.DEFINE_boolean("profile_cpu", False, "With nsys, also sample the CPUs.")
flags.DEFINE_string("output_dir", "results", "Folder of the runs; each run gets its own folder in it.")
flags.DEFINE_boolean("dry_run", False, "Show what to expect and the plan; start nothing, write nothing.")
flags.DEFINE_boolean("list", False, "Show what can be run, filtered by the other flags.")
flags.DEFINE_boolean("wait", True, "Wait for the result (--nowait: only submit the job; see launch/status.py).")
flags.DEFINE_multi_string("tag", [], "Label to find the run again; repeat the flag for more.")
flags.DEFINE_float(
    "inject_slowdown", 0.0, "Slow every step by this fraction to test a gate; 0.5 means 50% slower.", 0, 10
)
flags.DEFINE_boolean("telemetry", True, "Sample clocks, power and memory of every node during the run.")
flags.DEFINE_boolean("allow_busy", False, "On this machine, use GPUs even if another program uses them.")
flags.DEFINE_float(
    "hang_timeout",
    None,
    "On a cluster, end a job that has no new step for this many seconds, and dump its stacks.",
    1,
    10**7,
)
flags.DEFINE_integer("max_jobs", None, "Maximum number of a sweep's jobs in the queue. (default: from the site)")
flags.DEFINE_boolean("resume", True, "If the newest sweep with the same flags is unfinished, continue it.")
flags.DEFINE_boolean("skip_refused", False, "Run a sweep's valid combinations, and list the refused combinations.")
flags.adopt_module_key_flags(request_flags)
flags.declare_key_flag(output.VERBOSE)
flags.adopt_module_key_flags(job_flags)

TAG = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
FIRST_FLAGS = ("backend", "model", "hardware", "gpus", "dtype", "site", "steps", "dry_run")  # for --help
TOPICS = {
    "sweep": """Run every combination of the values that flags list with commas.

Examples:
  python launch/run.py --backend=jax --model=llama2_70b --dtype=bf16,fp8 --gpus=64,128,256 --repeats=3 --site=NAME
      every combination, three times, with a table of how it scales; the same command resumes it
  python launch/run.py --backend=jax --model=llama2_70b --gpus=64 --pgle=off,auto --site=NAME
      an A/B test: alternate both values, 6 runs each, and show the gain, its 95% interval and a verdict
Flags: repeats max_jobs resume skip_refused pgle tag output_dir""",
    "profile": """Record a profile of some steps, and sample the machines.

Example:
  python launch/run.py --backend=jax --model=llama2_tiny --profile=xplane --profile_start_step=5 --profile_stop_step=7
Flags: profile profile_ranks profile_start_step profile_stop_step profile_gpu_metrics profile_cpu telemetry pgle""",
    "slurm": f"""Submit to a site with Slurm. The site has a value for every flag that you omit.

Example:
  python launch/run.py --backend=jax --model=llama2_70b --gpus=64 --site=NAME --partition=NAME --time=60 --nowait
Flags: site wait hang_timeout {" ".join(flag.name for flag in FLAGS.get_flags_for_module(job_flags))}""",
}
PROFILE_FLAGS = ("ranks", "start_step", "stop_step", "gpu_metrics", "cpu")  # after profile_


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/run.py --help")
    from launch.terminal import places

    configs = places.configs()
    if FLAGS.list:
        _list(configs)
        return EXIT_VALID
    site = configs.site(request_flags.site_name())
    requests = request_flags.requests(
        site,
        profile=FLAGS.profile,
        profiler={name: FLAGS[f"profile_{name}"].value for name in PROFILE_FLAGS},
        inject_slowdown=FLAGS.inject_slowdown,
    )
    if not FLAGS.wait and site.slurm is None:
        raise RequestError("--nowait needs a site with a queue", where=f"--site={site.name}", next_command="--wait")
    if FLAGS.allow_busy and site.slurm is not None:
        raise RequestError("--allow_busy works only on a site without a queue", where=f"--site={site.name}")
    from benchmarks.values import Labels
    from launch.cli.runners import runner_of
    from launch.running.runners import Job

    job = Job(job_flags.typed(), FLAGS.hang_timeout, FLAGS.telemetry, Labels(tags=_tags()), FLAGS.allow_busy)
    runner = runner_of(site, configs, Path(FLAGS.output_dir), job)
    if len(requests) > 1 or (FLAGS.repeats or 1) > 1:
        return _sweep(requests, runner, site)
    if FLAGS.dry_run:
        return _show_plan(requests[0], runner, configs)
    return _run_one(requests[0], runner)


def _tags() -> list[str]:
    from benchmarks.secret_rules import refuse_secrets

    refuse_secrets(FLAGS.tag, "--tag")
    for tag in FLAGS.tag:
        if not TAG.fullmatch(tag):
            raise RequestError("a tag is a word of at most 64 letters, digits and _ . : -", where=f"--tag={tag}")
    return list(dict.fromkeys(FLAGS.tag))


def _list(configs: "Configs") -> None:
    from benchmarks.machine.machine_gpus import HERE
    from benchmarks.request.resolve import whole_number
    from launch.cli.listing import listing, listing_text

    hardware = FLAGS.hardware
    if hardware == HERE:
        from launch.machine import machine_gpus

        hardware = machine_gpus.named_here(hardware, configs)
    sections = listing(
        configs,
        backend=FLAGS.backend,
        model=FLAGS.model,
        task=FLAGS.task if FLAGS["task"].present else None,
        dtype=FLAGS.dtype,
        hardware=hardware,
        gpus=whole_number("gpus", FLAGS.gpus) if FLAGS.gpus else None,
    )
    output.answer({heading: dict(rows) for heading, rows in sections.items()}, lambda: listing_text(sections))


def _show_plan(request: "Request", runner: "Runner", configs: "Configs") -> int:
    from benchmarks.backend import find_backend
    from benchmarks.model.estimate import read_published
    from benchmarks.model.forecast import forecast
    from benchmarks.model.plan_text import plan_text, screen_text
    from launch.running.runners import refused_text

    benchmark, backend = runner.resolve_offline(request), find_backend(request.backend)
    if output.json_pending():
        output.document(_dry_run_of(benchmark, runner))
        return EXIT_VALID
    plan, refused, whole = runner.plan(benchmark, backend), refused_text(runner.refusals(benchmark)), output.verbose()
    if benchmark.is_submission:
        from launch.mlperf.admit import submission_text

        text = submission_text(benchmark, plan, configs, whole=whole)
    elif whole:
        text = plan_text(benchmark, plan, backend.storage(benchmark), read_published(configs))
    else:
        found = forecast(benchmark, backend.storage(benchmark), read_published(configs))
        text = screen_text(benchmark, plan, found)
    preview = runner.preview(benchmark, backend)
    preview = preview if whole or "\n" not in preview else ""  # only --verbose shows a whole job script
    print("\n\n".join(filter(None, [refused, text, preview])), flush=True)
    return EXIT_VALID


def _dry_run_of(benchmark: "Benchmark", runner: "Runner") -> "DryRun":
    from benchmarks.backend import find_backend
    from benchmarks.values import benchmark_fields
    from launch.terminal.documents import DryRun, Why

    backend = find_backend(benchmark.backend)
    return DryRun(
        benchmark=benchmark_fields(benchmark),
        plan=runner.plan(benchmark, backend),
        preview=runner.preview(benchmark, backend),
        refusals=[Why(**one.words()) for one in runner.refusals(benchmark)],
    )


def _sweep(requests: "list[Request]", runner: "Runner", site: "Site") -> int:
    from benchmarks.secret_rules import hidden
    from benchmarks.sweeps import sweep
    from launch.campaigns import sweeping

    repeats = sweep.repeats_wanted(requests, FLAGS.repeats)
    if FLAGS.dry_run:
        checked = sweep.check(requests, runner.resolve_offline, FLAGS.skip_refused)
        output.answer(
            lambda: _dry_sweep(checked, repeats, runner), lambda: sweeping.plan_text(checked, repeats, runner)
        )
        return EXIT_VALID
    max_jobs = sweep.jobs_at_once(requests, FLAGS.max_jobs, site.slurm.max_jobs if site.slurm else 1)
    return sweeping.run_sweep(
        requests,
        repeats,
        runner,
        Path(FLAGS.output_dir),
        command=["python", *(hidden(word) for word in sys.argv)],
        max_jobs=max_jobs,
        resume=FLAGS.resume,
        skip_refused=FLAGS.skip_refused,
        wait=FLAGS.wait,
    )


def _dry_sweep(checked: "CheckedCells", repeats: int, runner: "Runner") -> "DrySweep":
    from launch.terminal.documents import DrySweep

    names = checked.names
    cells = {name: _dry_run_of(one, runner) for name, one in zip(names, checked.benchmarks, strict=False)}
    refused = {name: one.reason for name, one in zip(names[len(cells) :], checked.refused, strict=True)}
    return DrySweep(repeats=repeats, cells=cells, refused=refused)


def _run_one(request: "Request", runner: "Runner") -> int:
    from benchmarks.backend import find_backend
    from benchmarks.runs.runfolder import RESULT, RunFolder, new_run_id

    benchmark = runner.resolve(request)
    run_id = new_run_id(benchmark)
    path, interrupted = Path(FLAGS.output_dir) / run_id, False
    try:
        runner.start(benchmark, run_id)
    except KeyboardInterrupt:
        if not (path / RESULT).exists():
            raise
        interrupted = True
    folder, code = RunFolder(path), EXIT_VALID
    if not benchmark.site.slurm:
        code = EXIT_CODES[folder.stored_result().status]
        if interrupted and code == EXIT_FAILED:
            from launch.terminal.progress import say

            say("stepmark: interrupted; the recorded steps are kept")
            code = EXIT_INTERRUPTED
    elif FLAGS.wait:
        from launch.slurm.watch import wait_for

        code = wait_for(folder, find_backend(benchmark.backend))
    else:
        print(f"{run_id}\n  next  python launch/status.py --follow {shlex.quote(str(path))}")
    if output.json_pending():
        from launch.running.screen import runs_document

        output.document(runs_document([folder]))
    return code


if __name__ == "__main__":
    run_main(main)
