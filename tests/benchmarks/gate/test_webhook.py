"""The message for a chat: within Slack's limits, and readable without its blocks."""

import json

from benchmarks.gate.night import unjudged
from benchmarks.gate.webhook import MOST_CELLS, message
from tests.benchmarks.gate.nights_made import CELL, history, judged, report

SLOW, _ = judged(1.5, history(), [1.5, 1.5, 1.5])
SAME, _ = judged(1.0, history())


def test_text_names_the_night_and_what_is_wrong() -> None:
    found = message(report([SAME, SLOW]))
    assert "suite smoke, night 20261120T023000Z: regression" in found["text"]
    assert "tiny: " in found["text"]
    assert "above the baseline" in found["text"]


def test_blocks_are_slacks() -> None:
    found = message(report([SAME, SLOW]))
    assert set(found) == {"text", "blocks"}
    assert [block["type"] for block in found["blocks"]] == ["section", "section", "section", "context"]
    assert "*regression*" in found["blocks"][1]["text"]["text"]  # what is wrong comes first
    assert "+50.00% (+49.18 to +50.82)" in found["blocks"][1]["text"]["text"]
    assert all(block["text"]["type"] == "mrkdwn" for block in found["blocks"][:-1])


def test_many_cells_and_long_reasons_stay_within_the_limits() -> None:
    broken = unjudged(CELL, None, "failed", ["x" * 10_000])
    found = message(report([broken] * 100))
    assert len(found["blocks"]) == MOST_CELLS + 2
    assert len(found["text"]) <= 3000
    assert all(len(json.dumps(block)) < 3200 for block in found["blocks"])
    assert "and 80 more cells" in found["blocks"][-1]["elements"][0]["text"]


def test_markup_of_others_is_text() -> None:
    found = message(report([unjudged(CELL, None, "failed", ["<!channel> & <http://x|y>"])]))
    assert "<!channel>" not in json.dumps(found)
    assert "&lt;!channel&gt; &amp; " in found["text"]
