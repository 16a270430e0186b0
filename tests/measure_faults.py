"""Feeds damaged logs and run folders to the commands, and counts what no input may cause. Not a test.

    python tests/measure_faults.py --logs=100000 --runs=10000 --workers=2
    python tests/measure_faults.py --case=runs:417        one case again; its files are kept, and all output is shown

A case is a real log or run folder of the tests, damaged at random by its number (tests/mutations.py). Each command
reads it as `stepmark COMMAND` does, in a process that has its packages loaded and is used again. Counted are:

    traceback  an exception that nobody caught, or "its reader failed", which is one that was
    exit       an exit code other than 0 to 3
    slow       over 10 s of CPU time, or 10 s of waiting
    memory     over 1 GB
    escape     a control character in the output
    changed    a file of the case that was changed, added or removed

Exit code 1 where there are any.
"""

import argparse
import ctypes
import gzip
import importlib
import io
import multiprocessing
import os
import pkgutil
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # run by its path, it is beside the packages and not among them


from absl import flags  # noqa: E402

from benchmarks.doctor import symptoms  # noqa: E402
from tests.benchmarks.logs.formats import Seed, seeds_of_formats  # noqa: E402
from tests.mutations import change_file, change_run, changed, replace_file  # noqa: E402

TESTS = REPOSITORY / "tests"
STORED = TESTS / "launch" / "stored_runs"
LOGS = sorted(
    [*TESTS.glob("*_backend/logs/*.log"), *TESTS.glob("launch/mlperf/logs/*.txt"), *STORED.rglob("rank-0.log")]
)
FAILURES = TESTS / "benchmarks" / "doctor" / "collected.txt"
RUNS = [*sorted(STORED.iterdir()), TESTS / "benchmarks" / "comparing" / "real_run"]
TRACE = TESTS / "benchmarks" / "trace" / "samples" / "maxtext_cpu_2_devices.xplane.pb.gz"
NAMES = ["20261122T034511Z-jax-llama2_tiny-pretrain-bf16-1xcpu-eeab"] * 9 + ["r\x1b[31m\n"]
INTACT = "intact-run"
SECONDS, MEMORY_BYTES = 10.0, 1_000_000_000
WAITS_SECONDS = 0.05  # of CPU time that a command uses in so long: less is waiting
CHUNK = 500
LONGEST_PATTERN = 10_000
# In what is printed. A tab is in lines that are shown as they were.
ESCAPES = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\xc2[\x80-\x9f]")
MADE = {"result.json", "steps.jsonl", "provenance.json", "job.json", "tensorboard"}  # status.py collects a run

# {log}, or {folder} with it in; {run} in {folder}, beside an intact run; {out} for what is written.
OF_LOGS = {
    "ingest": "ingest --log={log}",
    "ingest --json": "ingest --log={log} --json --model=llama2_tiny --hardware=h100 --gpus={gpus} --dtype=bf16 "
    "--global_batch_size={batch} --sequence_length={sequence}",
    "ingest --pattern": "ingest --log={log} --pattern={pattern}",
    "doctor logs": "doctor logs {folder}",
    "report timing": "report timing {folder} --window=steady",
    "report mlperf": "report mlperf {folder}",
}
OF_RUNS = {
    "verify": "verify {run}",
    "doctor logs": "doctor logs {run}",
    "report timing": "report timing {folder}",
    "report runs": "report runs {folder} --json",
    "report html": "report html {out}/page.html {run}",
    "report trace": "report trace {run}",
    "report archive": "report archive {out}/runs.tar.gz {run}",
    "compare": "compare {run} {folder}/" + INTACT + " --explain",
    "dashboard": "dashboard --output_dir={folder} --dashboard_dir={out}/dashboard",
    "status": "status --output_dir={folder}",
}


class Ended(NamedTuple):
    """What became of a command."""

    faults: dict[str, str]  # kind -> words
    code: int | None = None
    seconds: float = 0.0
    memory_bytes: int = 0
    output: bytes = b""


# --- a process in which one command runs again and again ------------------------------------------


class _TooLong(BaseException):
    pass


