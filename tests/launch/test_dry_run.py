"""A dry run shows the whole plan, and needs nothing: no framework, no environment, no GPU, no home."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked

REPOSITORY = Path(__file__).resolve().parents[2]
MAXTEXT_RECIPE = ["--model=llama2_70b", "--dtype=fp8", "--hardware=h100", "--gpus=64"]


# Imports that would make a dry run slow, or that the launcher must never make.
def dry_run(*flags: str, cwd: Path) -> str:
    done = forked.run(REPOSITORY / "launch/run.py", "--backend=jax", *flags, "--dry_run", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_plan_of_nvidias_maxtext_recipe(tmp_path: Path) -> None:
    plan = dry_run(*MAXTEXT_RECIPE, "--verbose", cwd=tmp_path)
    for words in (
        "68,976,648,192 parameters",
        "fsdp 64",
        "128 sequences of 4096 tokens",
        "1.8207e+15 per sequence",
        "fits",
        "--xla_gpu_all_gather_combine_threshold_bytes=536870912",
        "--xla_gpu_reduce_scatter_combine_threshold_bytes=8388608",
        "XLA_PYTHON_CLIENT_MEM_FRACTION=0.94",
        "quantization=fp8",
        "attention=cudnn_flash_te",
        "ici_fsdp_parallelism=8",
        "dcn_fsdp_parallelism=8",
        "per_device_batch_size=2",
        "remat_policy=custom",
        "8 per node, devices per task: 1",
        "nothing was started",
    ):
        assert words in plan
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_over_backends_names_precisions_that_differ(tmp_path: Path) -> None:
    sweep = ("--backend=jax,nemo", "--model=llama3_tiny", "--dry_run")
    mixed = forked.run(REPOSITORY / "launch/run.py", *sweep, cwd=tmp_path).stdout
    assert "note: the cells train in bf16 and fp32" in mixed
    assert [line.rpartition(", ")[2] for line in mixed.splitlines() if " x cpu " in line] == ["bf16", "fp32"]
    assert "note:" not in forked.run(REPOSITORY / "launch/run.py", *sweep, "--dtype=fp32", cwd=tmp_path).stdout
    devices = ("--backend=jax,nemo", "--model=llama32_1b", "--dry_run")
    one = forked.run(REPOSITORY / "launch/run.py", *devices, "--hardware=h100", "--gpus=8", cwd=tmp_path).stdout
    apart = forked.run(REPOSITORY / "launch/run.py", *devices, cwd=tmp_path).stdout
    assert ["note: the cells run on cpu and h100" in text for text in (apart, one)] == [True, False]


def test_a_sweep_shows_the_expected_speed_of_each_cell(tmp_path: Path) -> None:
    shown = dry_run("--model=llama2_70b", "--dtype=fp8", "--hardware=h100", "--gpus=64,128", cwd=tmp_path)
    rows = [re.split("  +", line)[1:4] for line in shown.splitlines() if line.startswith("  --gpus=")]
    assert rows == [["--gpus=64", "4.324 s", "3 min 36 s"], ["--gpus=128", "4.556 s", "3 min 48 s"]]


def test_the_screen_says_what_to_expect_and_the_whole_job_is_verbose(tmp_path: Path) -> None:
    lines = dry_run(*MAXTEXT_RECIPE, cwd=tmp_path).splitlines()
    assert len(lines) <= 40
    labels = [line.split("  ")[1] for line in lines[lines.index("expected") + 1 :][:5]]
    assert labels == ["Step time", "Throughput", "MFU", "Duration", "Memory"]
    assert any("per GPU" in line for line in lines)
    assert not any("--xla_gpu" in line or "dispatch artefacts" in line for line in lines)
    assert "Step time  unknown: no run" in dry_run("--model=llama2_tiny", cwd=tmp_path)


def test_it_begins_with_all_that_would_be_refused_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = dry_run(*MAXTEXT_RECIPE, "--site=example_pyxis", cwd=tmp_path)
    before, *refused = refused.partition("\n\nllama2_70b ")[0].split("would be refused: ")
    assert before == ""
    expected = (
        "the container image",
        "cannot see the output folder",
        "cannot see the checkout of Stepmark",
        "needs scontrol",
    )
    assert [words for words in expected if sum(words in one for one in refused) != 1] == []
    assert len(refused) == len(expected)
    assert all("  next:  " in one for one in refused)
    (here,) = dry_run(*MAXTEXT_RECIPE, cwd=tmp_path).split("would be refused: ")[1:]
    assert here.startswith("this machine has no 64 x ")
    assert "--dry_run" not in here.partition("\n\n")[0]  # it is one
    (warning,) = (line for line in here.splitlines() if "Transformer Engine" in line)
    assert "warning: a machine with GPUs" in warning
    assert "would be refused" not in dry_run("--model=llama2_tiny", cwd=tmp_path)


@pytest.mark.parametrize("at", ["local", "example_venv"])
def test_a_gpu_that_a_site_does_not_have_is_refused(tmp_path: Path, at: str) -> None:
    flags = ("--backend=nemo", "--task=lora", "--model=llama3_70b", "--hardware=gb200", "--gpus=8", f"--site={at}")
    done = forked.run(REPOSITORY / "launch/run.py", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert "  next:  python " in done.stderr


SITE = """
name: a
kind: slurm
title: a cluster
runtime: {runtime}
source: a test
date: "2026-11-23"
slurm: {{shared_folders: [/none], hardware: [h100]}}
"""
RUNTIMES = {
    "python\npython: {maxtext: /none/python}": ("--model=llama31_70b", "has no Python for engine"),
    "container\ncontainer: {images: /none}\nimages: {nemo: {arm64: x/y:1}}": (
        "--model=llama31_70b",
        "'nemo' has no container image",
    ),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_the_site_lacks_for_the_engine_hides_nothing_else_that_would_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/a.yml").write_text(SITE.format(runtime=runtime))
    *flags, lacks = RUNTIMES[runtime]
    asked = ("--backend=nemo", "--hardware=h100", "--gpus=64", "--site=a", *flags)
    done = forked.run(REPOSITORY / "launch/run.py", *asked, "--dry_run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    refusals, title, plan = done.stdout.partition("\n\nllama31_70b ")
    refused = refusals.split("would be refused: ")
    assert title and "TP4 PP4 CP2" in plan
    expected = (lacks, "the output folder", "the checkout of Stepmark", "needs scontrol")
    assert [words for words in expected if sum(words in one for one in refused) != 1] == []


def test_it_needs_no_home_and_no_path(tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "launch/run.py"), "--backend=jax", *MAXTEXT_RECIPE, "--dry_run"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env={"HOME": "/nonexistent"}
    )
    assert done.returncode == 0, done.stderr
