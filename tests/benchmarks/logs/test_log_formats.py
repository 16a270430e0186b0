"""Common properties of all log formats: prefixes, restarts, growing logs, and independence of chunk sizes, colours,
noise, truncation and garbage.
"""

import io
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise, permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.backend import LogFormat
from benchmarks.reading import read_log
from benchmarks.reading.log_stream import LOOKAHEAD, LOOKBEHIND
from benchmarks.values import Step
from jax_backend.logs import MaxTextLog
from nemo_backend.logs import LOG_FORMATS, follow_log
from tests.benchmarks.logs.formats import (
    EVERY_FORMAT,
    JAX_LOGS,
    KINDS,
    LINE,
    LOGS,
    START,
    by_attempt,
    duplicates,
    lines,
    nanogpt_format,
    numbers,
    read,
    skipped,
    steps,
)

FORMAT_OF = {
    LOGS / "nemo-2.7.3-validation.log": "nemo",
    **dict.fromkeys(LOGS.glob("megatron-*.log"), "megatron"),
    **dict.fromkeys(JAX_LOGS.glob("*.log"), "maxtext"),
}


@pytest.mark.parametrize("path", FORMAT_OF, ids=lambda path: path.name)
def test_each_log_is_taken_by_one_format_whatever_their_order(path: Path) -> None:
    assert len(FORMAT_OF) == 5
    every: tuple[LogFormat, ...] = (MaxTextLog(), *LOG_FORMATS, nanogpt_format())
    for formats in permutations(every):
        with path.open("rb") as stream:
            found = next(read_log.formats_of(stream, formats))
        assert found.name == FORMAT_OF[path]


OTHERS = (
    "Validation: iteration 1/5\nValidation DataLoader 0: 100%|██████████| 4/4 [00:01<00:00,  2.29it/s]\n"
    "\rEpoch 0: :   0%|          | 0/12 [00:00<?]\rEpoch 0:  8%|▊         | 1/12 [00:08<01:36, v_num=0]\n"
    "\rSanity Checking DataLoader 0:  50%|█████     | 1/2 [00:00<00:00, val_loss=3.0]\n"
    " validation loss at iteration 10 | lm loss value: 1.051E+01 | lm loss PPL: 3.6E+04 | \n"
    "saving checkpoint at iteration      10 to /results in torch_dist format\n"
    "Evaluating iter 1/10\n(min, max) time across ranks (ms):\nelapsed time per iteration (ms): 5\n"
    "Training epoch has begun\nEpoch 0: done\nEpoch 1/10\n"
)


@EVERY_FORMAT
def test_what_is_no_step(kind: str) -> None:
    assert read(kind, OTHERS) == []
    assert not KINDS[kind]().recognises(OTHERS.encode())
    assert numbers(read(kind, OTHERS + lines(kind, 1) + OTHERS + lines(kind, 2))) == [1, 2]


@EVERY_FORMAT
@pytest.mark.parametrize("rank", [None, 0, 12])
@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[default0]:",
        "retraining/0 [default0]:",
        "2026-01-02T03:04:05.678901Z ",
        "[2025-11-20T14:55:23+08:00] retraining/0 ",
        "[NeMo I 2026-01-01 00:00:00 nemo_logger:162] ",
        "(TrainWorker pid=123, ip=10.0.0.1) ",
        "\x1b[36m(TrainWorker pid=123)\x1b[0m ",
        "[20251121 12:10:29][rank-31/32][INFO ] [--------trainer.py:2488] : ",
        "noise\r",
        "\0\0\0\0",
        "x" * 5000,
    ],
)
def test_prefixes(kind: str, prefix: str, rank: int | None) -> None:
    label = "" if rank is None else f"{rank}: "
    (step,) = steps(read(kind, f"noise\n{label}{prefix}{LINE[kind](5)}\nnoise\n"))
    assert (step.step, step.seconds) == (5, 12.64)
    forgotten = len(prefix) > LOOKBEHIND or prefix == "noise\r"
    assert step.rank == (0 if forgotten else rank or 0)


