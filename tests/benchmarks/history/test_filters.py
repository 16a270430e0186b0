"""Conditions on runs: what they mean to the index, and what is refused."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.errors import RequestError
from benchmarks.history.filters import (
    COLUMNS,
    Condition,
    columns_of,
    parse_condition,
    sql_of,
)
from benchmarks.runs.finished_run import FinishedRun
from tests.benchmarks.history.made_runs import an_entry


def fits(text: str, **changes: Any) -> bool:
    return bool(chosen([an_entry(**changes)], [parse_condition(text)]))


def chosen(entries: Sequence[FinishedRun], asked: Sequence[Condition]) -> set[str]:
    connection = sqlite3.connect(":memory:")
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    connection.execute(f"CREATE TABLE runs (path, {names})")
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    connection.executemany(f"INSERT INTO runs VALUES ({marks})", [(e.path, *columns_of(e)) for e in entries])
    hit, parameters = sql_of(asked)
    return {row[0] for row in connection.execute(f"SELECT path FROM runs WHERE {hit}", parameters)}


@pytest.mark.parametrize(
    ("text", "fitting", "other"),
    [
        ("model=llama2_70b", {}, {"model": "llama2_7b"}),
        ("dtype=bf16,fp8", {"dtype": "fp8"}, {"dtype": "fp32"}),
        ("dtype!=bf16,fp8", {"dtype": "fp32"}, {"dtype": "fp8"}),
        ("gpus>=64", {"gpus": 64}, {"gpus": 63}),
        ("gpus > 64", {"gpus": 65}, {"gpus": 64}),
        ("gpus<=64", {"gpus": 64}, {"gpus": 65}),
        ("gpus<64", {"gpus": 8}, {"gpus": 64}),
        ("gpus=8,16", {"gpus": 16}, {"gpus": 64}),
        ("nodes=8.0", {}, {"nodes": 9}),
        ("date=2026-11", {}, {"started": "2026-12-01T00:00:00Z"}),
        ("date>=2026-11-22", {}, {"started": "2026-11-21T23:59:59Z"}),
        ("date<=2026-11-22", {"started": "2026-11-22T23:59:59Z"}, {"started": "2026-11-23T00:00:00Z"}),
        ("date>2026-11-21", {}, {"started": "2026-11-21T23:59:59Z"}),
        ("date<2026-11-22T03:45:12Z", {}, {"started": "2026-11-22T03:45:12Z"}),
        ("date=2026-11-22 03", {}, {"started": "2026-11-22T04:00:00Z"}),
        ("commit=a1b2", {}, {"commit": "0a1b2"}),
        ("run=0345", {}, {"run_id": "20261122T044511Z"}),
        ("tag=accept", {"tags": ["trial", "accept"]}, {"tags": ["accepted"]}),
        ("tag!=trial", {"tags": ["accept"]}, {"tags": ["accept", "trial"]}),
        ("suite=smoke", {"suite": "smoke"}, {"suite": None}),
        ("suite!=smoke", {"suite": None}, {"suite": "smoke"}),
        ("night>=20261101", {"night": "20261101T020000Z"}, {"night": None}),
        ("slowed=0", {}, {"slowed_by": 0.5}),
        ("status=valid", {}, {"status": "running"}),
        ("batch=256", {}, {"global_batch_size": 128}),
    ],
)
def test_what_a_condition_means(text: str, fitting: dict[str, Any], other: dict[str, Any]) -> None:
    assert fits(text, **fitting)
    assert not fits(text, **other)


def test_a_time_that_is_not_known_is_neither_before_nor_after() -> None:
    assert not fits("date<2030", started="")
    assert not fits("date>=2000", started="")
    assert fits("date!=2026", started="")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modl=x", "did you mean 'model'?"),
        ("model", "KEY=VALUE"),
        ("model=", "a value is expected"),
        ("model=a,,b", "a value is expected"),
        ("gpus=many", "'many' is none"),
        ("gpus=nan", "'nan' is none"),
        ("model>=x", "has no order"),
        ("gpus>=8,16", "one value"),
        ("date=yesterday", "2026-11-22"),
        ("date=2026-13", "2026-11-22"),
        ("date=2026-02-31", "2026-11-22"),
        ("date=2026-02-31T10", "2026-11-22"),
        ("date=\uff12026", "2026-11-22"),
        ("batch=1_0", "'1_0' is none"),
        ("batch=\uff11", "is none"),
        ("gpus=1e400", "is none"),
        ("gpus==8", "the signs are"),
        ("gpus=>8", "the signs are"),
        ("model=\x00", "a value is expected"),
        ("", "KEY=VALUE"),
    ],
)
def test_what_is_no_condition_is_refused_with_a_hint(text: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_condition(text)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_several_conditions_are_all_to_fit() -> None:
    entries = [an_entry(path=str(gpus), gpus=gpus) for gpus in (8, 64, 128)]
    assert chosen(entries, [parse_condition("gpus>8"), parse_condition("gpus!=128")]) == {"64"}
    assert chosen(entries, []) == {"8", "64", "128"}
