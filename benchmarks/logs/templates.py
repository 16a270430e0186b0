"""Defines log formats as data: templates of step lines from configs/log_formats or from ingest.py --pattern.

A template is a printed line with a field for each number: `iter {step}: loss {loss}, time {milliseconds}ms`. `...`
matches any text. A blank matches one or more blanks, or nothing next to `...`. A template matches anywhere in a line.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from benchmarks.backend import Backend, LogFormat, backends
from benchmarks.configs import Configs, read_yaml
from benchmarks.errors import RequestError
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.reading.log_stream import (
    GRADIENT_NOT_FINITE,
    LOOKAHEAD,
    LineFormat,
    StartLine,
    StepReport,
    UnreadableError,
    Window,
    can_be_a_time,
    shown,
    without_colours,
)
from benchmarks.reading.read_log import CHUNK_BYTES, MFU_RATE, SAMPLES_RATE, TOKENS_RATE
from benchmarks.values import Value

FOLDER = "log_formats"
FIELDS = (
    "step",
    "seconds",
    "milliseconds",
    "loss",
    "tokens",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "samples_per_second",
    "tflops",
    "mfu",
    "grad_norm",
    "global_batch_size",
)
RATES = {"tokens_per_second": TOKENS_RATE, "samples_per_second": SAMPLES_RATE, "mfu": MFU_RATE}
PRINTED_RATES = (*RATES, "tflops", "tokens_per_second_per_device")

PARTS = re.compile(r"\{(\w+)\}|([ \t]*\.\.\.[ \t]*)|([ \t]+)|((?:(?!\{\w+\}|\.\.\.)[^ \t])+)")
WHOLE = rb"\d{1,15}+"
DECIMAL = rb"[+-]?(?:%b(?:\.\d*+)?(?:[eE][+-]?\d++)?+|\.\d++|[nN]a[nN]|[iI]nf(?:inity)?)"
NUMBER = DECIMAL % rb"\d++"
RATE = DECIMAL % rb"(?:\d{1,3}(?:,\d{3})++|\d++)"  # torchtitan prints 193,831
# These guards prevent a match with only a part of a number, such as 1,5 or 12.5k.
STARTS, ENDS = rb"(?<![\d.])(?<!\d[,_])", rb"(?![.,_]?\d|[eE][+-]?\d|[kKMGT](?![A-Za-z]))"
ANY_STEP = rb"(?<![\d.])(?P<step>\d[\w.,+]*?)"  # also matches an unreadable step, such as 1e+3
OF_A_NUMBER = "0123456789._eEkKMGT"  # the empty text is also `in` this
NO_MINUTES = rb"(?<!\d[:hm])"  # prevents a match with the seconds of 1m30s
OTHER_UNIT = {"seconds": rb"(?! ?(?:[mun]s|min)\b)", "milliseconds": rb"(?! ?(?:s|sec|[un]s|min)\b)"}
LINE = re.compile(rb"[^\r\n]{0,%d}" % LOOKAHEAD)
MOST_TRIED = 100  # the most candidates that are tried to recognise a format
Part = tuple[str, str, str, str]  # a field, dots, blanks or a text; the other three are empty
NO_PART: Part = ("", "", "", "")
REPEATED = "a template can have a field only once"


# --- a template -------------------------------------------------------------------------------


class Template:
    """One compiled template. `anchor` is its longest fixed text, which a search can find quickly. With `begins`, the
    template matches only how a step line begins, so it also finds a line whose step is unreadable, such as 1e+3.
    """

    def __init__(self, text: str, *, begins: bool = False) -> None:
        self.text = text
        self.parts: list[Part] = PARTS.findall(text.strip(" \t"))
        self.fields = [field for field, *_ in self.parts if field]
        unknown = [field for field in self.fields if field not in FIELDS]
        if unknown:
            raise RequestError(
                f"unknown field '{unknown[0]}'", where=f"'{text}'", why=f"the fields are {', '.join(FIELDS)}"
            )
        if len(set(self.fields)) < len(self.fields):
            raise RequestError(REPEATED, where=f"'{text}'", why="write `...` for a number without a meaning")
        words = [literal for *_, literal in self.parts]
        anchor_at = max(range(len(words)), key=lambda at: len(words[at]), default=0)
        self.anchor = os.fsencode(words[anchor_at]) if words else b""
        self.pattern = re.compile(_regex(self.parts, begins=begins))
        # The same pattern with a group `anchor` at the position of the anchor.
        self.around_anchor = re.compile(_regex(self.parts, anchor_at, begins=begins))

    def values_in(self, text: bytes, cut: str) -> dict[str, float] | None:
        """Return the number of each field, or None without a match. Raise UnreadableError if a number is cut off."""
        match = self.pattern.search(text) if text.find(self.anchor) >= 0 else None  # fast if it is absent
        if match is None:
            return None
        if cut and any(match.end(field) == len(match.string) for field in self.fields):
            raise UnreadableError(cut)
        return {field: float(text.replace(b",", b"")) for field, text in match.groupdict().items()}

    def beginning(self) -> "Template":
        """Return a template for the beginning of a step line: the part up to the text after {step}, or the whole."""
        last = next((at for at, part in enumerate(self.parts) if part[0] == "step"), -1)
        texts = [f"{{{field}}}" if field else dots or blank or literal for field, dots, blank, literal in self.parts]
        after = last + 1
        while after < len(self.parts) and not (self.parts[after][0] or self.parts[after][1]):
            after += 1
        begins = Template("".join([*texts[:after], "..." if after < len(texts) else ""]), begins=True)
        return begins if begins.anchor else Template(self.text, begins=True)


def _regex(parts: Sequence[Part], anchor_at: int = -1, *, begins: bool) -> bytes:
    """Return the regular expression of a template. `begins`: match only how a step line begins.

    A gap (`...`) ends at the first possible match and is never extended. It is at most LOOKAHEAD bytes long.
    """
    found, opened = b"", b""
    for at, (field, dots, blank, literal) in enumerate(parts):
        if dots and at < len(parts) - 1:
            found, opened = found + opened + rb"(?>.{0,%d}?" % LOOKAHEAD, b")"
        if at == anchor_at:
            found += b"(?P<anchor>)"
        if field:
            found += _number(parts, at, begins=begins)
        elif blank:
            found += rb"[ \t]+"
        elif literal:
            found += re.escape(os.fsencode(literal))
    return found + opened


def _number(parts: Sequence[Part], at: int, *, begins: bool) -> bytes:
    """Return the pattern of one number, with guards unless the neighbouring text already excludes partial matches."""
    field = parts[at][0]
    _, gap, *before = parts[at - 1] if at else NO_PART
    _, _, *after = parts[at + 1] if at + 1 < len(parts) else NO_PART
    is_cell = "," in (before[1][-1:], after[1][:1])  # a column of a CSV file
    if begins and field == "step" and not is_cell:
        return ANY_STEP
    number = WHOLE if field in ("step", "global_batch_size") else NUMBER
    if field in PRINTED_RATES and not is_cell:
        number = RATE
    named = rb"(?P<%b>%b)" % (field.encode(), number)
    if "".join(before)[-1:] in OF_A_NUMBER:
        named = STARTS + named
    if gap and field == "seconds":
        named = NO_MINUTES + named
    if "".join(after)[:1] in OF_A_NUMBER:
        named += ENDS
    return named if after[1] else named + OTHER_UNIT.get(field, b"")


# --- a format ---------------------------------------------------------------------------------


class FormatFacts(Value, frozen=True):
    """One file of configs/log_formats."""

    title: str
    source: str  # the repository and the file that contains the print statement
    date: str  # when the source was read
    line: str | list[str]  # templates of a step line; the first one that matches is used
    begins: str = ""  # a template of how every step line begins; empty: derived from the first template of `line`
    more: list[str] = []  # templates of optional parts of a step line
    starts: list[str] = []  # texts that the job prints once, at its start
    seconds_are: str = ""  # the meaning of the printed step time
    no_seconds: str = ""  # why the format has no step time
    seconds_resolution: float = 0.001  # one unit of the last printed digit
    rate_resolution: float = 0.01
    order: int = 0  # if two formats recognise a log, the one with the lower order is used
    sample: str = ""


class TemplateFormat(LineFormat):
    """A log format that FormatFacts define, with one line per step."""

    def __init__(self, name: str, facts: FormatFacts, chunk_bytes: int = CHUNK_BYTES) -> None:
        super().__init__(chunk_bytes)
        self.name = name
        self.facts = facts
        self._lines = [Template(text) for text in ([facts.line] if isinstance(facts.line, str) else facts.line)]
        self._more = [Template(text) for text in facts.more]
        begins = Template(facts.begins, begins=True) if facts.begins else self._lines[0].beginning()
        if not begins.anchor:
            raise RequestError("the template has no literal word to search for", where=f"'{begins.text}'")
        self.word = begins.anchor
        self.begins = begins.around_anchor
        self.start_lines = [
            StartLine(text.encode(), re.escape(text.encode()), of_the_job=True) for text in facts.starts
        ]
        self.seconds_are, self.no_seconds = facts.seconds_are, facts.no_seconds
        fields = {field for template in (*self._lines, *self._more) for field in template.fields}
        self.prints_loss = "loss" in fields

    def seconds_resolution(self, seconds: float) -> float:  # noqa: ARG002 - decimals are fixed
        return self.facts.seconds_resolution

    def rate_resolution(self, rate: float) -> float:  # noqa: ARG002
        return self.facts.rate_resolution

    def recognises(self, head: bytes) -> bool:
        if self.word not in head:
            return False
        text = without_colours(head)
        begun = islice(self.begins.finditer(text), MOST_TRIED)
        return any(self._is_whole(text, found.start()) for found in begun)

    def _is_whole(self, text: bytes, start: int) -> bool:
        line = LINE.match(text, start)
        return line is not None and any(template.pattern.search(line[0]) for template in self._lines)

    def is_step(self, window: Window, found: int) -> bool:  # noqa: ARG002 - `report` checks the line
        return True

    def _line(self, window: Window, found: int) -> tuple[bytes, str] | None:
        """Return the line around the word, and why it is cut off (or ''); None if no step's report begins there."""
        rest, cut = window.line_from(found)
        before = window.text_before(found)
        text = before + rest
        if text.count(self.word) > 1:
            reports = [report.start("anchor") for report in self.begins.finditer(text)]
            if len(before) not in reports:
                return None
            if len(reports) > 1:
                raise UnreadableError("mixed with a line of another writer")
        return text, cut

    def report(self, window: Window, found: int) -> StepReport | None:
        line = self._line(window, found)
        if line is None:
            return None
        values = self._values(*line)
        if values is None:
            return None
        get = values.get
        seconds, milliseconds = get("seconds"), get("milliseconds")
        if seconds is None and milliseconds is not None:
            seconds = round(milliseconds / 1000, 9)
        if seconds is not None and not can_be_a_time(seconds):
            raise UnreadableError(f"seconds cannot be {seconds:g}")
        tokens, batch = get("tokens"), get("global_batch_size")
        return StepReport(
            step=int(values["step"]),
            rank=window.rank(found),
            seconds=seconds,
            loss=get("loss"),
            tokens=int(tokens) if tokens is not None and math.isfinite(tokens) else None,
            tflops_per_device=_finite(get("tflops")),
            tokens_per_second_per_device=_finite(get("tokens_per_second_per_device")),
            rates=_rates(values),
            global_batch_size=None if batch is None else int(batch),
            excluded_because=None if math.isfinite(get("grad_norm", 0.0)) else GRADIENT_NOT_FINITE,
        )

    def _values(self, text: bytes, cut: str) -> dict[str, float] | None:
        """Return the numbers in a step line; None if the text does not contain the beginning of a step line."""
        for template in self._lines:
            values = template.values_in(text, cut)
            if values is not None:
                for more in self._more:
                    further = more.values_in(text, cut)
                    if further is not None:
                        values |= further
                    elif cut:
                        raise UnreadableError(cut)  # the missing field may be in the part that was cut off
                return values
        if self.begins.search(text) is None:
            return None
        raise UnreadableError(cut or f"an incomplete line of a step: {shown(text)}")


