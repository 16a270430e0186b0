"""The proof that engines do the same work, with the real frameworks; each error planted on purpose is caught."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.backend import backends
from benchmarks.configs import Configs
from benchmarks.equivalence.equivalence import FLOPS, Side, compare
from benchmarks.equivalence.work import WorkReport, WorkRequest
from benchmarks.inside import work_kit
from launch.checks.equivalence import AS_IT_IS, Contender, contenders_for, train
from tests.end_to_end.runs import LIMIT_SECONDS, REPOSITORY, Starter
from tests.planted_faults import EXPERTS, OF_TASK, PRETRAIN, planted

pytestmark = pytest.mark.slow(seconds=2)

SECONDS = 2 * LIMIT_SECONDS
EACH_UPDATE = {"loss after 1 update", "loss after 2 updates", "loss after 3 updates"}
CHANGES = "change by tensor, 3 updates"
FORWARD = {"loss", "largest logit", "gradient norm", "gradient by tensor", CHANGES}

# The required differences for each fault.
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
    "top_k": {"active experts", *FORWARD},
    "balancing": {"gradient norm", "gradient by tensor", CHANGES},
    "router_order": FORWARD,
    "experts_gate_up_swapped": FORWARD,
    "query_key_norms_swapped": FORWARD,
}
OF_UPDATES = {"norms_decayed", "weight_decay", "warmup", "learning_rate", "adam_epsilon", "adam_beta2", "not_clipped"}


@pytest.fixture(scope="module")
def prove(jax_python: Path, nemo_python: Path, bridge_python: Path, starter: Starter) -> Any:  # noqa: ARG001
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
def compared(prove: Any, folder: Path) -> dict[str, Any]:
    done = prove("--model=llama3_tiny", "--json", f"--output_dir={folder}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


ENGINES = ["nemo", "bridge"]  # each is compared with MaxText


def lines_of(proof: dict[str, Any], engine: str = "nemo") -> dict[str, dict[str, Any]]:
    comparison = proof["comparisons"][ENGINES.index(engine)]
    return {line["quantity"]: line for line in comparison["lines"]}


def caught_faults(
    kept: Path, name: str, task: str, scratch: Path, engine: str = "nemo", faults: str = ""
) -> dict[str, set[str]]:
    """The lines that each fault moves: the engine trains once with each, from the files of a proof that was kept."""
    model = Configs().model(name)
    (first, *others), _ = contenders_for(model, backends(), task)
    second = next(one for one in others if engine in (one.name, one.benchmark.engine))
    sides = [kept_side(kept / name, contender) for contender in (first, second)]
    place = kept / name / second.name
    case = msgspec.json.decode((place / work_kit.REQUEST).read_bytes(), type=WorkRequest).cases[AS_IT_IS]
    uncounted, given = (
        msgspec.structs.replace(case, count_flops=False),
        work_kit.read(place / AS_IT_IS / work_kit.GIVEN),
    )
    cases = {fault.name: planted(fault, uncounted, given, model) for fault in OF_TASK[faults or task].values()}
    _, found = train(second, cases, scratch)
    lora = first.benchmark.lora
    as_it_is = {line.quantity for line in compare(model, *sides, lora).differing}
    return {
        fault: {line.quantity for line in compare(model, sides[0], side, lora).differing} - as_it_is - {FLOPS}
        for fault, side in found.items()
    }


def kept_side(folder: Path, contender: Contender) -> Side:
    place = folder / contender.name
    report = msgspec.json.decode((place / "report.json").read_bytes(), type=WorkReport)
    arrays = work_kit.read(place / AS_IT_IS / work_kit.ARRAYS)
    return Side(contender.title, report.cases[AS_IT_IS], arrays)


Caught = Callable[[str], dict[str, set[str]]]


@pytest.fixture(scope="module")
def caught(compared: dict[str, Any], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Caught:
    assert compared["agree"]
    scratch = tmp_path_factory.mktemp("faults")
    return functools.cache(lambda engine: caught_faults(folder, "llama3_tiny", "pretrain", scratch, engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_the_same_work_within_every_tolerance(compared: dict[str, Any], engine: str) -> None:
    lines = lines_of(compared, engine)
    assert compared["agree"] is True
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


TITLES = {"nemo": "NeMo (Megatron)", "bridge": "Megatron Bridge"}


@pytest.mark.parametrize("engine", ENGINES)
def test_it_has_the_formulas_parameters_and_flops_in_both_programs(compared: dict[str, Any], engine: str) -> None:
    lines = lines_of(compared, engine)
    for name, figure in {"parameters": 426_624, "FLOPs": 686_555_136}.items():
        assert [lines[name][key] for key in ("expected", "first", "second")] == [figure] * 3
    as_it_is = compared["comparisons"][ENGINES.index(engine)]
    again = 2 * 2 * 4 * 72 * 72 * 128  # L x 2 b s^2 a d, of the scores and the weighted values
    maxtext, nemo = (as_it_is["counted"][side] for side in ("MaxText (JAX)", TITLES[engine]))
    assert maxtext["recomputed"] == {"attention scores": again, "attention over values": again}
    assert (maxtext["total"], nemo["total"]) == (686_555_136 + 2 * again, 686_555_136)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_settings_are_those_of_the_built_models(compared: dict[str, Any], engine: str) -> None:
    values = {name: line["second"] for name, line in lines_of(compared, engine).items() if line["tolerance"] is None}
    assert values["rope theta"] == 500_000
    assert values["activation"] == "silu x linear"
    assert (values["tied head"], values["biases"], values["rope interleaved"], values["rope scaled"]) == (False,) * 4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", OF_TASK["pretrain"])
def test_what_is_planted_is_caught_where_it_shows(caught: Caught, name: str, engine: str) -> None:
    assert caught(engine)[name] >= SEEN[name]
    if name in OF_UPDATES:
        assert not caught(engine)[name] & {
            "loss",
            "largest logit",
            "gradient norm",
            "gradient by tensor",
            "gradient norm of step 1",
        }


@pytest.fixture(scope="module")
def caught_in_experts(prove: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """MaxText and Megatron-Bridge do the same work on a tiny mixture of experts, which NeMo does not train."""
    done = prove("--model=qwen3_moe_tiny", "--json", f"--output_dir={folder / 'experts'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["comparisons"]) == 1
    scratch = tmp_path_factory.mktemp("faults")
    return caught_faults(folder / "experts", "qwen3_moe_tiny", PRETRAIN, scratch, "bridge", EXPERTS)


@pytest.mark.parametrize("name", OF_TASK[EXPERTS])
def test_what_is_planted_into_experts_is_caught(caught_in_experts: dict[str, set[str]], name: str) -> None:
    assert caught_in_experts[name] >= SEEN[name]
    if name == "balancing":
        assert not caught_in_experts[name] & {"loss", "largest logit"}


@pytest.mark.usefixtures("compared")
def test_the_files_of_both_are_kept(folder: Path) -> None:
    assert (folder / "llama3_tiny/nemo/as_it_is/arrays.npz").exists()
    assert (folder / "llama3_tiny/jax/report.json").exists()
    assert (folder / "llama3_tiny/bridge/as_it_is/arrays.npz").exists()


# --- adapters -----------------------------------------------------------------------------------

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
    "base_trained": {"frozen weights changed", "gradient norm, step 1 / separate pass", CHANGES, *EACH_UPDATE},
}


@pytest.fixture(scope="module")
def adapted(prove: Any, folder: Path) -> dict[str, Any]:
    done = prove("--task=lora", "--model=llama2_tiny", "--json", f"--output_dir={folder / 'lora'}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_adapters_are_trained_alike_and_nothing_else_is(adapted: dict[str, Any], engine: str) -> None:
    lines = lines_of(adapted, engine)
    assert adapted["agree"] is True
    assert [line for line in lines.values() if not line["agrees"]] == []
    for name, figure in {"parameters": 115_008, "FLOPs": 149_815_296, "frozen weights changed": 0}.items():
        assert [lines[name][key] for key in ("expected", "first", "second")] == [figure] * 3
    assert sum(line["difference"] > 0 for line in lines.values() if line["difference"] is not None) >= 3
    as_it_is = adapted["comparisons"][ENGINES.index(engine)]
    left_out = {side: found["left_out"] for side, found in as_it_is["counted"].items()}
    first_layers_inputs = 2 * 4 * 72 * 64 * 128  # 2 b s h (a + 2 g) d: query, key and value of the first layer
    assert left_out == {
        "MaxText (JAX)": {},
        TITLES[engine]: {"gradient towards the frozen embedding": first_layers_inputs},
    }


@pytest.fixture(scope="module")
def caught_in_adapters(adapted: dict[str, Any], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Caught:
    assert adapted["agree"]
    scratch = tmp_path_factory.mktemp("faults")
    return functools.cache(lambda engine: caught_faults(folder / "lora", "llama2_tiny", "lora", scratch, engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", OF_TASK["lora"])
def test_what_is_planted_into_adapters_is_caught(caught_in_adapters: Caught, name: str, engine: str) -> None:
    assert caught_in_adapters(engine)[name] >= SEEN_OF_ADAPTERS[name]
