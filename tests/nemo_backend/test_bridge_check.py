"""The look at one node before a job of Megatron-Bridge uses the others: what of it needs no GPU, and no Bridge."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.values import Benchmark
from nemo_backend import bridge_planning
from nemo_backend.inside import bridge_check as check
from tests.nemo_backend.conftest import HERE

Resolve = Callable[..., Benchmark]


def plans_check(resolved: Resolve) -> list[str]:
    return bridge_planning.check_command(resolved("llama3_70b", engine="bridge", hardware="h100", gpus=64))


def test_the_runs_own_command_follows_what_the_node_is_asked_for(resolved: Resolve) -> None:
    benchmark = resolved("llama3_70b", engine="bridge", hardware="h100", gpus=64)
    words = bridge_planning.check_command(benchmark)
    assert words[:3] == ["{python}", "-P", "{repository}/nemo_backend/inside/bridge_check.py"]
    options = check.parse(words[3:])
    assert (options.processes, options.tasks_per_node) == (64, 8)
    assert options.device_name == benchmark.hardware.device_names
    assert options.command == bridge_planning.command(benchmark)[1:]


def test_without_torch_the_last_line_says_so(resolved: Resolve, tmp_path: Path) -> None:
    """As it is started on a node, with a Python that holds none of it."""
    words = [
        word.format(python=sys.executable, repository=HERE.parent, phase_dir=tmp_path)
        for word in plans_check(resolved)
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        "stepmark check: torch cannot be imported; ModuleNotFoundError: No module named 'torch'; "
        "next: --image= with Megatron-Bridge 0.6 inside"
    )
    end = json.loads((tmp_path / "events-rank0.jsonl").read_text())
    assert (end["event"], end["status"]) == ("end", "error")


PRINTS_WHAT_IT_GOT = (
    "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['WORLD_SIZE'], os.environ['RANK']]))"
)
ENDS = [
    ("raise SystemExit('OfflineModeIsEnabled: no config.json')", "HF_HOME", "launch/setup.py"),
    ("raise KeyError('model.no_such_field')", "does not take the run's arguments; KeyError", "--set="),
    (None, "there is no", "--image="),
]


@pytest.mark.parametrize(("program", "what", "next_step"), ENDS, ids=["configuration", "override", "script"])
def test_what_run_recipe_refuses_is_named(tmp_path: Path, program: str | None, what: str, next_step: str) -> None:
    script = tmp_path / "run_recipe.py"
    if program:
        script.write_text(program)
    options = SimpleNamespace(events_dir=tmp_path, processes=64, command=[str(script), "model.x=1"])
    with pytest.raises(check.kit.CheckFailure, match=what) as failure:
        check.build_configuration(options)
    assert next_step in failure.value.next_step


def test_the_configuration_is_built_for_the_whole_run(tmp_path: Path, capsys: Any) -> None:
    """One process on one node; run_recipe.py divides the batch among all of them."""
    script = tmp_path / "run_recipe.py"
    script.write_text(PRINTS_WHAT_IT_GOT)
    check.build_configuration(SimpleNamespace(events_dir=tmp_path, processes=64, command=[str(script), "model.x=1"]))
    arguments, *world = json.loads(capsys.readouterr().out)
    assert arguments[:2] == ["--dry-run", "model.x=1"]
    assert world == ["64", "0"]
