"""launch/setup.py --new_site: what Slurm's commands print is recorded; one test asks a real Slurm."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
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
from launch.terminal import documents
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


def test_a_dry_run_in_json_has_the_source_of_each_line(slurm: PlayedSlurm, tmp_path: Path) -> None:
    for name in ("sbatch", "squeue"):
        (slurm.folder / "bin" / name).touch(0o755)
    words = ("--new_site=big", "--partition=batch", "--hardware=h100", "--dry_run", "--json")
    done = forked.run(REPOSITORY / "launch/setup.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout, type=documents.NewSite)
    assert found.preflight is None and not (tmp_path / "home").exists()
    lines = {line.field: (line.value, line.source) for line in found.lines}
    assert lines["slurm.hardware"] == (["h100"], "--hardware=h100")
    assert lines["slurm.options.partition"] == ("batch", "--partition")
    assert lines["slurm.options.mpi"][0] is None
    open_yet = forked.run(REPOSITORY / "launch/setup.py", "--new_site=big", "--json", cwd=tmp_path)
    assert msgspec.json.decode(open_yet.stdout)["error"]["next"].endswith("--new_site=big --json --partition=batch")


def make(folder: Path, **typed: Any) -> dict[str, Any]:
    """The site as it was written."""
    out, command = folder / "results", "setup --new_site=big"
    wanted = NewSite("big", typed, hardware=None, out=out, replace=False, dry_run=False, command=command)
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
    assert "# no mpi: srun --mpi=list: pmix, none, pmi2; of pmix, srun says: can not load PMIx library" in text
    lines = [line for line in text.splitlines() if not line.endswith(":")]
    assert all(" # " in line or line.lstrip().startswith("# ") for line in lines)  # each has its source
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


# --- what a person says -------------------------------------------------------------------------------


def test_what_is_missing_is_said_and_nothing_is_written(slurm: PlayedSlurm, tmp_path: Path) -> None:
    slurm.play(gres="gpu:h100:8", accounts="ml ops", enforced="associations")
    with pytest.raises(RequestError, match="a new site needs --partition") as refused:
        make(tmp_path)
    assert "batch (2 of 2 nodes up, 8 h100 a node, the default), small (1 of 1" in refused.value.why
    assert refused.value.next_command == "--partition=batch"
    with pytest.raises(RequestError, match="a new site needs --account") as refused:
        make(tmp_path, partition="batch")
    assert refused.value.why == "--account: ops, ml"
    assert not (tmp_path / "home").exists()
    assert not slurm.record.exists()


@pytest.mark.parametrize(
    ("typed", "words", "usage"),
    [
        ({"partition": "smal"}, "no partition 'smal' takes your jobs: did you mean 'small'", asking.WHAT_THERE_IS),
        ({"partition": "batch", "account": "you"}, "no account 'you' takes your jobs", asking.WHAT_THERE_IS),
    ],
)
def test_what_slurm_would_never_start_is_refused(
    slurm: PlayedSlurm, tmp_path: Path, typed: dict[str, str], words: str, usage: str
) -> None:
    slurm.play(accounts="ml ops", enforced="associations")
    with pytest.raises(RequestError, match=words) as refused:
        make(tmp_path, **typed)
    assert refused.value.next_command == usage


@pytest.mark.parametrize(
    ("accounts", "old", "new", "words"),
    [
        ("", "", "", r"batch is DOWN; small is DOWN"),
        ("", "State=DOWN", "State=UP", r"batch has 0 of 2 nodes up.*; small has 0 of 1 nodes up"),
        ("ml", "State=DOWN", "State=UP AllowAccounts=web", r"batch admits web, not your accounts \(ml\)"),
    ],
)
def test_why_no_partition_takes_my_jobs(
    slurm: PlayedSlurm, tmp_path: Path, accounts: str, old: str, new: str, words: str
) -> None:
    slurm.play(accounts=accounts)
    scontrol, sinfo = tmp_path / "bin/scontrol", tmp_path / "bin/sinfo"
    scontrol.write_text(scontrol.read_text().replace("State=UP", "State=DOWN").replace(old or "State=UP", new))
    if not accounts:
        sinfo.write_text(sinfo.read_text().replace("idle", "drained"))
    with pytest.raises(RequestError, match="no partition of this cluster takes your jobs now") as refused:
        make(tmp_path)
    assert re.search(words, refused.value.why)


@pytest.mark.parametrize("absent", ["sinfo", "srun"])
def test_all_of_slurms_commands_must_be_here(
    slurm: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    for name in {*new_site.COMMANDS} - {absent}:
        (tmp_path / "bin" / name).touch(0o755)
    (tmp_path / "bin" / absent).unlink()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    with pytest.raises(RequestError, match="there is no Slurm on this machine") as refused:
        make(tmp_path)
    assert refused.value.where == f"PATH: {absent}"
    assert not slurm.record.exists()


def test_a_slurm_that_does_not_answer(slurm: PlayedSlurm, tmp_path: Path) -> None:
    (tmp_path / "bin/scontrol").write_text("#!/bin/sh\necho 'error: DNS' >&2; echo 'fatal: no source' >&2; exit 1\n")
    with pytest.raises(RequestError, match="Slurm does not answer on this machine") as refused:
        make(tmp_path, partition="batch")
    assert (refused.value.where, refused.value.why) == ("scontrol show config", "fatal: no source")
    assert not slurm.record.exists()


def test_a_home_that_cannot_be_written_is_refused_before_a_node_is_asked(
    slurm: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPMARK_HOME", "/proc/nowhere")
    with pytest.raises(RequestError, match="no file can be written in /proc/nowhere/sites") as refused:
        make(tmp_path, partition="batch")
    assert refused.value.next_command.startswith("STEPMARK_HOME=DIR")
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    with pytest.raises(RequestError, match=r"slurm\.conf that this shell names is not there"):
        make(tmp_path, partition="batch")
    assert not slurm.record.exists()


def test_nodes_of_two_kinds_are_both_in_the_file_with_what_to_do(slurm: PlayedSlurm, tmp_path: Path) -> None:
    slurm.play(gres="gpu:h100:8", gpus="NVIDIA H100 80GB HBM3\\n" * 8)
    sinfo = tmp_path / "bin/sinfo"
    sinfo.write_text(sinfo.read_text().replace("8\nE", "8\nnode3|batch|idle|gpu:a100:4\nE"))
    assert make(tmp_path, partition="batch")["slurm"]["hardware"] == ["h100", "a100"]
    assert "the nodes differ: keep one kind" in (tmp_path / "home/sites/big.yml").read_text()


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


def test_the_shell_counts_as_an_answer(slurm: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "small")
    assert slurm and make(tmp_path)["slurm"]["options"]["partition"] == "small"
    assert "partition: small  # SBATCH_PARTITION of the shell" in (tmp_path / "home/sites/big.yml").read_text()


# --- its file -----------------------------------------------------------------------------------------


def test_a_site_that_is_there_is_never_overwritten_unseen(slurm: PlayedSlurm, tmp_path: Path) -> None:
    make(tmp_path, partition="batch")
    path = tmp_path / "home/sites/big.yml"
    with pytest.raises(RequestError, match="there is a site 'big' already") as refused:
        make(tmp_path, partition="small")
    assert refused.value.next_command == "--force"
    with pytest.raises(RequestError, match="no partition 'bad' takes your jobs"):  # --force alone would not help
        make(tmp_path, partition="bad")
    old = path.read_text()
    wanted = NewSite("big", {"partition": "small"}, None, tmp_path / "results", replace=True, dry_run=False)
    assert new_site.make(wanted, Configs(own_sites=path.parent)) == 0
    assert path.with_name("big.yml.before").read_text() == old
    assert "partition: small" in path.read_text()
    assert slurm


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("example_pyxis", "another name"),
        ("local", "another name"),
        ("Big", "--new_site=NAME"),
        ("../2 b", "--new_site=NAME"),
    ],
)
def test_a_name_that_cannot_be_taken(slurm: PlayedSlurm, tmp_path: Path, name: str, instead: str) -> None:
    wanted = NewSite(name, {}, None, tmp_path, replace=True, dry_run=False)
    with pytest.raises(RequestError) as refused:
        new_site.make(wanted, Configs(own_sites=tmp_path / "home/sites"))
    assert instead in refused.value.next_command
    assert not slurm.record.exists()


# --- a node -------------------------------------------------------------------------------------------


def test_a_node_that_does_not_see_the_results_is_refused(slurm: PlayedSlurm, tmp_path: Path) -> None:
    srun = tmp_path / "bin/srun"
    srun.write_text(srun.read_text().replace('exec "$@"', 'exec "${@:1:4}" /somewhere/else'))
    with pytest.raises(RequestError, match="node1 does not see the checkout of Stepmark and the folder"):
        make(tmp_path, partition="batch")
    assert slurm.record.exists()
    assert not (tmp_path / "home").exists()
    assert not list(REPOSITORY.glob(".stepmark-*"))


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
    assert "sees what was written here in" in done.stdout
    assert "2 nodes pass, 0 fail" in done.stdout
    assert "python launch/run.py --backend=jax --model=llama2_tiny --nodes=2 --site=big" in done.stdout