@EVERY_FORMAT
def test_cut_last_line(kind: str) -> None:
    last = LINE[kind](10)
    for end in range(len(last) * 2 // 3, len(last) - 1):
        events = read(kind, lines(kind, 8, 9) + last[:end])
        if kind == "nemo" and "s: 12.64 | " in last[:end]:  # cut after all that is needed
            assert numbers(events) == [8, 9, 10]
        else:
            assert (numbers(events), skipped(events)) == ([8, 9], [(3, "truncated")])


@EVERY_FORMAT
def test_two_writers_on_one_line(kind: str) -> None:
    one, other = LINE[kind](5), LINE[kind](5)
    events = read(kind, one[:-30] + other.lstrip() + "\n" + lines(kind, 6))
    both_skipped = kind == "nanogpt"
    assert skipped(events) == [(1, "mixed with a line of another writer")] * (2 if both_skipped else 1)
    assert by_attempt(events) == {1: [6] if both_skipped else [5, 6]}


@pytest.mark.parametrize("kind", ["maxtext", "nemo", "megatron"])
def test_hosts_and_restarts_without_labels(kind: str) -> None:
    assert duplicates(read(kind, lines(kind, 5, 5, 6, 6))) == 2
    assert by_attempt(read(kind, lines(kind, 5, 6, 7, 5, 6))) == {1: [5, 6, 7], 2: [5, 6]}


@EVERY_FORMAT
def test_labelled_ranks(kind: str) -> None:
    def both(*steps: int) -> str:
        return "".join(lines(kind, n, label=f"{rank}: ") for n in steps for rank in (0, 1))

    events = read(kind, both(1, 2, 3))
    assert sorted(numbers(events)) == [1, 2, 3]
    assert duplicates(events) == 3
    assert set(by_attempt(read(kind, both(1, 2, 3) + both(1, 2)))) == {1, 2}


@EVERY_FORMAT
@given(cuts=st.lists(st.integers(0, 3000), max_size=8))
@settings(max_examples=25, deadline=None)
def test_a_growing_log_gives_each_step_once(
    kind: str, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = ("noise\n" + lines(kind, 1, 2) + START[kind] + lines(kind, 3) + "more\n" + lines(kind, 4)).encode()
    path = tmp_path_factory.mktemp("grows") / "log"
    new = follow_log(path, KINDS[kind](), 3)
    assert new() == []  # not there yet
    found: list[Step] = []
    for start, end in pairwise([0, *sorted(min(c, len(text)) for c in cuts), len(text)]):
        with path.open("ab") as log:
            log.write(text[start:end])
        found += new()
        assert new() == []
    assert [(s.step, s.attempt) for s in found] == [(1, 3), (2, 3), (3, 4), (4, 4)]


def nasty(kind: str) -> bytes:
    line = LINE[kind]
    return (
        START[kind] + "0: " + lines(kind, 0) + "noise\r" + lines(kind, 1) + "x" * 9000 + lines(kind, 2) + "\0" * 700
        + line(3) + "\r\n" + line(4)[:-20] + lines(kind, 4) + "y" * LOOKBEHIND + ": " + lines(kind, 5) + "12: "
        + line(6) + "\r" + line(7)[:90] + "z" * (LOOKAHEAD + 10) + "\n" + START[kind] + "12: " + lines(kind, 6)
        + line(8) + " [repeated 3x across cluster]\n\x1b[A" + lines(kind, 9) + line(10)[:130]
    ).encode()  # fmt: skip


@EVERY_FORMAT
@given(chunk_bytes=st.integers(min_value=1, max_value=3 * LOOKAHEAD))
@settings(max_examples=40, deadline=None)
def test_chunk_size_never_matters(kind: str, chunk_bytes: int) -> None:
    assert read(kind, nasty(kind), chunk_bytes) == read(kind, nasty(kind))


@EVERY_FORMAT
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_cut_anywhere_loses_at_most_the_last_step(kind: str, data: st.DataObject) -> None:
    text = nasty(kind)
    cut = data.draw(st.integers(0, len(text)))
    whole, found = steps(read(kind, text)), steps(read(kind, text[:cut]))
    assert found == whole[: len(found)]


PIECES = st.sampled_from(
    [b"\n", b"\r", b"\0", b"\x1b[", b"0: ", b"[repeated 9x across cluster]", b"5", b" | ", b", ", b"]",
     *(START[kind].encode() for kind in KINDS), *(LINE[kind](5).encode() for kind in KINDS),
     *(LINE[kind](6).encode()[:60] for kind in KINDS), *(LINE[kind](6).encode()[60:] for kind in KINDS)]
)  # fmt: skip


@EVERY_FORMAT
@given(pieces=st.lists(st.one_of(PIECES, PIECES, st.binary(max_size=20))), chunk_bytes=st.integers(1, 50))
@settings(deadline=None)
def test_garbage_never_raises(kind: str, pieces: list[bytes], chunk_bytes: int) -> None:
    events = read(kind, b"".join(pieces), chunk_bytes)
    assert events == read(kind, b"".join(pieces))
    attempts = [e.attempt for e in events]
    assert attempts == sorted(attempts)


@EVERY_FORMAT
def test_a_line_of_any_length_is_streamed(kind: str) -> None:
    class Endless(io.RawIOBase):
        """100 MB without a newline, then a step."""

        def __init__(self) -> None:
            self.parts: Iterator[bytes] = iter([b"x" * (1 << 20)] * 100 + [LINE[kind](9).encode() + b"\n"])

        def read(self, _size: int = -1) -> bytes:
            return next(self.parts, b"")

    tracemalloc.start()
    count = sum(1 for e in KINDS[kind]().read(Endless()) if e.step)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count >= 1
    assert peak < 12 << 20
