"""Read an MLLOG: its lines (`:::MLLOG {json}`, anywhere in a line of a log), and its runs from start to stop.

Lines that cannot be read are reported. A log may contain several consecutive runs (NEXP experiments of one job), and
lines from many ranks.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO, Literal

from benchmarks.backend import SkippedLine
from benchmarks.reading.log_stream import rank_of_line, without_colours
from benchmarks.text import printable
from benchmarks.values import Value

TOKEN = b":::MLLOG"
# A record has JSON after the token. A message, such as `:::MLLOG Weight initialization: ...`, does not.
BEGIN = re.compile(rb":::MLLOG\s*(?=\{)")
INTERLEAVED = "mixed with a line of another writer"  # mlperf-logging's parser reads the last record of such a line
LARGEST = 2**53  # a larger float cannot represent every count
LONGEST_LINE = 1 << 20  # a longer line, such as that of a progress bar, is read in parts

EVALUATION_KEYS = ("eval_accuracy", "eval_error", "eval_loss")
# Keys of settings that apply to the whole run. Keys with a prefix in SETTING_PREFIXES are settings too.
SETTINGS = {
    "global_batch_size", "train_samples", "eval_samples", "gradient_accumulation_steps", "max_sequence_length",
    "max_steps", "seed", "evaluation_frequency", "target_accuracy", "tensor_parallelism", "pipeline_parallelism",
    "context_parallelism", "expert_parallelism", "micro_batch_size", "config_filename", "cache_clear",
}  # fmt: skip
SETTING_PREFIXES = ("submission_", "opt_", "lora_", "lowest_numerical_precision_in_")
BENCHMARK_NAME = re.compile(r"(?=.{1,100}$)[A-Za-z0-9]\w*(?:[.-]\w+)*", re.ASCII)  # a log may contain any text
LONGEST_NAME = 200
MARKS = ("init_start", "init_stop", "run_start", "run_stop")

Status = Literal["success", "aborted", "fail", "unknown"]
STATUSES: dict[str, Status] = {"success": "success", "aborted": "aborted", "fail": "fail", "failed": "fail"}


class Record(Value, frozen=True):
    """One record in an MLLOG."""

    line: int  # the line number in the file, from 1
    key: str
    value: Any
    metadata: dict[str, Any]
    time_ms: float
    rank: int | None = None  # from the label that srun or torchrun adds before the line

    @property
    def samples(self) -> int | None:
        """Return samples_count in the metadata, or None if it is missing."""
        return whole(self.metadata.get("samples_count"))

    @property
    def step(self) -> int | None:
        return whole(self.metadata.get("step"))


def number(value: Any) -> float | None:
    """Return the value if it is a plausible finite number, otherwise None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
        return None
    return None if math.isnan(value) else float(value)


def whole(value: Any) -> int | None:
    """Return a count as a whole number, or None. In NVIDIA's logs, some counts are floats."""
    found = number(value)
    return None if found is None else round(found)


def read_records(stream: BinaryIO) -> Iterator[Record | SkippedLine]:
    """Yield every record of a log in order, and every MLLOG line that cannot be read."""
    place = 1
    while text := stream.readline(LONGEST_LINE):
        for line in text.split(b"\r") if TOKEN in text else ():
            if TOKEN in line:
                found = BEGIN.search(line)
                if found is None:
                    yield SkippedLine(line=place, reason="no JSON object after :::MLLOG")
                else:
                    yield _record(line, found, place)
        place += text.endswith(b"\n")


def _record(line: bytes, found: "re.Match[bytes]", place: int) -> Record | SkippedLine:
    text = without_colours(line[found.end() :]).decode("utf-8", errors="replace").strip()
    if BEGIN.search(line, found.end()):
        return SkippedLine(line=place, reason=INTERLEAVED)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return SkippedLine(line=place, reason=f"truncated, or not JSON: {error}")
    metadata, at = data.get("metadata") or {}, number(data.get("time_ms"))
    if not isinstance(data.get("key"), str) or at is None or not isinstance(metadata, dict):
        return SkippedLine(line=place, reason="the key, time_ms or metadata cannot be read")
    rank = rank_of_line(line[: found.start()])
    return Record(line=place, key=data["key"], value=data.get("value"), metadata=metadata, time_ms=at, rank=rank)


# --- runs --------------------------------------------------------------------------------------


class Evaluation(Value, frozen=True):
    """One evaluation of a run."""

    samples: int | None
    value: float | None  # None: the log has no finite number
    time_ms: float
    line: int


