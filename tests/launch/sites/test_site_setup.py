"""launch/setup.py --site: folders, venvs, and images a real Slurm job imports by a stand-in for enroot."""

import dataclasses
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from benchmarks.backend import EnvironmentSpec
from benchmarks.configs import DEFAULT_ROOT, Configs
from benchmarks.errors import RequestError
from benchmarks.values import Container, JobOptions, Site, Slurm
from launch.environments import venvs, wanted
from launch.environments.wanted import Work
from launch.sites import site_setup
from nemo_backend import BACKEND
from tests import forked
from tests.end_to_end.clusters import ClusterOfTests
from tests.launch.private_cluster_fixture import RunningCluster

REPOSITORY = Path(__file__).resolve().parents[3]
TABLES = yaml.safe_load(Path(__file__).with_name("setup.yml").read_text())
NEMO, BRIDGE = "nvidia+nemo+25.09.sqsh", "nvidia+nemo+26.08.sqsh"
TOKEN = "hf_a-token-that-must-not-be-seen"


def site(folder: Path, runtime: str = "container") -> Site:
    row = {
        "name": "big",
        "kind": "slurm",
        "title": "a cluster",
        "runtime": runtime,
        "source": "test",
        "date": "2026-11-21",
        "slurm": {"shared_folders": [str(folder)], "hardware": ["h100"]},
        "container": {"images": str(folder / "the images")},
    }
    return msgspec.convert(row, Site)


def work(folder: Path, runtime: str = "container", force: bool = False, **filters: str) -> Work:
    return Work(
        site=site(folder, runtime),
        options=JobOptions(partition="batch", account="us"),
        minutes=None,
        engines=wanted.specs(Configs(), **filters),
        out=folder / "results",
        force=force,
        devices=[Configs().hardware("h100")],
    )


# --- what is wanted ---------------------------------------------------------------------------------


SPEC = EnvironmentSpec(name="x", locks=(), import_check="json.decoder", image="nvcr.io/nvidia/nemo:25.09")


def test_the_sites_own_images_and_the_nodes_architecture(tmp_path: Path) -> None:
    submission = EnvironmentSpec(
        name="y", locks=(), import_check="json", image={"amd64": "nvcr.io/a/y-amd:1", "arm64": "nvcr.io/a/y-arm:1"}
    )
    engines = {"a/b": SPEC, "a/y": submission}
    own = msgspec.structs.replace(site(tmp_path), images={"b": "nvcr.io/ours/nemo:1"})
    h100, gb200 = Configs().hardware("h100"), Configs().hardware("gb200")
    assert [image.path.name for image in wanted.wanted_images(own, engines, [gb200])] == [
        "ours+nemo+1.sqsh",
        "a+y-arm+1.sqsh",
    ]
    typed = wanted.wanted_images(own, {"a/b": SPEC}, [h100], "nvcr.io/typed/nemo:2")
    assert [image.image for image in typed] == ["nvcr.io/typed/nemo:2"]
    both = wanted.wanted_images(own, {"a/y": submission}, [h100, gb200])
    assert [image.image for image in both] == ["nvcr.io/a/y-amd:1", "nvcr.io/a/y-arm:1"]


def test_an_image_of_no_bytes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (NEMO, "nvidia+jax+maxtext-2026-09-10.sqsh", BRIDGE):
        (tmp_path / "the images").mkdir(exist_ok=True)
        (tmp_path / "the images" / name).touch()
    assert site_setup.set_up(work(tmp_path, engine="nemo")) == 1  # and no job was submitted: there is no Slurm here
    out = capsys.readouterr().out
    assert f"refused: it has 0 bytes: {tmp_path}/the images/{NEMO}; --force imports it again" in out


@pytest.mark.parametrize(("filters", "engines"), TABLES["engines"])
def test_which_engines_are_chosen(filters: dict[str, Any], engines: list[str] | str) -> None:
    assert {"jax/maxtext", "nemo/nemo", "nemo/bridge"} <= set(wanted.specs(Configs()))
    if isinstance(engines, list):
        assert set(wanted.specs(Configs(), **filters)) == set(engines)
    else:
        with pytest.raises(RequestError, match=engines):
            wanted.specs(Configs(), **filters)


