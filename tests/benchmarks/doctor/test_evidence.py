"""Reading a log: the same however it is cut into pieces, lines counted, writers and times known."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.doctor.evidence import AHEAD_BYTES
from benchmarks.doctor.lines import Clock, rank_in, rank_of_file
from benchmarks.doctor.picking import LinePicker
from tests.benchmarks.doctor.reading import LINES, SYMPTOMS, TRACE, evidence, steps

TABLES = yaml.safe_load(Path(__file__).with_name("evidence.yml").read_text())


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


@pytest.mark.parametrize(("line", "rank"), TABLES["ranks"])
def test_the_rank_of_a_line(line: str, rank: int | None) -> None:
    assert rank_in(line.encode()) == rank


@pytest.mark.parametrize(
    ("path", "rank"),
    [("logs/rank-3.log", 3), ("a/rank4/stderr.log", 4), ("t/attempt_0/5/stdout.log", 5), ("rank7/a/b.log", None)],
)
def test_the_rank_of_a_file(path: str, rank: int | None) -> None:
    assert rank_of_file(path) == rank


@pytest.mark.parametrize(("line", "clock"), TABLES["times"])
def test_the_time_of_a_line(line: str, clock: str | None) -> None:
    seconds = Clock(2026).first(line.encode())
    assert (None if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))) == clock


# --- many ranks say the same ------------------------------------------------------------------------


@pytest.mark.parametrize("line", LINES["no_failure"])
def test_a_measure_of_error_and_a_command_that_is_traced_tell_of_no_failure(line: str) -> None:
    assert evidence(f"{line}\n").findings == []


# --- unknown prefixes --------------------------------------------------------------------------------

FRAMES = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "    f()", "ValueError: bad"]
PREFIXES = [
    "c000001: ",
    "node-1: ",
    "172.31.20.74: ",
    "[1,23]<stderr>:",
    " 2: [rank2]: ",
    "(worker6, rank=6, pid=8930, ip=10.42.3.242) ",
    "data_index/0 [default0]:[rank0]: ",
    "trainer-1  | ",
    "[pod/llama-worker-0/pytorch] ",
    "llama-worker-0 pytorch ",
    "2025-01-01T00:00:0{}.12345678{}Z stderr F ",
    "Jan  2 03:04:0{} n17 train[4711]: ",
    "(Core pid=434697) ERROR 04-21 10:43:1{} [core.py:390] ",
    "1763733117.12{} worker ",
    "#104{} n1> ",
    "\x1b[31m[n1]\x1b[0m ",
]


def written_by(prefix: str, lines: list[str]) -> str:
    return "".join(f"{prefix.replace('{}', str(number))}{line}\n" for number, line in enumerate(lines))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_traceback_is_found_by_its_shape_behind_any_prefix(prefix: str) -> None:
    (finding,) = evidence("a line\n" + written_by(prefix, FRAMES) + "another line\n").findings
    assert (finding.id, finding.text, finding.line) == ("unknown", "ValueError: bad", 5)


def test_lines_of_two_unknown_writers_are_kept_separate() -> None:
    lines = [f"node-{node}: {line}\n" for line in FRAMES for node in (1, 2)]
    text = "".join(lines).replace("node-2: ValueError: bad", "node-2: KeyError: 'x'")
    assert [one.text for one in evidence(text).findings] == ["ValueError: bad", "KeyError: 'x'"]


@pytest.mark.parametrize(
    "text",
    [
        "0: ╭──── Traceback (most recent call last) ────╮\n0: │ a.py:1 in main │\n0: ╰────╯\n0: ValueError: bad\n",
        "[rank3]:" + "\n[rank3]:".join(FRAMES[1:]) + "\n",
        "  exitcode  : 0\n  traceback : " + "\n  ".join(FRAMES) + "\n  \n====\n",
    ],
    ids=["rich", "its beginning is lost", "torchelastic"],
)
def test_a_traceback_in_other_forms(text: str) -> None:
    assert [one.text for one in evidence(text).findings] == ["ValueError: bad"]


SPAWNED = (
    "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n"
)
RAY = "ray.exceptions.RayTaskError(ValueError): ray::f() (pid=1, ip=10.0.0.1)\n" + "\n".join(FRAMES[1:]) + "\n"
LOADER = "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal "
GROUP = written_by("  | ", [*FRAMES[1:3], "ExceptionGroup: two (1)"])


@pytest.mark.parametrize(
    "text",
    [
        TRACE + SPAWNED + "\n".join(FRAMES) + "\n",
        TRACE + RAY,
        TRACE + LOADER + "\n".join(FRAMES) + "\n",
        "  + Exception Group "
        + FRAMES[0]
        + "\n"
        + GROUP
        + "  +-+---------------- 1 ----------------\n"
        + written_by("    | ", FRAMES),
        "\n".join(FRAMES)
        + "\n"
        + TRACE
        + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\n",
    ],
    ids=["spawn", "Ray", "DataLoader", "group", "torchrun"],
)
def test_what_a_wrapper_hands_on_is_the_error(text: str) -> None:
    assert [one.text for one in evidence(text).findings if one.id == "unknown"] == ["ValueError: bad"]


def test_of_chained_errors_the_first_to_be_raised_is_named() -> None:
    cause = "\nThe above exception was the direct cause of the following exception:\n\n"
    text = TRACE + "KeyError: 'x'\n" + cause + TRACE + "ValueError: no such model\n"
    (finding,) = evidence(text).findings
    assert (finding.text, finding.line) == ("KeyError: 'x', then ValueError: no such model", 4)


@pytest.mark.parametrize("line", LINES["program_end"])
def test_the_end_of_a_program_in_any_language(line: str) -> None:
    assert [one.id for one in evidence(f"a line\n{line}\n").findings] == ["unknown"]


@pytest.mark.parametrize(
    "line", ["[WARNING] mpi: failed to find a, use b", "x.py:3: UserWarning: could not import apex, not found"]
)
def test_a_warning_is_no_error(line: str) -> None:
    assert evidence(f"{line}\n").findings == []


@pytest.mark.parametrize("row", [1, 30], ids=["one name", "a row of names"])
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("cannot open the file", "suspect"),
        ("line 3: x: failed to start", "suspect"),
        ("error: no more hosts", "suspect"),
        ("a.cpp:12: void f(): Assertion `n > 0' failed.", "unknown"),
        ("all is well, what was not found", None),
    ],
)
def test_an_error_behind_a_row_of_names(line: str, name: str | None, row: int) -> None:
    assert [one.id for one in evidence("node-1: " * row + line + "\n").findings] == ([name] if name else [])


@pytest.mark.parametrize("lines", [0, 20, 200, 700])
def test_a_line_without_a_stamp_has_the_last_before_it(lines: int) -> None:
    before = "2026-11-22 10:00:00 a\n2026-11-22 10:00:01 b\n"
    (finding,) = evidence(before + "a line of a log\n" * lines + "RuntimeError: something new\n").findings
    assert time.strftime("%H:%M:%S", time.gmtime(finding.time)) == "10:00:01"
