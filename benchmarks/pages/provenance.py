"""provenance.json -> lists that fold: what ran, on what, with which versions, flags and files. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.pages.elements import Facts

# In the order in which somebody who hunts a difference asks: heading -> parts of the file.
GROUPS = {
    "What was run": ("command", "git", "stepmark", "labels"),
    "What the framework saw": ("worker",),
    "Arguments, environment and XLA flags of each phase": ("phases",),
    "Environments": ("environment", "launcher"),
    "Machine": ("machine",),
    "Variables of the shell": ("shell",),
    "Digests of the raw files (SHA-256)": ("files",),
}
ALONE = (("worker",), ("phases",), ("machine",), ("shell",), ("files",))  # their heading says which part it is
NOT_SHOWN = ("notes", "run_id")  # they stand elsewhere on the page


def provenance_lists(provenance: Mapping[str, Any]) -> list[Facts]:
    """A list for each part of the file, also for those that this version does not know."""
    known = {name for names in GROUPS.values() for name in names}
    others = tuple(name for name in provenance if name not in known and name not in NOT_SHOWN)
    lists = [
        Facts(heading, [row for name in names for row in _rows("" if names in ALONE else name, provenance.get(name))])
        for heading, names in {**GROUPS, "Other": others}.items()
    ]
    return [one for one in lists if one.rows]


def _rows(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every leaf with the path to it; a list of words is one text, a line each where they are many."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _rows(f"{name} {key}".strip(), inner)
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            yield from _rows(f"{name} {number}".strip() if len(value) > 1 else name, inner)
    elif isinstance(value, list):
        if value:
            yield name or "value", "\n".join(map(str, value))
    elif value not in (None, ""):
        yield name or "value", str(value)
