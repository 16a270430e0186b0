"""Requests that the engines nemo and bridge refuse: refusals.yml."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.errors import RequestError
from benchmarks.values import Benchmark

ROWS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("refusals.yml").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["words"][0])
def test_what_cannot_be_run_is_refused(resolved: Callable[..., Benchmark], row: dict[str, Any]) -> None:
    request = {name: value for name, value in row.items() if name not in ("set", "words")}
    with pytest.raises(RequestError) as caught:
        resolved(chosen=row.get("set"), **request)
    assert [words for words in row["words"] if words not in str(caught.value)] == []
