"""Looks at one of NVIDIA's config_*.sh as Stepmark looks at a run of its own: what it comes to, and all that is wrong
with it, with the arithmetic. Nothing is executed; neither a GPU nor Slurm is needed.
"""

from contextlib import suppress
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError, nearest
from benchmarks.mlperf.admission import Finding, configuration_rows, finding_lines, findings, refused
from benchmarks.mlperf.configuration import Configuration, configuration_of, named_by_file
from benchmarks.mlperf.shell_config import NOT_SOURCED, ShellConfig, read
from benchmarks.mlperf.submission import DIVISION, Submission
from benchmarks.rendering.columns import Rows, aligned
from launch.mlperf import package

LARGEST_FILE = 1 << 20


def show(path: Path, name: str | None, configs: Configs) -> int:
    """The configuration and every finding; EXIT_REFUSED where a run of it would be refused."""
    shell = read(path.name, _text(path), lambda beside: _beside(path.parent, beside))
    submission = configs.submission(_benchmark(path, shell, name, configs))
    definition = configs.mlperf(submission.name)
    points = package.reference_points(definition, submission.ruleset)
    config = configuration_of(shell.variables, submission)
    found = [
        *_unknown(shell, submission),
        *_told_apart(path, config),
        *findings(config, definition, submission, points),
    ]
    print(f"{path}\n")
    print("\n".join(aligned(configuration_rows(config, definition, submission, points))))
    print("\n".join(["", *_not_known(shell)]), end="")
    bad = refused(found, config.division)
    print("\n".join(["", *finding_lines(found, config.division)]) if found else "\nno rule is broken")
    word = f"{len(bad)} of {len(found)} findings refuse it" if bad else "it could be submitted"
    print(f"\n{word} ({config.division} division)")
    return EXIT_REFUSED if bad else EXIT_VALID


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise RequestError(f"{path.name} is too long for a configuration", where=str(path))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError("the configuration cannot be read", where=str(path), why=str(error)) from None


def _beside(folder: Path, name: str) -> str | None:
    """What a configuration sources: files of its own folder, and no others."""
    path = folder / name
    with suppress(OSError):  # a name that no file can have
        if path.is_file():
            return _text(path)
    return None


def _benchmark(path: Path, shell: ShellConfig, name: str | None, configs: Configs) -> str:
    """As named; else the one whose variables it sets the most of."""
    names = configs.names("submissions")
    if name is not None:
        if name not in names:
            raise RequestError(f"unknown benchmark '{name}': {nearest(name, names)}", where="--benchmark")
        return name
    counted = {one: _own(configs.submission(one), shell) for one in names}
    best = max(counted.values())
    found = [one for one, count in counted.items() if count == best and count]
    if len(found) != 1:
        raise RequestError(
            f"{path.name} does not say which benchmark it is for",
            where=str(path),
            why="it sets no variable that is one benchmark's alone",
            next_command=f"--benchmark={'|'.join(names)}",
        )
    return found[0]


def _own(submission: Submission, shell: ShellConfig) -> int:
    knobs = submission.knobs
    own = {
        *knobs.layout().values(),
        knobs.micro_batch,
        knobs.learning_rate,
        knobs.global_batch,
        *submission.variables,
    }
    return len(own & shell.variables.keys())


def _told_apart(path: Path, config: Configuration) -> list[Finding]:
    """A name of another layout than what is in the file: one of the two is not what ran."""
    told = named_by_file(path.name)
    now = {
        "nodes": config.nodes,
        "gpus": config.gpus_per_node,
        "minibatch": config.minibatch or config.micro_batch,
        "tensor": config.tensor,
        "pipeline": config.pipeline,
        "context": config.context,
    }
    other = [f"{key} {value} in its name, {now[key]} inside" for key, value in told.items() if now[key] != value]
    if not other:
        return []
    return [
        Finding(
            rule="file name",
            what=f"{path.name} is not what its name says",
            arithmetic="; ".join(other),
            cure="a name of the layout that runs: config_SYSTEM_NODESxGPUSxMINIBSxtpTPppPPcpCP.sh",
            scope="note",
        )
    ]


def _unknown(shell: ShellConfig, submission: Submission) -> list[Finding]:
    """What steers the benchmark and could not be read: nothing can be said of a run of it."""
    knobs = submission.knobs
    steering = {
        *knobs.layout().values(),
        knobs.micro_batch,
        knobs.minibatch,
        knobs.global_batch,
        knobs.learning_rate,
        knobs.max_steps,
        knobs.evaluation_interval,
        *(kept.name for kept in submission.kept),
        *("DGXNNODES", "DGXNGPU", "NEXP", "WALLTIME", "WALLTIME_RUNANDTIME", "CLEAR_CACHES", DIVISION),
    }
    absent = [
        Finding(
            rule="not known",
            what=NOT_SOURCED,
            arithmetic=f"{one.file}:{one.line}: {one.text[:80]}",
            cure="the whole set of files in one folder",
            scope="always",
        )
        for one in shell.unread
        if one.why.startswith(NOT_SOURCED)
    ]
    return absent + [
        Finding(
            rule="not known",
            what=f"{name} is not known",
            arithmetic=why,
            cure=f"a plain export {name}=VALUE after that line",
            scope="always",
        )
        for name, why in sorted(shell.unknown.items())
        if name in steering
    ]


def _not_known(shell: ShellConfig) -> list[str]:
    rows: Rows = [(f"{one.file}:{one.line}", f"{one.why}: {one.text}") for one in shell.unread]
    return ["not read (nothing is executed)", *aligned(rows), ""] if rows else []
