"""The variables of each MLPerf recipe against those that the public configuration exports: names and values.

mlperf_configurations.yml holds the public ones. A difference is intended only where INTENDED names it
with its reason.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.configs import Configs
from benchmarks.mlperf.submission import read_submission, variables
from tests.nemo_backend.test_mlperf import ROWS, resolved

PUBLIC: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "mlperf_configurations.yml").read_text())
# Pattern of names -> why we differ. A pattern without a difference fails a test.
EVERYWHERE = {
    "WALLTIME": "the job's limit is --time; WALLTIME_RUNANDTIME is that of one experiment",
    "DGXSYSTEM": "the name of the configuration, which the plan computes",
    "SEGMENT": "--segment of the job, which follows from the hardware",
    "MODEL_TFLOP_PER_SAMPLE": "for a printed throughput alone; Stepmark counts FLOPs by its own formula",
    "EXP_NAME": "the public name holds the time",
    "LIMIT_VAL_BATCHES|LOAD_CKPT|USE_SYNTHETIC_DATA": "the rules ask for it; the file relies on a default",
    "NCCL_IB_SL": "of the cluster: the test's site sets it, and so did a submitter's file",
}
AS_IN_V41 = "what the program of v5.1, which runs here, must be told to do as that of v4.1 did"
INTENDED = {
    "mlperf_llama2_70b_lora_h100": {
        "USE_TE_OPS|FUSED_SINGLE_QKV_ROPE|CG_WEIGHT_CACHING|ON_DEVICE_CLIP_GRAD|GPU_ARCH": AS_IN_V41,
        "NEMO_LORA_USE_THUNDER_DROPOUT|NVTE_NORM_.*_USE_CUDNN|TORCH_NCCL_HIGH_PRIORITY": AS_IN_V41,
        "WARMUP_.*_STEPS|VAL_MBS": "the defaults of the program",
        "HF_HUB_OFFLINE|TORCH_CPP_LOG_LEVEL|TQDM_DISABLE": "of v5.1: no downloads in a job, a quiet log",
        "SKIP_EVALS": "the program of v5.1 computes the same 3 from the batch",
    },
    "mlperf_llama2_70b_lora_gb300": {
        "MAX_STEPS": "the recipe's default is 800 at any scale; --steps=600 is this file's"
    },
    "mlperf_flux1_b200": {
        "TP": "the program's default, stated",
        "NCCL_(CUMEM|IB|IGNORE|NET|SOCKET)_.*|NCCL_DEBUG": "the network of one submitter's cluster",
        "(HCOLL|IB|RX|OMPI|PMIX|PMI|UCX|coll)_.*": "the network of one submitter's cluster",
    },
}


def intended(recipe: str, name: str) -> str | None:
    rows = {**EVERYWHERE, **INTENDED.get(recipe, {})}
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


def ours(row: Mapping[str, Any]) -> dict[str, str]:
    benchmark = resolved(row["recipe"], hardware=row["hardware"], gpus=row["gpus"])
    return variables(benchmark, read_submission(Configs(), benchmark.model.name))


@pytest.mark.parametrize("row", PUBLIC, ids=lambda row: f"{row['recipe']}-{row['hardware']}-{row['gpus']}")
def test_a_recipe_sets_what_the_public_configuration_sets(row: dict[str, Any]) -> None:
    found = differences(row["variables"], ours(row))
    assert {name: pair for name, pair in found.items() if intended(row["recipe"], name) is None} == {}


def test_every_intended_difference_is_one() -> None:
    found = {(row["recipe"], name) for row in PUBLIC for name in differences(row["variables"], ours(row))}
    for recipe, patterns in [("", EVERYWHERE), *INTENDED.items()]:
        names = {name for of, name in found if recipe in ("", of)}
        assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in names)] == []


def test_every_closed_recipe_is_held_to_a_public_configuration() -> None:
    rows = {(row["recipe"], row["hardware"], row["gpus"]) for row in PUBLIC}
    alike = {(recipe, hardware, gpus) for recipe, hardware, gpus in ROWS if not recipe.endswith("_guide")}
    assert rows == alike
