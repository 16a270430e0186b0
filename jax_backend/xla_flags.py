"""XLA's flags as data: reads configs/xla_flags.yml, and says what is known of a flag before any compiler is asked.

Pure but for the reading of that one file. The compiler itself is asked by check_request.py.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal

from benchmarks.backend import FlagFact, FlagsCheck
from benchmarks.configs import DEFAULT_ROOT, read_yaml
from benchmarks.errors import RequestError, nearest
from benchmarks.request.framework import program
from benchmarks.values import Hardware, Value

TABLE = DEFAULT_ROOT / "xla_flags.yml"

Device = Literal["cpu", "gpu", "hopper", "blackwell"]


class FlagRow(Value, frozen=True):
    """One flag: what it is for, which of the asked versions know it, and what came after it."""

    reason: str
    hardware: list[Device]
    versions: list[str]
    source: str
    successors: dict[str, str] = {}  # value of this flag, "*" for any -> flags to use instead, name=value
    note: str = ""
    false_alarm: bool = False  # the CPU client calls it unknown, the CUDA plugin knows it


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
    current: list[str]  # of these, what a run may have today
    families: dict[str, list[str]]  # a family of devices -> names of configs/hardware
    groups: dict[str, Group]
    flags: dict[str, FlagRow]


@cache
def table() -> FlagTable:
    found = read_yaml(TABLE, FlagTable)
    _refuse_contradictions(found)
    return found


def _refuse_contradictions(found: FlagTable) -> None:
    """What no type can say: a version that nobody asked would make its flag look known, or unknown."""
    places = {
        "current": found.current,
        **{f"flags.{name}.versions": row.versions for name, row in found.flags.items()},
    }
    for place, versions in places.items():
        for version in versions:
            if version not in found.versions:
                what = f"no version '{version}': {nearest(version, found.versions)}"
                raise RequestError(what, where=f"{TABLE}: {place}")


# --- groups -----------------------------------------------------------------------------------


def group(name: str) -> Group:
    """The flags and variables of a group; RequestError where there is none of that name."""
    groups = table().groups
    if name not in groups:
        raise RequestError(
            f"unknown group of XLA flags '{name}': {nearest(name, groups)}",
            where=f"--set=xla_group={name}",
            why=f"there are: {', '.join(sorted(groups))}",
        )
    return groups[name]


def group_refusal(name: str, hardware: Hardware) -> RequestError | None:
    """Why a group is not for a device; None where it is."""
    found = group(name)
    devices = devices_of(hardware)
    if devices & set(found.hardware):
        return None
    fitting = sorted(other for other, row in table().groups.items() if devices & set(row.hardware))
    others = [other for other in fitting if not other.startswith("pgle_")]  # those are --pgle's
    return RequestError(
        f"the flags '{name}' are for {' and '.join(found.hardware)}, not for {hardware.title}",
        where=f"--set=xla_group={name} --hardware={hardware.name}",
        why=found.reason,
        next_command=f"--set=xla_group= with one of: {', '.join(others)}" if others else "leave --set=xla_group out",
    )


def devices_of(hardware: Hardware) -> set[str]:
    """The words of the table that fit a device: its kind, and its family where it has one."""
    families = table().families.items()
    return {hardware.kind, *(family for family, names in families if hardware.name in names)}


# --- single flags -------------------------------------------------------------------------------


def split(flag: str) -> tuple[str, str]:
    """--name=value -> name and value; the empty value is one."""
    name, _, value = flag.removeprefix("--").partition("=")
    return name, value


def is_known(row: FlagRow) -> bool:
    """To any version that a run may have today."""
    return any(version in row.versions for version in table().current)


def fact(flag: str) -> FlagFact:
    """What the table says of --name=value."""
    name, value = split(flag)
    row = table().flags.get(name)
    if row is None:
        known = [other for other, row in table().flags.items() if is_known(row)]
        import difflib

        close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        hint = f": did you mean {close[0]}?" if close else ""
        return FlagFact(flag=flag, status="not listed", text=f"not in the table{hint}")
    versions = table().versions
    who = "" if row.versions == versions else f"known to jaxlib {', '.join(row.versions)}"
    if not row.versions:
        who = f"unknown to all of {_span(versions)}"
    text = "; ".join(filter(None, [f"{row.reason} ({', '.join(row.hardware)})", who, row.note]))
    if is_known(row):
        return FlagFact(flag=flag, status="known", text=text)
    return FlagFact(flag=flag, status="unknown", text=text, successor=_options(successors_of(name, value)))


def _span(versions: list[str]) -> str:
    return f"jaxlib {versions[0]} to {versions[-1]}"


def successors_of(name: str, value: str) -> dict[str, str]:
    """The flags to use instead of one that is gone; none where it is simply left out."""
    row = table().flags.get(name)
    if row is None:
        return {}
    words = row.successors.get(value.lower(), row.successors.get("*", "")).split()
    return dict(split(word) for word in words)


def _options(flags: Mapping[str, str], prefix: str = "--") -> str:
    return " ".join(f"{prefix}{name}={value}" for name, value in flags.items())


# --- what is refused before anything starts -------------------------------------------------------


def refusals(flags: Mapping[str, str], hardware: Hardware) -> list[RequestError]:
    """The flags that no current version knows, all in one refusal; a flag that is not listed is not judged here."""
    gone = {name: row for name, row in table().flags.items() if name in flags and not is_known(row)}
    if not gone:
        return []
    typed = {name: flags[name] for name in gone}
    return [
        RequestError(
            f"XLA has no flag {', '.join(gone)}",
            where=_options(typed, "--set="),
            why=f"{_span(table().current)} abort; " + "; ".join(_why_gone(*one, hardware) for one in gone.items()),
            next_command=_instead(typed),
        )
    ]


def _why_gone(name: str, row: FlagRow, hardware: Hardware) -> str:
    words = [
        f"known to {', '.join(row.versions)} alone" if row.versions else f"gone before {table().versions[0]}",
        row.note,
        "" if devices_of(hardware) & set(row.hardware) else f"no flag for {hardware.name}",
    ]
    return f"{name}: " + ", ".join(filter(None, words))


def _instead(typed: Mapping[str, str]) -> str:
    """One command for all of them: several may have one successor, which then takes the values of all."""
    merged: dict[str, list[str]] = {}
    for name, value in typed.items():
        for new_name, new_value in successors_of(name, value).items():
            merged.setdefault(new_name, []).append(new_value)
    left_out = [name for name, value in typed.items() if not successors_of(name, value)]
    instead = {name: ",".join(dict.fromkeys(values)) for name, values in merged.items()}
    words = [_options(instead, "--set="), f"leave out {', '.join(left_out)}" if left_out else ""]
    return " and ".join(filter(None, words))


# --- the program that asks the compiler -----------------------------------------------------------


def check(flags: list[str]) -> FlagsCheck:
    """Flags, each --name=value: what is known of them, and the program that asks the installed jaxlib."""
    return FlagsCheck(
        facts=[fact(flag) for flag in flags],
        command=program("jax_backend/inside/check_request.py", f"--flags={' '.join(flags)}"),
        environment={"JAX_PLATFORMS": "cpu"},
    )
