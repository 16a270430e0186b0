"""Megatron-Bridge without a GPU: its recipes, the command that is made of them, what is refused, and the check.

The commands in golden/bridge_*.txt are what would run. After an intended change, record them again:

    STEPMARK_RECORD_GOLDEN=1 python -m pytest tests/nemo_backend/test_bridge.py
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from benchmarks.configs import Configs, parse_yaml
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Recipe, Scalar, changed_benchmark
from nemo_backend import BACKEND, bridge_planning
from nemo_backend.bridge_planning import PRETRAINED, hydra_text, overrides
from nemo_backend.inside import bridge_check as check
from tests.megatron_dataset import write_dataset
from tests.nemo_backend.conftest import HERE
from tests.recorded import assert_recorded

CONFIGS = Configs()
GOLDEN = Path(__file__).parent / "golden"
LISTED = HERE / "bridge_settings.yml"
TUNED, LIBRARY = "bridge_llama3_70b_pretrain_h100", "bridge_llama31_70b_pretrain_h100"  # the kinds of recipe
LORA = "bridge_llama3_70b_lora_h100_bf16"
SCALES = [
    (recipe, dtype, hardware)
    for recipe in CONFIGS.recipes()
    if recipe.engine == "bridge"
    for hardware in recipe.hardware
    for dtype in recipe.dtypes[hardware]
]


def resolved(recipe: str = TUNED, **wanted: Any) -> Benchmark:
    row = CONFIGS.recipe(recipe)
    settings = {PRETRAINED: "/checkpoints/llama3_70b"} if row.task == "lora" else {}
    request = Request(
        backend="nemo",
        engine="bridge",
        recipe=recipe,
        model=row.models[0],
        task=row.task,
        settings=settings,
        **wanted,
    )
    return resolve(request, CONFIGS, BACKEND)


def changed(benchmark: Benchmark, knobs: dict[str, Scalar] | None = None, **fields: Any) -> Benchmark:
    return changed_benchmark(benchmark, knobs={**benchmark.settings.knobs, **(knobs or {})}, **fields)


def refused(benchmark: Benchmark) -> RequestError:
    (error,) = BACKEND.refusals(benchmark)
    assert error.what and error.where and error.why
    return error


def command(benchmark: Benchmark) -> list[str]:
    (phase,) = BACKEND.plan(benchmark).phases
    return phase.command


# --- the command --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recipe", "dtype", "gpus"), [(TUNED, "fp8", 64), (LORA, "bf16", 8)])
def test_the_command_is_as_recorded(recipe: str, dtype: str, gpus: int) -> None:
    (phase,) = BACKEND.plan(resolved(recipe, dtype=dtype, gpus=gpus)).phases
    environment = [f"{name}={value}" for name, value in phase.environment.items()]
    tasks = f"{phase.nodes} nodes, {phase.tasks_per_node} tasks a node, {phase.devices_per_task} device a task"
    text = "\n".join([tasks, "", *environment, "", *phase.command]) + "\n"
    assert_recorded(text, GOLDEN / f"{recipe}_{dtype}_{gpus}.txt")


def refused_words(words: list[str]) -> list[str]:
    """The words of a command that run_recipe.py of the tag would not take."""
    options = parse_yaml(LISTED)["options"]
    found = []
    for word in words[2:]:
        name, _, value = word.partition("=")
        if name == "--recipe":
            known = value in bridge_planning.recipes()
        elif name.startswith("-"):
            known = name in options and (not options[name] or value in options[name])
        else:
            # A field of the LoRA is taken only as a new one; any other only as one that exists.
            plain = name.removeprefix("++")
            known = plain in bridge_planning.settings() and (plain != name) is plain.startswith("peft.")
        found += [] if known else [word]
    return found


@pytest.mark.parametrize(("recipe", "dtype", "hardware"), SCALES, ids=lambda value: getattr(value, "name", value))
def test_every_word_of_every_command_is_known_to_the_tag(recipe: Recipe, dtype: str, hardware: str) -> None:
    """Options, recipes and overrides are those of the released sources, as bridge_settings.yml lists them."""
    for layout in recipe.layouts:
        benchmark = resolved(recipe.name, dtype=dtype, hardware=hardware, gpus=layout.gpus)
        assert refused_words(command(benchmark)) == []
        assert bridge_planning.is_benchmark_recipe(benchmark) is ("gpu_" in str(benchmark.settings.knobs["recipe"]))
        assert BACKEND.hub_repository("bridge", benchmark.model.name) is not None
    unknown = ["--recipe=llama9_config", "--mode=rlhf", "--steps=3", "model.no_field=1", "peft.dim=16"]
    assert refused_words(["{python}", "run_recipe.py", *unknown]) == unknown


@pytest.mark.parametrize(
    ("recipe", "dtype", "scaling", "stated"),
    [
        (TUNED, "bf16", None, {"mixed_precision.bf16": "true", "mixed_precision.fp8": "null"}),
        (TUNED, "fp8", None, {"mixed_precision.fp8": "hybrid", "mixed_precision.fp8_recipe": "tensorwise"}),
        (LIBRARY, "bf16", None, {"mixed_precision": "bf16_mixed"}),
        (LIBRARY, "fp8", "tensorwise", {"mixed_precision": "bf16_with_fp8_current_scaling_mixed"}),
        (LIBRARY, "fp8", "delayed", {"mixed_precision": "bf16_with_fp8_delayed_scaling_mixed"}),
        (LIBRARY, "fp8", "blockwise", {"mixed_precision": "bf16_with_fp8_subchannel_scaling_mixed"}),
    ],
)
def test_a_benchmark_recipe_has_its_precision_in_fields_a_library_recipe_by_name(
    recipe: str, dtype: str, scaling: str | None, stated: dict[str, str]
) -> None:
    benchmark = resolved(recipe, dtype="bf16" if scaling else dtype)
    if scaling:
        benchmark = changed(benchmark, {"mixed_precision.fp8_recipe": scaling}, dtype=dtype)
    assert BACKEND.refusals(benchmark) == []
    found = {key: value for key, value in overrides(benchmark).items() if key.startswith("mixed_precision")}
    assert found.items() >= stated.items()
    assert recipe == TUNED or found == stated


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


@pytest.mark.parametrize(("recipe", "preset"), [(TUNED, []), (LIBRARY, ["--dataset=megatron-indexed"])])
def test_a_folder_of_tokens_reaches_a_recipe_of_either_kind(tmp_path: Path, recipe: str, preset: list[str]) -> None:
    write_dataset(tmp_path, ("t_0", "t_1"))
    words = command(resolved(recipe, data=str(tmp_path)))
    assert [word for word in words if word.startswith("--dataset")] == preset
    assert f"dataset.data_path=['{tmp_path}/t_0','{tmp_path}/t_1']" in words
    assert "dataset.path_to_cache='{phase_dir}/index'" in words


def test_questions_and_answers_need_a_library_recipe(tmp_path: Path) -> None:
    tuned = resolved(LORA)
    assert "on its own mock data" in refused(changed(tuned, data=str(tmp_path))).what
    library = changed(tuned, {"recipe": "llama3_70b_peft_config"}, data=str(tmp_path))
    assert BACKEND.refusals(library) == []
    assert {"--dataset=local-jsonl", f"dataset.dataset_root='{tmp_path}'"} <= {*command(library)}
    assert "real text only" in refused(changed(library, data="mock")).what


# --- refusals -----------------------------------------------------------------------------------------

REFUSALS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("refusals_bridge.yml").read_text())


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row["what"])
def test_what_megatron_bridge_cannot_run_is_refused(row: dict[str, Any]) -> None:
    fields = dict(row.get("fields", {}))
    if "hardware" in fields:
        fields["hardware"] = CONFIGS.hardware(fields["hardware"])
    assert row["what"] in refused(changed(resolved(row["recipe"]), row.get("knobs"), **fields)).what


def test_lora_without_weights_is_refused() -> None:
    benchmark = resolved(LORA)
    knobs = {key: value for key, value in benchmark.settings.knobs.items() if key != PRETRAINED}
    error = refused(changed_benchmark(benchmark, knobs=knobs))
    assert f"--set={PRETRAINED}=DIR" in error.why


# --- the look at one node before a job uses the others --------------------------------------------------


def test_the_check_gets_the_runs_command_and_reports_a_missing_torch(tmp_path: Path) -> None:
    """As it is started on a node, with a Python that holds none of it."""
    benchmark = resolved(gpus=64)
    phase = BACKEND.check_phase(benchmark)
    planned = phase.command[phase.command.index("--") + 1 :]
    assert planned[:3] == ["{python}", "-P", "{repository}/nemo_backend/inside/bridge_check.py"]
    options = check.parse(planned[3:])
    assert (options.processes, options.tasks_per_node) == (64, 8)
    assert options.device_name == benchmark.hardware.device_names
    assert options.command == command(benchmark)[1:]
    words = [word.format(python=sys.executable, repository=HERE.parent, phase_dir=tmp_path) for word in planned]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last_line = done.stdout.splitlines()[-1]
    assert last_line.startswith("stepmark check: torch cannot be imported; ModuleNotFoundError")
    assert "; try: pass --image" in last_line
    end = json.loads((tmp_path / "events-rank0.jsonl").read_text())
    assert (end["event"], end["status"]) == ("end", "error")


@pytest.mark.parametrize(
    ("script", "what", "next_step"),
    [
        ("raise SystemExit('OfflineModeIsEnabled: no config.json')", "HF_HOME", "launch/setup.py"),
        ("raise KeyError('model.no_such_field')", "does not take the run's arguments; KeyError", "--set"),
        (None, "does not exist", "--image"),
    ],
    ids=["configuration", "override", "script"],
)
def test_what_run_recipe_refuses_is_named(tmp_path: Path, script: str | None, what: str, next_step: str) -> None:
    path = tmp_path / "run_recipe.py"
    if script:
        path.write_text(script)
    options = SimpleNamespace(events_dir=tmp_path, processes=64, command=[str(path), "model.x=1"])
    with pytest.raises(check.kit.CheckFailure, match=what) as failure:
        check.build_configuration(options)
    assert next_step in failure.value.next_step


def test_the_configuration_is_built_for_the_whole_run(tmp_path: Path, capsys: Any) -> None:
    """One process on one node; run_recipe.py divides the batch among all of them."""
    script = tmp_path / "run_recipe.py"
    script.write_text(
        "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['WORLD_SIZE'], os.environ['RANK']]))"
    )
    check.build_configuration(SimpleNamespace(events_dir=tmp_path, processes=64, command=[str(script), "model.x=1"]))
    arguments, *world = json.loads(capsys.readouterr().out)
    assert arguments[:2] == ["--dry-run", "model.x=1"]
    assert world == ["64", "0"]
