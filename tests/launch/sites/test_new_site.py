"""launch/setup.py --new_site: what Slurm's commands print is recorded; one test asks a real Slurm."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.values import JobOptions
from launch.machine.processes import REPOSITORY
from launch.preflight import nodes
from launch.sites import asking, new_site
from launch.sites.new_site import NewSite
from launch.slurm import parsing
from tests import forked
from tests.end_to_end.clusters import ClusterOfTests

PLAYED = Path(__file__).with_name("played")


class PlayedSlurm:
    """Slurm's commands, which print what was recorded of a cluster; a node is this machine, with other programs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.record = folder, folder / "srun.txt"
        self.play()

    def play(self, pyxis: bool = False, **words: str) -> None:
        usual = {"gres": "(null)", "accounts": "", "allowed": "ALL", "enforced": "none", "gpus": ""}
        usual |= {"help": "--container-image=PATH" if pyxis else "--nodes=N", "folder": str(self.folder)}
        for source in PLAYED.glob("*/*"):
            path = self.folder / source.relative_to(PLAYED)
            path.parent.mkdir(exist_ok=True)
            path.write_text(re.sub("@([a-z]+)@", lambda found: {**usual, **words}[found[1]], source.read_text()))
            path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    played = PlayedSlurm(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    for name in ("SLURM_CONF", "SBATCH_PARTITION", "SBATCH_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(new_site, "COMMANDS", ("sinfo", "scontrol", "srun"))  # that are played
    monkeypatch.setattr(new_site, "check_nodes", lambda *_: 0)  # which a real Slurm is needed for
    return played


def make(folder: Path, **typed: Any) -> dict[str, Any]:
    """The site as it was written."""
    wanted = NewSite("big", typed, hardware=None, out=folder / "results")
    assert new_site.make(wanted, Configs(own_sites=folder / "home/sites")) == 0
    site = Configs(own_sites=folder / "home/sites").site("big")  # it can be used
    assert site.slurm is not None
    row: dict[str, Any] = yaml.safe_load((folder / "home/sites/big.yml").read_text())
    return row


# --- four clusters ------------------------------------------------------------------------------------


def test_a_cluster_without_gpus_accounting_or_containers(slurm: PlayedSlurm, tmp_path: Path) -> None:
    row = make(tmp_path, partition="batch")
    assert (row["runtime"], row["slurm"]["hardware"]) == ("venv", ["cpu"])
    assert row["slurm"]["options"] == {"partition": "batch", "time": "1:00:00"}
    assert "--gres" not in slurm.record.read_text()
    text = (tmp_path / "home/sites/big.yml").read_text()
    assert "#   mpi: srun --mpi=list: pmix, none, pmi2; pmix fails: can not load PMIx library" in text
    assert "exclusive" not in text


def test_a_cluster_of_gpus_with_pyxis_and_accounts(slurm: PlayedSlurm, tmp_path: Path) -> None:
    gpus = "NVIDIA H100 80GB HBM3\\n" * 8
    slurm.play(gres="gpu:h100:8(S:0-1)", accounts="ml ops", enforced="associations,limits", pyxis=True, gpus=gpus)
    row = make(tmp_path, partition="batch", account="ml", qos="high")
    assert (row["runtime"], row["slurm"]["hardware"]) == ("container", ["h100"])
    expected = {"partition": "batch", "account": "ml", "qos": "high", "time": "1:00:00", "gpus": "gres"}
    assert row["slurm"]["options"] == expected
    assert row["container"]["images"].startswith("/")
    started = slurm.record.read_text()
    assert started.startswith(
        "--nodes=1 --ntasks=1 --time=5 --partition=batch --account=ml --qos=high --gres=gpu:1 sh "
    )


# --- the user's answers -------------------------------------------------------------------------------


def test_missing_answers_are_listed_and_nothing_is_written(slurm: PlayedSlurm, tmp_path: Path) -> None:
    slurm.play(gres="gpu:h100:8", accounts="ml ops", enforced="associations")
    with pytest.raises(RequestError, match="a new site needs --partition") as refused:
        make(tmp_path)
    assert "batch (2 of 2 nodes up, 8 h100 per node, the default), small (1 of 1" in refused.value.why
    assert refused.value.next_command == "--partition=batch"
    with pytest.raises(RequestError, match="a new site needs --account") as refused:
        make(tmp_path, partition="batch")
    assert refused.value.why == "--account: ml, ops"
    assert not (tmp_path / "home").exists()
    assert not slurm.record.exists()


@pytest.mark.parametrize(
    ("typed", "words", "usage"),
    [
        ({"partition": "smal"}, "partition 'smal' does not accept", asking.WHAT_THERE_IS),
        ({"partition": "batch", "account": "you"}, "account 'you' does not accept", asking.WHAT_THERE_IS),
    ],
)
def test_what_slurm_would_never_start_is_refused(
    slurm: PlayedSlurm, tmp_path: Path, typed: dict[str, str], words: str, usage: str
) -> None:
    slurm.play(accounts="ml ops", enforced="associations")
    with pytest.raises(RequestError, match=words) as refused:
        make(tmp_path, **typed)
    assert refused.value.next_command == usage


def test_no_partition_takes_my_jobs(slurm: PlayedSlurm, tmp_path: Path) -> None:
    slurm.play(accounts="ml", allowed="web")
    scontrol = tmp_path / "bin/scontrol"
    scontrol.write_text(scontrol.read_text().replace("MaxTime=02:00:00 State=UP TotalNodes=2", "State=DOWN"))
    with pytest.raises(RequestError, match="no partition of this cluster"):
        make(tmp_path)


@pytest.mark.parametrize("absent", ["sinfo", "srun"])
def test_all_of_slurms_commands_must_be_here(
    slurm: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    for name in {*new_site.COMMANDS} - {absent}:
        (tmp_path / "bin" / name).touch(0o755)
    (tmp_path / "bin" / absent).unlink()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    with pytest.raises(RequestError, match="this machine has no Slurm") as refused:
        make(tmp_path)
    assert refused.value.where == f"PATH: {absent}"
    assert not slurm.record.exists()


def test_nodes_of_two_kinds_are_both_in_the_file_with_what_to_do(slurm: PlayedSlurm, tmp_path: Path) -> None:
    slurm.play(gres="gpu:h100:8", gpus="NVIDIA H100 80GB HBM3\\n" * 8)
    sinfo = tmp_path / "bin/sinfo"
    sinfo.write_text(sinfo.read_text().replace("8\nE", "8\nnode3|batch|idle|gpu:a100:4\nE"))
    assert make(tmp_path, partition="batch")["slurm"]["hardware"] == ["h100", "a100"]
    assert "the nodes differ: keep one type" in (tmp_path / "home/sites/big.yml").read_text()


def test_the_preflight_of_gpus_leaves_out_nodes_without_any() -> None:
    found = [parsing.Node(name=f"n{one}", state="idle", gpus=8 * (one > 2)) for one in range(1, 5)]
    h100 = [Configs().hardware("h100")]
    left, options = nodes.with_gpus(found, JobOptions(exclude="n9"), h100)
    assert ([node.name for node in left], options.exclude) == (["n3", "n4"], "n[1-2,9]")
    named = JobOptions(nodelist="n1")
    assert nodes.with_gpus(found, named, h100) == (found, named)
    assert nodes.with_gpus(found[:2], JobOptions(), h100) == (found[:2], JobOptions())


@pytest.mark.parametrize(("there", "gpus"), [(0, 8), (1, 1), (4, 4), (8, 8), (16, 8)])
def test_nodes_of_fewer_gpus_are_asked_for_those_that_they_have(there: int, gpus: int) -> None:
    h100 = Configs().hardware("h100")
    assert nodes.as_counted(h100, there).devices_per_node == gpus
    big = Configs().site("example_pyxis")
    setup, run, _ = new_site.next_commands(big, Configs(), 2, there, new_site.RESULTS)
    assert run.endswith(f"--hardware=h100 --gpus={gpus} --site=example_pyxis")
    assert setup.endswith("--model=llama2_tiny")
    setup, run, _ = new_site.next_commands(big, Configs(), 2, there, Path("/my runs"))
    assert setup.endswith(" --out='/my runs'")
    assert run.endswith(" --output_dir='/my runs'")


# --- its file -----------------------------------------------------------------------------------------


def test_a_site_that_is_there_is_never_overwritten(slurm: PlayedSlurm, tmp_path: Path) -> None:
    make(tmp_path, partition="batch")
    path = tmp_path / "home/sites/big.yml"
    with pytest.raises(RequestError, match="site 'big' already exists") as refused:
        make(tmp_path, partition="small")
    assert refused.value.next_command == "--new_site=big_2"
    assert yaml.safe_load(path.read_text())["slurm"]["options"]["partition"] == "batch"
    assert slurm


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("example_pyxis", "--new_site=example_pyxis_2"),
        ("local", "--new_site=local_2"),
        ("Big", "--new_site=mycluster"),
        ("../2 b", "--new_site=mycluster"),
    ],
)
def test_a_name_that_cannot_be_taken(slurm: PlayedSlurm, tmp_path: Path, name: str, instead: str) -> None:
    wanted = NewSite(name, {}, None, tmp_path)
    with pytest.raises(RequestError) as refused:
        new_site.make(wanted, Configs(own_sites=tmp_path / "home/sites"))
    assert instead in refused.value.next_command
    assert not slurm.record.exists()


# --- a real Slurm -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_slurm_becomes_a_site_that_passes_its_preflight(
    cluster: ClusterOfTests, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def setup(*flags: str) -> "subprocess.CompletedProcess[str]":
        variables = {**cluster.environment, **cluster.running.environment}
        return forked.run(REPOSITORY / "launch/setup.py", "--new_site=big", *flags, env=variables, cwd=tmp_path)

    request.addfinalizer(lambda: (cluster.home / "sites/big.yml").unlink(missing_ok=True))
    request.addfinalizer(lambda: cluster.slurm("scontrol", "update", "partition=small", "AllowAccounts=ALL"))
    missing = setup()
    assert missing.returncode == 2
    assert "a new site needs --partition" in missing.stderr
    cluster.slurm("scontrol", "update", "partition=small", "AllowAccounts=somebody,else")
    closed = setup("--partition=small", "--hardware=cpu")
    assert (closed.returncode, "--partition: batch" in closed.stderr) == (2, True)
    done = setup("--partition=batch", "--hardware=cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sees a file that this machine" in done.stdout
    assert "2 nodes pass, 0 fail" in done.stdout
    assert "python launch/run.py --backend=jax --model=llama2_tiny --nodes=2 --site=big" in done.stdout
