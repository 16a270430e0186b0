"""The names of the sides, and the text of a comparison. No I/O."""

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.compare.runs import Runs
from benchmarks.compare.values import Cause, Comparison, Difference, Side
from benchmarks.text import aligned, bytes_text, columns, count_text, percent_text, plural, printable, seconds_text
from benchmarks.values import Benchmark
from benchmarks.verdict import Verdict

MOST_CAUSES = 20  # the most causes on the screen; the JSON lists all
MOST_ASKED = 12
LONGEST_VALUE = 60
LONGEST_LABEL = 100
HEADINGS = ("", "A", "B", "B against A", "95% interval", "verdict")
LABELS = {"seconds/step": "Step time"}
WIDTH = 118
FRAMEWORKS = {"maxtext": "MaxText", "nemo": "NeMo", "bridge": "Megatron Bridge"}  # other engines keep their names


def table_text(comparison: Comparison, *, whole: bool = True) -> str:
    """Return the verdict in one sentence, metrics, warnings and differences; if `whole`, also runs and reasons."""
    sides = (("A", comparison.a), ("B", comparison.b))
    if comparison.refused:
        refusal = f"A and B cannot be compared: {'; '.join(comparison.refused)}"
        return "\n".join([refusal, "", *_sides(comparison)])
    verdict, found = str(comparison.verdict), comparison.differences
    lines = [comparison.summary.replace(verdict, verdict.upper(), 1)] if comparison.summary else []
    titles = [f"{letter}: {_short(side.name, 24)}" for letter, side in sides]
    shown = [row(one) for one in found if whole or _is_news(one, found)]
    table = [(LABELS.get(name, name[0].upper() + name[1:]), *cells) for name, *cells in shown]
    lines += columns([("", *titles, *HEADINGS[3:]), *table])
    notes = [f"! {one.text}" for one in comparison.warnings]
    excluded = [] if whole else [(letter, len(side.left_out)) for letter, side in sides if side.left_out]
    notes += [f"! {plural(count, 'run')} excluded from {letter}: --verbose" for letter, count in excluded]
    notes += [f"Why: {one.why}" for one in found if one.verdict == Verdict.INCONCLUSIVE and not whole]
    notes += [f"Differs: {'; '.join(_cut(comparison.asked, MOST_ASKED))}"] if comparison.asked else []
    lines += list(map(_wrapped, notes))
    lines += dict.fromkeys(f"  Next: {one.next_command}" for one in comparison.warnings if one.next_command)
    if whole:
        lines += ["", *_sides(comparison), *_section("why:", reasons(found))]
        lines += _section("notes:", metric_notes(comparison))
    if comparison.causes is not None:
        lines += [] if comparison.causes else ["", "no recorded fact about these runs differs"]
        heading = "what differs, the most likely cause of a difference in speed first:"
        lines += _section(heading, _cut(list(map(_cause, comparison.causes)), MOST_CAUSES))
        lines += [_wrapped(f"identical: {', '.join(comparison.same)}")] if comparison.same else []
        lines += [_wrapped(f"not known: {'; '.join(comparison.not_known)}")] if comparison.not_known else []
    more = "" if comparison.causes is not None else "Causes: --explain   "
    return "\n".join([*lines, *([] if whole else [f"  {more}Runs, reasons and other metrics: --verbose"])])


def _is_news(one: Difference, among: Sequence[Difference]) -> bool:
    """Return whether the short report shows a tested metric, loss, memory, or an MFU that speed does not imply."""
    if one.name != "MFU" or one.verdict != Verdict.NOT_TESTED:
        return one.verdict != Verdict.NOT_TESTED or one.name.endswith(("per GPU", "loss", "memory"))
    tested = next((other for other in among if other.verdict != Verdict.NOT_TESTED), one)
    mfu, speed = (1 + (other.percent or 0.0) / 100 for other in (one, tested))
    return abs((mfu * speed if tested.unit == "s" else mfu / speed) - 1) > 1e-4


def reasons(differences: Sequence[Difference]) -> list[str]:
    """Return the reasons for the verdict and for metrics that are not compared, each reason once."""
    names: dict[str, list[str]] = {}
    for one in differences:
        if one.why:
            names.setdefault(one.why, []).append(one.name)
    return [f"{', '.join(found)}: {why}" for why, found in names.items()]


def warnings(comparison: Comparison) -> list[str]:
    """Return each warning as text, with the command that resolves it if there is one."""
    return [f"{one.text}; next: {one.next_command}" if one.next_command else one.text for one in comparison.warnings]


def metric_notes(comparison: Comparison) -> list[str]:
    found = [f"{one.name}: {one.note}" for one in comparison.differences if one.note]
    moved = ", ".join(one.name for one in comparison.differences if one.moved)
    return [f"{moved}: differs by more than the margin, {comparison.margin_percent:g}%"] * bool(moved) + found


def verdict_text(one: Difference) -> str:
    """Return the verdict, marked if an untested metric differs by more than the margin."""
    return f"{one.verdict} (beyond the margin)" if one.moved else str(one.verdict)


def _section(heading: str, texts: Sequence[str]) -> list[str]:
    return ["", heading, *map(_wrapped, texts)] if texts else []


