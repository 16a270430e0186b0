"""Where a run that stopped early says why: the text that follows its last training step; and how a line is shown.

Pure. Which lines mean what is data (configs/symptoms.yml); benchmarks/diagnosis finds them and says which was first.
"""

import io
import re
from typing import Any, BinaryIO

from benchmarks.backend import LogFormat
from benchmarks.log_stream import CHUNK_BYTES
from benchmarks.settings import LOGIN_IN_URL, TOKEN_SHAPE
from benchmarks.values import Value

# A reader takes a log in chunks of about 1 MiB, so the last step lies at most so far before what was read.
BEFORE_BYTES = 2 << 20
AFTER_BYTES = 2 << 20  # where the first process says why it died
TAIL_BYTES = 1 << 20  # and where the launcher says how all of them ended
SHOWN_CHARACTERS = 200

LINE_END = re.compile(rb"[\r\n]")
# Who wrote a line (srun --label, torchrun, Ray) and when: says nothing about why.
WRITER = re.compile(
    rb"(?:\s*(?:\d{1,7}: |\[(?:rank|default)\d{1,7}\]:? ?|\((?:\w+ )?pid=\d+[^)]*\) "
    rb"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? ))*"
)
HIDDEN = b"<redacted>"
# What a secret is called, as it ends: a name in front (db_, HF_, client-) does not matter. A tokenizer's are none.
_NAME = (
    rb"(?:password|passwd|[_-]pwd|passcode|secret|credential|signature(?==)|[?&]sig(?==)"
    rb"|(?:db|mysql|smtp|redis|admin|root)[_-]?pass"
    rb"|(?<!bos_)(?<!eos_)(?<!pad_)(?<!unk_)(?<!sep_)(?<!cls_)(?<!mask_)(?<!per_)token"
    rb"|(?:api|access|private|secret|account|signing|encryption)[_-]?key)\d{0,2}"
)
_SIGN = rb"\\{0,4}['\"]?[ \t]{0,8}(?:=>|[:=])[ \t]{0,8}+"
# Quoted within a quoted text, quoted, or a word; to the end of the line where the closing quote was cut off.
_QUOTED = rb"(?:\\{1,4}(?P<%(n)s>['\"]).+?(?:\\{1,4}(?P=%(n)s)|$)|\"(?:\\.|[^\"\\\n])+\"?|'(?:\\.|[^'\\\n])+'?)"
_NOTHING = rb"(?!\\{0,4}['\"]?(?:(?:None|null|true|false)\b|<redacted>))"
_KEY = rb"[A-Z ]{0,30}PRIVATE KEY-----"
# Its group `before` stays. Nothing here begins with a repetition: a log may have lines of megabytes.
_SECRET = re.compile(
    rb"(?P<before>"
    rb"(?i:" + _NAME + _SIGN + rb")" + _NOTHING + rb")(?:" + _QUOTED % {b"n": b"q"} + rb"|[^\s&'\"]+)"
    # Of these, all to the end of the line: they may have blanks in them.
    rb"|(?P<before_line>(?i:passphrase|authorization|\bcookie|set-cookie)" + _SIGN + _NOTHING + rb")"
    rb"(?:" + _QUOTED % {b"n": b"p"} + rb"|[^\r\n'\"]+)"
    rb"|(?P<before_word>(?i:--[\w-]{0,30}(?:password|passphrase|secret|token|[_-]key)[ \t]{1,8}+)"
    + _NOTHING
    + rb")(?!-)\S+"
    rb"|(?P<before_login>(?<![\w-])(?:-u[ \t]{0,8}|--(?:proxy-)?user[ =])['\"]?[^\s:'\"/]{1,99}:)"
    rb"(?!<redacted>)[^\s'\"]+"
    rb"|(?P<before_bearer>\b[Bb]earer )(?!tokens?\b|<redacted>)\S+"
    rb"|\bhf_(?:(?=[a-z]{0,40}[A-Z0-9])[A-Za-z0-9]{8,}|[A-Za-z0-9]{20,})"
    rb"|\bwandb_v\d{1,3}_\w{8,}|\bglpat-[\w-]{16,}|\bAIza[\w-]{30,}|\bASIA[0-9A-Z]{16}\b"
    rb"|-----BEGIN " + _KEY + rb"[\s\S]*?(?:-----END " + _KEY + rb"|\Z)",
    re.MULTILINE,
)
_END_OF_A_KEY = re.compile(rb"-----END " + _KEY)
_SHAPES = re.compile(TOKEN_SHAPE.pattern.encode())
_LOGIN = re.compile(LOGIN_IN_URL.pattern.encode())


