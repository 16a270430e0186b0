"""Read a training log of another program and report its steps.

    python launch/ingest.py --log=train.log                       a short table of each attempt
    python launch/ingest.py --log=train.log --json                every step, as JSON
    zcat train.log.gz | python launch/ingest.py --log=-           from standard input

tokens/s and MFU need six facts that a log does not contain: --model, --hardware, --gpus, --dtype,
--global_batch_size and --sequence_length. With all six flags, Stepmark reports the metrics of the log's last attempt
next to the nearest published result. --task=lora counts only the FLOPs of training adapters. For an MLPerf log, the
report also has each run's status, time to train, samples and evaluations (docs/reference/mlperf_rules.md).

For an unknown format, pass a pattern that matches a step's line, with fields in braces and `...` for any text
(docs/how-to/external_logs.md):

    python launch/ingest.py --log=train.log --pattern='step {step} ... loss {loss} ... {seconds}s'

Exit codes: 0 the steps were read and the requested metrics are valid; 2 the request was wrong or the format is
unknown; 3 the log has no step, or the metrics are invalid (the result gives the reason).
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import os
import shlex
import sys
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from absl import flags

from benchmarks.backend import LogFormat
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, StepmarkError
from benchmarks.logs.report import Report, outcome_of
from benchmarks.logs.templates import FIELDS, all_log_formats, format_of_pattern, pattern_for
from benchmarks.measuring.utilisation import Workload
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.reading import read_log
from benchmarks.reading.log_files import UNREADABLE_ERRORS, copied, open_log
from benchmarks.request import window_rule
from launch.cli.command import refuse_more, run_main
from launch.terminal.output import answer

COMMAND = "python launch/ingest.py"
STDIN = "-"

LOG = flags.DEFINE_multi_string("log", [], "Log to read; - reads standard input.")
MODEL = flags.DEFINE_string("model", None, "Model that was trained (configs/models).")
HARDWARE = flags.DEFINE_string("hardware", None, "Device type (configs/hardware).")
GPUS = flags.DEFINE_integer("gpus", None, "Number of devices.", lower_bound=1)
DTYPE = flags.DEFINE_enum(
    "dtype", None, ["bf16", "fp8", "mxfp8", "nvfp4", "fp32", "int8"], "Precision of the matmuls."
)
GLOBAL_BATCH_SIZE = flags.DEFINE_integer("global_batch_size", None, "Sequences per step.", lower_bound=1)
SEQUENCE_LENGTH = flags.DEFINE_integer("sequence_length", None, "Tokens per sequence.", lower_bound=1)
WINDOW = flags.DEFINE_string("window", None, "The measured steps: steady (default), last, or A-B.")
PATTERN = flags.DEFINE_string(
    "pattern", None, f"Template of a step's line, for an unknown log format. Fields: {', '.join(FIELDS)}."
)
TASK = flags.DEFINE_enum(
    "task", "pretrain", ["pretrain", "lora", "mlperf"], "Task that was trained, which decides how FLOPs are counted."
)

BENCHMARK_FLAGS = (MODEL, HARDWARE, GPUS, DTYPE, GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH)


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], f"{COMMAND} --log={shlex.join(argv[1:2])}")
    rule = WINDOW.value or window_rule.STEADY
    window_rule.check_rule(rule)
    workload = _workload()
    name = _log_name()
    with _open(name) as stream:
        log_format = _format_of(name, stream)
        others = sorted({one.name for one in read_log.formats_of(stream, all_log_formats())} - {log_format.name})
        stream.seek(0)
        log = read_log.ReadLog(log_format.read(stream))
        outcome = None
        if workload is not None:
            outcome = outcome_of(log.last_timed(), workload, rule, log_format, Configs().root)
        runs = None
        if log_format.name == MLLOG.name:
            from benchmarks.mlperf.run_report import report_runs

            runs = report_runs(stream, Configs())
        report = Report(log_format, log, others, outcome, runs, rule)
    answer(report.data(), report.table)
    if not log.attempts and not report.stories:
        why = f"the log has the first lines of {log_format.name}, but no line of a step"
        if log.skipped:
            line, reason = log.skipped[0].line, log.skipped[0].reason
            why = f"all {len(log.skipped)} lines of steps are unreadable; the first is line {line}: {reason}"
        following = f"python launch/doctor.py logs {shlex.quote(name)}"
        raise NoStepError("found no step", where=f"--log={name}", why=why, next_command=following)
    return EXIT_VALID if outcome is None or outcome.result.status == "valid" else EXIT_INVALID


class NoStepError(StepmarkError):
    """The log can be read, but contains no usable step."""

    exit_code = EXIT_INVALID


# --- the request ------------------------------------------------------------------------------


def _workload() -> Workload | None:
    """Return the workload that the flags describe; None if no such flag is set. Refuse if only some flags are set."""
    missing = [f"--{flag.name}" for flag in BENCHMARK_FLAGS if flag.value is None]
    if len(missing) == len(BENCHMARK_FLAGS) and WINDOW.value is None and not TASK.present:
        return None
    if missing:
        raise RequestError(
            f"tokens/s and MFU also need {', '.join(missing)}",
            why="Stepmark does not guess them; to read only the steps, omit every flag that describes the training",
            next_command=" ".join(f"--{flag.name}=" for flag in (*BENCHMARK_FLAGS, WINDOW, TASK)),
        )
    configs = Configs()
    return Workload(
        model=configs.model(cast(str, MODEL.value)),
        hardware=configs.hardware(cast(str, HARDWARE.value)),
        task=TASK.value,
        dtype=cast(str, DTYPE.value),
        gpus=cast(int, GPUS.value),
        sequence_length=cast(int, SEQUENCE_LENGTH.value),
        global_batch_size=cast(int, GLOBAL_BATCH_SIZE.value),
    )


def _log_name() -> str:
    names = list(LOG.value)
    if not names:
        raise RequestError("--log is missing", next_command=f"{COMMAND} --help")
    if len(names) > 1:
        joined, why = f"cat {shlex.join(names)} | {COMMAND} --log=-", "to read several logs of one run, join them"
        raise RequestError("only one --log can be read at a time", where="--log", why=why, next_command=joined)
    return str(names[0])


# --- the log ----------------------------------------------------------------------------------


def _open(name: str) -> BinaryIO:
    try:
        return copied(cast(BufferedReader, sys.stdin.buffer)) if name == STDIN else open_log(Path(name))
    except UNREADABLE_ERRORS as error:
        words = getattr(error, "strerror", None) or error
        piped = f"cat {shlex.quote(name)} | {COMMAND} --log=-" if Path(name).is_fifo() else ""
        raise RequestError(f"the log cannot be read: {words}", where=f"--log={name}", next_command=piped) from error


def _format_of(name: str, stream: BinaryIO) -> LogFormat:
    if not stream.seek(0, os.SEEK_END):
        raise RequestError("the log is empty", where=f"--log={name}")
    stream.seek(0)
    pattern, formats = PATTERN.value, all_log_formats()
    if pattern is not None:
        formats = [format_of_pattern(pattern, stream.read(read_log.HEAD_BYTES))]
    found = next(read_log.formats_of(stream, formats), None)
    if found is None and pattern is not None:
        raise RequestError(
            "no line matches the pattern",
            where=f"--pattern={shlex.quote(pattern)}, --log={name}",
            why="text outside braces must match the log exactly (`...` matches any text); a number must be plain and "
            "in the field's unit (not 1,000.5, 12.5k or 1m30s)",
            next_command=f"grep -n -i -m5 step {shlex.quote(name)}",
        )
    if found is None:
        known = ", ".join(f.name for f in formats)
        stream.seek(0)
        fitting = pattern_for(stream.read(read_log.HEAD_BYTES))
        read = f"{COMMAND} --log={shlex.quote(name)} --pattern={shlex.quote(fitting)}"
        raise RequestError(
            "unknown log format",
            where=f"--log={name}",
            why=f"no line matches the first lines or the step lines of a known format; known formats: {known}",
            next_command=read if fitting else f"grep -n -i -m5 -E 'step|iter' {shlex.quote(name)}",
        )
    return found


if __name__ == "__main__":
    run_main(main)
