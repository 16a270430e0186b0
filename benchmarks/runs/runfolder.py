"""The files of one run's folder: names, reading and atomic writing. recompute.py computes the result.

<output_dir>/<run_id>/ contains benchmark.json, plan.json, provenance.json, steps.jsonl, result.json, tensorboard/ and
attempt-N/<phase>/ with the raw files: events-rankN.jsonl, rank-N.log, exits.jsonl. A queued run also has job.sbatch,
job.json and slurm-*.out. Each attempt-N/ then contains job.jsonl, scheduler.json and telemetry/, and each
phase has an exits-rankN.jsonl for each rank. Every index is derived from these files.
"""

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from benchmarks import VERSION, files
from benchmarks.errors import RequestError
from benchmarks.job_record import (
    EVENTS,
    JOB_SCRIPT,
    SCHEDULER,
    SUBMITTED,
    JobEvent,
    JobSubmission,
    ProcessEnd,
    SchedulerEnd,
)
from benchmarks.text import printable
from benchmarks.values import Benchmark, Phase, Plan, Step, benchmark_fields, benchmark_from, json_text

if TYPE_CHECKING:
    from benchmarks.measuring.summary import Result

BENCHMARK = "benchmark.json"
PLAN = "plan.json"
PROVENANCE = "provenance.json"
STEPS = "steps.jsonl"
RESULT = "result.json"
EXITS = "exits.jsonl"
RANK_EXITS = "exits-rank*.jsonl"  # one file per rank, because tasks on different nodes cannot append to one file
JOB_OUTPUT = "slurm-*.out"
FIRST_FAILURE = "first-failure"  # a link to "CODE rank N"; only the rank that fails first can create it
KEPT_PROFILE = "pgle"  # a folder for the profile that an earlier run of the same program recorded

ReadValue = TypeVar("ReadValue")

ATTEMPT = re.compile(r"attempt-([1-9][0-9]{0,8})")  # the names of attempt folders; other folders are ignored
OTHER_ATTEMPTS = ("earlier_attempt", "later_attempt")  # why the steps of attempts without metrics are excluded
QUIET_SECONDS = 600.0  # on a file system without locks, a run that wrote nothing for this long is not running
OLDEST_READ = (0, 13)  # the oldest Stepmark version whose results are read
RUN_ID = re.compile(r"^\d{8}T\d{6}Z-.*-[0-9a-f]{4}$")