class Ending(Value, frozen=True):
    """Why a run ended: the id of the symptom, and a text for people."""

    name: str
    text: str


# --- what is shown ----------------------------------------------------------------------------


def shown_line(line: bytes) -> str:
    """A line as it may be shown: without its writer, without secrets, in one row of printable characters."""
    writer = WRITER.match(line)
    said = without_secrets(line[writer.end() if writer else 0 :])
    text = " ".join(printable(said.decode(errors="backslashreplace")).split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def without_secrets(text: bytes) -> bytes:
    """What looks like a secret, by its name or its shape, is replaced; what is left is the same if asked again."""
    text = _SECRET.sub(_hidden, text)
    end = None if b"-----END " not in text else _END_OF_A_KEY.search(text)
    if end is not None:  # the text begins within a key
        text = HIDDEN + text[end.end() :]
    return _SHAPES.sub(HIDDEN, _LOGIN.sub(HIDDEN + b"@", text))


def _hidden(found: re.Match[bytes]) -> bytes:
    return next((found[name] for name in _KEPT if found[name] is not None), b"") + HIDDEN


_KEPT = [name for name in _SECRET.groupindex if name.startswith("before")]


def printable(text: str) -> str:
    """Text that can't move a cursor or break a row: what is no printable character is written out."""
    safe = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else " " if c == "\t" else repr(c)[1:-1] for c in safe)


# --- where to look ----------------------------------------------------------------------------


class CountedStream(io.RawIOBase):
    """A stream that knows how far it was read: about there is the step that was just reported."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = self._stream.seek(offset, whence)
        return self.position

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)

    def buffered(self) -> BinaryIO:
        return io.BufferedReader(self, CHUNK_BYTES)


def ending_text(stream: BinaryIO, log_format: LogFormat | None, last_step_near: int | None) -> bytes:
    """What a log says after its last training step: the beginning of it, and its end.

    `last_step_near` is how far the log had been read when its last step was reported; None: it has none.
    """
    size = stream.seek(0, io.SEEK_END)
    start = max(0, last_step_near - BEFORE_BYTES) if last_step_near is not None else 0
    stop = (last_step_near or 0) + AFTER_BYTES
    stream.seek(start)
    text = stream.read(stop - start)
    if log_format is not None and last_step_near is not None:
        text = _after_last_step(text, log_format)
    if size <= stop:
        return text
    stream.seek(max(stop, size - TAIL_BYTES))
    return text + b"\n" + stream.read(TAIL_BYTES)


def _after_last_step(text: bytes, log_format: LogFormat) -> bytes:
    """What follows the last step line, whatever a step line looks like: found by halving."""
    if not _has_step(text, log_format):
        return text
    low, high = (
        0,
        len(text),
    )  # from `low` on there is a step; from the first line that begins at `high` or later, none
    while high - low > 1:
        middle = (low + high) // 2
        line = _next_line(text, middle)
        if line < high and _has_step(text[line:], log_format):
            low = line
        else:
            high = middle
    return text[_next_line(text, low + 1) :]


def _next_line(text: bytes, position: int) -> int:
    """Where the first line begins at or after a position; a progress bar's lines end in carriage returns."""
    match = LINE_END.search(text, max(0, position - 1))
    return match.end() if match else len(text)


def _has_step(text: bytes, log_format: LogFormat) -> bool:
    return any(event.step is not None for event in log_format.read(io.BytesIO(text)))
