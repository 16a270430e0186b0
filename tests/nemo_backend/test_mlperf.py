"""NVIDIA's submissions without their containers: the recipes, the phases of a job, what is refused, what is read.

mlperf_configurations.yml holds the variables that the public configurations export. A difference is intended only
where mlperf_intended.yml names it with its reason.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml

from benchmarks.assets import read_needs
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.job_record import ProcessEnd
from benchmarks.measuring.summary import RunEvidence, summarise
from benchmarks.mlperf.admission import broken_rules, rules_of
from benchmarks.mlperf.submission import division_of, read_submission, variables
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.first_check import RESULT_PREFIX, is_ok
from benchmarks.values import SUBMISSION_ENGINE, Benchmark, Site
from nemo_backend import BACKEND
from nemo_backend.inside import mlperf_check
from nemo_backend.mlperf_planning import submissions

CONFIGS = Configs()
RECIPES = [recipe for recipe in CONFIGS.recipes() if recipe.engine.startswith(SUBMISSION_ENGINE)]
ROWS = [
    (recipe.name, hardware, layout.gpus)
    for recipe in RECIPES
    for hardware in recipe.hardware
    for layout in recipe.layouts
]
DATA = "/lustre/mlperf"


class AtSite:
    """The configs, with a site of containers whose nodes have any GPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(CONFIGS, name)

    def site(self, name: str) -> Site:  # noqa: ARG002
        site = CONFIGS.site("example_pyxis")
        assert site.slurm is not None
        every = msgspec.structs.replace(site.slurm, hardware=CONFIGS.names("hardware"))
        return msgspec.structs.replace(site, slurm=every)


def resolved(recipe: str = "mlperf_llama2_70b_lora_h100", **wanted: Any) -> Benchmark:
    row = CONFIGS.recipe(recipe)
    wanted = {"data": DATA, "hardware": row.defaults.hardware, "recipe": recipe, "site": "any", **wanted}
    return resolve(Request(backend="nemo", task="mlperf", model=row.models[0], **wanted), AtSite(), BACKEND)


@pytest.mark.parametrize(("recipe", "hardware", "gpus"), ROWS)
def test_every_recipe_is_admitted_in_its_division(recipe: str, hardware: str, gpus: int) -> None:
    benchmark = resolved(recipe, hardware=hardware, gpus=gpus)
    found = broken_rules(benchmark, *rules_of(benchmark, CONFIGS))
    assert [one.what for one in found if one.refuses(division_of(benchmark))] == []
    assert division_of(benchmark) == ("open" if recipe.endswith("_guide") else "closed")


def test_the_job_disturbs_nobody_and_takes_no_fixed_port() -> None:
    phases = {phase.name: phase for phase in BACKEND.plan(resolved()).phases}
    assert list(phases) == ["clear", "nccl", "train"]
    assert [name for name, phase in phases.items() if phase.alone] == ["clear"]
    assert phases["clear"].on_host and not phases["train"].on_host
    assert "MASTER_PORT" not in phases["train"].environment
    assert phases["train"].mounts == [
        f"{DATA}/gov_report:/data:ro", f"{DATA}/model:/ckpt:ro", "{phase_dir}:/results",
    ]  # fmt: skip
    check = BACKEND.check_phase(resolved())
    assert check is not None
    assert (check.nodes, check.tasks, check.as_root, check.mounts) == (1, 1, True, phases["train"].mounts[:2])
    assert "/data/train.npy=192151239" in check.command
    assert "/data/validation.npy=8521136" in check.command
    quiet = resolved(settings={"CLEAR_CACHES": "false", "VBOOST_VALUE": "0", "NCCL_TEST": "false"})
    assert [phase.name for phase in BACKEND.plan(quiet).phases] == ["train"]
    eight = {phase.name: phase for phase in BACKEND.plan(resolved("mlperf_llama31_8b_gb300")).phases}
    assert "{phase_dir}/npy_index:/npy_index" in eight["train"].mounts
    assert f"{DATA}/8b/tokenizer:/workspace/llm/nemo_tokenizer:ro" in eight["train"].mounts


