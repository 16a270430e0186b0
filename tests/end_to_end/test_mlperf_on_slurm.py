"""MLPerf submissions on a real Slurm, with stand-ins for pyxis, for the container and for the submission's program
(tests/stand_ins/pyxis): what is proved is the flow of the job, and no training.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from benchmarks.assets import read_needs
from benchmarks.configs import DEFAULT_ROOT, Configs
from benchmarks.mlperf.submission import read_submission
from benchmarks.request import images
from tests.end_to_end.clusters import STAND_INS, ClusterOfTests, can_enter
from tests.end_to_end.runs import Run, verify

NAME = "llama2_70b_lora"
# What the check asks of PyTorch. No Slurm here has GPUs.
TORCH = """
from types import SimpleNamespace
__version__, cuda = "2.9", SimpleNamespace(device_count=lambda: 8)
"""
NVIDIA_SMI = '#!/bin/bash\necho "00000000:0${1#--id=}:00.0"\n'  # eight GPUs, four at each of two NUMA nodes
MLPERF = ("--backend=nemo", "--task=mlperf", f"--model={NAME}", "--site=mlperf", "--hardware=h100")


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not can_enter(), reason="needs root, Slurm, and file systems that can be laid over each other"
    ),
]


class Site:
    """A site of containers on a private cluster, with whole data and an image."""

    def __init__(self, cluster: ClusterOfTests) -> None:
        self.cluster = cluster
        sites = Path(cluster.variables["STEPMARK_HOME"]) / "sites"
        row = yaml.safe_load((sites / "dev.yml").read_text())
        row |= {"name": "mlperf", "runtime": "container", "container": {"images": str(cluster.folder / "images")}}
        row["slurm"]["hardware"] = ["h100", "cpu"]
        row["slurm"]["options"] = {"gpus": "none", "time": "5", "memory": None, "exclusive": True, "singleton": False}
        (sites / "mlperf.yml").write_text(yaml.safe_dump(row))
        self.data = cluster.folder / "data"
        for asset in read_needs(Configs(), f"nemo_mlperf_{NAME}").assets:
            for part in asset.parts:
                path = self.data / asset.folder / part.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                os.truncate(path, part.bytes or 1)
        self.image = (
            cluster.folder / "images" / images.file_name(str(read_submission(Configs(), NAME).images["amd64"].name))
        )
        self.program = Path(f"{self.image}.d") / "workspace/ft-llm/run_and_time.sh"
        self.program.parent.mkdir(parents=True)
        shutil.copy(STAND_INS / "run_and_time.sh", self.program)
        self.image.write_text("hsqs, a stand-in for an image\n")
        where = ["python3", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
        self.torch = Path(f"{self.image}.d") / packages.lstrip("/") / "torch.py"
        self.torch.parent.mkdir(parents=True)
        self.torch.write_text(TORCH)
        inside = Path(f"{self.image}.d")
        self.write(inside / "usr/bin/nvidia-smi", NVIDIA_SMI)
        for gpu in range(8):
            self.write(inside / f"sys/bus/pci/devices/0000:0{gpu}:00.0/numa_node", f"{gpu // 4}\n")
        for node in range(2):
            self.write(inside / f"sys/devices/system/node/node{node}/cpulist", f"{node}\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """What the stand-ins were asked for."""
        return (self.cluster.folder / "stand-in.log").read_text().splitlines()

    @property
    def containers(self) -> list[Path]:
        """Those that are left on the nodes."""
        return sorted((self.cluster.folder / "containers").glob("*/*"))

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PATH": f"{STAND_INS}:{os.environ['PATH']}",
            "STAND_IN_SRUN": str(shutil.which("srun")),
            "STAND_IN_LOG": str(self.cluster.folder / "stand-in.log"),
            "STAND_IN_STORE": str(self.cluster.folder / "containers"),
            "STEPMARK_CONFIGS": str(DEFAULT_ROOT),  # the tests' own only have the tiny recipes
        }

    def prepare(self, out: Path) -> "subprocess.CompletedProcess[str]":
        flags = ("--site=mlperf", f"--model={NAME}", "--task=mlperf", f"--out={out}", "--time=10")
        process = self.cluster.start("setup.py", *flags, **self.variables)
        text, err = process.communicate(timeout=120)
        assert "Traceback" not in text + err, err
        return subprocess.CompletedProcess(flags, process.returncode, text, err)

    def run(self, output_dir: Path, *words: str, loss: str = "0.92") -> Run:
        own = {**self.variables, "STAND_IN_LOSS": loss}
        flags = (*MLPERF, f"--data={self.data}", f"--output_dir={output_dir}", "--set=VBOOST_VALUE=0", *words)
        process = self.cluster.start("run.py", *flags, **own)
        out, err = process.communicate(timeout=240)
        assert "Traceback" not in out + err, err
        return Run(process.returncode, out, err, output_dir)


@pytest.fixture(scope="module")
def site(cluster: ClusterOfTests) -> Site:
    return Site(cluster)


OPEN = ("--set=MLPERF_DIVISION=open", "--set=CLEAR_CACHES=false")


@pytest.fixture(scope="module")
def reached(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Two experiments, after a job that was killed has left its container."""
    left = site.cluster.folder / "containers/node1/pyxis_stepmark-999999-1"
    others = left.with_name("pyxis_mine")
    for folder in (left, others):
        folder.mkdir(parents=True, exist_ok=True)
    yield site.run(tmp_path_factory.mktemp("reached"), *OPEN, "--repeats=2")
    others.rmdir()


