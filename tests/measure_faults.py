"""Feeds damaged logs and run folders to the commands, and counts what no input may cause. Not a test.

    python tests/measure_faults.py --logs=10000 --runs=1000 --workers=2
    python tests/measure_faults.py --case=runs:417        one case again; its files are kept, and all output is shown

A case is a real log or run folder of the tests, damaged at random by its number (tests/mutations.py). Each command
reads it in a fork that has the packages loaded. Counted are:

    traceback  an uncaught exception
    exit       an exit code other than 0 to 3
    slow       over 10 s of CPU time, or 100 s of waiting
    memory     over 1 GB
    escape     a control character in the output
    changed    a file of the case that was changed, added or removed

The exit code is 1 if there are any.
"""

import argparse
import ctypes
import gzip
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # run by its path, it is next to the packages and not one of them

from benchmarks.configs import DEFAULT_ROOT  # noqa: E402
from benchmarks.doctor import symptoms  # noqa: E402
from tests import forked  # noqa: E402
from tests.benchmarks.logs.formats import Seed, seeds_of_formats  # noqa: E402
from tests.mutations import change_file, change_run  # noqa: E402

TESTS = REPOSITORY / "tests"
STORED = TESTS / "launch" / "stored_runs"
LOGS = sorted([*TESTS.glob("*_backend/logs/*.log"), *STORED.rglob("rank-0.log")])
SEEDS = [*(Seed(path.read_bytes()) for path in LOGS), *seeds_of_formats()]
# The last lines of runs that failed.
COLLECTED = (TESTS / "benchmarks" / "doctor" / "collected.txt").read_bytes()
FAILURES = [block.split(b"\n", 2)[2] for block in COLLECTED.split(b"=== ")[1:]]
RUNS = [*sorted(STORED.iterdir()), TESTS / "benchmarks" / "compare" / "real_run"]
TRACE = TESTS / "benchmarks" / "trace" / "samples" / "maxtext_cpu_2_devices.xplane.pb.gz"
INTACT = "intact-run"
SECONDS, MEMORY_BYTES = 10, 1_000_000_000
CHUNK = 50
# In what is printed. A tab is in lines that are shown as they were.
ESCAPES = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\xc2[\x80-\x9f]")
MADE = {"result.json", "steps.jsonl", "provenance.json", "job.json", "tensorboard"}  # status.py collects a run

# {log}, or {folder} with it in; {run} in {folder}, next to an intact run; {out} for the output.
OF_LOGS = {
    "ingest": "ingest --log={log}",
    "ingest --json": "ingest --log={log} --json --model=llama2_tiny --hardware=h100 --gpus={gpus} --dtype=bf16 "
    "--global_batch_size={batch} --sequence_length={sequence}",
    "ingest --pattern": "ingest --log={log} --pattern={pattern}",
    "doctor logs": "doctor logs {folder}",
    "report timing": "report timing {folder} --window=steady",
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
COMMANDS = {"logs": OF_LOGS, "runs": OF_RUNS}


class FaultResult(NamedTuple):
    """What became of a command."""

    kind: str  # of case
    number: int
    command: str
    faults: dict[str, str]  # kind -> words
    code: int | None
    seconds: float
    output: bytes


def run(words: list[str], home: Path) -> tuple[dict[str, str], int | None, float, bytes]:
    script = REPOSITORY / "launch" / f"{words[0]}.py"
    environment = {"STEPMARK_HOME": str(home), "HOME": str(home), "PATH": "/nowhere"}
    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    try:
        done = forked.run_bytes(script, *words[1:], env=environment, cwd=home, timeout=10 * SECONDS, prepare=_limit)
    except AssertionError:
        return {"slow": "it waited"}, None, 10 * SECONDS, b""
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began
    output, faults = done.stdout + done.stderr, {}
    if done.returncode == -signal.SIGXCPU:
        faults["slow"] = "CPU time"
    elif b"MemoryError" in done.stderr or b"not enough memory" in done.stderr:
        faults["memory"] = "over the limit"
    elif found := re.search(rb"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(.*)", done.stderr):
        faults["traceback"] = re.sub(r"\d+", "N", found[1].decode(errors="replace"))[:100]
    elif done.returncode not in range(4):
        faults["exit"] = f"exit code {done.returncode}"
    elif odd := ESCAPES.search(output):
        line = output[output.rfind(b"\n", 0, odd.start()) + 1 :].partition(b"\n")[0]
        faults["escape"] = f"{odd[0]!r} in a line that begins {re.sub(rb'[0-9]+', b'N', line)[:40]!r}"
    return faults, done.returncode, seconds, output


def _limit() -> None:
    """Root may read everything: without its capabilities it is a user as any other."""
    libc = ctypes.CDLL(None)
    libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, size + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))


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
        seed = rng.choice(SEEDS)
        log.write_bytes(seed.text + (rng.choice(FAILURES) if rng.random() < 0.3 else b""))
        change_file(rng, log)
        words = {"log": str(log), "folder": str(inside), "pattern": seed.pattern, "gpus": str(seed.gpus)}
        return words | {"batch": str(seed.global_batch_size), "sequence": str(seed.sequence_length)}
    run = inside / rng.choice(
        ("20261122T034511Z-jax-llama2_tiny-pretrain-bf16-1xcpu-eeab", "run", "r\x1b[31m\n", "r\udcff")
    )
    shutil.copytree(rng.choice(RUNS), run)
    shutil.copytree(STORED / "jax_local", inside / INTACT)
    if rng.random() < 0.1:
        trace = run / "attempt-1" / "perf" / "tensorboard" / "host.xplane.pb"
        trace.parent.mkdir(parents=True)
        trace.write_bytes(gzip.decompress(TRACE.read_bytes()))
        change_file(rng, trace)
    change_run(rng, run)
    return {"run": str(run), "folder": str(inside), "out": str(folder / "out")}


