"""What the gate's self test found -> tables for people, in Markdown. Pure.

`launch/nightly.py --self_test` prints it, and docs/make_gate_tables.py writes it into docs/gate.md.
"""

from collections.abc import Callable, Sequence

from benchmarks.gate.rule import G3, Rule
from benchmarks.gate.self_test import (
    COURSE_NIGHTS,
    EFFECTS,
    FEWEST_RUNS,
    MENDED_NIGHTS,
    NIGHTS,
    NOISES,
    RUNS,
    SEED,
    SUITE_CELLS,
    SWEEP_HISTORIES,
    USUAL,
    Line,
    Row,
    SelfTest,
    beyond,
    bounds,
    check_bounds,
    self_test,
)
from benchmarks.gate.simulation import BEFORE, HISTORY, SINCE

__all__ = ["FEWEST_RUNS", "RUNS", "SEED", "SelfTest", "check_bounds", "self_test", "self_test_text", "table_text"]


def self_test_text(
    seed: int = SEED, runs: int = RUNS, progress: Callable[[int, int], None] | None = None, rule: Rule = G3
) -> str:
    """All tables of a fresh self test, and the broken bounds."""
    return table_text(self_test(rule, seed, runs, progress))


def table_text(found: SelfTest) -> str:
    shown = (_found, _said, _courses, _weak, _sweeps, _bounds)
    parts = [show(found) for show in shown]
    return "\n\n".join([settings_line(found.rule, found.seed, found.runs), *parts]) + "\n"


def settings_line(rule: Rule, seed: int, runs: int) -> str:
    """What the tables were made with; other settings make other tables."""
    return (
        f"Rule {rule.name}, settings {rule.digest()}, seed {seed}, {runs} histories a row: {HISTORY} nights before "
        f"the change and {NIGHTS[-1]} after it, of which {100 * USUAL.outliers:g}% of the runs are outliers."
    )


def _found(found: SelfTest) -> str:
    """Each effect at each noise."""
    heading = ["noise", *(f"{_percent(effect)} slower" for effect in EFFECTS[1:])]
    rows = [[_percent(noise), *(_power(found.row(noise, effect)) for effect in EFFECTS[1:])] for noise in NOISES]
    nights = " / ".join(map(str, NIGHTS))
    return f"Called a regression within {nights} nights of the change:\n\n{_table(heading, rows)}"


def _power(row: Row) -> str:
    return " / ".join(count.text() for count in row.found.values())


def _said(found: SelfTest) -> str:
    """What is said where there is nothing, and of little."""
    heading = [
        "noise", "false alarms a night", f"of {SUITE_CELLS} cells, one in", 'said "no change"',
        "the same of 1% slower", "once within 10 nights of it", "runs a night",
    ]  # fmt: skip
    rows = [_said_row(found, noise) for noise in NOISES]
    every = [found.row(noise, 0.0).alarms for noise in NOISES]
    total = sum(one.count for one in every) / sum(one.of for one in every)
    return (
        "Where nothing changed, by cell (*said* on the third night). Of what is 1% slower, as much as the margin, it "
        "should be said rarely: on the first night, and at least once within 10 nights:"
        f"\n\n{_table(heading, rows)}\n\n{_near(found)}\n\n"
        f"False alarms over all of these: {100 * total:.2f}% a cell and night, each night of an alarm counted."
    )


def _said_row(found: SelfTest, noise: float) -> list[str]:
    row = found.row(noise, 0.0)
    in_suite = 1 - (1 - row.alarms.share) ** SUITE_CELLS
    return [
        _percent(noise),
        row.alarms.text(2),
        f"{1 / in_suite:,.0f} nights" if in_suite else f"none in {row.alarms.of:,} nights of a cell",
        row.no_change[3].text(),
        found.row(noise, 0.01).no_change[1].text(),
        found.row(noise, 0.01).ever_same[10].text(),
        f"{row.runs:.2f}",
    ]


def _near(found: SelfTest) -> str:
    said = [
        f"{_percent(row.effect)} at {_percent(row.noise)} noise: {row.no_change[1].text()} on the first night, "
        f"{row.ever_same[10].text()} at least once within 10"
        for row in found.near
    ]
    return f'"No change" said of a lasting slowdown a little beyond the margin: {"; ".join(said)}.'


def _courses(found: SelfTest) -> str:
    nights, after = " / ".join(map(str, COURSE_NIGHTS)), " / ".join(map(str, MENDED_NIGHTS))
    heading = [
        "noise", "change", f"said on night {nights}", "alarm open on these", f"said on night {after} after mending",
        "mending called an improvement",
    ]  # fmt: skip
    rows = [
        [
            _percent(one.noise),
            _percent(one.effect),
            *(" / ".join(count.text() for count in part.values()) for part in (one.said, one.open, one.after)),
            one.turned.text(),
        ]
        for one in found.courses
    ]
    return (
        f"A lasting regression that nobody accepts, and that is mended after {COURSE_NIGHTS[-1]} nights:\n\n"
        f"{_table(heading, rows)}"
    )


def _weak(found: SelfTest) -> str:
    rows = [[line.what, line.found.text(2)] for line in found.weak]
    return (
        f"What raises false alarms, at {_percent(USUAL.noise)} noise where no other is said:\n\n"
        f"{_table(['where', 'false alarms a night'], rows)}"
    )


def _sweeps(found: SelfTest) -> str:
    rows = [[_percent(line.noise), _lasting(line), line.found.text()] for line in found.sweeps]
    return (
        f"The weekly sweep, {SINCE} nights after a lasting change ({BEFORE} before it; "
        f"{max(found.runs // SWEEP_HISTORIES, 1)} histories a row):\n\n"
        f"{_table(['noise', 'change', 'told'], rows)}"
    )


def _lasting(line: Line) -> str:
    return _percent(line.effect) if line.effect else "none"


def _bounds(found: SelfTest) -> str:
    broken = check_bounds(found)
    if broken:
        return "BROKEN BOUNDS: the gate is not as good as it says\n\n" + "\n".join(f"- {text}" for text in broken)
    total, unsure = len(bounds(found)), beyond(found)
    if not unsure:
        return f"All {total} bounds hold."
    lead = (
        f"{total - len(unsure)} of {total} bounds hold. Beyond their bound, by no more than chance would take them:"
    )
    return f"{lead}\n\n" + "\n".join(f"- {text}" for text in unsure)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _percent(share: float) -> str:
    return f"{100 * share:g}%"