REFUSALS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("refusals_mlperf.yml").read_text())


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row["words"])
def test_what_a_submission_cannot_be_asked(row: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        resolved(**{name: value for name, value in row.items() if name != "words"})
    assert row["words"] in str(refused.value)


def test_a_site_without_containers_is_refused() -> None:
    benchmark = resolved()
    venv = msgspec.structs.replace(benchmark, site=msgspec.structs.replace(benchmark.site, runtime="venv"))
    (refused,) = BACKEND.refusals(venv)
    assert "needs Slurm and containers" in refused.what


def test_every_variable_of_a_recipe_is_one_of_its_submission() -> None:
    assert set(submissions()) == set(CONFIGS.names("submissions")) == {"llama2_70b_lora", "llama31_8b", "flux1"}
    for submission in submissions().values():
        assert not {kept.name for kept in submission.kept} & submission.settings.keys()
        assert read_needs(CONFIGS, f"nemo_mlperf_{submission.name}").models == [submission.name]


# --- what is read -------------------------------------------------------------------------------


def mllog(key: str, value: str, at: int, metadata: str = "") -> str:
    return (
        f':::MLLOG {{"namespace": "", "time_ms": {at}, "event_type": "POINT_IN_TIME", "key": "{key}",'
        f' "value": {value}, "metadata": {{"file": "x", "lineno": 1{metadata}}}}}\n'
    )


def log_of(status: str = "success", loss: str = "0.9245", batch: int = 8, cleared: bool = True) -> str:
    count = ', "samples_count": 1536'
    return "".join(
        [
            mllog("cache_clear", "true", 1_000) if cleared else "",
            mllog("init_start", "null", 2_000),
            mllog("global_batch_size", str(batch), 2_500),
            mllog("run_start", "null", 60_000),
            mllog("block_start", "null", 60_000, count),
            mllog("block_stop", "null", 360_000, count),
            mllog("eval_start", "null", 360_000, count),
            mllog("eval_accuracy", loss, 370_000, count),
            mllog("eval_stop", "null", 370_000, count),
            mllog("run_stop", "null", 371_000, f', "status": "{status}"{count}'),
        ]
    )


def result_of(folder: Path, text: str | None, benchmark: Benchmark | None = None) -> Any:
    benchmark = benchmark or resolved()
    phase = folder / "attempt-1" / "train"
    phase.mkdir(parents=True)
    if text is not None:
        (phase / "result_0.txt").write_text(text)
    for rank in range(benchmark.gpus):
        (phase / f"rank-{rank}.log").write_text("")
    record = BACKEND.read_phase(benchmark, phase, 1)
    ended = [ProcessEnd(rank=rank, exit_code=0, time=1.0, host="node1") for rank in range(benchmark.gpus)]
    return summarise(RunEvidence(benchmark=benchmark, run_id="run", record=record, ended=ended))[0]


def test_a_success_is_valid_without_a_step_in_its_log(tmp_path: Path) -> None:
    result = result_of(tmp_path, log_of())
    assert (result.status, result.reasons) == ("valid", [])
    assert (result.mlperf.seconds, result.mlperf.init_seconds) == (311.0, 58.0)
    assert result.mlperf.parts == {"training": 300.0, "evaluation": 10.0, "checkpoint": 0.0, "other": 1.0}
    assert result.seconds_per_step.median is None
    assert "seconds_per_step" in result.null_because


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (log_of("aborted", "0.9457"), "invalid", "the best of 1 was 0.9457"),
        (log_of("success", "0.9457"), "invalid", "no evaluation reached 0.925"),
        (log_of("aborted"), "invalid", "run ended as 'aborted'"),
        (log_of(batch=16), "invalid", "a global batch of 16, but"),
        (log_of(cleared=False), "invalid", "the caches were cleared"),
        (log_of()[:-200], "failed", "its log has no run_stop"),
        (None, "failed", "its log has no run_start"),
    ],
)
def test_what_proves_nothing(tmp_path: Path, text: str | None, status: str, words: str) -> None:
    result = result_of(tmp_path, text)
    assert result.status == status
    assert words in " ".join(result.reasons)


