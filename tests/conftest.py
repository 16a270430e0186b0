"""For all tests: their worker of pytest-xdist, which of them run exclusively, and interrupts."""

import ctypes
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from launch.machine import machine_gpus
from launch.private_cluster import machine
from tests.end_to_end.clusters import ClusterOfTests, cluster_of_tests
from tests.stand_ins.nvml.build import MACHINES, build
from tests.turns import Turns

TURNS = pytest.StashKey[Turns]()


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what it puts into the background with interrupts ignored, and so would all that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Waiting OpenMP threads sleep: with other tests, spinning ones double the CPU time of a NeMo run.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    settings.register_profile("busy", deadline=None)  # of a machine that does other work too
    settings.load_profile("busy")
    assert config.cache is not None
    config.stash[TURNS] = Turns(config.cache.mkdir("turns"))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs the tests of a file, which share its fixtures, and one those that share the Slurm cluster.

    A file may name another group. The groups that take longest are begun first.
    """
    slow: dict[str, float] = {}
    for item in items:
        on_slurm = "shared_cluster" in getattr(item, "fixturenames", ())
        if on_slurm or item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("slurm" if on_slurm else item.nodeid.partition("::")[0]))
        slow[group(item)] = slow.get(group(item), 0) + seconds(item)
    files = {item.path: number for number, item in enumerate(items)}
    items.sort(key=lambda item: (-slow[group(item)], group(item), files[item.path], not is_alone(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Without its groups pytest-xdist would spread a file's tests, and start what they share once a worker."""
    grouped = getattr(session.config.option, "loadgroup", False)
    assert not grouped or all("@" in item.nodeid for item in session.items), "pytest-xdist did not take the groups"


def group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    assert mark is not None
    return str(mark.args[0])


def seconds(item: pytest.Item) -> float:
    """Return about how long a slow test takes; tests that only run on request count as 0."""
    mark = item.get_closest_marker("slow")
    return mark.kwargs.get("seconds", 10) if mark and not item.get_closest_marker("every_program") else 0


def is_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, bool, bool]:
    """A test that is marked `alone`, and the fixtures made for it, run while the other workers wait."""
    turns = item.config.stash[TURNS]
    turns.take(is_alone(item))
    try:
        return (yield)
    finally:
        if not (is_alone(item) and is_alone(nextitem)):  # the next would wait for the tests of other workers
            turns.give_back()


# --- the Slurm cluster that is brought up once --------------------------------------------------


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfTests]:
    """A private cluster of four nodes; only tests of clusters themselves use another one."""
    missing = machine.missing(accounting=True)
    if missing:
        pytest.skip(f"Slurm is not installed: {', '.join(missing)} not found")
    with cluster_of_tests(tmp_path_factory.mktemp("slurm"), 4) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(shared_cluster: ClusterOfTests) -> Iterator[ClusterOfTests]:
    """The shared cluster, for the tests of a file."""
    yield shared_cluster
    shared_cluster.mend()


# --- a machine with GPUs, for NVIDIA's pynvml ----------------------------------------------------


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for NVML, loaded: without a machine to play it answers as if it were not there."""
    library = build(tmp_path_factory.mktemp("nvml"))
    ctypes.CDLL(str(library))
    return library


@pytest.fixture
def play_machine(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """`play_machine("dgx_h100")`: this process and all that it starts are on that machine; or on one of its text."""

    def play(name_or_text: str) -> None:
        machine = MACHINES / name_or_text
        if "=" in name_or_text:
            machine = tmp_path / "machine"
            machine.write_text(name_or_text)
        assert machine.is_file(), machine
        monkeypatch.setenv("STEPMARK_NVML_MACHINE", str(machine))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
        machine_gpus.detect.cache_clear()

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield play
    machine_gpus.detect.cache_clear()
