"""The round of a log: its date, its benchmark, and the lines that a newer round requires."""

from datetime import UTC, datetime

import pytest

from benchmarks.configs import Configs
from benchmarks.mlperf.package import Ruleset, find_ruleset, of_one_round, read_rounds, rules, rulesets
from tests.benchmarks.mlperf.made_runs import logged, made_run, replace

ROUNDS = read_rounds(Configs().root)
RULES = [rules(name) for name in rulesets()]
NEW_IN_61 = RULES[-1].required - RULES[-2].required


def test_the_rounds_are_in_order_and_rules_of_the_package() -> None:
    assert [one.published for one in ROUNDS] == sorted(one.published for one in ROUNDS)
    assert {one.ruleset for one in ROUNDS} <= set(rulesets())
    assert {"micro_batch_size", "config_filename"} <= NEW_IN_61


@pytest.mark.parametrize(
    ("day", "name", "disclosed", "ruleset"),
    [
        ("2024-05-19", "llama2_70b_lora", True, "4.0.0"),
        ("2024-10-11", "llama2_70b_lora", True, "4.1.0"),
        ("2025-06-04", "llama2_70b_lora", True, "5.0.0"),
        ("2025-10-08", "llama2_70b_lora", True, "5.1.0"),
        ("2025-03-01", "llama31_8b", True, "5.1.0"),  # 5.0 does not have it
        ("2025-10-08", "gpt3", True, "4.1.0"),  # the last that had it
        ("2026-05-01", "llama31_8b", True, "6.0.0"),
        ("2026-10-01", "llama31_8b", True, "6.1.0"),
        ("2026-10-01", "llama31_8b", False, "6.0.0"),  # without a line that 6.1 asks for
        ("2026-10-01", "unheard_of", True, "6.1.0"),
    ],
)
def test_a_log_is_of_the_round_that_was_open(day: str, name: str, disclosed: bool, ruleset: str) -> None:
    run = logged(made_run(said={"submission_benchmark": name}))
    shift = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000 - (run.start_ms or 0)
    kept = [one for one in run.records if disclosed or one.key not in NEW_IN_61]
    moved = [replace(one, time_ms=one.time_ms + shift) for one in kept]
    marks = {mark: [replace(one, time_ms=one.time_ms + shift) for one in own] for mark, own in run.marks.items()}
    found = find_ruleset([replace(run, records=moved, marks=marks)], RULES, ROUNDS)
    assert found.name == ruleset
    assert found.because.startswith(f"the logs are of {day}")


def test_a_submission_is_of_one_round() -> None:
    own = Ruleset("5.0.0", "the logs are of 2025-05-01")
    assert of_one_round(own, "5.1.0", "llama2_70b_lora", RULES).name == "5.1.0"
    assert of_one_round(own, "6.1.0", "llama31_405b", RULES) == own  # which 6.1 has dropped
