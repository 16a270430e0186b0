"""The doctor on logs of real failures: made by a real Slurm on this machine, a fault in one rank at a time."""

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.clusters import ClusterOfTests, until
from tests.end_to_end.runs import doctor, first_cause

pytestmark = pytest.mark.slow(seconds=4)

LONG = ("--steps=100000", "--set=nap_seconds=0.05", "--nosingleton", "--nocheck")
THREE = ("--nodes=3", "--gpus=3", "--set=replicas=3", "--set=fault_rank=1")


@pytest.mark.parametrize(
    ("fault", "symptom", "says"),
    [
        ("kill", "killed", "Killed"),
        ("port", "port_taken", "[Errno 98] Address already in use"),
        ("limit", "process_memory", "MemoryError"),
        ("raise", "unknown", "RuntimeError: told to"),
    ],
)
def test_the_rank_that_failed_first_and_why(
    cluster: ClusterOfTests, tmp_path: Path, fault: str, symptom: str, says: str
) -> None:
    found = first_cause(cluster.toy(tmp_path, *LONG, *THREE, f"--set=fault={fault}@5"))
    assert (found["id"], found["first"]["rank"]) == (symptom, 1)
    assert says in found["first"]["text"]


def test_a_run_that_went_well_is_healthy(cluster: ClusterOfTests, tmp_path: Path) -> None:
    run = cluster.toy(tmp_path, "--steps=12", "--nosingleton", "--nodes=2", "--gpus=2")
    assert run.code == 0, run.err
    assert "first cause" not in run.out
    found = doctor(run.folder, code=0)
    assert (found["failed"], found["ended_well"], found["entries"], found["warnings"]) == (False, True, [], [])


# --- other jobs than Stepmark's: Slurm's own messages ------------------------------------------------


def job_says(cluster: ClusterOfTests, folder: Path, *lines: str) -> Path:
    """The output of a job that fails."""
    script = folder / "job.sh"
    script.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    slurm_output = folder / "slurm.out"
    command = ("sbatch", "--wait", "--nodes=1", f"--output={slurm_output}", f"--chdir={folder}", str(script))
    with pytest.raises(subprocess.CalledProcessError):
        cluster.slurm(*command)
    until(slurm_output.exists, "the job has said something")
    return slurm_output


@pytest.mark.parametrize(
    ("line", "symptom", "says"),
    [
        ("srun --no-such-option true", "unknown_flag", "srun: unrecognized option '--no-such-option'"),
        (
            "srun --container-image=/images/none.sqsh true",
            "spank_option_missing",
            "--container-image=/images/none.sqsh",
        ),
        ("srun /opt/none/python", "program_missing", "execve(): /opt/none/python: No such file or directory"),
        ("srun --mpi=none-such true", "pmix", "MPI type"),
        ("srun --nodes=999 true", "job_refused", "Only allocated 1 nodes asked for 999"),
    ],
)
def test_what_slurm_says(cluster: ClusterOfTests, tmp_path: Path, line: str, symptom: str, says: str) -> None:
    found = doctor(job_says(cluster, tmp_path, line, "exit 1"), code=3)["entries"][0]
    assert found["id"] == symptom, found
    assert says in found["first"]["text"]


def test_an_image_that_is_missing_in_the_words_of_enroot(cluster: ClusterOfTests, tmp_path: Path) -> None:
    """Without a container runtime, the job prints the messages of enroot and pyxis around a real failing step."""
    slurm_output = job_says(
        cluster,
        tmp_path,
        "echo 'pyxis:     [ERROR] No such file or directory: /images/none.sqsh' >&2",
        "echo 'slurmstepd: error: pyxis: container start failed with error code: 1' >&2",
        "srun false",
    )
    found = doctor(slurm_output, code=3)["entries"]
    assert [one["id"] for one in found] == ["image_missing", "container", "exit_code"], found


def test_a_run_that_nobody_followed_is_explained_when_it_is_listed_and_on_its_page(
    cluster: ClusterOfTests, tmp_path: Path
) -> None:
    left = cluster.toy(tmp_path, *LONG, "--set=fault=disk@2", "--nowait")
    until(lambda: not cluster.slurm("squeue", "-h", "-j", cluster.job_of(left.folder)).strip(), "the job has ended")
    listed = cluster.status(tmp_path).stdout
    assert f"{left.folder.name}: no space left, rank 0" in listed
    assert f"python launch/doctor.py logs {left.folder}" in listed
    page = tmp_path / "page.html"
    assert cluster.call("report.py", "html", str(page), str(left.folder)).returncode == 0
    assert "no space left" in page.read_text()