class Server:
    def __init__(self, home: str) -> None:
        self._here, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(target=_serve, args=(there, home))
        self._process.start()
        there.close()

    def run(self, words: list[str]) -> Ended:
        self._here.send(words)
        try:
            if self._here.poll(20 * SECONDS):
                return self._here.recv()  # type: ignore[no-any-return]
            self._process.kill()
            return Ended({"slow": "it could not be interrupted"}, None, 20 * SECONDS)
        except EOFError:
            self._process.join()
            return Ended({"traceback": f"its process ended with {self._process.exitcode}"})

    @property
    def lives(self) -> bool:
        return self._process.is_alive()

    def close(self) -> None:
        if self._process.is_alive():
            self._here.send(None)
        self._process.join()


def _serve(requests: Connection, home: str) -> None:
    os.environ.update(STEPMARK_HOME=home, PATH="/nowhere", HOME=home)
    os.chdir(home)
    for number in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    # root may read everything: without its capabilities it is a user as any other.
    libc = ctypes.CDLL(None)
    libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
    libc.prctl(1, signal.SIGKILL)  # ends with the process that started it
    first = True
    while True:
        words = requests.recv()
        if words is None:
            return
        if first:
            from launch.cli import stepmark

            stepmark.chosen(list(words))
            first = False
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, size + MEMORY_BYTES))
            _run(words)  # loads what it needs, which is not the input's
        requests.send(_run(words))


class Watch:
    """Ends a command after so many seconds of CPU time, or of waiting; what other processes took is not its own."""

    def __init__(self) -> None:
        self.began = self._seen = time.process_time()
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)

    def _look(self, *_: object) -> None:
        now = time.process_time()
        if now - self.began > SECONDS or now - self._seen < WAITS_SECONDS:
            raise _TooLong
        self._seen = now
        signal.setitimer(signal.ITIMER_REAL, SECONDS)


def _called(words: list[str]) -> int:
    from launch.cli import stepmark

    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    sys.argv = ["stepmark", *words]
    try:
        stepmark.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 256


def _run(words: list[str]) -> Ended:
    faults: dict[str, str] = {}
    code = None
    raw = io.BytesIO()
    kept = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = stream = io.TextIOWrapper(raw, "utf-8", write_through=True)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the most memory that was ever used
    watch = Watch()
    try:
        code = _called(words)
        if code not in range(4):
            faults["exit"] = f"exit code {code}"
    except _TooLong:
        faults["slow"] = _place(sys.exc_info()[1])
    except MemoryError as error:
        faults["memory"] = _place(error)
    except BaseException as error:
        faults["traceback"] = _place(error)
        traceback.print_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout, sys.stderr = kept
    seconds = time.process_time() - watch.began
    status = Path("/proc/self/status").read_text()
    memory = int(status.partition("VmHWM:")[2].split()[0]) << 10
    stream.flush()
    output = raw.getvalue()
    if found := re.search(rb"its reader failed: [^\n]*", output):
        faults.setdefault("traceback", found[0].decode(errors="replace")[:100])
    if b"there is not enough memory" in output:
        faults.setdefault("memory", "it said so")
    if "traceback" not in faults and (odd := ESCAPES.search(output)):
        line = output[output.rfind(b"\n", 0, odd.start()) + 1 :].partition(b"\n")[0]
        faults["escape"] = f"{odd[0]!r} in a line that begins {re.sub(rb'[0-9]+', b'N', line)[:40]!r}"
    if seconds > SECONDS:
        faults.setdefault("slow", "it ended")
    if memory > MEMORY_BYTES:
        faults.setdefault("memory", "it ended")
    return Ended(faults, code, seconds, memory, output)


def _place(error: BaseException | None) -> str:
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    own = [
        frame for frame in frames if frame.filename.startswith(str(REPOSITORY)) and "/.venv/" not in frame.filename
    ]
    frame = next((one for one in reversed(own) if not one.filename.startswith(str(TESTS))), own[-1])
    words = re.sub(r"\d+", "N", str(error))[:60] if error else ""
    return f"{type(error).__name__} in {Path(frame.filename).relative_to(REPOSITORY)}:{frame.lineno}: {words}"


# --- cases -----------------------------------------------------------------------------------------


