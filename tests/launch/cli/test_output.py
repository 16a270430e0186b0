"""--json: one document on stdout, by docs/schemas.json, in every case."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launch import cluster
from launch.cli.subcommands import COMMANDS
from tests import forked
from tests.launch.cli.test_subcommands import subcommands

REPOSITORY = Path(__file__).resolve().parents[3]
RUN = REPOSITORY / "tests" / "launch" / "stored_runs"
LOG = f"--log={REPOSITORY / 'tests' / 'jax_backend' / 'logs' / 'maxtext-0.2.5.log'}"
BENCHMARK = "--model=llama2_tiny --hardware=cpu --gpus=1 --dtype=bf16 --global_batch_size=2 --sequence_length=128"


def schemas_script() -> Any:
    spec = importlib.util.spec_from_file_location("make_schemas", REPOSITORY / "docs" / "make_schemas.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCHEMAS = schemas_script()


def answered(command: str, *arguments: str, cwd: Path) -> "tuple[Any, subprocess.CompletedProcess[str]]":
    home = {"HOME": str(cwd), "PATH": os.environ["PATH"]}
    done = forked.run(REPOSITORY / "launch" / f"{command}.py", *arguments, "--json", cwd=cwd, env=home)
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout), done


@pytest.fixture
def results(tmp_path: Path) -> Path:
    shutil.copytree(RUN, tmp_path / "results")
    (tmp_path / "config.sh").write_text("export DGXNNODES=1\nsource other.sh\n")
    return tmp_path


@pytest.mark.parametrize(
    ("document", "typed", "code"),
    [
        ("run --list", "run --list", 0),
        ("run --dry_run", "run --backend=jax --model=llama2_tiny --dry_run", 0),
        ("plan estimate", "plan --backend=jax --model=llama2_70b --gpus=64", 0),
        ("plan layouts", "plan layouts --backend=nemo --model=llama31_70b --hardware=h100 --gpus=64", 0),
        ("ingest", f"ingest {LOG}", 0),
        ("ingest", f"ingest {LOG} {BENCHMARK}", 0),
        ("report timing", "report timing results", 0),
        ("doctor machine", "doctor", 0),
        ("doctor flags", "doctor flags --xla_gpu_graph_level=0", 2),
        ("nightly --list", "nightly --list", 0),
        ("nightly --dry_run", "nightly --suite=smoke --dry_run", 0),
        ("setup --site", "setup --site=local --engine=mlperf_llama2_70b_lora", 1),
        ("setup --site --dry_run", "setup --site=local --engine=bridge --dry_run", 0),
        ("text", "run --help", 0),
        ("text", "report --help", 0),
        ("text", "plan compile --help", 0),
        ("setup", "setup --model=llama31_8b --task=mlperf", 1),
        ("cluster status", "cluster status --name=nobodys", 1),
        ("cluster down", "cluster down --name=nobodys", 0),
        ("status", "status", 0),
        ("verify", "verify nemo_lora", 0),
        ("compare", "compare jax_local nemo_lora", 3),
        ("report runs", "report runs results", 0),
        ("report html", "report html page.html nemo_lora", 0),
        ("report archive", "report archive runs.tar.gz nemo_lora", 0),
        ("doctor logs", "doctor logs nemo_lora", 0),
        ("dashboard", "dashboard", 0),
    ],
)
def test_the_document_is_as_its_schema_says(document: str, typed: str, code: int, results: Path) -> None:
    found, done = answered(*typed.split(), cwd=results)
    assert done.returncode == code, done.stderr
    msgspec.convert(found, SCHEMAS.DOCUMENTS[document])


def test_a_dry_run_of_a_sweep_has_every_cell_and_what_is_refused(results: Path) -> None:
    typed = "run --backend=nemo --model=llama2_tiny --dtype=bf16,fp8 --dry_run --skip_refused"
    sweep = msgspec.convert(answered(*typed.split(), cwd=results)[0], SCHEMAS.DOCUMENTS["run --dry_run (sweep)"])
    cell = sweep.cells["--dtype=bf16"]
    assert cell.benchmark["dtype"] == "bf16"
    assert cell.plan.phases and "has no fp8" in sweep.refused["--dtype=fp8"]


def test_every_command_has_a_schema() -> None:
    commands = {"completion", *COMMANDS, *(f"cluster {name}" for name in cluster.COMMANDS)}
    for group in ("doctor", "plan", "report"):
        commands |= {f"{group} {name}" for name in subcommands(group)}
        commands.remove(group)
    commands.remove("cluster")
    assert {re.split(" [-(]", one)[0] for one in SCHEMAS.DOCUMENTS} >= commands


@pytest.mark.parametrize(
    ("typed", "code", "what", "next_command"),
    [
        ("report trace nobody", 2, "the file or folder does not exist", "launch/report.py trace"),
        ("run --backend=jax --model=llama2_tyni --dry_run", 2, "did you mean 'llama2_tiny'", "run.py"),
        ("run --modell=x", 2, "unknown flag --modell", "run.py --help"),
        ("compare nemo_lora", 2, "needs two sides", "launch/compare.py"),
    ],
)
def test_an_error_is_a_document_too(typed: str, code: int, what: str, next_command: str, results: Path) -> None:
    found, done = answered(*typed.split(), cwd=results)
    error = msgspec.convert(found, SCHEMAS.DOCUMENTS["error"])
    assert (error.exit_code, done.returncode) == (code, code)
    assert what in error.error.what
    assert next_command in error.error.next
    assert done.stderr.startswith("stepmark: ")


def test_the_schemas_are_those_of_the_code() -> None:
    assert SCHEMAS.FILE.read_text() == SCHEMAS.text(), "python docs/make_schemas.py"
