"""Look up XLA's flags, and groups of flags, in configs/xla_flags.yml.

This module only reads that file. check_request.py passes the flags to the installed compiler.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal

from benchmarks.backend import FlagFact, FlagGroup, FlagsCheck
from benchmarks.configs import DEFAULT_ROOT, read_yaml
from benchmarks.errors import RequestError, nearest
from benchmarks.request.framework import program
from benchmarks.values import Hardware, Value

TABLE = DEFAULT_ROOT / "xla_flags.yml"
OF_PGLE = "pgle_"  # the prefix of the groups that --pgle uses

Device = Literal["cpu", "gpu", "hopper", "blackwell"]


class FlagRow(Value, frozen=True):
    """One flag: its purpose, the versions of jaxlib that know it, and the flags that replace it."""

    reason: str
    hardware: list[Device]
    versions: list[str]
    source: str
    successors: dict[str, str] = {}  # value of this flag, or "*" for any value -> its replacement, as name=value
    note: str = ""


class Group(Value, frozen=True):
    """Flags and environment variables that belong together."""

    reason: str
    hardware: list[Device]
    source: str
    flags: dict[str, str] = {}
    environment: dict[str, str] = {}


class FlagTable(Value, frozen=True):
    """configs/xla_flags.yml."""

    date: str
    versions: list[str]  # of jaxlib, oldest first
    current: list[str]  # the versions that a run may use today
    families: dict[str, list[str]]  # a family of devices -> names of configs/hardware
    groups: dict[str, Group]
    flags: dict[str, FlagRow]


@cache
def table() -> FlagTable:
    return read_yaml(TABLE, FlagTable)


# --- groups -----------------------------------------------------------------------------------


def group(name: str) -> FlagGroup:
    """Return the flags and variables of a group. Raise RequestError if there is no such group."""
    groups = table().groups
    if name not in groups:
        raise RequestError(
            f"unknown group of XLA flags '{name}': {nearest(name, groups)}",
            where=f"--set=xla_group={name}",
            why=f"the groups are {', '.join(sorted(groups))}",
        )
    return FlagGroup(flags=groups[name].flags, environment=groups[name].environment)


def group_for(name: str, hardware: Hardware) -> FlagGroup:
    """Return a group that --set=xla_group may name for a device. Raise RequestError for any other group."""
    found = group(name)
    where = f"--set=xla_group={name} --hardware={hardware.name}"
    if name.startswith(OF_PGLE):  # these flags have an effect only in the phases that --pgle adds
        raise RequestError(f"{name} cannot be set directly", where=where, next_command="--set=xla_group --pgle=nsys")
    row = table().groups[name]
    families = [family for family, names in table().families.items() if hardware.name in names]
    if not {hardware.kind, *families} & set(row.hardware):
        raise RequestError(
            f"the flags '{name}' are for {' and '.join(row.hardware)}, not for {hardware.title}",
            where=where,
            why=row.reason,
            next_command="--set=xla_group",
        )
    return found


# --- single flags -------------------------------------------------------------------------------


def is_known(row: FlagRow) -> bool:
    """Return whether any current version of jaxlib knows a flag."""
    return any(version in row.versions for version in table().current)


def fact(flag: str) -> FlagFact:
    """Return the table's facts about a flag in the form --name=value."""
    name, _, value = flag.removeprefix("--").partition("=")
    row = table().flags.get(name)
    if row is None:
        import difflib

        known = [other for other, row in table().flags.items() if is_known(row)]
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        hint = f": did you mean {close[0]}?" if close else ""
        return FlagFact(flag=flag, status="not listed", text=f"not in the table{hint}")
    text = "; ".join(filter(None, [f"{row.reason} ({', '.join(row.hardware)})", _known_to(row), row.note]))
    if is_known(row):
        return FlagFact(flag=flag, status="known", text=text)
    return FlagFact(flag=flag, status="unknown", text=text, successor=" ".join(successors_of(name, value)))


def _known_to(row: FlagRow) -> str:
    """Return a text that names the versions that know a flag; empty if every version knows it."""
    first, *_, last = table().versions
    if row.versions == table().versions:
        return ""
    return f"known to jaxlib {', '.join(row.versions)}" if row.versions else f"unknown to jaxlib {first} to {last}"


def successors_of(name: str, value: str) -> list[str]:
    """Return the flags that replace a removed flag, in the form --name=value; empty if nothing replaces it."""
    successors = table().flags[name].successors
    return [f"--{word}" for word in successors.get(value.lower(), successors.get("*", "")).split()]


# --- refusals -------------------------------------------------------------------------------------


def refusals(flags: Mapping[str, str]) -> Iterator[RequestError]:
    """Refuse the flags that no current version of jaxlib knows. Accept flags that are not in the table."""
    for name, value in flags.items():
        row = table().flags.get(name)
        if row is not None and not is_known(row):
            instead = [flag.replace("--", "--set=", 1) for flag in successors_of(name, value)]
            yield RequestError(
                f"XLA has no flag {name}",
                where=f"--set={name}={value}",
                why="; ".join(filter(None, ["current versions of XLA abort on it", _known_to(row), row.note])),
                next_command=" ".join([f"--set={name}", *instead]),
            )


# --- the program that asks the compiler -----------------------------------------------------------


def check(flags: list[str]) -> FlagsCheck:
    """Return the table's facts about the flags, and the command that checks them with the installed jaxlib."""
    return FlagsCheck(
        facts=[fact(flag) for flag in flags],
        command=program("jax_backend/inside/check_request.py", f"--flags={' '.join(flags)}"),
        environment={"JAX_PLATFORMS": "cpu"},
    )