def new_run_id(benchmark: Benchmark) -> str:
    """Return a unique, readable name for a run, without dots, because profile converters cannot handle them."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    words = [benchmark.backend, benchmark.model.name, benchmark.task, benchmark.dtype]
    words += [f"{benchmark.gpus}x{benchmark.hardware.name}", os.urandom(2).hex()]
    return "-".join([when, *words]).replace(".", "_")


class ProvenanceParts(msgspec.Struct):
    """The parts of provenance.json that Stepmark reads. It writes the other parts back unchanged."""

    worker: list[dict[str, Any]] = []
    notes: list[str] = []
    files: dict[str, str] = {}
    labels: dict[str, Any] = {}
    shell: dict[str, str] = {}
    phases: dict[str, dict[str, Any]] = {}
    environment: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    git: dict[str, Any] | None = None


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        return self.path.resolve().name

    @classmethod
    def create(cls, output_dir: Path, run_id: str) -> "RunFolder":
        """Create the folder. Raise RequestError if it is not writable, so that no run starts without a folder."""
        path = output_dir / run_id
        try:
            path.mkdir(parents=True)
            _prove_writable(path)
        except OSError as error:
            raise RequestError(
                f"the output folder is not writable: {error.strerror}",
                where=str(output_dir),
                why="a run writes every step there; pass --output_dir=DIR with a writable folder that has space",
            ) from None
        return cls(path)

    def phase_dir(self, phase: str, attempt: int = 1) -> Path:
        return self.path / f"attempt-{attempt}" / phase

    # --- writing ---

    def write(self, name: str, value: object) -> None:
        value = benchmark_fields(value) if isinstance(value, Benchmark) else value
        write_atomically(self.path / name, json_text(value).encode())

    def write_steps(self, steps: Iterable[Step]) -> None:
        write_atomically(self.path / STEPS, (msgspec.json.encode(step) + b"\n" for step in steps))

    # --- reading ---

    def benchmark(self) -> Benchmark:
        fields = self.read(BENCHMARK, dict[str, Any])
        try:
            return benchmark_from(fields)
        except msgspec.ValidationError as error:
            raise self._unreadable(BENCHMARK, error) from None

    def plan(self) -> Plan:
        return self.read(PLAN, Plan)

    def measured_phase(self) -> Phase:
        """Return the phase that the metrics come from: the last phase that writes steps."""
        return [phase for phase in self.plan().phases if phase.writes_steps][-1]

    def stored_result(self) -> "Result":
        from benchmarks.measuring.summary import Result

        self.refuse_older()
        return self.read(RESULT, Result)

    def stored_steps(self) -> list[Step]:
        return list(self.each_stored_step())

    def each_stored_step(self) -> Iterator[Step]:
        """Yield the stored steps one by one, because all steps of thousands of ranks would need too much memory."""
        decoder = msgspec.json.Decoder(Step)
        try:
            for number, line in enumerate(files.lines(self.path / STEPS), start=1):
                try:
                    yield decoder.decode(line)
                except files.NOT_JSON as error:
                    raise self._unreadable(f"{STEPS}:{number}", error) from None
        except FileNotFoundError:
            raise _missing(self.path / STEPS) from None

    def ended(self, phase: str, attempt: int = 1) -> list[ProcessEnd]:
        """Return how the processes of a phase ended. If a rank has several records, the first one counts."""
        place = self.phase_dir(phase, attempt)
        if (place / EXITS).exists():
            return _decode_lines(place / EXITS, ProcessEnd)
        found: dict[int, ProcessEnd] = {}
        for path in place.glob(RANK_EXITS):
            for one in _decode_lines(path, ProcessEnd, partly=True):
                found.setdefault(one.rank, one)
        link = place / FIRST_FAILURE
        first = link.readlink().name.rpartition(" ")[2] if link.is_symlink() else ""
        return [
            msgspec.structs.replace(found[rank], failed_first=True) if str(rank) == first else found[rank]
            for rank in sorted(found)
        ]

    def could_not_write(self, attempt: int) -> str | None:
        """Return why a worker or the launcher could not write into the folder; None if no failed write is known."""
        for phase in self.plan().phases:
            link = self.phase_dir(phase.name, attempt) / files.COULD_NOT_WRITE
            if link.is_symlink():
                return f"{link.readlink()} in phase {phase.name}"
        return None

    def is_whole(self) -> bool:
        """Return whether the launcher has written all files that describe the run."""
        return all((self.path / name).exists() for name in (BENCHMARK, PLAN, PROVENANCE))

    # --- the files of a queued job ---

    @files.retried
    def is_queued(self) -> bool:
        return (self.path / SUBMITTED).exists()

    def submitted(self) -> JobSubmission:
        return self.read(SUBMITTED, JobSubmission)

    def is_collected(self) -> bool:
        """Return whether the end of the last attempt is recorded. Before that, a queued run may still be running."""
        last = max(self.attempts(), default=0)
        return not self.is_queued() or (self.attempt_dir(last) / SCHEDULER).exists()

    @files.retried
    def job_ids(self) -> list[str]:
        """Return the number of the submitted job, and of each job that the user later submitted by hand."""
        starts = [event.job_id for attempt in self.attempts() for event in self.job_events(attempt)]
        return list(dict.fromkeys(number for number in (self.submitted().job_id, *starts) if number))

    def attempt_dir(self, attempt: int) -> Path:
        """Return an attempt's folder. For attempt 0, a job that never started, it is the run folder."""
        return self.path / f"attempt-{attempt}" if attempt else self.path

    def telemetry_dir(self, attempt: int) -> Path:
        return self.attempt_dir(attempt) / "telemetry"

    def job_events(self, attempt: int) -> list[JobEvent]:
        """Return the events that the job has recorded so far. Incomplete lines are skipped."""
        path = self.attempt_dir(attempt) / EVENTS
        return _decode_lines(path, JobEvent, partly=True) if path.exists() else []

    def scheduler_end(self, attempt: int) -> SchedulerEnd | None:
        """Return the scheduler's record of an attempt; None if the run is not collected yet."""
        name = str((self.attempt_dir(attempt) / SCHEDULER).relative_to(self.path))
        return self.read(name, SchedulerEnd) if (self.path / name).exists() else None

    def provenance_digest(self) -> str | None:
        path = self.path / PROVENANCE
        return f"sha256:{_sha256(path)}" if path.exists() else None

    def attempts(self) -> list[int]:
        found = ((ATTEMPT.fullmatch(path.name), path) for path in self.path.glob("attempt-*"))
        return sorted(int(name[1]) for name, path in found if name is not None and path.is_dir())

    def job_output(self) -> list[Path]:
        """Return the output files of the job script."""
        return sorted(self.path.glob(JOB_OUTPUT))

    # --- digests: result.json contains the digest of provenance.json, which contains those of the raw files ---

    def raw_files(self) -> list[Path]:
        """Return the files from which the result is computed, and the logs, but no other files of the framework."""
        named = (BENCHMARK, PLAN, SUBMITTED, JOB_SCRIPT, SCHEDULER)
        raw = [*(self.path / name for name in named), *self.job_output(), *self.path.glob(f"{KEPT_PROFILE}/*")]
        # A file with a name that starts with a dot is still being written.
        raw += [path for path in self.path.glob("attempt-*/*") if not path.name.startswith(".")]
        return sorted(path for path in [*raw, *self.path.glob("attempt-*/*/*")] if path.is_file())

    def raw_digests(self) -> dict[str, str]:
        return {
            printable(str(path.relative_to(self.path)).encode(errors="backslashreplace").decode()): _sha256(path)
            for path in self.raw_files()
        }

    def changed_since_sealed(self) -> list[str]:
        """Return the raw files that changed after the run ended. An interrupted run has no digests to compare."""
        sealed = self.provenance().get("files", {})
        if not sealed:
            return []
        now = self.raw_digests()
        changes = dict.fromkeys(sealed.keys() - now.keys(), "is missing")
        changes |= dict.fromkeys(now.keys() - sealed.keys(), "was added")
        changes |= {name: "was changed" for name in sealed.keys() & now.keys() if sealed[name] != now[name]}
        return [f"{name} {what} after the run" for name, what in sorted(changes.items())]

    def provenance(self) -> dict[str, Any]:
        """Return the contents of provenance.json; an empty dictionary if the file is missing."""
        if not (self.path / PROVENANCE).exists():
            return {}
        about = self.read(PROVENANCE, dict[str, Any])
        try:
            msgspec.convert(about, ProvenanceParts)
        except msgspec.ValidationError as error:
            raise self._unreadable(PROVENANCE, error) from None
        return about

    def recorded_run_id(self) -> str:
        """Return the run's original name. Its folder may have been renamed or copied since then."""
        return str(self.provenance().get("run_id") or self.run_id)

    def refuse_older(self) -> None:
        """Raise RequestError if an older version made the result, because it used other rules for the metrics."""
        made_by = str(self.provenance().get("stepmark") or "")
        numbers = re.match(r"(\d+)\.(\d+)", made_by)
        if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_READ:
            raise RequestError(
                f"the run comes from Stepmark {made_by}",
                where=str(self.path),
                why=f"Stepmark {VERSION} reads results of version {OLDEST_READ[0]}.{OLDEST_READ[1]} and later; run "
                "the benchmark again",
            )

    def read(self, name: str, kind: type[ReadValue]) -> ReadValue:
        path = self.path / name
        try:
            return files.read_json(path, kind)
        except FileNotFoundError:
            raise _missing(path) from None
        except OSError as error:
            raise files.cannot_read(error, path) from None
        except files.NOT_JSON as error:
            raise self._unreadable(name, error) from None

    def _unreadable(self, name: str, error: Exception) -> RequestError:
        repair = f"python launch/{files.REPAIR} {shlex.quote(str(self.path))}"
        return RequestError(
            f"{name} cannot be read: {error}",
            where=str(self.path / name),
            why="the file is incomplete, was edited, or comes from another version of Stepmark",
            next_command=repair if name.startswith((RESULT, STEPS)) else "",
        )