def _finite(value: float | None) -> float | None:
    """Return the rate if it is possible, otherwise None. nanoGPT and llm.c print -100% for an unknown rate."""
    return value if value is not None and 0 <= value < math.inf else None


def _rates(values: Mapping[str, float]) -> dict[str, float]:
    return {RATES[name]: value for name, value in values.items() if name in RATES and 0 <= value < math.inf}


# --- all formats ------------------------------------------------------------------------------


@cache
def formats_in(root: Path) -> tuple[TemplateFormat, ...]:
    """Return the formats in configs/log_formats, in the order in which they are tried."""
    read = [TemplateFormat(path.stem, read_yaml(path, FormatFacts)) for path in sorted((root / FOLDER).glob("*.yml"))]
    return tuple(sorted(read, key=lambda one: one.facts.order))


def all_log_formats() -> list[LogFormat]:
    """Return MLPerf's format, which any framework may print, then the backends' formats, then those of configs."""
    found = [log_format for _, backend in sorted(backends().items()) for log_format in backend.log_formats()]
    return [MLLOG, *found, *formats_in(Configs().root)]


def backend_of_format(log_format: LogFormat) -> Backend | None:
    """Return the backend whose frameworks print a format; None if no backend does."""
    names = {backend: [one.name for one in backend.log_formats()] for backend in backends().values()}
    return next((backend for backend, found in names.items() if log_format.name in found), None)


