"""The table of symptoms: each is known by its samples, and by nothing that a healthy run prints."""

from pathlib import Path

import pytest

from tests.benchmarks.doctor.reading import LINES, SYMPTOMS, diagnosis, ids

TESTS = Path(__file__).resolve().parents[2]
SAMPLES = [(one.id, sample) for one in SYMPTOMS.table.symptoms for sample in one.samples]
# Real logs of runs that trained. In one, an attempt was killed and the next continued; two were cut off.
CUT_OFF = {
    "megatron-lm-interval-10.log": "100 of 1000",
    "nemo-bar-2.7.3.log": "40 of 1010",
}
HEALTHY = sorted(
    path for path in [*TESTS.glob("*/logs/*.log"), *TESTS.glob("*/samples/*.txt")] if path.name not in CUT_OFF
)


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_each_sample_is_known_by_its_own_symptom_and_by_no_other(name: str, sample: str) -> None:
    found = diagnosis(a_log=f"a line\n{sample}\nanother line\n")
    assert [one.id for one in [*found.entries, *found.warnings] if one.id == name or one.kind != "begin"] == [name]


@pytest.mark.parametrize("path", HEALTHY, ids=[path.name for path in HEALTHY])
def test_a_healthy_log_shows_no_failure(path: Path) -> None:
    found = diagnosis(a_log="loss: 2.5\n" + path.read_text(errors="replace"))  # the samples are not whole logs
    assert ids(found) in ([], ["no_end"])
    assert {one.id for one in found.warnings} <= ({"killed"} if "restart" in path.name else set())


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_log_that_was_cut_off_stops_early(name: str) -> None:
    (path,) = TESTS.glob(f"*/logs/{name}")
    found = diagnosis(a_log=path.read_text(errors="replace"))
    assert (found.failed, ids(found)) == (True, ["stopped_early"])
    assert found.entries[0].first.text.endswith(CUT_OFF[name])


@pytest.mark.parametrize("line", LINES["harmless"])
def test_a_line_that_only_sounds_like_a_failure(line: str) -> None:
    for text in (f"loss: 2.5\n{line}\ntraining finished\n", f"loss: 2.5\ntraining finished\n{line}\n"):
        found = diagnosis(a_log=text)
        assert (found.failed, ids(found), [one.id for one in found.warnings]) == (False, [], [])


def test_an_error_without_a_symptom_is_unknown_with_the_text_of_its_class() -> None:
    found = diagnosis(a_log="Traceback (most recent call last):\nFileNotFoundError: /data/a.json\n").entries[0]
    assert found.title == "an unknown error (a file or a folder is missing)"
    failed = diagnosis(a_log="F1121 13:51:57.310937 1400 a.cc:1] Check failed: x\n")
    assert failed.entries[0].title.endswith("unknown error")


def test_every_symptom_has_its_own_id_and_words() -> None:
    assert len(SYMPTOMS.by_id) == len(SYMPTOMS.table.symptoms)
    assert all(one.words and one.pattern for one in SYMPTOMS.table.symptoms)
