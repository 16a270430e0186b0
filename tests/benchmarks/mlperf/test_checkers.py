"""What the package's checkers print, and what is read of it: checker_words.yml."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.mlperf.checkers import read_text

ROWS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("checker_words.yml").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['checker']}-{row['complaints']}")
def test_a_checker_passes_where_its_words_say_so(row: dict[str, Any]) -> None:
    found = read_text(row["checker"], row["text"])
    assert (found.passed, len(found.complaints)) == (row["passed"], len(row["complaints"]))
    assert all(words in complaint for words, complaint in zip(row["complaints"], found.complaints, strict=True))
    assert found.factor == row.get("factor")