def make_case(kind: str, number: int, folder: Path) -> dict[str, str]:
    """The words that the commands take of it."""
    rng = random.Random(f"{kind} {number}")
    folder.mkdir()
    (folder / "out").mkdir()
    inside = folder / "given"
    inside.mkdir()
    if kind == "logs":
        log = inside / rng.choice(("train.log", "log-a.out", "slurm-1.out", "rank-0.log", "a.txt", "result_0.txt"))
        seed = rng.choice(log_seeds())
        log.write_bytes(seed.text + (rng.choice(failures()) if rng.random() < 0.3 else b""))
        if rng.random() < 0.95:
            change_file(rng, log)
        if rng.random() < 0.01:
            replace_file(rng, log)
        pattern = seed.pattern.encode()
        if rng.random() < 0.1:
            pattern = changed(rng, pattern)[:LONGEST_PATTERN].replace(b"\0", b"")
        return {
            "log": str(log),
            "folder": str(inside),
            "out": str(folder / "out"),
            "pattern": os.fsdecode(pattern),
            "gpus": str(seed.gpus),
            "batch": str(seed.global_batch_size),
            "sequence": str(seed.sequence_length),
        }
    run = inside / rng.choice(
        ("20261122T034511Z-jax-llama2_tiny-pretrain-bf16-1xcpu-eeab", "run", "r\x1b[31m\n", "r\udcff")
    )
    shutil.copytree(rng.choice(RUNS), run)
    shutil.copytree(STORED / "jax_local", inside / INTACT)
    if rng.random() < 0.1:
        trace = run / "attempt-1" / "perf" / "tensorboard" / "host.xplane.pb"
        trace.parent.mkdir(parents=True)
        trace.write_bytes(_unpacked_trace())
        if rng.random() < 0.7:
            change_file(rng, trace)
    change_run(rng, run)
    return {"run": str(run), "folder": str(inside), "out": str(folder / "out")}


@cache
def log_seeds() -> tuple[Seed, ...]:
    """Whole logs, and logs made of each line of the samples of configs/log_formats."""
    return (*(Seed(path.read_bytes()) for path in LOGS), *seeds_of_formats())


@cache
def failures() -> list[bytes]:
    """The last lines of runs that failed."""
    return [block.split(b"\n", 2)[2] for block in FAILURES.read_bytes().split(b"=== ")[1:]]


@cache
def _unpacked_trace() -> bytes:
    return gzip.decompress(TRACE.read_bytes())


def state_of(folder: Path) -> dict[str, tuple[int, ...]]:
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            about = Path(place, name).lstat()
            found[f"{place}/{name}"] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ino)
    return found


def commands_of(kind: str, words: dict[str, str]) -> dict[str, str]:
    if kind == "runs":
        return OF_RUNS
    chosen = dict(OF_LOGS)
    log = Path(words["log"])
    if not log.is_file() or os.path.realpath(log).startswith("/dev"):  # a pipe is waited for, as is any that is named
        chosen = {name: command for name, command in OF_LOGS.items() if not command.startswith("ingest ")}
    elif b":::MLLOG" in log.read_bytes():
        return chosen
    del chosen["report mlperf"]
    return chosen


def fuzz(kind: str, numbers: Sequence[int], kept: Path | None = None) -> list[tuple[str, int, str, Ended]]:
    """(kind, number, command, what became of it) of each command of each case."""
    found = []
    servers: dict[str, Server] = {}
    with tempfile.TemporaryDirectory(prefix="stepmark-faults-") as place:
        for number in numbers:
            folder = (kept or Path(place)) / f"{kind}-{number}"
            words = make_case(kind, number, folder)
            before = state_of(folder / "given")
            for name, command in commands_of(kind, words).items():
                if name not in servers or not servers[name].lives:
                    home = Path(place, f"home-{len(servers)}")
                    home.mkdir(exist_ok=True)
                    servers[name] = Server(str(home))
                ended = servers[name].run([word.format(**words) for word in command.split()])
                after = state_of(folder / "given")
                if changes := _changes(before, after, name):
                    ended.faults["changed"] = ", ".join(re.sub(r"\d+", "N", Path(one).name) for one in changes)
                before = after
                found.append((kind, number, name, ended if kept else ended._replace(output=b"")))
            if not kept:
                shutil.rmtree(folder)
        for server in servers.values():
            server.close()
    return found