class LoggedRun(Value, frozen=True):
    """One run in an MLLOG."""

    records: list[Record]
    skipped: list[SkippedLine]
    settings: dict[str, Any]  # key -> the last value that was logged
    marks: dict[str, list[Record]]  # each key of MARKS -> its records in order
    evaluations: list[Evaluation]
    status: Status
    status_text: str  # the status as it is written in the log

    @property
    def benchmark(self) -> str | None:
        """Return the benchmark's name; None if it could not be the name of a file or a folder."""
        value = self.settings.get("submission_benchmark")
        return value if isinstance(value, str) and BENCHMARK_NAME.fullmatch(value) else None

    @property
    def platform(self) -> str | None:
        return _one_line(self.settings.get("submission_platform"))

    def values(self, key: str) -> list[Any]:
        """Return the values that were logged for a key, without duplicates."""
        return list({repr(one.value): one.value for one in self.records if one.key == key}.values())

    @property
    def is_open(self) -> bool:
        """Return whether the run is in the open division, in which the rules do not fix settings."""
        return self.settings.get("submission_division") == "open"

    @property
    def batch(self) -> int | None:
        """Return the global batch size; None if the logged value is not a positive count."""
        count = whole(self.settings.get("global_batch_size")) or 0
        return count if count > 0 else None

    @property
    def start_ms(self) -> float | None:
        return next((record.time_ms for record in self.marks["run_start"]), None)

    @property
    def stop_ms(self) -> float | None:
        return next((record.time_ms for record in reversed(self.marks["run_stop"])), None)

    @property
    def seconds(self) -> float | None:
        """Return the seconds from run_start to run_stop: the time to train, or how long an aborted run lasted."""
        if self.start_ms is None or self.stop_ms is None:
            return None
        return (self.stop_ms - self.start_ms) / 1000

    @property
    def init_seconds(self) -> float | None:
        """Return the seconds from the first init_start to run_start."""
        began = self.marks["init_start"]
        return None if not began or self.start_ms is None else (self.start_ms - began[0].time_ms) / 1000

    @property
    def samples(self) -> int | None:
        """Return the samples trained before the last evaluation. rcp_checker counts these as samples to converge."""
        return next((one.samples for one in reversed(self.evaluations) if one.samples is not None), None)


def runs_of(stream: BinaryIO) -> list[LoggedRun]:
    """Return the runs in a log. The stream is read from its start."""
    stream.seek(0)
    return read_runs(read_records(stream))


def read_runs(found: Iterable[Record | SkippedLine]) -> list[LoggedRun]:
    """Return the runs of a log in order. Settings without a run_start form a run that never started."""
    found = list(found)
    runs = _split(_of_one_rank([one for one in found if isinstance(one, Record)]))
    bounds = [0, *(run[0].line for run in runs[1:]), math.inf]
    return [
        # An unreadable line belongs to the run that started last before it.
        _run(run, [s for s in found if isinstance(s, SkippedLine) and first <= s.line < end])
        for run, (first, end) in zip(runs, pairwise(bounds), strict=False)
    ]


def _of_one_rank(records: Sequence[Record]) -> list[Record]:
    """Return the records of one rank, unlabelled records and cache_clear. The rank is the lowest with a run_start."""
    starters = [record.rank for record in records if record.key == "run_start" and record.rank is not None]
    if not starters:
        return list(records)
    teller = min(starters)
    return [record for record in records if record.rank in (None, teller) or record.key == "cache_clear"]


def _split(records: Sequence[Record]) -> list[list[Record]]:
    runs: list[list[Record]] = []
    started = False
    for record in records:
        begins = record.key in ("cache_clear", "init_start") and started
        again = record.key == "run_start" and any(one.key == "run_stop" for one in (runs[-1] if runs else []))
        if not runs or begins or (again and started):
            runs.append([])
            started = False
        runs[-1].append(record)
        started = started or record.key == "run_start"
    return runs


def _run(records: list[Record], skipped: list[SkippedLine]) -> LoggedRun:
    marks = {mark: [record for record in records if record.key == mark] for mark in MARKS}
    stops = marks["run_stop"]
    text = _one_line(str(stops[-1].metadata.get("status", ""))) or "" if stops else ""
    return LoggedRun(
        records=records,
        skipped=skipped,
        settings={
            record.key: record.value
            for record in records
            if record.key in SETTINGS or record.key.startswith(SETTING_PREFIXES)
        },
        marks=marks,
        evaluations=_evaluations(records),
        status=STATUSES.get(text.lower(), "unknown"),
        status_text=text,
    )


def _one_line(value: Any) -> str | None:
    """Return a logged text as one printable line of limited length; None if the value is not a text."""
    return printable(value[:LONGEST_NAME].encode(errors="replace").decode()) if isinstance(value, str) else None


def _evaluations(records: Sequence[Record]) -> list[Evaluation]:
    """Return each evaluation once. If samples and value are equal, another rank has repeated the evaluation."""
    found: list[Evaluation] = []
    for record in records:
        if record.key not in EVALUATION_KEYS:
            continue
        samples = record.samples if record.samples is not None else whole(record.metadata.get("epoch_num"))
        one = Evaluation(samples, number(record.value), record.time_ms, record.line)
        if samples is None or not any((e.samples, e.value) == (samples, one.value) for e in found[-8:]):
            found.append(one)
    return found
