"""Looks at one of NVIDIA's config_*.sh as Stepmark looks at a run of its own: what it comes to, and all that is wrong
with it, with the arithmetic. Nothing is executed; neither a GPU nor Slurm is needed.
"""

from contextlib import suppress
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError, nearest
from benchmarks.mlperf.admission import BrokenRule, broken_rules, configuration_rows, refused, rule_lines
from benchmarks.mlperf.configuration import configuration_of
from benchmarks.mlperf.shell_config import NOT_SOURCED, ShellConfig, Unread, read
from benchmarks.mlperf.submission import DIVISION, Submission
from benchmarks.rendering.columns import Rows, aligned
from benchmarks.values import Value
from launch.command_line.output import answer
from launch.mlperf import package

LARGEST_FILE = 1 << 20
OF_THE_JOB = ("DGXNNODES", "DGXNGPU", "NEXP", "WALLTIME", "WALLTIME_RUNANDTIME", "CLEAR_CACHES", DIVISION)


class CheckedConfiguration(Value, frozen=True):
    file: str
    division: str
    broken_rules: list[BrokenRule]
    refused: int  # how many of them refuse it
    unread: list[Unread]


def show(path: Path, name: str | None, configs: Configs) -> int:
    """The configuration and every broken rule; EXIT_REFUSED where a run of it would be refused."""
    names = configs.names("submissions")
    if name not in names:
        what = (
            f"unknown benchmark '{name}': {nearest(name, names)}" if name else "which benchmark it is for is not said"
        )
        raise RequestError(what, where="--benchmark", next_command=f"--benchmark={'|'.join(names)}")
    shell = read(path.name, _text(path), lambda beside: _beside(path.parent / beside))
    if not shell.variables:
        raise RequestError(
            "the file sets no variable that can be read",
            where=str(path),
            why="only lines of the form export NAME=VALUE are read",
        )
    submission, definition = configs.submission(name), configs.mlperf(name)
    points = package.reference_points(definition, submission.ruleset)
    config = configuration_of(shell.variables, submission)
    found = [*_unknown(shell, submission), *broken_rules(config, definition, submission, points)]
    bad = refused(found, config.division)
    unread: Rows = [(f"{one.file}:{one.line}", f"{one.why}: {one.text}") for one in shell.unread]
    told = [str(path), "", *aligned(configuration_rows(config, definition, submission, points)), ""]
    told += ["not read (nothing is executed)", *aligned(unread), ""] if unread else []
    told += rule_lines(found, config.division) or ["no rule is broken"]
    word = f"{len(bad)} of {len(found)} findings refuse it" if bad else "it could be submitted"
    data = CheckedConfiguration(
        file=str(path), division=config.division, broken_rules=found, refused=len(bad), unread=shell.unread
    )
    answer(data, "\n".join([*told, "", f"{word} ({config.division} division)"]))
    return EXIT_REFUSED if bad else EXIT_VALID


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise RequestError(f"{path.name} is too long for a configuration", where=str(path))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError("the configuration cannot be read", where=str(path), why=str(error)) from None


def _beside(path: Path) -> str | None:
    """What a configuration sources: files of its own folder, and no others."""
    with suppress(OSError):  # a name that no file can have
        if path.is_file():
            return _text(path)
    return None


def _unknown(shell: ShellConfig, submission: Submission) -> list[BrokenRule]:
    """What steers the benchmark and could not be read: nothing can be said of a run of it."""
    knobs = submission.knobs
    steering = {
        *knobs.layout().values(),
        *(knobs.micro_batch, knobs.minibatch, knobs.global_batch, knobs.learning_rate, knobs.max_steps),
        *(knobs.evaluation_interval, *OF_THE_JOB),
        *(kept.name for kept in submission.kept),
    }
    cure = "the whole set of files in one folder"
    absent = [
        BrokenRule("not known", NOT_SOURCED, f"{one.file}:{one.line}: {one.text[:80]}", cure)
        for one in shell.unread
        if one.why.startswith(NOT_SOURCED)
    ]
    return absent + [
        BrokenRule("not known", f"{name} is not known", why, f"a plain export {name}=VALUE after that line")
        for name, why in sorted(shell.unknown.items())
        if name in steering
    ]