def test_a_run_that_reaches_its_target_is_valid(reached: Run) -> None:
    run = reached
    assert run.code == 0, run.out + run.err
    result = run.result
    assert (result["status"], result["reasons"]) == ("valid", [])
    report = result["mlperf"]
    assert (report["status"], report["target"], report["reached"], report["division"]) == (
        "success",
        0.925,
        True,
        "open",
    )
    assert report["evaluations"] == [{"samples": 1536, "value": 0.92}]
    assert report["seconds"] == 11.0
    assert report["parts"] == {"checkpoint": 0.0, "evaluation": 1.0, "training": 10.0, "other": 0.0}
    assert result["seconds_per_step"]["median"] == 2.5
    assert [step["step"] for step in run.steps] == [1, 2, 3, 4]
    log = (run.folder / "attempt-1/train/result_0.txt").read_text()
    assert "rank 0 of 8 meets" in log
    assert ":29500" not in log
    assert {path.name for path in (run.folder / "attempt-1").iterdir() if path.is_dir()} == {
        "check", "nccl", "train", "telemetry",
    }  # fmt: skip
    assert any("open division" in note for note in result["notes"])
    assert any("all_reduce_perf" in note for note in result["notes"])
    numa = json.loads((run.folder / "provenance.json").read_text())["numa"]
    assert [(one["rank"], one["gpu"], one["node"], one["by"]) for one in numa] == [
        (rank, f"0000:0{rank}:00.0", rank // 4, "taskset") for rank in range(8)
    ]
    assert verify(str(run.folder)).returncode == 0


def test_two_experiments_are_two_runs_with_a_log_each(reached: Run) -> None:
    logs = sorted(reached.output_dir.glob("*/attempt-1/train/result_0.txt"))
    assert len(logs) == 2
    seeds = {line for log in logs for line in log.read_text().splitlines() if line.startswith("SEED=")}
    assert len(seeds) == 2


def test_the_container_is_unpacked_once_a_node_and_run_and_removed_at_the_end(site: Site, reached: Run) -> None:
    assert reached.code == 0
    asked = site.asked
    assert len([line for line in asked if line.startswith("unpacked")]) == 2
    assert len([line for line in asked if "images/" in line]) == 2 * 4  # check, nccl, train and the sampler use it
    assert [path.name for path in site.containers] == ["pyxis_mine"]


def test_the_caches_are_dropped_on_the_node_itself(site: Site, tmp_path: Path) -> None:
    """The stand-in's log has no cache_clear, since its container has no logger: the closed division wants one."""
    run = site.run(tmp_path / "results")
    assert run.code == 3, run.out + run.err
    assert run.result["reasons"] == ["rank 0: the log does not report that the caches were cleared (cache_clear)"]
    assert any(line.startswith("vm.drop_caches=3 on") for line in site.asked)


def test_a_run_that_is_aborted_is_invalid(site: Site, tmp_path: Path) -> None:
    run = site.run(tmp_path / "results", *OPEN, loss="0.9457")
    assert run.code == 3, run.out + run.err
    ended, missed = run.result["reasons"]
    assert "run ended as 'aborted'" in ended and "the best of 1 was 0.9457" in missed


@pytest.mark.usefixtures("reached")
@pytest.mark.parametrize(
    ("absent", "reason", "phases"),
    [
        ("program", "trained nothing: the check on node1 found: mounts: ", {"check", "nccl", "telemetry"}),
        ("torch", "PyTorch cannot be imported; ModuleNotFoundError: No module named 'torch'; try: ", {"check"}),
    ],
)
def test_an_image_that_lacks_something_fails_before_it_trains_and_leaves_no_container(
    site: Site, tmp_path: Path, absent: str, reason: str, phases: set[str]
) -> None:
    path: Path = getattr(site, absent)
    away = path.with_name(f"away{path.suffix}")
    path.rename(away)
    try:
        run = site.run(tmp_path / "results", *OPEN)
    finally:
        away.rename(path)
    assert run.code == 1, run.out + run.err
    assert run.result["status"] == "failed"
    (flags,) = run.result["reasons"]
    assert reason in flags
    assert ("run_and_time.sh: No such file or directory" in flags) == (absent == "program")
    assert flags == run.result["attempts"][0]["text"]
    assert {folder.name for folder in (run.folder / "attempt-1").iterdir() if folder.is_dir()} <= phases
    assert [container.name for container in site.containers] == ["pyxis_mine"]


def test_maxtexts_own_check_says_that_an_image_lacks_it(site: Site, tmp_path: Path) -> None:
    words = ("--backend=jax", "--model=llama2_tiny", "--site=mlperf", f"--image={site.image}", "--hardware=cpu")
    process = site.cluster.start("run.py", *words, f"--output_dir={tmp_path / 'results'}", **site.variables)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1, out + err
    run = Run(process.returncode, out, err, tmp_path / "results")
    (reason,) = run.result["reasons"]
    assert "trained nothing: the check on node1 found: " in reason
    assert "jaxlib" in reason and "; try: pass --image with MaxText" in reason
    assert "a Python module is missing" in out  # the doctor's words
    assert not (run.folder / "attempt-1/perf").exists()


def test_data_of_another_size_are_refused_before_anything_is_submitted(site: Site, tmp_path: Path) -> None:
    path = site.data / "gov_report/train.npy"
    os.truncate(path, 192151238)
    try:
        run = site.run(tmp_path / "results", *OPEN)
    finally:
        os.truncate(path, 192151239)
    assert run.code == 2
    assert "gov_report/train.npy: 192,151,238 bytes instead of 192,151,239" in run.err
    assert "python launch/setup.py --site=mlperf" in run.err
    assert not (tmp_path / "results").exists() or not list((tmp_path / "results").iterdir())


def test_a_shared_node_keeps_its_caches(site: Site, tmp_path: Path) -> None:
    before = len(site.asked)
    run = site.run(tmp_path / "results", "--noexclusive")
    assert run.code == 2
    assert "needs exclusive nodes" in run.err
    assert len(site.asked) == before
    assert json.dumps(site.asked)  # nothing was dropped meanwhile


MAKES = """import os, sys
folder = sys.argv[2]
for name, size in {files}.items():
    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    open(os.path.join(folder, name), "w").close()
    os.truncate(os.path.join(folder, name), size)
"""


def test_data_and_model_are_made_by_the_containers_scripts_and_checked_by_their_sizes(
    site: Site, tmp_path: Path
) -> None:
    """The scripts are stand-ins: they make files of the right sizes, and the first time one byte too few."""
    scripts = site.program.parent / "scripts"
    scripts.mkdir()
    inside = Path(f"{site.image}.d") / "usr/local/bin"
    inside.mkdir(parents=True)
    (inside / "python").symlink_to(sys.executable)
    dataset, model = read_needs(Configs(), f"nemo_mlperf_{NAME}").assets
    sizes = {part.path: part.bytes or 1 for part in dataset.parts}
    (scripts / "download_model.py").write_text(MAKES.format(files={p.path: p.bytes or 1 for p in model.parts}))
    (scripts / "download_dataset.py").write_text(MAKES.format(files={**sizes, "train.npy": 192151238}))
    out = tmp_path / "data"
    first = site.prepare(out)
    assert first.returncode == 1, first.stdout + first.stderr
    assert "train.npy: 192,151,238 bytes instead of 192,151,239" in first.stdout
    (scripts / "download_dataset.py").write_text(MAKES.format(files=sizes))
    second = site.prepare(out)
    assert second.returncode == 0, second.stdout + second.stderr
    jobs = sorted(out.glob("preparing-*/prepare.sbatch"))
    assert "download_model.py" in jobs[0].read_text()
    assert "download_model.py" not in jobs[1].read_text()  # what is whole is not made again