def _changes(before: dict[str, Any], after: dict[str, Any], name: str) -> list[str]:
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [path for path in changed if not (name == "status" and MADE & set(Path(path).parts))]


# --- the whole -------------------------------------------------------------------------------------


def chunks(counts: dict[str, int]) -> Iterator[tuple[str, range]]:
    for kind, count in counts.items():
        for first in range(0, count, CHUNK):
            yield kind, range(first, min(first + CHUNK, count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--logs", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--case", help="logs:N or runs:N, and what it printed")
    options = parser.parse_args()
    load()
    if options.case:
        kind, _, number = options.case.partition(":")
        return show(fuzz(kind, [int(number)], Path(tempfile.mkdtemp(prefix="stepmark-case-"))))
    began, tally = time.time(), Tally()
    work = list(chunks({"runs": options.runs, "logs": options.logs}))
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("fork")) as pool:
        waiting = [pool.submit(fuzz, *one) for one in work]
        for number, done in enumerate(as_completed(waiting), start=1):
            for ended in done.result():
                tally.add(*ended)
            print(f"{number} of {len(work)} parts, {time.time() - began:.0f} s", file=sys.stderr, flush=True)
    print("\n".join(tally.lines()))
    print(f"{sum(tally.faults.values())} faults in {options.logs} logs and {options.runs} run folders")
    return 1 if tally.faults else 0


def load() -> None:
    """What the servers need, but for the commands themselves, whose flags have the same names."""
    for package in ("benchmarks", "jax_backend", "nemo_backend"):
        for module in pkgutil.walk_packages([str(REPOSITORY / package)], f"{package}."):
            if ".inside" not in module.name:
                importlib.import_module(module.name)
    # Most of the time of a small log; the commands import it from here, later.
    symptoms.read_symptoms = cache(symptoms.read_symptoms)


class Tally:
    def __init__(self) -> None:
        self.faults: Counter[tuple[str, ...]] = Counter()  # (kind of fault, kind of case, command, words)
        self._codes: Counter[tuple[str, str, int | None]] = Counter()
        self._first: dict[tuple[str, ...], int] = {}
        self._worst: dict[tuple[str, str], list[float]] = {}  # (kind of case, command) -> count, seconds, bytes

    def add(self, kind: str, number: int, name: str, ended: Ended) -> None:
        worst = self._worst.setdefault((kind, name), [0, 0.0, 0, 0.0])
        new = [
            worst[0] + 1,
            max(worst[1], ended.seconds),
            max(worst[2], ended.memory_bytes),
            worst[3] + ended.seconds,
        ]
        self._worst[kind, name] = new
        self._codes[kind, name, ended.code] += 1
        for fault, words in ended.faults.items():
            key = (fault, kind, name, words)
            print(f"{fault}: {name}: {words}  --case={kind}:{number}", file=sys.stderr, flush=True)
            self.faults[key] += 1
            self._first[key] = min(number, self._first.get(key, number))

    def lines(self) -> Iterator[str]:
        for (kind, name), (count, seconds, memory, whole) in sorted(self._worst.items()):
            figures = f"mean {whole / count * 1e3:5.0f} ms, worst {seconds:5.2f} s and {memory / 1e6:4.0f} MB"
            codes = ", ".join(f"{code} {self._codes[kind, name, code]}" for code in (0, 1, 2, 3))
            yield f"{kind}  {name:13} {count:6.0f} times: {figures}; exit {codes}"
        for (fault, kind, name, words), count in self.faults.most_common():
            yield f"{fault:10} {count:5}  {name:16} {words}  --case={kind}:{self._first[fault, kind, name, words]}"


def show(found: list[tuple[str, int, str, Ended]]) -> int:
    for _, _, name, ended in found:
        print(f"--- {name}: {ended.seconds:.2f} s, {ended.memory_bytes / 1e6:.0f} MB {ended.faults or ''}")
        print(ended.output.decode(errors="backslashreplace"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