def format_of_pattern(text: str, head: bytes = b"") -> TemplateFormat:
    """Return the format that --pattern describes. Its resolution comes from the numbers at the start of the log."""
    template = Template(text)
    fields, first = template.fields, template.pattern.search(without_colours(head))
    if "step" not in fields:
        raise RequestError(
            "a pattern needs {step}",
            where=f"--pattern='{text}'",
            next_command="--pattern='step {step} ... {seconds}s'",
        )
    timed = "seconds" in fields or "milliseconds" in fields
    facts = FormatFacts(
        title="as --pattern says",
        source="",
        date="",
        line=text,
        seconds_are="the step time in the field that the pattern names" if timed else "",
        no_seconds="" if timed else "the pattern has no {seconds} or {milliseconds}",
        seconds_resolution=_last_digit(first, "seconds") or _last_digit(first, "milliseconds") / 1000,
        rate_resolution=max((_last_digit(first, name) for name in PRINTED_RATES), default=0.0),
    )
    return TemplateFormat("pattern", facts)


def _last_digit(match: re.Match[bytes] | None, field: str) -> float:
    """Return the value of one unit in a field's last digit; 0 if the field is missing or has an exponent."""
    text = match.groupdict().get(field) if match else None
    if text is None or not re.fullmatch(rb"[\d,._+-]+", text):
        return 0.0
    return float(f"1e-{len(text.partition(b'.')[2])}")


