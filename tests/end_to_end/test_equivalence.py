"""The proof that backends do the same work, with real MaxText and NeMo; each error planted on purpose is caught."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.equivalence.mutations import plants_of
from tests.end_to_end.runs import LIMIT_SECONDS, REPOSITORY, Starter

pytestmark = pytest.mark.slow(seconds=15)

SECONDS = 2 * LIMIT_SECONDS
EACH_UPDATE = {"loss after 1 update", "loss after 2 updates", "loss after 3 updates"}
CHANGES = "change by tensor, 3 updates"
FORWARD = {"loss", "largest logit", "gradient norm", "gradient by tensor", CHANGES}

# What must be seen of each plant, whatever else is.
SEEN = {
    "rope_theta": {"rope theta", *FORWARD},
    "rope_theta_slight": {"rope theta", *FORWARD},
    "rope_interleaved": {"rope interleaved", *FORWARD},
    "head_order": FORWARD,
    "key_value_swapped": FORWARD,
    "gate_up_swapped": FORWARD,
    "norms_swapped": FORWARD,
    "layers_swapped": FORWARD,
    "norm_epsilon": {"norm epsilon", "largest logit", "gradient norm", "gradient by tensor"},
    "norm_epsilon_slight": {"norm epsilon"},
    "attention_scale_forgotten": {"attention scale", *FORWARD},
    "attention_scale_folded": {"attention scale", "gradient norm", "gradient by tensor", CHANGES},
    "targets_not_shifted": FORWARD - {"largest logit"},
    "norms_decayed": {*EACH_UPDATE, CHANGES},
    "weight_decay": {*EACH_UPDATE, CHANGES},
    "warmup": {*EACH_UPDATE, CHANGES},
    "learning_rate": {*EACH_UPDATE, CHANGES},
    "adam_epsilon": {*EACH_UPDATE, CHANGES},
    "adam_beta2": {"loss after 3 updates", CHANGES},
    "not_clipped": {*EACH_UPDATE, CHANGES},
}
OF_UPDATES = {"norms_decayed", "weight_decay", "warmup", "learning_rate", "adam_epsilon", "adam_beta2", "not_clipped"}


@pytest.fixture(scope="module")
def prove(jax_python: Path, nemo_python: Path, starter: Starter) -> Any:  # noqa: ARG001 - both are there
    def run(*flags: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(REPOSITORY / "launch/verify.py"), "--equivalence", *flags]
        process = starter(command)
        out, err = process.communicate(timeout=SECONDS)
        assert "Traceback" not in out + err, err
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def planted(prove: Any, folder: Path) -> dict[str, Any]:
    """MaxText trains once; NeMo trains as it is, and once with each plant, in one process."""
    done = prove("--model=llama3_tiny", "--plant=all", "--json", f"--output_dir={folder}")
    assert done.returncode == 3, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lines_of(proof: dict[str, Any], plant: str = "") -> dict[str, dict[str, Any]]:
    (comparison,) = [found for found in proof["comparisons"] if found["plant"] == plant]
    return {line["quantity"]: line for line in comparison["lines"]}


def test_it_is_the_same_work_within_every_tolerance(planted: dict[str, Any]) -> None:
    lines = lines_of(planted)
    assert planted["agree"] is True
    assert [line for line in lines.values() if not line["agrees"]] == []
    asked = {"loss": 1e-6, "largest logit": 3e-5, "gradient by tensor": 1e-5, "gradient norm": 1e-6}
    for name, tolerance in {**asked, **dict.fromkeys(EACH_UPDATE, 1e-6)}.items():
        assert lines[name]["tolerance"] == tolerance
        assert lines[name]["difference"] <= tolerance
    steps = [lines[f"gradient norm of step {number}"]["first"] for number in (1, 2, 3, 4)]
    assert len(set(steps)) == 4
    assert steps[0] == pytest.approx(lines["gradient norm"]["first"], rel=1e-6)
    # They are two programs: were all differences zero, one side would have been compared with itself.
    assert sum(line["difference"] > 0 for line in lines.values() if line["difference"] is not None) >= 3


def test_it_has_the_formulas_parameters_and_flops_in_both_programs(planted: dict[str, Any]) -> None:
    lines = lines_of(planted)
    for name, figure in {"parameters": 426_624, "FLOPs": 686_555_136}.items():
        assert [lines[name][key] for key in ("expected", "first", "second")] == [figure] * 3
    (as_it_is,) = [found for found in planted["comparisons"] if not found["plant"]]
    again = 2 * 2 * 4 * 72 * 72 * 128  # L x 2 b s^2 a d, of the scores and of what they weigh
    maxtext, nemo = (as_it_is["counted"][side] for side in ("MaxText (JAX)", "NeMo (Megatron)"))
    assert maxtext["recomputed"] == {"attention scores": again, "attention over values": again}
    assert (maxtext["total"], nemo["total"]) == (686_555_136 + 2 * again, 686_555_136)


def test_the_settings_are_those_of_the_built_models(planted: dict[str, Any]) -> None:
    told = {name: line["second"] for name, line in lines_of(planted).items() if line["tolerance"] is None}
    assert told["rope theta"] == 500_000
    assert told["activation"] == "silu x linear"
    assert (told["tied head"], told["biases"], told["rope interleaved"], told["rope scaled"]) == (False,) * 4


@pytest.mark.parametrize("name", plants_of("pretrain"))
def test_what_is_planted_is_caught_where_it_shows(planted: dict[str, Any], name: str) -> None:
    caught = set(planted["caught"]["llama3_tiny"][name])
    assert caught >= SEEN[name]
    if name in OF_UPDATES:
        assert not caught & {
            "loss",
            "largest logit",
            "gradient norm",
            "gradient by tensor",
            "gradient norm of step 1",
        }


@pytest.mark.usefixtures("planted")
def test_the_files_of_both_are_kept(folder: Path) -> None:
    assert (folder / "llama3_tiny/nemo/as_it_is/arrays.npz").exists()
    assert (folder / "llama3_tiny/jax/report.json").exists()


# --- adapters alone -----------------------------------------------------------------------------

ADAPTED = FORWARD | EACH_UPDATE
SEEN_OF_ADAPTERS = {
    "adapter_scale": ADAPTED,
    "adapter_scale_slight": ADAPTED,
    "adapter_order": ADAPTED,
    "adapter_heads": ADAPTED,
    "adapter_query_key_swapped": ADAPTED,
    "adapter_key_value_swapped": ADAPTED,
    "adapter_gate_up_swapped": ADAPTED,
    "adapter_dropped": ADAPTED,
    "base_trained": {"frozen weights changed", "gradient norm, step 1 by pass", CHANGES, *EACH_UPDATE},
}


@pytest.fixture(scope="module")
def adapted(prove: Any) -> dict[str, Any]:
    done = prove("--task=lora", "--model=llama2_tiny", "--plant=all", "--json")
    assert done.returncode == 3, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_adapters_are_trained_alike_and_nothing_else_is(adapted: dict[str, Any]) -> None:
    lines = lines_of(adapted)
    assert adapted["agree"] is True
    assert [line for line in lines.values() if not line["agrees"]] == []
    for name, figure in {"parameters": 115_008, "FLOPs": 149_815_296, "frozen weights changed": 0}.items():
        assert [lines[name][key] for key in ("expected", "first", "second")] == [figure] * 3
    assert sum(line["difference"] > 0 for line in lines.values() if line["difference"] is not None) >= 3
    (as_it_is,) = [found for found in adapted["comparisons"] if not found["plant"]]
    left_out = {side: found["left_out"] for side, found in as_it_is["counted"].items()}
    first_layers_inputs = 2 * 4 * 72 * 64 * 128  # 2 b s h (a + 2 g) d: query, key and value of the first layer
    assert left_out == {
        "MaxText (JAX)": {},
        "NeMo (Megatron)": {"gradient towards the frozen embedding": first_layers_inputs},
    }


@pytest.mark.parametrize("name", plants_of("lora"))
def test_what_is_planted_into_adapters_is_caught(adapted: dict[str, Any], name: str) -> None:
    caught = set(adapted["caught"]["llama2_tiny"][name])
    assert caught >= SEEN_OF_ADAPTERS.get(name, set())
    assert caught
