"""Reading a log: the same however it is cut into pieces, lines counted, writers and times known."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.diagnosis.evidence import AHEAD_BYTES
from benchmarks.diagnosis.lines import Clock, rank_in
from benchmarks.diagnosis.picking import LinePicker
from tests.benchmarks.diagnosis.reading import SYMPTOMS, TRACE, evidence, steps


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_pieces_of_any_size_give_the_same(piece: int) -> None:
    text = steps(4) + "0: " + TRACE.replace("\n", "\n0: ") + "KeyError: 'x'\nsrun: error: n1: task 3: Killed\n"
    assert evidence(text, piece=piece) == evidence(text)


def test_a_long_log_is_read_in_parts_and_lines_are_counted() -> None:
    filler = "a line that says nothing\n" * 40_000
    text = filler + "1: " + TRACE.replace("\n", "\n1: ") + "ValueError: bad\n" + filler
    assert len(filler) > 3 * AHEAD_BYTES
    (finding,) = evidence(text, piece=100_000).findings
    assert (finding.line, finding.text, finding.rank) == (40_004, "ValueError: bad", 1)


def test_a_line_of_megabytes_and_binary_data_do_no_harm() -> None:
    long = b"x" * (20 << 20)
    (finding,) = evidence(long + b" CUDA out of memory " + long).findings
    assert finding.id == "gpu_memory"
    assert len(finding.text) < 300
    assert evidence(bytes(range(256)) * 5000).findings == []


def test_what_is_shown_holds_no_secret() -> None:
    (finding,) = evidence("OSError: No space left on device: https://me:SeCrEt@host/x?token=SeCrEt\n").findings
    assert "SeCrEt" not in finding.text


@given(st.lists(st.sampled_from([b"fine", b"CUDA out of memory", b"NCCL INFO ok", b"\r", b"\n", b"Killed", b" "])))
def test_picked_lines_are_those_with_a_word(parts: list[bytes]) -> None:
    text = b"".join(parts)
    picker = LinePicker([b"cuda out of memory", b"killed"])
    picked = [text[one.start : one.end] for one in picker.lines(text)]
    lines = text.replace(b"\r", b"\n").split(b"\n")
    assert picked == [line for line in lines if b"CUDA out of memory" in line or b"Killed" in line]


def test_every_word_is_found_by_the_picker() -> None:
    words = SYMPTOMS.words()
    picker = LinePicker(words)
    for word in words:
        assert len(word) >= 4
        assert any(picker.lines(b"a\n" + word + b"\nb")), word


# --- who and when -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (b"3: a line", 3),
        (b"[rank12]: a line", 12),
        (b"[default4]:a line", 4),
        (b"[rank1]:[E1121 13:51:57.123456789 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught", 1),
        (b"srun: error: n1: task 5: Killed", 5),
        (b"srun: error: n1: tasks 0-7: Killed", None),
        (b'{"rank":2,"exit_code":-9}', 2),
        (b"store based barrier on rank: 2", 2),
        (b"12:34:56 nothing", None),
        (b"a 3: line", None),
    ],
)
def test_the_rank_of_a_line(line: bytes, rank: int | None) -> None:
    assert rank_in(line) == rank


@pytest.mark.parametrize(
    ("line", "clock"),
    [
        (b"2026-11-22 10:00:01 a", "2026-11-22 10:00:01"),
        (b"[2026-11-22T10:00:01.500] a", "2026-11-22 10:00:01"),
        (b"E1122 10:00:01.310937 1400 a.cc:1] a", "2026-11-22 10:00:01"),
        (b"Nov 22 10:00:01 n1 kernel: NVRM: Xid", "2026-11-22 10:00:01"),
        (b':::MLLOG {"time_ms": 1795341601000, "key": 1}', "2026-11-22 10:00:01"),
        (b'{"rank":0,"exit_code":1,"time":1795341601.5}', "2026-11-22 10:00:01"),
        (b"2026-13-45 10:00:01 a", None),
        (b"10:00:01 a", None),
    ],
)
def test_the_time_of_a_line(line: bytes, clock: str | None) -> None:
    seconds = Clock(2026).first(line)
    assert (None if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))) == clock


# --- many ranks say the same ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "Error rate: 0.01",
        "Errors: 0",
        "error: 0.0012 (relative)",
        "+ srun bash -c 'echo \"CUDA out of memory\"'",
        "++ trap 'echo CANCELLED DUE TO TIME LIMIT' TERM",
    ],
)
def test_a_measure_of_error_and_a_command_that_is_traced_tell_of_no_failure(line: str) -> None:
    assert evidence(f"{line}\n").findings == []
