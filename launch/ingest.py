"""Reads a training log that Stepmark did not write, and says what it holds.

    python launch/ingest.py --log=train.log                       a short table of each attempt
    python launch/ingest.py --log=train.log --json                every step, as JSON
    zcat train.log.gz | python launch/ingest.py --log=-           from standard input

tokens/s and MFU need what no log says: --model, --hardware, --gpus, --dtype, --global_batch_size and
--sequence_length. With all six, the uniform figures of the log's last attempt are given beside the nearest published
ones; --task=lora counts the FLOPs of training adapters only. Of an MLLOG (MLPerf) it tells each run too: status, time
to train and its parts, samples, evaluations (docs/mlperf_logs.md).

A log of no known format is read by a pattern of its steps' lines, with fields in braces and `...` for anything
(docs/logs.md):

    python launch/ingest.py --log=train.log --pattern='step {step} ... loss {loss} ... {seconds}s'

Exit codes: 0 the steps were read, and the figures, if asked for, are valid; 2 the request was wrong or the log
is of no known format; 3 the log was read but has no step, or the figures are invalid (the result says why).
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import os
import shlex
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec
from absl import flags

from benchmarks.backend import LogFormat
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, StepmarkError
from benchmarks.logs import foreign, ingest
from benchmarks.logs.known_formats import all_log_formats, backend_of_format
from benchmarks.logs.pattern_guess import guessed_pattern
from benchmarks.logs.templates import FIELDS, TemplateFormat, format_of_pattern
from benchmarks.measuring import window
from benchmarks.measuring.utilisation import Workload
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.runs.runfolder import BENCHMARK
from benchmarks.values import Step, Value
from launch.cli import run_main
from launch.command_line.output import answer
from launch.reports.ingest_reports import FLAGS_OF_A_BENCHMARK, Outcome, Report

if TYPE_CHECKING:
    from benchmarks.mlperf.story import Story
    from benchmarks.references.nearest_reference import Nearest

COMMAND = "python launch/ingest.py"
STDIN = "-"
# How the bytes of a log begin that is no plain text -> what makes it one.
UNPACKED_BY = {
    b"\x1f\x8b": "zcat",
    b"BZh": "bzcat",
    b"\xfd7zXZ": "xzcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
    b"\xff\xfe": "iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "iconv -f UTF-16 -t UTF-8",
}
PATTERN_EXAMPLE = "step {step} ... loss {loss} ... {seconds}s"  # where none can be guessed
IN_MEMORY_BYTES = 8 << 20  # of a pipe, which can be read once; the rest waits on disk

LOG = flags.DEFINE_multi_string("log", [], "The log to read; - for standard input.")
MODEL = flags.DEFINE_string("model", None, "The model that was trained (configs/models).")
HARDWARE = flags.DEFINE_string("hardware", None, "What it was trained on (configs/hardware).")
GPUS = flags.DEFINE_integer("gpus", None, "How many devices trained it.", lower_bound=1)
DTYPE = flags.DEFINE_enum("dtype", None, ["bf16", "fp8", "fp32", "int8"], "The precision of its matrix products.")
GLOBAL_BATCH_SIZE = flags.DEFINE_integer("global_batch_size", None, "Sequences a step.", lower_bound=1)
SEQUENCE_LENGTH = flags.DEFINE_integer("sequence_length", None, "Tokens a sequence.", lower_bound=1)
WINDOW = flags.DEFINE_string("window", None, "Which steps count: steady (as without it), last, or A-B.")
PATTERN = flags.DEFINE_string(
    "pattern", None, f"A template of a step's line, for a log of no known format. Fields: {', '.join(FIELDS)}."
)
TASK = flags.DEFINE_enum(
    "task", "pretrain", ["pretrain", "lora", "mlperf"], "What was trained: it decides how FLOPs are counted."
)

BENCHMARK_FLAGS = (MODEL, HARDWARE, GPUS, DTYPE, GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH)


def main(argv: list[str]) -> int:
    if argv[1:]:
        _refuse_run(argv[1])
        meant = shlex.quote(argv[1]) if Path(argv[1]).is_file() else "PATH"
        raise RequestError(f"unexpected argument '{argv[1]}'", next_command=f"{COMMAND} --log={meant}")
    measured = _measured()
    name = _log_name()
    with _open(name) as stream:
        log_format = _format_of(name, stream) if PATTERN.value is None else _pattern_of(name, stream, PATTERN.value)
        watched = ingest.WatchedStream(stream, log_format, all_log_formats())
        log = ingest.ReadLog(log_format.read(watched.buffered()))
        outcome = None if measured is None else measured.outcome(log.last_timed(), log_format)
        rule = WINDOW.value or window.STEADY
        report = Report(log_format, log, sorted(watched.others), outcome, _stories(log_format, stream), rule)
    answer(report.data(), report.table)
    if not log.attempts and not report.stories:
        raise _no_step(name, log_format, log)
    return EXIT_VALID if outcome is None or outcome.result.status == "valid" else EXIT_INVALID


class NoStepError(StepmarkError):
    """The log was read, and nothing in it can be used."""

    exit_code = EXIT_INVALID


def _no_step(name: str, log_format: LogFormat, log: ingest.ReadLog) -> NoStepError:
    path = "LOG" if name == STDIN else shlex.quote(name)
    if log.skipped:
        first = log.skipped[0]
        why = (
            f"none of the {len(log.skipped)} lines of steps can be read; the first, line {first.line}: {first.reason}"
        )
        next_command = f"sed -n {first.line}p {path}     shows that line"
    else:
        why = f"it has lines that {log_format.name} prints at a start, and none of a step"
        next_command = f"python launch/doctor.py logs {path}     says why a run ended"
    return NoStepError("no step was read", where=f"--log={name}", why=why, next_command=next_command)


def _stories(log_format: LogFormat, stream: BinaryIO) -> "list[Story] | None":
    """The runs of an MLLOG; None of every other format."""
    if log_format.name != MLLOG.name:
        return None
    from launch.mlperf.reading import stories

    return stories(stream, Configs())


# --- the request ------------------------------------------------------------------------------


class Measured(Value, frozen=True):
    """What a log does not say about its run, as the flags gave it."""

    workload: Workload
    window: str

    def outcome(self, steps: list[Step], log_format: LogFormat) -> Outcome:
        result = self._result(steps, log_format)
        return Outcome(result, self._nearest(result, log_format))

    def _result(self, steps: list[Step], log_format: LogFormat) -> foreign.ForeignResult:
        found = foreign.summarise_foreign(
            steps,
            self.workload,
            self.window,
            log_format.seconds_resolution,
            log_format.rate_resolution,
            prints_loss=log_format.prints_loss,
        )
        if steps:
            return found
        why = log_format.no_seconds
        reasons = [f"no step of the log has seconds{why and ': ' + why}"]
        return msgspec.structs.replace(found, status="invalid", reasons=reasons, notes=[])

    def _nearest(self, result: foreign.ForeignResult, log_format: LogFormat) -> "Nearest":
        """The published row that the figures are held against, or why there is none."""
        if result.status != "valid":
            return None, "the figures are invalid"
        from benchmarks.measuring.summary import BenchmarkFigures
        from benchmarks.references import nearest_reference
        from benchmarks.references.references import read_references

        backend = backend_of_format(log_format)
        if backend is None:
            if isinstance(log_format, TemplateFormat) and log_format.facts.source:
                return None, f"no published row is of {log_format.facts.title}"
            return None, f"{log_format.name} does not say which framework wrote it"
        ours = BenchmarkFigures(
            **msgspec.structs.asdict(result.benchmark),
            backend=backend.name,
            engine=backend.engines[0] if len(backend.engines) == 1 else "",
            nodes=0,  # no log says it
            parallelism={} if self.workload.gpus > 1 else {"data": 1},
        )
        speed, rows = result.tokens_per_second_per_gpu, read_references(Configs().root)
        return nearest_reference.nearest(ours, self.window, speed, rows)


def _measured() -> Measured | None:
    """The benchmark the flags give, None where they give none; half a benchmark is refused."""
    missing = [f"--{flag.name}" for flag in BENCHMARK_FLAGS if flag.value is None]
    if len(missing) == len(BENCHMARK_FLAGS) and WINDOW.value is None and not TASK.present:
        return None
    if missing:
        raise RequestError(
            f"a result needs {', '.join(missing)} too",
            why="tokens/s and MFU need all of them, and none of them is guessed",
            next_command=f"add them; without any of {FLAGS_OF_A_BENCHMARK} --window --task the steps alone are read",
        )
    rule = WINDOW.value or window.STEADY
    window.check_rule(rule)
    configs = Configs()
    workload = Workload(
        model=configs.model(cast(str, MODEL.value)),
        hardware=configs.hardware(cast(str, HARDWARE.value)),
        task=TASK.value,
        dtype=cast(str, DTYPE.value),
        gpus=cast(int, GPUS.value),
        sequence_length=cast(int, SEQUENCE_LENGTH.value),
        global_batch_size=cast(int, GLOBAL_BATCH_SIZE.value),
    )
    return Measured(workload=workload, window=rule)


def _log_name() -> str:
    names = list(LOG.value)
    if not names:
        raise RequestError("no log given", next_command=f"{COMMAND} --log=PATH")
    if len(names) > 1:
        raise RequestError(
            "one log is read at a time",
            where="--log",
            why="of several hosts' logs of one run, read one; the logs of a run that was continued are joined",
            next_command=f"cat {shlex.join(names)} | {COMMAND} --log=-",
        )
    return str(names[0])


# --- the log ----------------------------------------------------------------------------------


def _open(name: str) -> BinaryIO:
    """A log, seekable. A pipe is copied first: its format may show itself late, and then it is read again."""
    if name == STDIN:
        return _copied(sys.stdin.buffer)
    _refuse_special(name)
    try:
        stream = Path(name).open("rb")  # noqa: SIM115 - the caller closes it
        return stream if stream.seekable() else _copied(stream)
    except OSError as error:
        _refuse_run(name)
        raise RequestError(f"can't read the log: {error.strerror}", where=f"--log={name}") from error


def _refuse_special(name: str) -> None:
    """A pipe that nobody writes to would be waited for. The shell's own, `<(zcat a.gz)`, leads to no name."""
    try:
        mode = Path(os.path.realpath(name)).stat().st_mode
    except OSError:
        return  # opening it says why
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        reads = f"cat {shlex.quote(name)} | {COMMAND} --log=-" if stat.S_ISFIFO(mode) else f"{COMMAND} --log=PATH"
        raise RequestError(
            f"'{name}' is no file but a pipe, socket or device",
            where=f"--log={name}",
            why="it was not opened: it may never end",
            next_command=reads,
        )


