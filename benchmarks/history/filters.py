"""Conditions that select runs: model=llama2_70b, dtype=bf16,fp8, gpus>=64, date>=2026-11-01, tag!=trial. No I/O.

If a run lacks the value that a condition names, only `!=` matches the run.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

from benchmarks.errors import RequestError, UnknownName
from benchmarks.runs.finished_run import FinishedRun, field_of
from benchmarks.values import Value

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
# How a run's value is compared. word: it is equal. order: alphabetically. number: by size. date: by the given part,
# so 2026-11 is all of November. beginning, part: it begins with or contains the text. any: one tag is equal.
Kind = Literal["word", "order", "number", "date", "beginning", "part", "any"]

EXAMPLE = "--where='gpus>=64' --where=dtype=bf16,fp8"
SEPARATOR = "\x1f"  # before, between and after the tags of a run in the column `tags`


class Key(NamedTuple):
    column: str  # the field of FinishedRun, and the column of the index
    kind: Kind


KEYS: dict[str, Key] = {
    **{name: Key(name, "word") for name in ("model", "dtype", "backend", "engine", "task", "hardware", "site")},
    **{name: Key(name, "word") for name in ("host", "status", "suite", "cell", "role", "profile", "pgle", "window")},
    **{name: Key(name, "word") for name in ("parallelism", "version")},
    **{name: Key(name, "number") for name in ("gpus", "nodes", "steps", "sequence_length")},
    "batch": Key("global_batch_size", "number"),
    "slowed": Key("slowed_by", "number"),
    "night": Key("night", "order"),
    "date": Key("started", "date"),
    "commit": Key("commit", "beginning"),
    "run": Key("run_id", "part"),
    "tag": Key("tags", "any"),
}

_FORM = re.compile(r"\s*(\w+)\s*(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_DATE = re.compile(
    r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01])([T ]([01]\d|2[0-3])(:[0-5]\d(:[0-5]\d)?)?)?)?)?Z?", re.ASCII
)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?", re.ASCII)


class Condition(Value, frozen=True):
    """A condition on runs. With several values, `=` selects runs that have any of them, and `!=` excludes them."""

    key: str
    operator: Operator
    values: list[str]

    @property
    def text(self) -> str:
        return f"{self.key}{self.operator}{','.join(self.values)}"


def parse_condition(text: str, flag: str = "where", example: str = EXAMPLE) -> Condition:
    """Return the condition in a text. Raise RequestError with the expected form. `flag` is "" without a flag."""
    where = f"--{flag}" if flag else ""

    def refused(why: str) -> RequestError:
        return RequestError(f"'{text}' is not a condition", where=where, why=why, next_command=example)

    found = _FORM.fullmatch(text)
    if found is None:
        raise refused("use KEY=VALUE, or another operator: != < <= > >=")
    name, sign, typed = found.groups()
    if name not in KEYS:
        what = f"'{text}': unknown key '{name}'"
        raise UnknownName(what, name, KEYS, where=where, next_command=example)
    values = [value.strip() for value in typed.split(",")]
    wrong = next(filter(None, (_value_error(name, value) for value in values)), "")
    if not wrong and sign not in ("=", "!="):
        if KEYS[name].kind not in ("number", "date", "order"):
            wrong = f"the values of {name} have no order, so use = or !="
        elif len(values) > 1:
            wrong = "use one value; only = and != accept several"
    if wrong:
        raise refused(wrong)
    if KEYS[name].kind == "date":
        values = [value.replace(" ", "T").removesuffix("Z") for value in values]
    return Condition(key=name, operator=cast("Operator", sign), values=values)


def _value_error(name: str, value: str) -> str:
    kind = KEYS[name].kind
    if not value or not value.isprintable():
        return f"{name} needs a value"
    if value[0] in "=<>!":
        return "the operators are = != < <= > >="
    if kind == "number" and not _NUMBER.fullmatch(value):
        return f"{name} needs a number, not '{value}'"
    if kind == "date" and not _DATE.fullmatch(value):
        return "use a date such as 2026-11-22, 2026-11 or 2026-11-22T03:45 (UTC)"
    return ""


# --- conditions as SQL for the index --------------------------------------------------------------


def sql_of(conditions: Sequence[Condition]) -> tuple[str, list[str | float]]:
    """Return a SQL expression over the columns of the index, and the expression's parameters."""
    parts, parameters = ["1"], list[str | float]()
    for condition in conditions:
        key = KEYS[condition.key]
        asked: Operator = "=" if condition.operator == "!=" else condition.operator
        options = [_sql_fits(key, asked, value) for value in condition.values]
        hit = " OR ".join(text for text, _ in options)
        parts.append(f"NOT coalesce({hit}, 0)" if condition.operator == "!=" else f"({hit})")
        parameters += [value for _, values in options for value in values]
    return " AND ".join(parts), parameters


def _sql_fits(key: Key, sign: Operator, value: str) -> tuple[str, list[str | float]]:
    column = f'"{key.column}"'
    if key.kind == "any":
        return f"instr({column}, ?) > 0", [f"{SEPARATOR}{value}{SEPARATOR}"]
    if key.kind == "part":
        return f"instr({column}, ?) > 0", [value]
    if key.kind == "beginning":
        return f"substr({column}, 1, {len(value)}) = ?", [value]
    if key.kind == "date":
        return f"substr({column}, 1, {len(value)}) {sign} ?", [value]
    return f"{column} {sign} ?", [float(value) if key.kind == "number" else value]


def columns_of(entry: FinishedRun) -> tuple[str | float | None, ...]:
    """Return a run's values of COLUMNS for SQL. A start time that is unknown becomes None."""
    row = [field_of(entry, column) for column in COLUMNS]
    tags = f"{SEPARATOR}{SEPARATOR.join(entry.labels.tags)}{SEPARATOR}" if entry.labels.tags else ""
    row[COLUMNS.index("tags")] = tags
    row[COLUMNS.index("started")] = entry.started or None
    return tuple(row)


COLUMNS = tuple(dict.fromkeys(key.column for key in KEYS.values()))