def test_flux1_has_no_flops_and_says_why(tmp_path: Path) -> None:
    benchmark = resolved("mlperf_flux1_b200")
    result = result_of(tmp_path, log_of(loss="0.5", batch=1024), benchmark)
    assert result.model_flops_per_step is None
    assert "diffusion" in result.null_because["model_flops_per_step"]
    assert result.mfu is None


# --- the check of the mounts ----------------------------------------------------------------------


def test_the_check_names_every_fault_and_ends_with_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], put_modules: Any
) -> None:
    def variables_of(gpus: int, *files: str) -> str:
        code = mlperf_check.main(gpus, list(files))
        last = capsys.readouterr().out.splitlines()[-1]
        assert (code == 0) is is_ok(last.removeprefix(RESULT_PREFIX))
        return last

    (tmp_path / "whole").write_bytes(b"12345")
    (tmp_path / "short").write_bytes(b"123")
    (tmp_path / "hollow").mkdir()
    whole = f"{tmp_path}/whole=5"
    assert variables_of(8, whole, f"{tmp_path}/short=5", f"{tmp_path}/gone=", f"{tmp_path}/hollow=").startswith(
        f"{RESULT_PREFIX}mounts: {tmp_path}/short has 3 bytes instead of 5; {tmp_path}/gone: No such file"
    )
    assert variables_of(8, whole).startswith(f"{RESULT_PREFIX}PyTorch cannot be imported; ModuleNotFoundError")
    put_modules({"torch": {"cuda": SimpleNamespace(device_count=lambda: 4), "__version__": "2.9"}})
    assert variables_of(8, whole).startswith(f"{RESULT_PREFIX}the process sees 4 devices")
    assert variables_of(4, whole).startswith(f"{RESULT_PREFIX}ok {{")


# --- variables of the public configurations -------------------------------------------


HERE = Path(__file__).parent
PUBLIC: list[dict[str, Any]] = yaml.safe_load((HERE / "mlperf_configurations.yml").read_text())
INTENDED: dict[str, dict[str, str]] = yaml.safe_load((HERE / "mlperf_intended.yml").read_text())


def intended(recipe: str, name: str) -> str | None:
    rows = {**INTENDED["everywhere"], **INTENDED.get(recipe, {})}
    return next((reason for pattern, reason in rows.items() if re.fullmatch(pattern, name)), None)


def differences(public: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    return {
        name: (public.get(name), ours.get(name))
        for name in sorted({*public, *ours})
        if plain(public.get(name)) != plain(ours.get(name))
    }


def plain(value: str | None) -> str | None:
    """Hydra reads 1 and True alike."""
    return {"True": "1", "False": "0"}.get(value, value) if value is not None else None


def own_variables(row: Mapping[str, Any]) -> dict[str, str]:
    benchmark = resolved(row["recipe"], hardware=row["hardware"], gpus=row["gpus"])
    return variables(benchmark, read_submission(Configs(), benchmark.model.name))


@pytest.mark.parametrize("row", PUBLIC, ids=lambda row: f"{row['recipe']}-{row['hardware']}-{row['gpus']}")
def test_a_recipe_sets_what_the_public_configuration_sets(row: dict[str, Any]) -> None:
    found = differences(row["variables"], own_variables(row))
    assert {name: pair for name, pair in found.items() if intended(row["recipe"], name) is None} == {}


def test_every_intended_difference_is_one() -> None:
    found = {(row["recipe"], name) for row in PUBLIC for name in differences(row["variables"], own_variables(row))}
    for recipe, patterns in INTENDED.items():
        names = {name for of, name in found if recipe in ("everywhere", of)}
        assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in names)] == []


def test_every_closed_recipe_is_held_to_a_public_configuration() -> None:
    rows = {(row["recipe"], row["hardware"], row["gpus"]) for row in PUBLIC}
    alike = {(recipe, hardware, gpus) for recipe, hardware, gpus in ROWS if not recipe.endswith("_guide")}
    assert rows == alike
