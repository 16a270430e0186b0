"""A comparison -> what a person reads: a table for the screen, Markdown for a pull request. Pure."""

import textwrap
from collections.abc import Sequence

from benchmarks.comparing.values import Cause, Comparison, Difference, Figure, Side
from benchmarks.rendering.columns import aligned, columns
from benchmarks.rendering.report import bytes_text, count_text, seconds_text

HEADINGS = ("", "A", "B", "B against A", "95% interval", "verdict")
MOST_CAUSES = 20  # shown to people; all are in the JSON
LONGEST_VALUE = 60
LONGEST_LABEL = 100
WIDTH = 118
MOST_ASKED = 12
NOT_SET = "not set"
NOTHING_DIFFERS = "nothing that is recorded of these runs differs"


def table_text(comparison: Comparison) -> str:
    """The figures with their verdicts, then what was left out and what to know, then the causes."""
    lines = _sides(comparison)
    if comparison.refused:
        return "\n".join([*lines, "not comparable:", *map(_wrapped, comparison.refused)])
    lines += _section("asked otherwise:", _asked(comparison))
    lines += ["", *columns([HEADINGS, *map(_row, comparison.differences)])]
    lines += _section("why:", [f"{names}: {why}" for why, names in _whys(comparison.differences)])
    lines += _section("notes:", comparison.notes)
    if comparison.causes is not None:
        lines += ["", *_causes(comparison, comparison.causes)]
    return "\n".join(lines)


def _section(heading: str, texts: Sequence[str]) -> list[str]:
    return ["", heading, *map(_wrapped, texts)] if texts else []


def _wrapped(text: str, indent: str = "  ") -> str:
    """Names of runs and paths are never broken."""
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _asked(comparison: Comparison) -> list[str]:
    more = len(comparison.asked) - MOST_ASKED
    return comparison.asked[:MOST_ASKED] + ([f"and {more} more (--format=json has all)"] if more > 0 else [])


# --- the sides ------------------------------------------------------------------------------------


def _sides(comparison: Comparison) -> list[str]:
    rows = [("A", side_text(comparison.a)), ("B", side_text(comparison.b))]
    lines = aligned(rows, indent="")
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        lines += [_wrapped(f"left out of {name}: {run}: {why}") for run, why in side.left_out.items()]
    return lines


def side_text(side: Side) -> str:
    """A side by what was typed; a list of names, which are long, by its first and last."""
    count = len(side.run_ids)
    if count == 1:
        return side.run_ids[0]
    named = side.label if len(side.label) <= LONGEST_LABEL else f"{side.run_ids[0]} ... {side.run_ids[-1]}"
    return f"{count} runs: {named}" if count else f"no run: {side.label}"


# --- the figures ----------------------------------------------------------------------------------


def _row(one: Difference) -> tuple[str, ...]:
    interval = "-" if one.low is None or one.high is None else f"{one.low:+.2f}% to {one.high:+.2f}%"
    return (
        one.name,
        figure_text(one.a, one.unit),
        figure_text(one.b, one.unit),
        "-" if one.percent is None else f"{one.percent:+.2f}%",
        interval,
        one.verdict,
    )


def figure_text(figure: Figure | None, unit: str) -> str:
    return "-" if figure is None else value_text(figure.value, unit)


def value_text(value: float, unit: str) -> str:
    if unit == "s":
        return seconds_text(value)
    if unit == "bytes":
        return bytes_text(value)
    if unit == "%":
        return f"{value:.3g}%"
    return count_text(value) if unit else f"{value:.5g}"


def _whys(differences: Sequence[Difference]) -> list[tuple[str, str]]:
    """Each reason with the figures that it is of."""
    found: dict[str, list[str]] = {}
    for one in differences:
        found.setdefault(one.why, []).append(one.name)
    return [(why, ", ".join(names)) for why, names in found.items()]


# --- the causes -----------------------------------------------------------------------------------


