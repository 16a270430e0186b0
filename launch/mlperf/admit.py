"""Check a submission against MLPerf's rules before its job is submitted, and show every violation in one refusal."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.assets import read_needs
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.admission import BrokenRule, broken_rules, configuration_rows, rule_lines, rules_of
from benchmarks.mlperf.definitions import wall_minutes
from benchmarks.mlperf.submission import clears_caches, division_of
from benchmarks.model.plan_text import NOTHING_STARTED, phase_lines
from benchmarks.text import aligned, first_few, title
from benchmarks.values import Benchmark, JobOptions, Plan
from launch.assets.needed import look_for
from launch.slurm.options import seconds_of


def admit(benchmark: Benchmark, configs: Configs, options: JobOptions) -> list[str]:
    """Return the notes on a submission; [] for any other run. Raise RequestError if the run breaks a rule."""
    if not benchmark.is_submission:
        return []
    found = [*broken_rules(benchmark, *rules_of(benchmark, configs)), *_time_limit(benchmark, options)]
    division = division_of(benchmark)
    bad = [one for one in found if one.refuses(division)]
    if bad:
        raise RequestError(
            "\n".join([f"MLPerf {benchmark.model.name} cannot run in the {division} division", *rule_lines(bad)]),
            where=", ".join(dict.fromkeys(one.rule for one in bad)),
            why="a run that breaks these rules would be invalid, so no job was submitted",
        )
    _refuse_shared_nodes(benchmark, options)
    return [f"{one.what}: {one.arithmetic}" for one in found]


def _time_limit(benchmark: Benchmark, options: JobOptions) -> Iterator[BrokenRule]:
    one, minutes = int(benchmark.settings.knobs["WALLTIME_RUNANDTIME"]), seconds_of(options.time) // 60
    needed = wall_minutes(one)
    if minutes < needed:
        what, arithmetic = (
            f"the time limit of {minutes} minutes is too short",
            f"5 + WALLTIME_RUNANDTIME {one} + 5 = {needed}",
        )
        yield BrokenRule("time limit", what, arithmetic, f"{needed} minutes or more")


def _refuse_shared_nodes(benchmark: Benchmark, options: JobOptions) -> None:
    """Refuse shared nodes if the submission clears caches or sets clocks, which also affect other jobs on a node."""
    boost = bool(benchmark.settings.knobs.get("VBOOST_VALUE", 0))
    does = ["clears the caches"] * clears_caches(benchmark) + ["changes the GPU clocks"] * boost
    if does and not options.exclusive:
        raise RequestError(
            f"a submission needs exclusive nodes, because it {' and '.join(does)} of its nodes",
            where="--noexclusive",
            why="this would affect other jobs on the same nodes; to share nodes, pass "
            "--set=CLEAR_CACHES=false --set=VBOOST_VALUE=0 --set=MLPERF_DIVISION=open",
            next_command="--exclusive",
        )


def with_its_time(benchmark: Benchmark, options: JobOptions, *, typed: bool) -> JobOptions:
    """Return the options with a time limit: the user's, otherwise NVIDIA's WALLTIME for one experiment."""
    one = benchmark.settings.knobs.get("WALLTIME_RUNANDTIME")
    if typed or not one:
        return options
    return msgspec.structs.replace(options, time=str(wall_minutes(int(one))))


def refuse_missing_data(benchmark: Benchmark, configs: Configs) -> None:
    """Refuse if files of --data are missing or have another size on this machine. The job repeats this on a node."""
    folder = Path(benchmark.data)
    faults = []
    for asset in read_needs(configs, f"{benchmark.backend}_mlperf_{benchmark.model.name}").assets:
        found = look_for(asset, folder)
        if found.state == "missing":
            faults.append(f"{asset.folder}: missing")
        elif found.state != "present":
            faults += [f"{asset.folder}/{fault}" for fault in found.faults]
    if faults:
        raise RequestError(
            f"the data of {benchmark.model.name} is incomplete: {first_few(faults, 4, '; ')}",
            where=f"--data={benchmark.data}",
            why="NVIDIA's scripts check these sizes, because a run with other data is not this benchmark",
            next_command=f"python launch/setup.py --site={benchmark.site.name} --model={benchmark.model.name}"
            f" --task=mlperf --out={benchmark.data}",
        )


def submission_text(benchmark: Benchmark, plan: Plan, configs: Configs, *, whole: bool) -> str:
    """Return the text of a dry run, without memory and step time, because both depend on NVIDIA's program."""
    minutes = int(benchmark.settings.knobs["WALLTIME_RUNANDTIME"])
    rows = [
        *configuration_rows(benchmark, *rules_of(benchmark, configs)),
        ("time limit", f"5 + WALLTIME_RUNANDTIME {minutes} + 5 = {wall_minutes(minutes)} minutes"),
        ("data", benchmark.data),
        ("recipe", f"{benchmark.recipe.name} ({benchmark.recipe.source})"),
        ("overrides", ", ".join(f"{key}={value}" for key, value in benchmark.settings.overrides.items()) or "none"),
        ("runs in", plan.environment_name),
    ]
    phases = phase_lines(plan) if whole else []
    return "\n".join([title(benchmark), "", *aligned(rows), *phases, "", NOTHING_STARTED])
