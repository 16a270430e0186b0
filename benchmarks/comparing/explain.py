"""What differs in the provenance of two sides, the most likely cause of a difference in speed first. Pure.

Weights are in kinds.py, what a run's provenance says in facts.py, numbers such as clocks in measures.py. A change
that holds in all runs of one side and in none of the other outranks one that varies within a side.
"""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.comparing.facts import Facts, facts_of
from benchmarks.comparing.kinds import KINDS, weight_of
from benchmarks.comparing.measures import Measured, differing, measures
from benchmarks.comparing.runs import ComparedRun
from benchmarks.comparing.values import Cause

MIXED, OVERLAPPING = 0.6, 0.25  # of a weight, where a side has several values, or both have one in common
SAME_PROGRAM = 0.5  # of a weight, where what it sets did not change what the compiler was given
BEFORE_THE_PROGRAM = ("setting", "argument")  # they act by changing the program alone
OF_A_FRAMEWORK = ("setting", "argument", "version", "layout", "image", "XLA flag", "recipe", "program")
OWN_WEIGHT = 20.0  # of a kind that no two frameworks share
MOST_VALUES = 3
NOT_SET = "not set"


class Explained(NamedTuple):
    causes: list[Cause]
    same: list[str]  # kinds that were looked at, with how many facts of each are alike
    not_known: list[str]


class _Found(NamedTuple):
    score: float
    kind: str
    name: str
    a: str | None
    b: str | None
    why: str


def causes(a: Sequence[ComparedRun], b: Sequence[ComparedRun], slower: float | None) -> Explained:
    """`slower` is the logarithm of B's seconds over A's; None: not known."""
    sides = ([facts_of(run) for run in a], [facts_of(run) for run in b])
    found: list[_Found] = []
    same: list[str] = []
    not_known: list[str] = []
    same_program, other_framework = _same_program(sides), _other_framework(sides)
    for kind in _kinds(sides):
        known = [[facts[kind] for facts in side if kind in facts] for side in sides]
        if not known[0] or not known[1]:
            not_known.append(_unknown_text(KINDS[kind].title, known))
            continue
        if other_framework and kind in OF_A_FRAMEWORK:
            found.append(_all_of(kind, known[0][0], known[1][0]))
            continue
        differences = _of_kind(kind, known[0], known[1], same_program=same_program)
        found += differences
        if not differences:
            same.append(_same_text(kind, known[0][0]))
    more, quiet, unknown = _measured(a, b, slower)
    found = _without_repeats(found + more)
    ranked = sorted(found, key=lambda one: (-one.score, one.kind, one.name))
    return Explained(
        causes=[
            Cause(rank=rank, kind=one.kind, name=one.name, a=one.a, b=one.b, why=one.why)
            for rank, one in enumerate(ranked, 1)
        ],
        same=same + quiet,
        not_known=not_known + unknown,
    )


def _kinds(sides: tuple[list[Facts], list[Facts]]) -> list[str]:
    present = {kind for side in sides for facts in side for kind in facts}
    return [kind for kind in KINDS if kind in present]


def _unknown_text(title: str, known: Sequence[Sequence[object]]) -> str:
    return f"{title}: {' and '.join(name for name, side in zip('AB', known, strict=True) if not side)} does not say"


def _same_text(kind: str, facts: dict[str, str]) -> str:
    if kind == "program":
        return f"{KINDS[kind].title} ({next(iter(facts.values()))}: the same program)"
    return f"{KINDS[kind].title} ({len(facts)})" if facts else f"{KINDS[kind].title} (none)"


def _other_framework(sides: tuple[list[Facts], list[Facts]]) -> bool:
    one, other = (side[0]["request"] for side in sides)
    return any(one[name] != other[name] for name in ("backend", "engine"))


def _all_of(kind: str, a: dict[str, str], b: dict[str, str]) -> _Found:
    """Two frameworks have nothing in common here that could be held side against side."""
    title = KINDS[kind].title
    why = "each framework has its own; a run's benchmark.json, plan.json and provenance.json have them"
    return _Found(OWN_WEIGHT, kind, "(all)", f"{len(a)} {title}", f"{len(b)} {title}", why)


# --- one kind -------------------------------------------------------------------------------------


def _of_kind(
    kind: str, a: Sequence[dict[str, str]], b: Sequence[dict[str, str]], *, same_program: bool
) -> list[_Found]:
    names = dict.fromkeys(name for facts in (*a, *b) for name in facts)
    found = []
    for name in names:
        one, other = ([facts.get(name) for facts in side] for side in (a, b))
        if set(one) == set(other):
            continue
        weight, why = weight_of(kind, name)
        factor, evidence = _evidence(one, other)
        if same_program and kind in BEFORE_THE_PROGRAM:
            factor, evidence = factor * SAME_PROGRAM, [*evidence, "the step's program is the same all the same"]
        text = "; ".join([why, *evidence])
        found.append(_Found(weight * factor, kind, name, _values(one), _values(other), text))
    return found


def _evidence(a: Sequence[str | None], b: Sequence[str | None]) -> tuple[float, list[str]]:
    """How cleanly the values part the two sides; one run a side parts nothing."""
    if len(a) == len(b) == 1:
        return 1.0, []
    if set(a) & set(b):
        return OVERLAPPING, ["but some runs of both sides have it alike"]
    if len(set(a)) == 1 and len(set(b)) == 1:
        return 1.0, [f"in all {len(b)} runs of B and none of A" if len(b) > 1 else "in B and no run of A"]
    return MIXED, ["but it varies within a side too"]


def _values(values: Sequence[str | None]) -> str | None:
    counts = {value: list(values).count(value) for value in dict.fromkeys(values)}
    if len(counts) == 1:
        return next(iter(counts))
    texts = [f"{NOT_SET if value is None else value} ({count})" for value, count in counts.items()]
    more = f" and {len(texts) - MOST_VALUES} more" if len(texts) > MOST_VALUES else ""
    return ", ".join(texts[:MOST_VALUES]) + more


def _same_program(sides: tuple[list[Facts], list[Facts]]) -> bool:
    digests = [tuple(facts.get("program", {}).values()) for side in sides for facts in side]
    return len(set(digests)) == 1 and digests[0] != ()


def _without_repeats(found: Sequence[_Found]) -> list[_Found]:
    """An argument that hands over a setting of the same name is that setting."""
    settings = {one.name for one in found if one.kind == "setting"}
    return [one for one in found if one.kind != "argument" or one.name not in settings]


# --- numbers --------------------------------------------------------------------------------------


def _measured(
    a: Sequence[ComparedRun], b: Sequence[ComparedRun], slower: float | None
) -> tuple[list[_Found], list[str], list[str]]:
    on_cpu = [run.benchmark.hardware.kind == "cpu" for run in (*a, *b)]
    found: list[_Found] = []
    known: dict[str, bool] = {}  # kind -> whether it differs anywhere
    all_kinds: dict[str, None] = {}
    for measure in measures(any(on_cpu)):
        if measure.kind == "clock" and all(on_cpu):
            continue  # there is no GPU that could have a clock
        all_kinds[measure.kind] = None
        one = differing(measure, a, b, slower)
        if one is None:
            continue
        known[measure.kind] = known.get(measure.kind, False) or isinstance(one, Measured)
        if isinstance(one, Measured):
            found.append(_Found(one.score, measure.kind, measure.name, one.a, one.b, one.why))
    same = [KINDS[kind].title for kind, differs in known.items() if not differs]
    return found, same, [f"{KINDS[kind].title}: a side was not sampled" for kind in all_kinds if kind not in known]
