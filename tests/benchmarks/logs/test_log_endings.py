"""Where a log ends and how its lines are shown: only what follows the last step counts, and no secret is shown."""

import io
import re
from collections.abc import Iterator
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.backend import LogEvent
from benchmarks.logs import ingest, log_endings
from benchmarks.logs.ingest import WatchedStream
from benchmarks.logs.log_endings import ending_text, shown_line
from benchmarks.values import Step


class TickLog:
    """A format of its own: lines that begin with `tick N`, ended by a line feed or a carriage return."""

    name = "tick"

    def seconds_resolution(self, seconds: float) -> float:  # noqa: ARG002
        return 0.1

    def rate_resolution(self, rate: float) -> float:  # noqa: ARG002
        return 0.1

    def recognises(self, head: bytes) -> bool:
        return b"tick" in head

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]:
        rest = b""
        while chunk := stream.read(16):
            *lines, rest = re.split(rb"[\r\n]", rest + chunk)
            yield from self._events(lines)
        yield from self._events([rest])

    def _events(self, lines: list[bytes]) -> Iterator[LogEvent]:
        for line in lines:
            match = re.match(rb"tick (\d+)", line)
            if match:
                yield LogEvent(attempt=1, step=Step(step=int(match[1]), seconds=1.0, loss=None, tokens=None))


def test_a_line_is_shown_without_writer_colours_secrets_or_control_characters() -> None:
    assert shown_line(b"2026-04-27 00:00:01 [rank1]: a\x00b\tc\x07") == "a\\x00b c\\x07"
    assert shown_line(b"\xff\xfe") == "\\xff\\xfe"
    assert "\n" not in shown_line("a\u2028b\x85c".encode())


@pytest.mark.parametrize(
    "line",
    [
        "OSError: 401 for hf_SeCrEtSeCrEt",
        "url?token=SeCrEtSeCrEt&a=1",
        "Authorization: Bearer SeCrEtSeCrEt",
        "HF_TOKEN=SeCrEtSeCrEt",
        '{"password": "SeCrEt SeCrEt"}',
        r'said "{\\"password\\": \\"SeCrEt b\\"}"',
        "passphrase=two SeCrEt words",
        "curl -u bob:SeCrEt http://host",
        "Set-Cookie: session=SeCrEt; Path=/",
        "--password SeCrEt",
        "SeCrEt -----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY----- SeCrEt",
    ],
)
def test_secrets_are_not_shown(line: str) -> None:
    assert "SeCrEt" not in shown_line(line.encode())
    assert "<redacted>" in shown_line(line.encode())


def text_after(log: bytes) -> bytes:
    stream = io.BytesIO(log)
    watched = WatchedStream(stream, TickLog())
    near = None
    for event in TickLog().read(watched.buffered()):
        if event.step is not None:
            near = watched.position
    return ending_text(stream, TickLog() if near is not None else None, near)


@pytest.mark.parametrize(
    ("log", "after"),
    [
        (b"Killed\ntick 1\nerror\ntick 2\nafter\n", b"after\n"),
        (b"tick 1\rtick 2\rafter\n", b"after\n"),
        (b"tick 1", b""),
        (b"no step\n", b"no step\n"),
        (b"", b""),
    ],
)
def test_only_what_follows_the_last_step(log: bytes, after: bytes) -> None:
    assert text_after(log) == after


@given(st.lists(st.sampled_from([b"tick 1", b"tick 23 x", b"noise", b"", b"x tick 4"]), max_size=40), st.booleans())
def test_the_last_step_is_found_wherever_it_is(lines: list[bytes], returns: bool) -> None:
    ends = b"\r" if returns else b"\n"
    steps = [index for index, line in enumerate(lines) if line.startswith(b"tick")]
    expected = b"".join(line + ends for line in (lines[steps[-1] + 1 :] if steps else lines))
    assert text_after(b"".join(line + ends for line in lines)) == expected


def test_of_a_long_end_the_first_and_the_last_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(log_endings, "BEFORE_BYTES", 8192)
    monkeypatch.setattr(log_endings, "AFTER_BYTES", 8192)
    monkeypatch.setattr(log_endings, "TAIL_BYTES", 4096)
    log = b"tick 1\n" * 50_000 + b"first\n" + b"noise\n" * 50_000 + b"last\n"
    text = text_after(log)
    assert text.startswith(b"first\n")
    assert text.endswith(b"last\n")
    assert len(text) < 20_000
    assert b"tick" not in text
