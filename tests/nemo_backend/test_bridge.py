"""Megatron-Bridge without a GPU: its recipes, the command that is made of them, and what is refused.

The commands in golden/bridge_*.txt are what would run. After a change that is meant, record them anew:

    STEPMARK_RECORD_GOLDEN=1 python -m pytest tests/nemo_backend/test_bridge.py
"""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs, parse_yaml
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Lora, Recipe, Scalar
from nemo_backend import BACKEND, bridge_planning, bridge_refusals
from nemo_backend.bridge_planning import FP8_SCALINGS, PRETRAINED, hydra_text, overrides
from tests.nemo_backend.a_dataset import write_dataset

CONFIGS = Configs()
GOLDEN = Path(__file__).parent / "golden"
RECIPES = [recipe for recipe in CONFIGS.recipes() if recipe.engine == "bridge"]
CHECKPOINT = {PRETRAINED: "/checkpoints/llama3_70b"}
SCALES = [
    (recipe, dtype, hardware)
    for recipe in RECIPES
    for hardware in recipe.hardware
    for dtype in recipe.dtypes[hardware]
]


class OneRecipe(Configs):
    """The configs with one recipe, so that which is chosen is no question here."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._recipe = CONFIGS.recipe(name)

    def recipes(self, *_asked: Any, **_by_name: Any) -> list[Recipe]:
        return [self._recipe]


def resolved(
    recipe: str = "bridge_llama3_70b_pretrain_h100", chosen: dict[str, str] | None = None, **wanted: Any
) -> Benchmark:
    row = CONFIGS.recipe(recipe)
    settings = {**(CHECKPOINT if row.task == "lora" else {}), **(chosen or {})}
    request = Request(
        backend="nemo", engine="bridge", model=row.models[0], task=row.task, settings=settings, **wanted
    )
    return resolve(request, OneRecipe(recipe), BACKEND)


def changed(benchmark: Benchmark, knobs: dict[str, Scalar] | None = None, **fields: Any) -> Benchmark:
    return msgspec.structs.replace(benchmark, knobs={**benchmark.knobs, **(knobs or {})}, **fields)


def refused(benchmark: Benchmark) -> RequestError:
    (error,) = bridge_refusals.refusals(benchmark)
    assert error.what and error.where and error.why and error.next_command
    return error


# --- golden -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "dtype", "gpus"),
    [
        ("bridge_llama3_70b_pretrain_h100", "fp8", 64),
        ("bridge_llama3_70b_lora_h100_bf16", "bf16", 8),
    ],
)
def test_the_command_is_as_recorded(recipe: str, dtype: str, gpus: int) -> None:
    (phase,) = bridge_planning.plan(resolved(recipe, dtype=dtype, gpus=gpus)).phases
    environment = [f"{name}={value}" for name, value in phase.environment.items()]
    tasks = f"{phase.nodes} nodes, {phase.tasks_per_node} tasks a node, {phase.devices_per_task} device a task"
    text = "\n".join([tasks, "", *environment, "", *phase.command]) + "\n"
    path = GOLDEN / f"{recipe}_{dtype}_{gpus}.txt"
    if os.environ.get("STEPMARK_RECORD_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


# --- recipes ------------------------------------------------------------------------------------------


def refused_words(command: list[str]) -> list[str]:
    """The words of a command that run_recipe.py of the tag would not take."""
    listed = Path(bridge_planning.__file__).with_name("bridge_settings.yml")
    options, recipes = parse_yaml(listed)["options"], bridge_planning.benchmark_recipes()
    found = []
    for word in command[2:]:
        name, _, value = word.partition("=")
        if name == "--recipe":
            known = value in recipes | bridge_planning.library_recipes()
        elif name.startswith("-"):
            known = name in options and (not options[name] or value in options[name])
        else:
            known = name in bridge_planning.settings()
        found += [] if known else [word]
    return found


@pytest.mark.parametrize(("recipe", "dtype", "hardware"), SCALES, ids=lambda value: getattr(value, "name", value))
def test_every_word_of_every_command_is_known_to_the_tag(recipe: Recipe, dtype: str, hardware: str) -> None:
    """Options, recipes and overrides are those of the released sources, as bridge_settings.yml lists them."""
    for layout in recipe.layouts:
        benchmark = resolved(recipe.name, dtype=dtype, hardware=hardware, gpus=layout.gpus)
        assert refused_words(bridge_planning.command(benchmark)) == []
        assert not benchmark.knobs.keys() & bridge_planning.RESERVED.keys()
        assert bridge_planning.is_benchmark_recipe(benchmark) is ("gpu_" in str(benchmark.knobs["recipe"]))
        assert bridge_planning.hub_repository(benchmark.model.name) is not None


def test_a_word_that_the_tag_does_not_know_is_seen() -> None:
    command = ["{python}", "run_recipe.py", "--recipe=llama9_config", "--mode=rlhf", "--steps=3", "model.no_field=1"]
    assert refused_words(command) == command[2:]


# --- the command --------------------------------------------------------------------------------------


def test_precision_of_a_benchmark_recipe_is_in_fields() -> None:
    bf16, fp8 = overrides(resolved(dtype="bf16")), overrides(resolved(dtype="fp8"))
    assert (bf16["mixed_precision.bf16"], bf16["mixed_precision.fp8"]) == ("true", "null")
    assert (fp8["mixed_precision.fp8"], fp8["mixed_precision.fp8_recipe"]) == ("hybrid", "tensorwise")


@pytest.mark.parametrize("scaling", ["tensorwise", "delayed", "blockwise"])
def test_precision_of_a_library_recipe_is_a_name(scaling: str) -> None:
    bf16 = resolved("bridge_llama31_70b_pretrain_h100")
    assert overrides(bf16)["mixed_precision"] == "bf16_mixed"
    fp8 = changed(bf16, {"mixed_precision.fp8_recipe": scaling}, dtype="fp8")
    assert bridge_refusals.refusals(fp8) == []
    found = overrides(fp8)
    assert found["mixed_precision"] == FP8_SCALINGS[scaling][1]
    assert not any(key.startswith("mixed_precision.") for key in found)


def test_lora_is_stated_and_read_in_common_words() -> None:
    benchmark = resolved("bridge_llama3_70b_lora_h100_bf16")
    assert benchmark.lora == Lora(rank=16, alpha=32.0, dropout=0.0, targets=["query_key_value"])
    found = overrides(benchmark)
    assert (found["peft.dim"], found["peft.alpha"], found["peft.target_modules"]) == ("16", "32", "[linear_qkv]")
    assert found[PRETRAINED] == "/checkpoints/llama3_70b"
    assert "--mode=lora" in bridge_planning.plan(benchmark).phases[0].command


@pytest.mark.parametrize(
    "text", ["linear_qkv,linear_fc2", "[linear_qkv,linear_fc2]", "[ 'linear_qkv', 'linear_fc2' ]"]
)
def test_places_of_adapters_are_read_as_typed(text: str) -> None:
    knobs: dict[str, Scalar] = {"peft.dim": 8, "peft.alpha": 16, "peft.target_modules": text}
    assert BACKEND.lora(knobs).targets == ["query_key_value", "mlp_output"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a/b-c_1.2:3", "a/b-c_1.2:3"),
        ("a b", "'a b'"),
        ("a,b=c", "'a,b=c'"),
        ("it's", r"'it\'s'"),
        (r"a\b", r"'a\b'"),
        (r"a\'b", r"'a\\\'b'"),
        ("a\\", r"'a\\'"),
    ],
)
def test_text_as_hydra_1_3_reads_it_back(text: str, written: str) -> None:
    assert hydra_text("logger.wandb_project", text) == written


# --- data ---------------------------------------------------------------------------------------------


def test_a_folder_of_tokens_reaches_a_recipe_of_either_kind(tmp_path: Path) -> None:
    write_dataset(tmp_path, ("t_0", "t_1"))
    for recipe, preset in (
        ("bridge_llama3_70b_pretrain_h100", []),
        ("bridge_llama31_70b_pretrain_h100", ["megatron-indexed"]),
    ):
        benchmark = resolved(recipe, data=str(tmp_path))
        command = bridge_planning.plan(benchmark).phases[0].command
        assert [word for word in command if word.startswith("--dataset")] == [f"--dataset={name}" for name in preset]
        assert f"dataset.data_path=['{tmp_path}/t_0','{tmp_path}/t_1']" in command
        assert "dataset.path_to_cache='{phase_dir}/index'" in command


def test_questions_and_answers_need_a_library_recipe(tmp_path: Path) -> None:
    tuned = resolved("bridge_llama3_70b_lora_h100_bf16")
    assert "on its own mock data" in refused(changed(tuned, data=str(tmp_path))).what
    library = changed(tuned, {"recipe": "llama3_70b_peft_config"}, data=str(tmp_path))
    library = msgspec.structs.replace(
        library, knobs={k: v for k, v in library.knobs.items() if "mixed_precision" not in k}
    )
    assert bridge_refusals.refusals(library) == []
    command = bridge_planning.plan(library).phases[0].command
    assert "--dataset=local-jsonl" in command
    assert f"dataset.dataset_root='{tmp_path}'" in command
    assert "real text only" in refused(changed(library, data="mock")).what


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hardware", ["cpu", "mi300x", "tpu_v5p"])
def test_what_is_no_nvidia_gpu_is_refused(hardware: str) -> None:
    error = refused(changed(resolved(), hardware=CONFIGS.hardware(hardware)))
    assert "does not run on" in error.what
    assert "Transformer Engine" in error.why
    assert error.next_command.startswith("--engine=nemo")


@pytest.mark.parametrize("key", ["trainer.max_steps", "data.num_workers", "model.config.num_layers", "peft.no_such"])
def test_a_setting_of_the_other_engine_is_refused(key: str) -> None:
    error = refused(changed(resolved(), {key: 1}))
    assert f"no setting '{key}'" in error.what
    assert error.where == f"--set={key}"


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"recipe": "llama3_70b_pretrain_64gpu_h100_bf61_config"}, "did you mean"),
        ({"recipe": "llama3_8b_pretrain_8gpu_h100_bf16_config"}, "is not for pretrain of llama3_70b"),
        ({"recipe": "llama3_70b_peft_8gpu_h100_bf16_config"}, "is not for pretrain of llama3_70b"),
        ({"recipe": "llama3_70b_pretrain_64gpu_h100_fp8cs_config"}, "is for fp8cs, the benchmark for bf16"),
    ],
)
def test_a_recipe_of_something_else_is_refused(knobs: dict[str, Scalar], what: str) -> None:
    assert what in refused(changed(resolved(), knobs)).what


@pytest.mark.parametrize(
    ("hardware", "scaling", "what"),
    [
        ("h100", "mxfp8", "has no mxfp8 scaling"),
        ("b200", "blockwise", "has no blockwise scaling"),
        ("h100", "none", "not known"),
    ],
)
def test_a_scaling_that_is_not_there_is_refused(hardware: str, scaling: str, what: str) -> None:
    benchmark = resolved("bridge_llama31_70b_pretrain_h100")
    knobs: dict[str, Scalar] = {"mixed_precision.fp8_recipe": scaling}
    error = refused(changed(benchmark, knobs, dtype="fp8", hardware=CONFIGS.hardware(hardware)))
    assert what in error.what


def test_a_precision_that_is_not_the_dtype_is_refused() -> None:
    benchmark = resolved("bridge_llama31_70b_pretrain_h100")
    assert "has no fp32" in refused(changed(benchmark, dtype="fp32")).what
    assert "for a bf16 benchmark" in refused(changed(benchmark, {"mixed_precision.fp8": "hybrid"})).what
    assert "with a library recipe" in refused(changed(benchmark, {"mixed_precision.grad_reduce_in_fp32": False})).what


def test_lora_without_weights_is_refused() -> None:
    benchmark = resolved("bridge_llama3_70b_lora_h100_bf16")
    knobs = {key: value for key, value in benchmark.knobs.items() if key != PRETRAINED}
    error = refused(msgspec.structs.replace(benchmark, knobs=knobs))
    assert error.next_command.startswith(f"--set={PRETRAINED}=DIR")


# --- the list of settings -----------------------------------------------------------------------------


def test_reserved_settings_are_settings_of_megatron_bridge() -> None:
    assert bridge_planning.RESERVED.keys() <= bridge_planning.settings().keys()


def test_the_list_holds_the_words_of_types_and_the_version_it_is_of() -> None:
    assert set(bridge_planning.settings().values()) <= {"bool", "int", "float", "str", "list", "dict"}
    head = Path(bridge_planning.__file__).with_name("bridge_settings.yml").read_text().splitlines()[0]
    assert f"megatron-bridge {bridge_planning.VERSION} " in head
