"""Profiles kept next to the runs: used if complete and of the same key, kept if a run proved them."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.measuring.summary import Pgle, Result
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Benchmark, PgleProfile, PgleSeen, changed_benchmark, json_text
from jax_backend import BACKEND
from launch.running.kept_profiles import FOLDER, find, keep, take
from tests.benchmarks.measuring.test_summary import DONE, record_of, result_of, steps_of

REQUEST = Request(backend="jax", model="llama2_70b", gpus=64, dtype="bf16", pgle="nsys")
COSTS = 'costs { name: "all-gather-start.1" cost_us: 7040.5 }\n'


@pytest.fixture
def benchmark() -> Benchmark:
    return resolve(REQUEST, Configs(), BACKEND)


def profile_of(key: str, costs: str = COSTS) -> PgleProfile:
    digest = hashlib.sha256(costs.encode()).hexdigest()
    return PgleProfile(key=key, sha256=digest, instructions=1, collectives=1, covered=1, made_by={"devices": 64})


def write(place: Path, profile: PgleProfile, costs: str = COSTS) -> None:
    place.mkdir(parents=True)
    (place / "profile.pbtxt").write_text(costs)
    (place / "profile.json").write_text(json_text(profile))


def ended(tmp_path: Path, benchmark: Benchmark) -> RunFolder:
    """A run that has ended, on this machine."""
    folder = RunFolder.create(tmp_path, "run")
    folder.write("benchmark.json", benchmark)
    folder.write("provenance.json", {"environment": {"name": "jax-maxtext"}})
    return folder


def key_of(benchmark: Benchmark) -> str:
    key = BACKEND.profile_key(benchmark)
    assert key is not None
    return key


def result_with(profile: PgleProfile | None, *, applied: bool) -> Result:
    pgle = Pgle(way="nsys", seen=PgleSeen(applied=applied, reason="", profile=profile))
    return msgspec.structs.replace(result_of(record_of(steps_of()), DONE), pgle=pgle)


def test_a_kept_profile_is_taken_into_the_runs_folder(benchmark: Benchmark, tmp_path: Path) -> None:
    key = key_of(benchmark)
    assert find(benchmark, BACKEND, tmp_path) == ""  # no profile yet
    write(tmp_path / FOLDER / key, profile_of(key))
    assert find(benchmark, BACKEND, tmp_path) == key
    found = resolve(REQUEST, Configs(), BACKEND, lambda one: find(one, BACKEND, tmp_path))
    assert found == changed_benchmark(benchmark, pgle_profile=key)
    folder = RunFolder.create(tmp_path, "run")
    take(folder, found, {})
    assert (folder.path / "pgle/profile.pbtxt").read_text() == COSTS
    assert folder.path / "pgle/profile.pbtxt" in folder.raw_files()  # and is sealed with the run


def test_a_profile_that_proved_to_be_read_is_kept_and_found_again(benchmark: Benchmark, tmp_path: Path) -> None:
    key = key_of(benchmark)
    folder = ended(tmp_path, benchmark)
    write(folder.path / "attempt-1/convert", profile_of(key))
    keep(folder, result_with(profile_of(key), applied=False))
    assert not (tmp_path / FOLDER).exists()
    keep(folder, result_with(profile_of(key), applied=True))
    keep(folder, result_with(profile_of(key), applied=True))  # twice: two shells may collect one run
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == [key]
    assert find(benchmark, BACKEND, tmp_path) == key


def test_of_two_attempts_the_proven_profile_is_kept_with_the_name_of_its_run(
    benchmark: Benchmark, tmp_path: Path
) -> None:
    key = key_of(benchmark)
    folder = ended(tmp_path, benchmark)
    other = COSTS.replace("7040.5", "1.0")
    write(folder.path / "attempt-1/convert", profile_of(key, other), other)
    write(folder.path / "attempt-2/convert", profile_of(key))
    keep(folder, result_with(profile_of(key), applied=True))
    kept = tmp_path / FOLDER / key
    assert (kept / "profile.pbtxt").read_text() == COSTS
    assert msgspec.json.decode((kept / "profile.json").read_bytes())["made_in"] == "run"


def test_a_kept_profile_that_a_worker_has_refused_is_removed(benchmark: Benchmark, tmp_path: Path) -> None:
    """Else every later run would take it, and fail by it."""
    key = key_of(benchmark)
    place = tmp_path / FOLDER / key
    write(place, profile_of(key))
    folder = ended(tmp_path, changed_benchmark(benchmark, pgle_profile=key))
    reason = "rank 0 failed (stepmark worker: the profile cannot be used: it belongs to a different program)"
    result = msgspec.structs.replace(result_with(None, applied=False), status="failed", reasons=[reason])
    keep(folder, result)
    assert not place.exists()
    assert find(benchmark, BACKEND, tmp_path) == ""