def _causes(comparison: Comparison, causes: Sequence[Cause]) -> list[str]:
    lines = []
    if causes:
        lines.append(f"{causes_heading(comparison)}:")
        for cause in causes[:MOST_CAUSES]:
            lines += [
                f"  {cause.rank:>2}  {cause_text(cause)}",
                _wrapped(f"weight {cause.weight:g}: {cause.why}", " " * 6),
            ]
        if len(causes) > MOST_CAUSES:
            lines.append(f"      and {len(causes) - MOST_CAUSES} less likely ones (--format=json has all)")
    else:
        lines.append(NOTHING_DIFFERS)
    return lines + [_wrapped(f"{label}: {text}") for label, text in _looked_at(comparison)]


def causes_heading(comparison: Comparison) -> str:
    """Where no difference in speed is shown, nothing needs a cause."""
    speed = next((one for one in comparison.differences if one.percent is not None), None)
    heading = "what differs, the most likely cause first"
    return (
        heading if speed and speed.verdict in ("better", "worse") else f"{heading}, were there a difference in speed"
    )


def _looked_at(comparison: Comparison) -> list[tuple[str, str]]:
    rows = [("alike", ", ".join(comparison.same))] if comparison.same else []
    return rows + ([("not known", "; ".join(comparison.not_known))] if comparison.not_known else [])


def cause_text(cause: Cause) -> str:
    return f"{cause.kind} {cause.name}: {_short(cause.a)} -> {_short(cause.b)}"


def _short(value: str | None) -> str:
    if value is None:
        return NOT_SET
    text = value or "(empty)"
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


# --- Markdown -------------------------------------------------------------------------------------


def markdown_text(comparison: Comparison) -> str:
    """For a pull request: the table open, the reasons and the causes folded."""
    lines = [f"**A**: {_escaped(side_text(comparison.a))}  ", f"**B**: {_escaped(side_text(comparison.b))}", ""]
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        lines += [f"- left out of {name}: `{run}`: {_escaped(why)}" for run, why in side.left_out.items()]
    if comparison.refused:
        return "\n".join([*lines, "**Not comparable**", "", *(f"- {_escaped(text)}" for text in comparison.refused)])
    if comparison.asked:
        lines += [f"Asked otherwise: {_escaped(', '.join(_asked(comparison)))}", ""]
    lines += _markdown_table(comparison.differences)
    lines += ["", *(f"- {_escaped(note)}" for note in comparison.notes)]
    reasons = [f"- **{names}**: {_escaped(why)}" for why, names in _whys(comparison.differences)]
    lines += ["", *_folded("Why these verdicts", reasons)]
    if comparison.causes is not None:
        lines += ["", *_markdown_causes(comparison, comparison.causes)]
    return "\n".join(lines)


def _markdown_table(differences: Sequence[Difference]) -> list[str]:
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|---:|---:|---:|---:|---|"]
    return lines + [f"| {' | '.join(map(_escaped, _row(one)))} |" for one in differences]


def _markdown_causes(comparison: Comparison, causes: Sequence[Cause]) -> list[str]:
    if not causes:
        return [f"{NOTHING_DIFFERS[0].upper()}{NOTHING_DIFFERS[1:]}."]
    shown = [
        f"{cause.rank}. **{_escaped(cause.kind)}** {_code(cause.name)}: {_code(_short(cause.a))} -> "
        f"{_code(_short(cause.b))}: {_escaped(cause.why)}"
        for cause in causes[:MOST_CAUSES]
    ]
    if len(causes) > MOST_CAUSES:
        shown.append(f"\nand {len(causes) - MOST_CAUSES} less likely ones (`--format=json` has all)")
    looked_at = [f"- {label}: {_escaped(text)}" for label, text in _looked_at(comparison)]
    heading = causes_heading(comparison)
    return _folded(f"{heading[0].upper()}{heading[1:]}", [*shown, "", *looked_at])


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def _escaped(text: str) -> str:
    """No character of a run's own becomes markup."""
    for character in "\\`*_|<>[]#":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")


def _code(text: str) -> str:
    """Between backticks nothing is markup but a backtick, and in a table or a list a line's end."""
    return "`" + text.replace("`", "'").replace("\n", " ") + "`"
