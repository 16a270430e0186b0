"""launch/inside/node_check.py, run as in a job: by path, isolated, with only the standard library."""

import ast
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.preflight.values import Answer, ProbeSpec
from benchmarks.values import json_text

PROGRAM = Path(__file__).resolve().parents[3] / "launch/inside/node_check.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "answers").mkdir()
    return tmp_path


def ask(folder: Path, **changes: Any) -> None:
    asked = ProbeSpec(
        token="abc",
        shared_folders=[str(folder), "/not/there"],
        environments=["/bin/sh", "/not/there/python"],
        gpus=False,
        container=False,
        call_seconds=2,
        written_folders=[str(folder)],
    )
    (folder / "asked.json").write_text(json_text(msgspec.structs.replace(asked, **changes)))


def start(folder: Path, node: str, first: str, nodes: int, path: str | None = None) -> "subprocess.Popen[str]":
    variables = {"SLURMD_NODENAME": node, "STEPMARK_FIRST_NODE": first, "SLURM_JOB_NUM_NODES": str(nodes)}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM), str(folder)],
        env={**os.environ, **variables, "PATH": path or os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(folder: Path, node: str) -> Answer:
    return msgspec.json.decode((folder / "answers" / f"{node}.json").read_bytes(), type=Answer)


def one(folder: Path, path: str | None = None) -> Answer:
    process = start(folder, "node1", "node1", 1, path)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "")
    return answer_of(folder, "node1")


def test_one_node_alone(folder: Path) -> None:
    ask(folder)
    answer = one(folder)
    assert answer.token == "abc"
    assert answer.versions["kernel"] == os.uname().release
    assert answer.cores == os.cpu_count()
    assert answer.folders == {str(folder): "writable", "/not/there": "missing"}
    assert answer.environments == {"/bin/sh": True, "/not/there/python": False}
    assert answer.program == f"{zlib.crc32(PROGRAM.read_bytes()):08x}"
    assert answer.free_bytes > 0
    assert answer.commands == {}
    assert answer.call.first_node is None


def test_nodes_call_the_first_one(folder: Path) -> None:
    ask(folder, call_seconds=120)
    names = [f"node{n}" for n in range(1, 5)]
    started = time.monotonic()
    processes = [start(folder, name, "node1", 4) for name in names]
    ends = [process.communicate(timeout=180) for process in processes]
    assert ends == [("", "")] * 4
    assert time.monotonic() - started < 100  # the first one ends when all have called, not when its patience does
    for name in names:
        call = answer_of(folder, name).call
        assert (call.offered, call.error) == (True, None)


def test_without_a_first_node_the_others_say_so_in_time(folder: Path) -> None:
    ask(folder)
    process = start(folder, "node2", "node1", 2)
    process.communicate(timeout=120)
    call = answer_of(folder, "node2").call
    assert (call.offered, call.error) == (False, "node1 offered no port within 2 s")


def program(folder: Path, name: str, text: str) -> str:
    """A program of the node; the PATH that finds it."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    path = bin_folder / name
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)
    return f"{bin_folder}:{os.environ['PATH']}"


def test_fields_that_the_driver_does_not_know_are_left_out(folder: Path) -> None:
    ask(folder, gpus=True)
    path = program(
        folder,
        "nvidia-smi",
        'unknown() { echo "Field \\"$1\\" is not a valid field to query."; exit 2; }\n'
        'case "$*" in\n'
        "*mig.mode.current*) unknown mig.mode.current;;\n"
        "*clocks_throttle*) unknown clocks_throttle_reasons.active;;\n"
        '*) echo "asked: $*";;\nesac\n',
    )
    commands = one(folder, path).commands
    assert commands["gpus"].exit_code == 0
    assert "memory.used" in commands["gpus"].output
    assert "mig" not in commands["gpus"].output
    assert set(commands) == {"gpus", "remapped_rows", "processes", "nvlink", "nvidia_smi"}


def test_it_needs_nothing_but_the_standard_library_of_an_old_python() -> None:
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 6))
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert imported
    assert set(imported) <= sys.stdlib_module_names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "pathlib" not in imported  # hundreds start at once: each import counts


def test_it_writes_only_where_jobs_write(folder: Path) -> None:
    seen = folder / "seen"
    seen.mkdir(mode=0o755)
    ask(folder, shared_folders=["/", str(seen), "/not/there"], written_folders=[str(folder), "/proc/self", "/gone"])
    before = seen.stat().st_mtime_ns
    found = one(folder).folders
    assert found == {
        "/": "visible",
        str(seen): "visible",
        "/not/there": "missing",
        str(folder): "writable",
        "/proc/self": "readable",
        "/gone": "missing",
    }
    assert seen.stat().st_mtime_ns == before
    assert not list(folder.glob(".stepmark-*"))