@pytest.mark.parametrize("hardware", ["cpu", "h100"])
def test_the_engines_that_runs_get_by_default_are_prepared(tmp_path: Path, hardware: str) -> None:
    """NeMo trains Llamas, and Megatron-Bridge the tiny models with experts. Other Bridge recipes need a container."""
    row = (DEFAULT_ROOT / "sites/example_venv.yml").read_text().replace("[cpu]", f"[{hardware}]")
    (tmp_path / "mine.yml").write_text(row.replace("example_venv", "mine", 1))
    configs = Configs(own_sites=tmp_path)
    place, devices = configs.site("mine"), [configs.hardware(hardware)]
    found = wanted.used_without_engine(wanted.specs(configs), place, devices, configs)
    assert found.keys() == {"nemo/nemo", "nemo/bridge", "jax/maxtext"}


# --- the job ----------------------------------------------------------------------------------------


def test_the_job_says_what_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    text = site_setup.preview(work(tmp_path))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=60)
    assert "#SBATCH --account=us" in text
    assert "#SBATCH --dependency=singleton" in text
    assert "import_image 'docker://nvcr.io#nvidia/nemo:25.09'" in text
    assert f"'{tmp_path}/the images/{NEMO}'" in text
    assert TOKEN not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trouble", ["not shared", "not there", "a file"])
def test_a_folder_that_cannot_be_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trouble: str
) -> None:
    here, absent = tmp_path / "here", tmp_path / "lustre"  # the second is not on this machine
    here.mkdir()
    if trouble == "a file":
        absent.write_text("")
    shared = [str(here)] if trouble == "not shared" else [str(here), str(absent)]
    given = work(tmp_path)
    elsewhere = msgspec.structs.replace(
        given.site,
        slurm=Slurm(shared_folders=shared, hardware=["h100"]),
        container=Container(images=str(absent / "images")),
    )
    assert site_setup.set_up(dataclasses.replace(given, site=elsewhere, out=here / "results")) == 1
    why = "the nodes do not see this" if trouble == "not shared" else f"{absent} does not exist"
    assert f"missing: {absent / 'images'}: {why}" in capsys.readouterr().out
    assert not absent.is_dir()


def test_a_site_of_environments_makes_those_that_have_lock_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    def ensure(spec: EnvironmentSpec) -> Path:
        made.append(spec.name)
        return tmp_path / spec.name

    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(venvs, "ensure", ensure)
    monkeypatch.setattr(site_setup, "_slurm", lambda _: [])  # which has its own tests
    assert site_setup.set_up(work(tmp_path, "venv")) == 0
    assert set(made) >= {"jax-maxtext", "nemo-megatron", "megatron-bridge"}
    out = capsys.readouterr().out
    assert "python launch/doctor.py nodes --site=big" in out
    submission = next(name for name in BACKEND.engines if name.startswith("mlperf"))
    assert site_setup.set_up(work(tmp_path, "venv", engine=submission)) == 1
    assert "not available on this site" in capsys.readouterr().out
    monkeypatch.setenv("STEPMARK_HOME", "/somewhere/else")
    assert site_setup.set_up(work(tmp_path, "venv")) == 1
    assert "/somewhere/else/environments: the nodes do not" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("is_there", "way_on"), [(False, "python launch/cluster.py up --name=big"), (True, "scontrol")]
)
def test_a_slurm_that_cannot_be_reached_is_answered_with_the_way_to_it(
    is_there: bool, way_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scontrol, configuration = tmp_path / "scontrol", tmp_path / "clusters/dev/etc/slurm.conf"
    scontrol.write_text("#!/bin/sh\necho 'fatal: no configuration source' >&2; exit 1\n")
    scontrol.chmod(0o755)
    configuration.parent.mkdir(parents=True)
    if is_there:
        configuration.write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    asked = work(tmp_path, "venv")
    slurm = Slurm(shared_folders=[str(tmp_path)], hardware=["h100"], configuration=str(configuration))
    unreached = dataclasses.replace(asked, site=msgspec.structs.replace(asked.site, slurm=slurm), engines={})
    assert site_setup.set_up(unreached) == 1
    assert way_on in capsys.readouterr().out


# --- launch/setup.py --------------------------------------------------------------------------------


def setup(*flags: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "HF_TOKEN": TOKEN, **variables}
    done = forked.run(REPOSITORY / "launch/setup.py", *flags, env=environment, cwd=cwd)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return done


# --- on a real Slurm --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(cluster: ClusterOfTests) -> RunningCluster:
    return cluster.running


Importing = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def importing(cluster: RunningCluster, tmp_path: Path) -> Importing:
    """launch/setup.py of a site of containers, with a scripted enroot."""

    def run(enroot: str, *flags: str) -> "subprocess.CompletedProcess[str]":
        row = cluster.site_file.read_text().replace(f"name: {cluster.name}", "name: boxes", 1)
        row = row.replace("runtime: venv", "runtime: container", 1)
        row += f"container:\n  images: {tmp_path}/the images\n"
        (cluster.home / "sites/boxes.yml").write_text(row)
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        (place / "enroot").unlink(missing_ok=True)
        if enroot:
            (place / "enroot").write_text(f'#!/bin/bash\necho "$*" >> "{tmp_path}/record"\n{enroot}\n')
            (place / "enroot").chmod(0o755)
        every = ("--site=boxes", f"--out={tmp_path}/results", "--backend=nemo", *flags)
        return setup(*every, cwd=tmp_path, STEPMARK_HOME=str(cluster.home), PATH=f"{place}:{os.environ['PATH']}")

    return run


def images(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "the images").iterdir())


