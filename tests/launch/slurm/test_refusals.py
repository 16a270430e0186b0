"""What Slurm would let wait for ever, or start where it cannot work, is refused before a job is submitted."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Hardware, JobOptions, Site
from benchmarks.values import Slurm as SlurmSite
from jax_backend import BACKEND
from launch.running.local import REPOSITORY
from launch.slurm.client import Slurm
from launch.slurm.parsing import Node, Partition
from launch.slurm.refusals import of_the_cluster, refuse

BATCH = Partition(name="batch", state="UP", nodes=4, max_seconds=3600, default=True)


def nodes_of(*states: str, gpus: int = 8, features: tuple[str, ...] = ()) -> list[Node]:
    return [
        Node(name=f"node{number}", state=state, gpus=gpus, features=features)
        for number, state in enumerate(states, start=1)
    ]


FOUR = nodes_of(*["idle"] * 4)


def site_of(*shared: str, runtime: str = "venv") -> Site:
    slurm = SlurmSite(shared_folders=list(shared), hardware=["cpu"])
    return Site(name="dev", kind="slurm", title="", runtime=runtime, source="a test", date="2026-11-21", slurm=slurm)  # type: ignore[arg-type]


def benchmark_of(nodes: int = 4, gpus: int | None = None, hardware: str = "cpu", **changes: Any) -> Benchmark:
    base = resolve(Request(backend="jax", model="llama2_tiny", steps=3), Configs(), BACKEND)
    device: Hardware = Configs().hardware(hardware)
    changes = {"site": site_of("/"), "nodes": nodes, "gpus": gpus or nodes, "hardware": device, **changes}
    return msgspec.structs.replace(base, **changes)


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


def checked(
    benchmark: Benchmark, nodes: list[Node] = FOUR, partition: Partition = BATCH, **options: Any
) -> list[str]:
    return refuse(benchmark, JobOptions(**options), Cluster(batch=partition, nodes=nodes), REPOSITORY, None)


def refusal(*arguments: Any, **more: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        checked(*arguments, **more)
    error = caught.value
    assert error.exit_code == EXIT_REFUSED
    assert error.where == "partition 'batch' of site 'dev'" or "time limit" in error.where
    assert error.next_command
    return error


# --- the partition ------------------------------------------------------------------------------------


def test_what_can_run_is_let_through_without_a_word() -> None:
    assert checked(benchmark_of(4)) == []
    assert checked(benchmark_of(4, gpus=32, hardware="h100")) == []
    assert checked(benchmark_of(2), time="60", nodelist="node[1-2]", exclude="node4") == []


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_partition_that_starts_nothing(state: str) -> None:
    down = msgspec.structs.replace(BATCH, state=state)
    assert refusal(benchmark_of(), partition=down).what == f"the partition is {state}"


def test_more_nodes_than_there_are() -> None:
    assert refusal(benchmark_of(9)).what == "9 nodes are asked for, the partition has 4"


def test_more_nodes_than_a_job_may_have() -> None:
    few = msgspec.structs.replace(BATCH, max_nodes=2)
    assert (
        refusal(benchmark_of(3), partition=few).what == "3 nodes are asked for, the partition gives a job 2 at most"
    )


def test_nodes_that_are_excluded_or_are_not_as_asked() -> None:
    what = "4 nodes are asked for, 3 of the partition's 4 are left by --exclude and --constraint"
    assert refusal(benchmark_of(4), exclude="node2,elsewhere").what == what
    mixed = [*nodes_of("idle", "idle", "idle", features=("ib",)), nodes_of("idle")[0]]
    assert refusal(benchmark_of(4), nodes=mixed, constraint="ib").what == what
    assert checked(benchmark_of(4), constraint="ib|eth") == []  # what Slurm alone can judge is left to it


def test_a_longer_list_of_nodes_than_the_job_takes() -> None:
    """Slurm gives a job all nodes of the list, and refuses it in words nobody understands."""
    assert "--nodelist names 3" in refusal(benchmark_of(2), nodelist="node[1-3]").what
    assert checked(benchmark_of(4), nodelist="node[1-3]") == []  # Slurm adds the fourth


def test_nodes_that_are_asked_for_and_excluded(tmp_path: Path) -> None:
    listed = tmp_path / "failing.txt"
    listed.write_text("node2\nnode3\n")
    for exclude, what in (("node[3-4]", "node3"), (str(listed), "node2, node3")):
        with pytest.raises(RequestError, match=f"asked for and excluded: {what}") as caught:
            checked(benchmark_of(4), nodelist="node[1-3]", exclude=exclude)
        assert (caught.value.where, caught.value.exit_code) == ("--nodelist and --exclude", EXIT_REFUSED)
        assert caught.value.next_command
    listed.write_text("")
    assert checked(benchmark_of(4), nodelist="node[1-3]", exclude=str(listed)) == []


@pytest.mark.parametrize(("time", "fits"), [("60", True), ("1:00:00", True), ("61", False), ("1-0", False)])
def test_more_time_than_a_job_may_have(time: str, fits: bool) -> None:
    if fits:
        assert checked(benchmark_of(), time=time) == []
    else:
        error = refusal(benchmark_of(), time=time)
        assert error.what == f"the job asks for {time}, the partition gives a job 1:00:00 at most"
        assert error.next_command == "--time=1:00:00"


def test_nodes_without_the_gpus() -> None:
    mixed = [*nodes_of("idle", "idle"), *nodes_of("idle", "idle", gpus=4)]
    error = refusal(benchmark_of(4, gpus=32, hardware="h100"), nodes=mixed)
    assert error.what == "4 nodes with 8 GPUs each are asked for, 2 of them are there"
    assert error.why == "of 4 nodes the largest has 8 GPUs"
    assert checked(benchmark_of(2, gpus=16, hardware="h100"), nodes=mixed) == []
    assert checked(benchmark_of(4, gpus=16, hardware="h100"), nodes=mixed) == []
    assert checked(benchmark_of(4, gpus=32), nodes=mixed) == []  # the devices of a CPU are none of Slurm's
    assert checked(benchmark_of(4, gpus=32, hardware="h100"), nodes=mixed, gpus="none") == []


def test_too_few_nodes_that_are_up_are_a_note() -> None:
    (note,) = checked(benchmark_of(4), nodes=nodes_of("idle", "allocated", "down*", "drained"))
    assert note == "2 of the 4 nodes it needs are up, so it will wait: node3 is down*, node4 is drained"
    (note,) = checked(
        benchmark_of(4), nodes=nodes_of(*["down"] * 20), partition=msgspec.structs.replace(BATCH, nodes=20)
    )
    assert note.endswith("node8 is down and 12 more")


# --- folders --------------------------------------------------------------------------------------------


def unseen(benchmark: Benchmark, parent: Path, image: Path | None) -> None:
    refuse(benchmark, JobOptions(), Cluster(pyxis=True), parent, image)


def test_what_the_nodes_cannot_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    monkeypatch.setenv("STEPMARK_HOME", str(shared / "home"))

    def refused(benchmark: Benchmark, parent: Path) -> RequestError:
        with pytest.raises(RequestError) as caught:
            unseen(benchmark, parent, None)
        return caught.value

    all_seen = benchmark_of(site=site_of(str(shared), str(REPOSITORY)))
    unseen(all_seen, shared / "results", None)
    error = refused(all_seen, own / "results")
    assert error.what == "the output folder cannot be seen by the nodes of site 'dev'"
    assert (error.where, error.exit_code) == (str(own / "results"), EXIT_REFUSED)
    assert str(shared) in error.why
    assert refused(benchmark_of(site=site_of(str(shared))), shared).what.startswith("the checkout of Stepmark")
    monkeypatch.setenv("STEPMARK_HOME", str(own))
    assert refused(all_seen, shared).what.startswith("the environments' folder")
    in_container = benchmark_of(site=site_of(str(shared), str(REPOSITORY), runtime="container"))
    unseen(in_container, shared, None)  # which has its environment within
    with_data = msgspec.structs.replace(in_container, data=str(own))
    assert refused(with_data, shared).what.startswith("the dataset")
    assert refused(benchmark_of(site=site_of()), shared).why.startswith("what every node sees: nothing is named")


def test_links_are_followed(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    (shared / "results").symlink_to(own)
    (tmp_path / "link").symlink_to(shared)
    benchmark = benchmark_of(site=site_of(str(tmp_path / "link"), str(REPOSITORY), runtime="container"))
    unseen(benchmark, shared / "runs", None)
    with pytest.raises(RequestError, match="the output folder"):
        unseen(benchmark, shared / "results", None)
    with pytest.raises(RequestError, match="the output folder"):  # the beginning of a name is no folder
        unseen(benchmark, tmp_path / "shared2", None)


def test_an_image_of_ones_own_lies_where_the_nodes_see_it(tmp_path: Path) -> None:
    image = tmp_path / "nemo.sqsh"
    benchmark = benchmark_of(site=site_of(str(REPOSITORY), runtime="container"), image=str(image))
    with pytest.raises(RequestError, match="the container image cannot be seen by the nodes") as caught:
        unseen(benchmark, REPOSITORY, image)
    assert "--image=FILE" in caught.value.next_command


# --- all of it ------------------------------------------------------------------------------------------


def test_a_site_of_containers_without_pyxis_is_refused() -> None:
    benchmark = benchmark_of(site=site_of("/", runtime="container"))
    slurm = Cluster()
    with pytest.raises(RequestError, match="its srun has no --container-image") as caught:
        refuse(benchmark, JobOptions(), slurm, REPOSITORY, None)
    assert "runtime: venv" in caught.value.next_command
    assert "runtime: python" in caught.value.next_command
    assert sorted(slurm.asked) == ["nodes", "partition", "pyxis"]
    assert refuse(benchmark, JobOptions(), Cluster(pyxis=True), REPOSITORY, None) == []


def test_without_pyxis_what_is_in_its_image_alone_has_no_other_runtime() -> None:
    benchmark = benchmark_of(site=site_of("/", runtime="container"), backend="nemo", engine="bridge")
    with pytest.raises(RequestError, match="its srun has no --container-image") as caught:
        refuse(benchmark, JobOptions(), Cluster(), REPOSITORY, None)
    assert "a cluster that has pyxis" in caught.value.next_command
    assert "runtime" not in caught.value.next_command


def test_of_several_partitions_one_must_do() -> None:
    assert refuse(benchmark_of(4), JobOptions(partition="small,batch"), Cluster(), REPOSITORY, None) == []
    with pytest.raises(RequestError, match="4 nodes are asked for, the partition has 2"):
        refuse(benchmark_of(4), JobOptions(partition="small"), Cluster(), REPOSITORY, None)
    with pytest.raises(RequestError, match="not known"):
        refuse(benchmark_of(4), JobOptions(partition="nope"), Cluster(), REPOSITORY, None)


def test_all_that_would_be_refused_is_found_at_once() -> None:
    asked, notes = JobOptions(time="2:00:00", nodelist="node1", exclude="node1"), list[str]()
    found = [
        str(error)
        for error in of_the_cluster(
            benchmark_of(9, site=site_of("/nowhere", runtime="container")), asked, Cluster(), REPOSITORY, None, notes
        )
    ]
    expected = ("the output folder", "the checkout", "no --container-image", "2:00:00", "excluded", "9 nodes")
    assert [words for words in expected if sum(words in one for one in found) != 1] == []
    assert (len(found), notes) == (len(expected), [])


def test_a_folder_is_refused_before_slurm_is_asked() -> None:
    slurm = Cluster()
    with pytest.raises(RequestError, match="cannot be seen"):
        refuse(benchmark_of(site=site_of("/nowhere")), JobOptions(), slurm, REPOSITORY, None)
    assert slurm.asked == []
