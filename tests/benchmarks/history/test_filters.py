"""Conditions on runs: what they mean to the index, and what is refused."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

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

TABLES = yaml.safe_load(Path(__file__).with_name("filters.yml").read_text())


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


@pytest.mark.parametrize(("text", "fitting", "other"), TABLES["means"])
def test_what_a_condition_means(text: str, fitting: dict[str, Any], other: dict[str, Any]) -> None:
    assert fits(text, **fitting)
    assert not fits(text, **other)


@pytest.mark.parametrize(("text", "hint"), TABLES["refused"])
def test_what_is_no_condition_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_condition(text)
    assert hint in str(caught.value)
    assert caught.value.exit_code == 2