def record(folder: Path) -> list[str]:
    path = folder / "record"
    return path.read_text().splitlines() if path.exists() else []


WHOLE = 'printf hsqs-image > "$3"'


@pytest.mark.slow
def test_images_are_imported_once(importing: Importing, tmp_path: Path) -> None:
    (tmp_path / "the images").mkdir()
    (tmp_path / "the images" / f"{NEMO}.part-1").write_text("what a job left that lost its node")
    done = importing(WHOLE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert images(tmp_path) == [NEMO, BRIDGE]
    assert "refused: srun has no --container-image (pyxis)" in done.stdout  # which a run would be refused for
    asked = record(tmp_path)
    assert len(asked) == 2
    assert asked[0].startswith(f"import --output {tmp_path}/the images/{NEMO}.part-")
    assert asked[0].endswith(" docker://nvcr.io#nvidia/nemo:25.09")
    assert f"imported: {tmp_path}/the images/{NEMO}, 10 bytes" in done.stdout
    again = importing(WHOLE)
    assert len(record(tmp_path)) == 2
    assert "exists: " in again.stdout
    importing(WHOLE, "--force", "--engine=nemo")
    assert len(record(tmp_path)) == 3
    assert TOKEN not in "".join(p.read_text() for p in (tmp_path / "results").rglob("*") if p.is_file())
    assert "partition batch is UP, 4 of 4" in again.stdout


REFUSED = 'echo "[ERROR] 401 Unauthorized" >&2; exit 1'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of_nemo", "words"),
    [
        (REFUSED, "exit code 1: [ERROR] 401 Unauthorized"),
        ('printf "not an image" > "$3"; exit 0', "wrote no image (squashfs)"),
        ('printf hsqs > "$3"; kill -9 $$', "exit code 137"),
    ],
)
def test_an_import_that_fails_leaves_no_image_and_the_others_are_made(
    importing: Importing, tmp_path: Path, of_nemo: str, words: str
) -> None:
    done = importing(f'case "$4" in *:25.09) {of_nemo};; esac\n{WHOLE}')
    assert done.returncode == 1, done.stdout + done.stderr
    assert images(tmp_path) == [BRIDGE]
    (row,) = [line for line in done.stdout.splitlines() if "nemo:25.09" in line]
    assert "missing: not imported: exit code" in row
    assert words in row
    assert "something is missing or refused" in done.stdout


@pytest.mark.slow
def test_a_job_that_is_cancelled_halfway_can_be_made_again(importing: Importing, tmp_path: Path) -> None:
    done = importing('printf hsqs > "$3"\nscancel --full "$SLURM_JOB_ID"\nsleep 60')
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the job ended: CANCELLED" in done.stdout
    assert [name for name in images(tmp_path) if not name.startswith(f"{NEMO}.part-")] == []
    importing(WHOLE)
    assert images(tmp_path) == [NEMO, BRIDGE]  # and what the first had left is gone
