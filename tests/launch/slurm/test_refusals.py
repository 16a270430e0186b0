"""Jobs that Slurm would let wait forever, or start in vain, are refused before they are submitted."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Hardware, JobOptions, Site, changed_benchmark
from benchmarks.values import Slurm as SlurmSite
from jax_backend import BACKEND
from launch.machine.processes import REPOSITORY
from launch.slurm.client import Slurm
from launch.slurm.parsing import Node, Partition
from launch.slurm.refusals import of_the_cluster

TABLES = yaml.safe_load(Path(__file__).with_name("folders.yml").read_text())

BATCH = Partition(name="batch", state="UP", nodes=4, max_seconds=3600, default=True)


def nodes_of(*states: str) -> list[Node]:
    return [Node(name=f"node{number}", state=state, gpus=8) for number, state in enumerate(states, start=1)]


FOUR = nodes_of(*["idle"] * 4)


def site_of(*shared: str, runtime: str = "venv") -> Site:
    slurm = SlurmSite(shared_folders=list(shared), hardware=["cpu"])
    return Site(name="dev", kind="slurm", title="", runtime=runtime, source="a test", date="2026-11-21", slurm=slurm)  # type: ignore[arg-type]


def benchmark_of(nodes: int = 4, gpus: int | None = None, hardware: str = "cpu", **changes: Any) -> Benchmark:
    base = resolve(Request(backend="jax", model="llama2_tiny", steps=3), Configs(), BACKEND)
    device: Hardware = Configs().hardware(hardware)
    changes = {"site": site_of("/"), "nodes": nodes, "gpus": gpus or nodes, "hardware": device, **changes}
    return changed_benchmark(base, **changes)


class Cluster(Slurm):
    """A Slurm of two partitions, batch and small, that counts what it is asked."""

    def __init__(self, pyxis: bool = False, batch: Partition = BATCH, nodes: list[Node] = FOUR) -> None:
        self.asked: list[str] = []
        self._pyxis, self._batch, self._nodes = pyxis, batch, nodes

    def partition(self, name: str | None) -> Partition:
        self.asked.append("partition")
        if name == "nope":
            raise RequestError("the partition 'nope' is not known")
        return msgspec.structs.replace(self._batch, name="small", nodes=2) if name == "small" else self._batch

    def all_nodes(self) -> dict[str, list[Node]]:
        self.asked.append("nodes")
        return {"batch": self._nodes, "small": self._nodes[:2]}

    def has_pyxis(self) -> bool:
        self.asked.append("pyxis")
        return self._pyxis


def refuse(benchmark: Benchmark, options: JobOptions, slurm: Slurm) -> list[str]:
    """The notes; the first refusal is raised."""
    notes: list[str] = []
    for error in of_the_cluster(benchmark, options, slurm, REPOSITORY, None, notes):
        raise error
    return notes


def checked(
    benchmark: Benchmark, nodes: list[Node] = FOUR, partition: Partition = BATCH, **options: Any
) -> list[str]:
    return refuse(benchmark, JobOptions(**options), Cluster(batch=partition, nodes=nodes))


# --- the partition ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", yaml.safe_load(Path(__file__).with_name("partitions.yml").read_text()))
def test_what_a_partition_can_never_run(case: dict[str, dict[str, Any]]) -> None:
    there, nodes = case.get("there", {}), FOUR
    if "nodes" in there:
        nodes = [Node(name=f"node{at}", state="idle", gpus=gpus) for at, gpus in enumerate(there["nodes"], start=1)]
    partition = msgspec.structs.replace(BATCH, **{name: it for name, it in there.items() if name != "nodes"})
    benchmark, options = benchmark_of(**case.get("wanted", {})), case.get("options", {})
    if "refused" not in case:
        assert checked(benchmark, nodes, partition, **options) == []
        return
    with pytest.raises(RequestError) as caught:
        checked(benchmark, nodes, partition, **options)
    error = caught.value
    assert (error.what, error.exit_code) == (case["refused"], EXIT_REFUSED)
    assert error.where == "partition 'batch' of site 'dev'"
    assert error.next_command


def test_nodes_of_fewer_gpus_are_refused() -> None:
    asked = Request(backend="jax", model="llama31_8b", hardware="h100", gpus=8, site="example_pyxis")
    benchmark = msgspec.structs.replace(resolve(asked, Configs(), find_backend("jax")), site=site_of("/"))
    with pytest.raises(RequestError, match="with 8 GPUs each"):
        checked(benchmark, [Node(name=f"node{at}", state="idle", gpus=4) for at in range(4)])


def test_too_few_nodes_that_are_up_are_a_note() -> None:
    (note,) = checked(benchmark_of(4), nodes=nodes_of("idle", "allocated", "down*", "drained"))
    assert note.endswith("only 2 of the 4 nodes are up (node3 is down*, node4 is drained)")
    (note,) = checked(
        benchmark_of(4), nodes=nodes_of(*["down"] * 20), partition=msgspec.structs.replace(BATCH, nodes=20)
    )
    assert note.endswith("node8 is down and 12 more)")


# --- folders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shared", "changes", "home", "parent", "what"), TABLES["folders"])
def test_what_the_nodes_cannot_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: list[str], changes: dict[str, str], home: str,
    parent: str, what: str,
) -> None:  # fmt: skip
    places = {"checkout": str(REPOSITORY)} | {
        name: str(tmp_path / name) for name in ("shared", "own", "link_to_shared")
    }
    for name in ("shared", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "link_to_shared").symlink_to(tmp_path / "shared")
    (tmp_path / "shared/link").symlink_to(tmp_path / "own")
    monkeypatch.setenv("STEPMARK_HOME", places[home])
    site = site_of(*(places[name] for name in shared), runtime=changes.get("runtime", "venv"))
    more = {name: str(tmp_path / changes[name]) for name in ("data", "image") if name in changes}
    slurm, image = Cluster(pyxis=True), Path(more["image"]) if "image" in more else None
    refused = of_the_cluster(benchmark_of(site=site, **more), JobOptions(), slurm, tmp_path / parent, image, [])
    first = next(refused, None)
    if not what:
        assert first is None
        return
    assert first is not None and first.what == f"the nodes of site 'dev' cannot see {what}"
    assert (first.exit_code, bool(first.next_command)) == (EXIT_REFUSED, True)
    assert slurm.asked == []


# --- all of it ------------------------------------------------------------------------------------------


def test_a_site_of_containers_without_pyxis_is_refused() -> None:
    benchmark, slurm = benchmark_of(site=site_of("/", runtime="container")), Cluster()
    with pytest.raises(RequestError, match="its srun has no --container-image") as caught:
        refuse(benchmark, JobOptions(), slurm)
    assert "runtimes python and venv" in caught.value.why
    assert sorted(slurm.asked) == ["nodes", "partition", "pyxis"]
    assert refuse(benchmark, JobOptions(), Cluster(pyxis=True)) == []


def test_of_several_partitions_one_must_do() -> None:
    assert refuse(benchmark_of(4), JobOptions(partition="small,batch"), Cluster()) == []
    with pytest.raises(RequestError, match="needs 4 nodes, but"):
        refuse(benchmark_of(4), JobOptions(partition="small"), Cluster())
    with pytest.raises(RequestError, match="not known"):
        refuse(benchmark_of(4), JobOptions(partition="nope"), Cluster())


def test_all_that_would_be_refused_is_found_at_once() -> None:
    asked, notes = JobOptions(time="2:00:00"), list[str]()
    found = [
        str(error)
        for error in of_the_cluster(
            benchmark_of(9, site=site_of("/nowhere", runtime="container")), asked, Cluster(), REPOSITORY, None, notes
        )
    ]
    expected = ("the output folder", "the checkout", "no --container-image", "2:00:00", "9 nodes")
    assert [words for words in expected if sum(words in one for one in found) != 1] == []
    assert (len(found), notes) == (len(expected), [])
