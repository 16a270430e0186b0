"""An A/B of jax's own PGLE with real MaxText: both ways in turn; on a CPU nothing is claimed."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.runs import JAX, TINY, Run, Start, finish, script, verify

pytestmark = pytest.mark.slow(seconds=6)

WAYS = ["off", "auto"]


@pytest.fixture(scope="module")
def compared(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    output_dir = tmp_path_factory.mktemp("ab")
    flags = (JAX, TINY, "--pgle=off,auto", "--repeats=1", "--steps=16")
    return finish(start(output_dir, *flags), output_dir)


def folders_of(run: Run) -> list[Path]:
    return sorted(path.parent for path in run.output_dir.glob("*/result.json"))


def report(run: Run, *flags: str) -> str:
    return script("report", "scaling", *run.output_dir.glob("sweep-*.json"), *flags).stdout


def test_the_ways_run_in_turn_and_every_run_keeps_its_own_result(compared: Run) -> None:
    assert compared.code == 0, compared.err
    run_titles = [line.split(": ")[1].split(",")[0] for line in compared.err.splitlines() if line.startswith("run ")]
    assert run_titles == [f"--pgle={way}" for way in WAYS]
    results = [json.loads((folder / "result.json").read_text()) for folder in folders_of(compared)]
    assert [result["status"] for result in results] == ["valid"] * 2
    assert [result["pgle"]["way"] if result["pgle"] else "off" for result in results] == WAYS
    assert [("pgle" in result["window"]["excluded"]) for result in results] == [way == "auto" for way in WAYS]


def test_auto_on_a_cpu_is_valid_and_finds_the_recompile(compared: Run) -> None:
    folder = folders_of(compared)[1]
    result = json.loads((folder / "result.json").read_text())
    assert (result["window"]["first_step"], result["window"]["counted"]) == (8, 8)
    assert result["window"]["excluded"] == {"compile": 1, "pgle": 7}
    seen = result["pgle"]["seen"]
    assert (seen["profiled_steps"], seen["recompile_step"], seen["empty_traces"]) == (3, 3, 3)
    assert not seen["applied"]
    assert "every trace was empty" in seen["reason"]
    assert result["not_comparable"] == []
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    slow = [step["step"] for step in steps if step["seconds"] > 8 * result["seconds_per_step"]["median"]]
    assert {0, 2} <= set(slow)  # the loop waits for step 2 when step 3, which compiles again, is on its way
    agreed = verify(str(folder))
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr


def test_a_cpu_has_nothing_to_gain_and_the_comparison_is_refused(compared: Run) -> None:
    (found,) = json.loads(report(compared, "--json"))["gains"]
    assert "was not applied in" in found["refused"][0]
    assert [found[side]["run_ids"] for side in "ab"] == [[folder.name] for folder in folders_of(compared)]
    for text in (compared.out, report(compared)):
        assert "was not applied in" in text
        assert "· PGLE off ·" in text
        assert "· PGLE auto ·" in text