# Patterns that find a field in a line of unknown format: before the number, and after it.
HINTS = {
    "step": (r"(?:step|iter(?:ation)?)s?\W{0,3}", r"\b"),
    "loss": (r"loss\W{0,3}", r"\b"),
    "seconds": ("", r" ?s(?:ec(?:onds?)?)?\b"),
    "milliseconds": ("", r" ?ms\b"),
}


def pattern_for(head: bytes) -> str:
    """Return a --pattern that matches a line of this log; empty if no line looks like a step line."""
    lines = re.findall(rb"(?i)[^\r\n]*(?:step|iter)[^\r\n]*", without_colours(head))
    for line in (os.fsdecode(text) for text in lines[:MOST_TRIED]):
        parts = []
        for field, (before, after) in HINTS.items():
            if found := re.search(rf"{before}(?<![\w.,])(\d[\d.,]*){after}", line, re.IGNORECASE):
                begins = re.sub(r"(?<=\W)\s+$", " ... ", line[found.start() : found.start(1)])  # `...` for any width
                parts.append((found.start(), f"{begins}{{{field}}}{line[found.end(1) : found.end()]}"))
        pattern = " ... ".join(text for _, text in sorted(parts))
        if "{step}" in pattern and Template(pattern).pattern.search(os.fsencode(line)):
            return pattern
    return ""