def _sha256(path: Path) -> str:
    import hashlib

    with files.opened(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _prove_writable(path: Path) -> None:
    """Write and remove a file. If that fails, remove the new, empty folder and raise the error."""
    probe = path / ".writable"
    try:
        probe.write_bytes(b"\0" * 4096)
        probe.unlink()
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write the whole file or nothing. If the write fails, for example on a full disk, the old file is unchanged."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as stream:  # never follow a link: other users can predict the name and create one
            stream.writelines([data] if isinstance(data, bytes) else data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # on a read-only file system, this fails too
            temporary.unlink()
        why = "the previous file and the raw files under attempt-* are kept"
        raise files.cannot_write(error, path, why, path.parent) from None


def is_followed(folder: RunFolder) -> bool:
    """Return whether a launcher is writing steps: launch/running/execute.py then holds a lock on the file."""
    with contextlib.suppress(OSError), files.opened(folder.path / STEPS) as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no locks on this file system: recent writes mean that the run is running
            newest = max(path.stat().st_mtime for path in [folder.path / STEPS, *folder.path.glob("attempt-*/*/*")])
            return time.time() - newest < QUIET_SECONDS
    return False


def without_result(run: Path) -> RequestError:
    """Return the error for a run without a result: its state, and the command to run next."""
    if (run / SUBMITTED).exists():
        what, command = "the run is not collected yet: its job may still be queued or training", "status.py --follow"
    elif is_followed(RunFolder(run)):
        what, command = "the run is still running: its launcher has its files open", "status.py"
    else:
        missing, command = STEPS if (run / RESULT).exists() else RESULT, files.REPAIR
        what = f"the run was interrupted: {missing} is missing, and its launcher is not running"
    return RequestError(what, where=str(run), next_command=f"python launch/{command} {shlex.quote(str(run))}")


def _missing(path: Path) -> RequestError:
    if (path.parent / BENCHMARK).exists() and path.name in (RESULT, STEPS):
        return without_result(path.parent)
    return RequestError(f"{path.name} is missing", where=str(path.parent), why="this is not a run folder")


def _decode_lines(path: Path, kind: type[ReadValue], *, partly: bool = False) -> list[ReadValue]:
    """Return the value of each line. If `partly`, the file may be incomplete: skip lines that cannot be read."""
    decoder = msgspec.json.Decoder(kind)
    found = []
    try:
        lines = files.read(path).splitlines()
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise files.cannot_read(error, path) from None
    for number, line in enumerate(lines, start=1):
        try:
            found.append(files.decode_json(line, decoder))
        except files.NOT_JSON as error:
            if not partly:
                raise RequestError(f"{path.name} cannot be read: {error}", where=f"{path}:{number}") from None
    return found
