"""Select the files that the doctor reads, and pass them to the doctor.

For a run folder, the doctor reads the files of the last attempt: the output of its job, the logs of all ranks and
phases, and the records of how each process ended. benchmarks/doctor makes the diagnosis.
"""

import glob
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.doctor.evidence import LogEvidence, Scanner
from benchmarks.doctor.lines import Clock, rank_of_file
from benchmarks.doctor.order import Diagnosis, RunContext, diagnose
from benchmarks.doctor.symptoms import Symptoms, read_symptoms
from benchmarks.doctor.text import one_line
from benchmarks.errors import RequestError, StepmarkError
from benchmarks.job_record import JobEvent
from benchmarks.measuring.failures import first_to_fail
from benchmarks.reading.log_files import PIECE_BYTES, UNREADABLE_ERRORS, log_files, opened, pieces
from benchmarks.runs.outcomes import NOT_OVER
from benchmarks.runs.runfolder import BENCHMARK, RESULT, RunFolder, is_followed, without_result
from benchmarks.text import folded, printable

STDIN = "-"
RUN_RECORDS = ("exits*.jsonl", "rank-*.log")
CUT_OFF = "cut off"  # the same word as in launch/status.py


def diagnosis_of(places: Sequence[str]) -> Diagnosis:
    """Return one diagnosis of all files in `places` (files, folders, patterns), as if one run had written them."""
    symptoms = read_symptoms(Configs().root)
    paths = [path for place in places for path in _expanded(place)]
    runs = [path for path in paths if _is_run(path)]
    if len(runs) == 1 and len(paths) == 1:
        return diagnosis_of_run(RunFolder(runs[0]), symptoms)
    of_each = [_run_files(RunFolder(path)) if _is_run(path) else log_files(path) for path in paths]
    files = list(dict.fromkeys(file for files in of_each for file in files))
    if not files:
        raise RequestError(
            "found no log",
            where=", ".join(places),
            why="the doctor reads *.out, *.log, *.txt, *.err, *.e123, log-*, slurm-* and rank-3, also with .gz",
        )
    logs = [_read(file, symptoms, str(file)) for file in files]
    if not any(log.bytes for log in logs):
        raise RequestError(
            "the log is empty" if len(logs) == 1 else f"all {len(logs)} logs are empty",
            where=", ".join(places),
            why="an empty log does not show how the job ended; read the job's other output or, on Slurm, sacct",
            next_command="sacct -X --format=JobID,State,ExitCode",
        )
    return diagnose(logs, symptoms)


def diagnosis_of_run(folder: RunFolder, symptoms: Symptoms | None = None) -> Diagnosis:
    """Return the diagnosis of a Stepmark run. It takes the records of how the run ended into account."""
    known = symptoms or read_symptoms(Configs().root)
    logs = [_read(path, known, str(path.relative_to(folder.path))) for path in _run_files(folder)]
    return diagnose(logs, known, _known_of(folder))


def why_failed(folder: RunFolder) -> str | None:
    """Return the first cause of a failure in one line; None if the logs show none or cannot be read."""
    with suppress(StepmarkError, OSError):
        return one_line(diagnosis_of_run(folder))
    return None


def _expanded(place: str) -> Iterator[Path]:
    path = Path("/dev/stdin" if place == STDIN else place)
    if path.exists():
        yield path
        return
    found = sorted(glob.glob(place, recursive=True))  # noqa: PTH207 - the user's pattern may be absolute
    if not found:
        raise RequestError(
            f"'{printable(place)}' does not exist",
            where="python launch/doctor.py logs",
            why="it matches no file, folder or run" + ("" if path.is_absolute() else f" in {Path.cwd()}"),
            next_command="python launch/report.py runs",
        )
    yield from map(Path, found)


def _is_run(path: Path) -> bool:
    return path.is_dir() and (path / BENCHMARK).is_file()


def _run_files(folder: RunFolder) -> list[Path]:
    """Return the files of the last attempt. Files that show when processes ended come first."""
    last = max(folder.attempts(), default=0)
    place = folder.attempt_dir(last)
    named = [place / "job.jsonl", place / "scheduler.json", *folder.job_output()]
    ranks = sorted(path for pattern in RUN_RECORDS for path in place.glob(f"*/{pattern}")) if last else []
    return [path for path in [*ranks, *named] if path.is_file()]


def _known_of(folder: RunFolder) -> RunContext:
    """Return what the run's records show. If a record cannot be read, the run counts as failed."""
    try:
        last = max(folder.attempts(), default=0)
        events = folder.job_events(last) if last else []
        starts = [one.time for one in events if one.event == "start"]
        hung = any(one.event == "hung" for one in events)  # the watchdog then ended all ranks at once
        ended = folder.ended(folder.measured_phase().name, last) if last else []
        first = first_to_fail([one for one in ended if one.exit_code != 0], None)
        status, reasons = _result_of(folder, last, events)
        return RunContext(
            ended_well=status == "valid",
            failed=status in ("failed", CUT_OFF),
            reasons=[printable(reason) for reason in reasons],
            first_rank=None if hung or first is None or not folder.is_queued() else first.rank,
            since=min(starts) + time.localtime(min(starts)).tm_gmtoff if starts and last > 1 else None,  # local time
            recorded=True,
        )
    except (RequestError, OSError) as error:
        return RunContext(failed=True, reasons=[*map(printable, str(error).splitlines())], recorded=True)


def _result_of(folder: RunFolder, last: int, events: Sequence[JobEvent]) -> tuple[str, list[str]]:
    """Return the run's status and reasons. Without a result, return the run's state and the command to continue."""
    if (folder.path / RESULT).exists():
        result = folder.stored_result()
        return result.status, folded(result.reasons)
    end = folder.scheduler_end(last)
    code = events[-1].exit_code if events and events[-1].event == "end" else None
    how = end.state if end is not None and end.state not in (*NOT_OVER, "COMPLETED", "UNKNOWN") else None
    if how or code:
        command = f"python launch/status.py --collect {shlex.quote(str(folder.path))}"
        return "failed", [f"the job ended ({how or f'exit code {code}'}) and is not collected yet", command]
    refused = without_result(folder.path)
    goes_on = folder.is_queued() or is_followed(folder)
    return "running" if goes_on else CUT_OFF, [refused.what, refused.next_command]


def _read(path: Path, symptoms: Symptoms, name: str) -> LogEvidence:
    try:
        with opened(path) as stream:
            facts = time.localtime(os.fstat(stream.fileno()).st_mtime)
            clock = Clock(facts.tm_year, facts.tm_gmtoff)
            scanner = Scanner(symptoms, printable(name), clock, rank_of_file(str(path)))
            for piece in pieces(stream, PIECE_BYTES):
                scanner.feed(piece)
            return scanner.finish()
    except UNREADABLE_ERRORS as error:
        piped = f"cat {shlex.quote(str(path))} | python launch/doctor.py logs -" if path.is_fifo() else ""
        what = f"the log cannot be read: {getattr(error, 'strerror', None) or error}"
        raise RequestError(what, where=str(path), next_command=piped) from None
