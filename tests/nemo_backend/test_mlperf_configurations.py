"""The variables of each MLPerf recipe against those that the public configuration exports: names and values.

mlperf_configurations.yml holds the public ones. A difference is intended only where mlperf_intended.yml names it
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


def ours(row: Mapping[str, Any]) -> dict[str, str]:
    benchmark = resolved(row["recipe"], hardware=row["hardware"], gpus=row["gpus"])
    return variables(benchmark, read_submission(Configs(), benchmark.model.name))


@pytest.mark.parametrize("row", PUBLIC, ids=lambda row: f"{row['recipe']}-{row['hardware']}-{row['gpus']}")
def test_a_recipe_sets_what_the_public_configuration_sets(row: dict[str, Any]) -> None:
    found = differences(row["variables"], ours(row))
    assert {name: pair for name, pair in found.items() if intended(row["recipe"], name) is None} == {}


def test_every_intended_difference_is_one() -> None:
    found = {(row["recipe"], name) for row in PUBLIC for name in differences(row["variables"], ours(row))}
    for recipe, patterns in INTENDED.items():
        names = {name for of, name in found if recipe in ("everywhere", of)}
        assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in names)] == []


def test_every_closed_recipe_is_held_to_a_public_configuration() -> None:
    rows = {(row["recipe"], row["hardware"], row["gpus"]) for row in PUBLIC}
    alike = {(recipe, hardware, gpus) for recipe, hardware, gpus in ROWS if not recipe.endswith("_guide")}
    assert rows == alike