def _refuse_run(name: str) -> None:
    """A run's folder, or a part of its name."""
    from launch.slurm.run_states import place_of

    place = place_of(name, Path("results"))
    if (place / BENCHMARK).is_file():
        raise RequestError(
            f"'{name}' is no log but a run of Stepmark's, whose steps are in its steps.jsonl",
            where=str(place),
            why="a log is one file, such as those in the folder's attempt-*/",
            next_command=f"python launch/verify.py {shlex.quote(str(place))}",
        )


def _copied(stream: BinaryIO) -> BinaryIO:
    copy = cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES))  # noqa: SIM115 - as above
    shutil.copyfileobj(stream, copy, 1 << 20)
    return copy


def _format_of(name: str, stream: BinaryIO) -> LogFormat:
    if not stream.seek(0, 2):
        raise RequestError("the log is empty", where=f"--log={name}")
    formats = all_log_formats()
    found = ingest.detect(stream, formats)
    if found is None:
        known = ", ".join(f.name for f in formats)
        raise RequestError(
            "no log format recognised",
            where=f"--log={name}",
            why=f"it has no line that a known format prints at a start or for a step; known formats: {known}",
            next_command=_how_to_read(name, stream),
        )
    return found


def _how_to_read(name: str, stream: BinaryIO) -> str:
    """The command with a pattern guessed from the log, where one can be."""
    stream.seek(0)
    head = stream.read(ingest.HEAD_BYTES)
    unpack = next((program for magic, program in UNPACKED_BY.items() if head.startswith(magic)), None)
    if unpack:
        pattern = "" if PATTERN.value is None else f" --pattern={shlex.quote(PATTERN.value)}"
        return f"{unpack} {shlex.quote(name)} | {COMMAND} --log=-{pattern}"
    pattern = guessed_pattern(head) or PATTERN_EXAMPLE
    if pattern == PATTERN.value:
        return f"grep -n -i -m5 step {shlex.quote(name)}     (where a line of a step is, its words are the pattern)"
    return f"{COMMAND} --log={shlex.quote(name)} --pattern={shlex.quote(pattern)}"


def _pattern_of(name: str, stream: BinaryIO, pattern: str) -> LogFormat:
    found = format_of_pattern(pattern, stream.read(ingest.HEAD_BYTES))
    if ingest.detect(stream, [found]) is None:
        raise RequestError(
            "no line fits the pattern",
            where=f"--pattern={shlex.quote(pattern)}, --log={name}",
            why="text outside braces must be as it is in the log, and a number whole and in the field's unit "
            "(1,000.5 is whole; 0,5, 12.5k and 1m30s are not); `...` matches anything",
            next_command=_how_to_read(name, stream),
        )
    return found


if __name__ == "__main__":
    run_main(main)
