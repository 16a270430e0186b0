"""Failures as people reported them, shortened to the lines that count: what is named first, and what it is not."""

import pytest

from tests.benchmarks.diagnosis.reading import diagnosis

ENROOT = "[2025-11-06T20:36:19.163] [19.0] error: pyxis: "
# Where it was seen, the lines, the symptom that comes first, and a part of the line that is shown for it.
COLLECTED = [
    (
        "enroot#256",
        f"{ENROOT}child 70956 failed with error code: 1\n{ENROOT}failed to import docker image\n"
        f"{ENROOT}printing enroot log file:\n"
        "[2025-11-06T20:36:19.163] [19.0] pyxis: could not remove squashfs /tmp/enroot_data/1000/19.0.squashfs: "
        "No such file or directory\n"
        f"{ENROOT}couldn't start container\n",
        "image_import",
        "failed to import docker image",
    ),
    (
        "pyxis#70",
        "slurmstepd: error: pyxis: child 1 failed with error code: 1\n"
        "slurmstepd: error: pyxis: failed to import docker image\n"
        "slurmstepd: error: pyxis:     [ERROR] Invalid image reference: docker://dockerd://mlperf-nvidia:minigo\n",
        "image_missing",
        "Invalid image reference",
    ),
]


@pytest.mark.parametrize(
    ("lines", "name", "shown"), [row[1:] for row in COLLECTED], ids=[row[0] for row in COLLECTED]
)
def test_a_failure_that_was_reported(lines: str, name: str, shown: str) -> None:
    first = diagnosis(a_log=f"a line\n{lines}").first
    assert first is not None
    assert first.id == name
    assert shown in first.first.text
