"""What a new site's file says, from what Slurm and a node said."""

import msgspec
import pytest

from benchmarks.configs import Configs
from launch.sites import asking, new_site
from launch.sites.asking import Mount, NodeFacts, PartitionFacts, SlurmFacts

ROWS = [Configs().hardware(name) for name in Configs().names("hardware")]
BATCH = PartitionFacts(name="batch", default=True, nodes=4, nodes_up=3, gpus=8, gpu_types=["h100"])
SLURM = SlurmFacts(cluster="alps", version="23.11", partitions=[BATCH])


def mount(folder: str, kind: str = "ext4", source: str = "/dev/sda") -> Mount:
    return Mount(source=source, folder=folder, kind=kind)


# --- shared folders -----------------------------------------------------------------------------------


def shared(here: list[Mount], there: list[Mount], *seen: str) -> list[str]:
    return list(new_site.shared_folders(here, NodeFacts(name="n1", mounts=there, seen=list(seen))))


def test_what_a_node_sees_is_shared_as_far_as_it_is_mounted() -> None:
    root, home = mount("/"), mount("/home", "nfs4", "server:/home")
    assert shared([root, home], [root, home], "/home/me/stepmark", "/home/me") == ["/home"]
    assert shared([root], [root, home], "/home/me") == ["/home"]  # this machine is the server
    assert shared([root, home], [root], "/home/me") == ["/home"]  # the node has a link there
    assert shared([root], [root], "/srv/me") == ["/"]  # one file system for all
    assert shared([root, home], [root, home]) == ["/home"]  # the same network mount, though nothing was written there


def test_a_folder_of_the_same_name_is_not_shared() -> None:
    root = mount("/")
    assert shared([root, mount("/scratch", "xfs")], [root, mount("/scratch", "xfs")]) == []
    assert shared([root, mount("/data", "nfs", "a:/x")], [root, mount("/data", "nfs", "b:/y")]) == []
    assert shared([root, mount("/lustre", "lustre", "a@tcp:/l")], [root]) == []


# --- hardware -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "gpus", "smi", "expected"),
    [
        (["h100"], 8, ["NVIDIA H100 80GB HBM3"] * 8, ["h100"]),
        (["gpu"], 8, ["NVIDIA H200"] * 8, ["h200"]),
        ([], 8, ["NVIDIA B200"] * 8, ["b200"]),
        (["h100"], 8, ["NVIDIA H100 PCIe"] * 8, ["h100_pcie"]),  # the node knows better
        (["nvidia_h100_80gb_hbm3"], 8, [], ["h100"]),  # as AutoDetect=nvml names it
        (["a100", "h100"], 8, ["NVIDIA H100 80GB HBM3"] * 8, ["h100", "a100"]),  # a partition of two kinds
        ([], 0, ["NVIDIA GB200"] * 4, ["gb200"]),  # not a resource of Slurm's
        ([], 0, [], ["cpu"]),
        (["v100"], 4, ["Tesla V100-SXM2-32GB"], []),
        ([], 8, [], []),
    ],
)
def test_the_devices(types: list[str], gpus: int, smi: list[str], expected: list[str]) -> None:
    partition = msgspec.structs.replace(BATCH, gpus=gpus, gpu_types=types)
    assert new_site.hardware_of(partition, NodeFacts(name="n1", gpus=smi), ROWS).value == expected


# --- options ------------------------------------------------------------------------------------------


def options(slurm: SlurmFacts = SLURM, partition: PartitionFacts = BATCH, device: str = "h100") -> dict[str, object]:
    found = new_site.options_of(slurm, partition, [Configs().hardware(device)])
    return {name: fact.value for name, fact in found.items()}


def test_the_options_of_a_job() -> None:
    assert options() == {"time": "1:00:00", "gpus": "gres", "mpi": None}
    assert options(partition=msgspec.structs.replace(BATCH, max_seconds=1800))["time"] == "0:30:00"
    assert options(partition=msgspec.structs.replace(BATCH, gpus=0))["gpus"] == "none"
    assert "gpus" not in options(device="cpu")
    with_pmix = msgspec.structs.replace(SLURM, mpi=["none", "pmix"])
    assert options(with_pmix)["mpi"] == "pmix"
    assert options(msgspec.structs.replace(with_pmix, no_pmix="can not load PMIx library"))["mpi"] is None


def test_an_account_is_asked_for_where_slurm_wants_one() -> None:
    mine = msgspec.structs.replace(SLURM, accounts=["ml", "ops", "web"])
    closed = msgspec.structs.replace(BATCH, accounts=["ml", "ops"])
    enforced = msgspec.structs.replace(mine, account_is_needed=True)
    assert asking.accounts_for(mine, BATCH) is None
    assert asking.accounts_for(enforced, BATCH) == ["ml", "ops", "web"]
    assert asking.accounts_for(mine, closed) == ["ml", "ops"]
    assert asking.accounts_for(SLURM, closed) == ["ml", "ops"]  # sacctmgr names none