def state_of(folder: Path) -> dict[str, tuple[int, ...]]:
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            about = Path(place, name).lstat()
            found[f"{place}/{name}"] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ino)
    return found


def fuzz(kind: str, numbers: Sequence[int], kept: Path | None = None) -> list[FaultResult]:
    """What became of each command of each case."""
    found = []
    with tempfile.TemporaryDirectory(prefix="stepmark-faults-") as place:
        home = Path(place, "home")
        home.mkdir()
        for number in numbers:
            folder = (kept or Path(place)) / f"{kind}-{number}"
            words = make_case(kind, number, folder)
            before = state_of(folder / "given")
            for name, command in COMMANDS[kind].items():
                faults, code, seconds, output = run([word.format(**words) for word in command.split()], home)
                after = state_of(folder / "given")
                if changes := _changes(before, after, name):
                    faults["changed"] = ", ".join(re.sub(r"\d+", "N", Path(one).name) for one in changes)
                before = after
                found.append(FaultResult(kind, number, name, faults, code, seconds, output if kept else b""))
            if not kept:
                shutil.rmtree(folder)
    return found


def _changes(before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]], name: str) -> list[str]:
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [path for path in changed if not (name == "status" and MADE & set(Path(path).parts))]


# --- the whole -------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--case", help="logs:N or runs:N, and what it printed")
    options = parser.parse_args()
    symptoms.read_symptoms = cache(symptoms.read_symptoms)  # most of the time of a small log
    symptoms.read_symptoms(DEFAULT_ROOT)
    if options.case:
        kind, _, number = options.case.partition(":")
        for one in fuzz(kind, [int(number)], Path(tempfile.mkdtemp(prefix="stepmark-case-"))):
            print(f"--- {one.command}: {one.seconds:.2f} s, exit {one.code} {one.faults or ''}")
            print(one.output.decode(errors="backslashreplace"), flush=True)
        return 0
    counts = {"runs": options.runs, "logs": options.logs}
    work = [(k, range(n, min(n + CHUNK, count))) for k, count in counts.items() for n in range(0, count, CHUNK)]
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("fork")) as pool:
        ended = [one for part in pool.map(fuzz, *zip(*work, strict=True)) for one in part]
    print("\n".join(summary(ended)))
    faults = sum(len(one.faults) for one in ended)
    print(f"{faults} faults in {options.logs} logs and {options.runs} run folders")
    return 1 if faults else 0


def summary(ended: Sequence[FaultResult]) -> Iterator[str]:
    for command in dict.fromkeys((one.kind, one.command) for one in ended):
        same = [one for one in ended if (one.kind, one.command) == command]
        codes = sorted(Counter(str(one.code) for one in same).items())
        yield f"{command}: {len(same)} times, at most {max(one.seconds for one in same):.2f} s, exit codes {codes}"
    found: dict[tuple[str, ...], list[int]] = {}
    for one in ended:
        for fault, words in one.faults.items():
            found.setdefault((fault, one.kind, one.command, words), []).append(one.number)
    for (fault, kind, name, words), numbers in found.items():
        yield f"{fault:10} {len(numbers):5}  {name:16} {words}  --case={kind}:{min(numbers)}"


if __name__ == "__main__":
    sys.exit(main())
