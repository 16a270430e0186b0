"""The round of a log: its date and its benchmark."""

from datetime import UTC, datetime

import pytest

from benchmarks.configs import Configs
from benchmarks.mlperf.package import find_ruleset
from tests.benchmarks.mlperf.made_runs import logged, made_run, replace


@pytest.mark.parametrize(
    ("day", "name", "ruleset"),
    [
        ("2024-05-19", "llama2_70b_lora", "4.0.0"),
        ("2024-10-11", "llama2_70b_lora", "4.1.0"),
        ("2025-06-04", "llama2_70b_lora", "5.0.0"),
        ("2025-10-08", "llama2_70b_lora", "5.1.0"),
        ("2025-03-01", "llama31_8b", "5.1.0"),  # 5.0 does not have it
        ("2025-10-08", "gpt3", "4.1.0"),  # the last that had it
        ("2026-05-01", "llama31_8b", "6.0.0"),
        ("2026-10-01", "llama31_8b", "6.1.0"),
        ("2026-10-01", "unheard_of", "6.1.0"),
    ],
)
def test_a_log_is_of_the_round_that_was_open(day: str, name: str, ruleset: str) -> None:
    run = logged(made_run(extra_lines={"submission_benchmark": name}))
    shift = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000 - (run.start_ms or 0)
    marks = {mark: [replace(one, time_ms=one.time_ms + shift) for one in own] for mark, own in run.marks.items()}
    assert find_ruleset([replace(run, marks=marks)], Configs().root).name == ruleset