def _wrapped(text: str) -> str:
    """Wrap and indent a text without breaking names of runs or paths."""
    return textwrap.fill(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _cut(texts: list[str], most: int) -> list[str]:
    more = len(texts) - most
    return texts[:most] + ([f"and {more} more (--json has all)"] if more > 0 else [])


def _sides(comparison: Comparison) -> list[str]:
    """Return the runs of both sides and the excluded runs, without a reason that the refusal already shows."""
    sides = (("A", comparison.a), ("B", comparison.b))
    lines = aligned([(letter, _side(side)) for letter, side in sides])
    return lines + [
        _wrapped(f"excluded from {name}: {runs}: {why}")
        for name, side in sides
        for why, runs in left_out(side).items()
        if side.run_ids or len(left_out(side)) > 1
    ]


def left_out(side: Side) -> dict[str, str]:
    """Return each reason for an exclusion once, with the runs to which it applies."""
    found: dict[str, str] = {}
    for run, why in side.left_out.items():
        found[why] = f"{found[why]}, {run}" if why in found else run
    return found


def _side(side: Side) -> str:
    """Return a side as text: its name and its run, or the number of runs and the argument that selected them."""
    count = len(side.run_ids)
    if count == 0:
        return f"no run: {_short(side.label, LONGEST_LABEL)}"
    runs = side.run_ids[0] if count == 1 else f"{count} runs: {_short(side.label, LONGEST_LABEL)}"
    return f"{side.name} ({runs})" if side.name else runs


def _short(text: str, most: int) -> str:
    text = printable(text)  # a user or a workflow wrote the text
    return text if len(text) <= most else f"{text[: most - 3]}..."


def row(one: Difference) -> tuple[str, ...]:
    values = ["-" if value is None else value_text(value, one.unit) for value in (one.a, one.b)]
    percent = "-" if one.percent is None else f"{one.percent:+.2f}%"
    interval = "-" if one.low is None or one.high is None else f"{one.low:+.2f}% to {one.high:+.2f}%"
    return (one.name, *values, percent, interval, verdict_text(one))


def value_text(value: float, unit: str) -> str:
    if unit == "s":
        return seconds_text(value)
    if unit == "bytes":
        return bytes_text(value)
    if unit == "%":
        return f"{value:.3g}%"
    return count_text(value) if unit else f"{value:.5g}"


def _cause(cause: Cause) -> str:
    values = ["not set" if value is None else value or "(empty)" for value in (cause.a, cause.b)]
    short = [_short(text, LONGEST_VALUE) for text in values]
    return (
        f"{cause.rank:>2}  {cause.kind} {cause.name}: {short[0]} -> {short[1]} (weight {cause.weight:g}: {cause.why})"
    )


# --- the first sentence ---------------------------------------------------------------------------


class Names(NamedTuple):
    a: str
    b: str
    work: str = ""  # what both sides have in common, such as "for MaxText llama2_70b on 64 H100"


def _devices(benchmark: Benchmark) -> str:
    if benchmark.hardware.kind == "cpu":
        return f"on {plural(benchmark.gpus, 'CPU device')}"
    return f"on {benchmark.gpus} {benchmark.hardware.name.upper().replace('_', ' ')}"


# The parts of a side's name, in their order.
WORDS: dict[str, Callable[[Benchmark], str]] = {
    "framework": lambda benchmark: FRAMEWORKS.get(benchmark.engine, benchmark.engine),
    "model": lambda benchmark: benchmark.model.name,
    "task": lambda benchmark: benchmark.task,
    "dtype": lambda benchmark: benchmark.dtype,
    "PGLE": lambda benchmark: f"pgle={benchmark.instruments.pgle}",
    "slowdown": lambda benchmark: f"slowed by {benchmark.instruments.inject_slowdown:.0%}",
    "devices": _devices,
}


def names_of(a: Runs, b: Runs, typed: tuple[str, str]) -> Names:
    """Name the sides after the user's tags, after their differences, or otherwise "baseline" and "candidate"."""
    words = {name: (word(a[0].benchmark), word(b[0].benchmark)) for name, word in WORDS.items()}
    same = {name: first for name, (first, second) in words.items() if first == second}
    work = " ".join(same[name] for name in ("framework", "model", "devices") if name in same)
    work = f"for {work}".replace("for on ", "on ") if work else ""
    if all(text.startswith("tag=") and "," not in text for text in typed):
        return Names(typed[0].removeprefix("tag="), typed[1].removeprefix("tag="), work)
    if differing := [pair for name, pair in words.items() if name not in same]:
        first, second = (" ".join(column).removeprefix("on ") for column in zip(*differing, strict=True))
        return Names(first, second, work)
    return Names("baseline", "candidate", work)


def sentence(speed: Difference | None, names: Names, runs: tuple[int, int]) -> str:
    """Return one sentence with the verdict, both values and the number of runs; empty without a comparable speed."""
    if speed is None or speed.percent is None or speed.a is None or speed.b is None:
        return ""
    unit = " per step" if speed.unit == "s" else f" {speed.name}"
    a, b = (value_text(value, speed.unit) for value in (speed.a, speed.b))
    size = f"{percent_text(abs(speed.percent), '.3g')} {'more' if speed.percent > 0 else 'less'}"
    counts = f"{runs[1]} and {plural(runs[0], 'run')}" if runs[0] != runs[1] else f"{plural(runs[0], 'run')} each"
    work = f", {names.work}" if names.work else ""
    interval = ""
    if speed.low is not None and speed.high is not None:
        interval = f", 95% interval {speed.low:+.2f}% to {speed.high:+.2f}%"
    return (
        f"{speed.verdict}: {names.b} {'takes' if speed.unit == 's' else 'reaches'} {b}{unit}, {size} than {names.a} "
        f"({a}){work}; {counts}{interval}"
    )
