"""Sorts and checks the settings of --set: Stepmark's own, env.NAME, xla_FLAG, and the framework's settings."""

import math
import re
from collections.abc import Mapping

from benchmarks.backend import Backend
from benchmarks.errors import LIST_COMMAND, RequestError, UnknownName, nearest
from benchmarks.secret_rules import is_secret_name
from benchmarks.values import Scalar

OWN_SETTINGS = ("sequence_length", "micro_batch_size", "gradient_accumulation", "global_batch_size")
ROUTING = "routing"  # Stepmark's own setting for models with experts: balanced or learned

# Values that Stepmark sets itself, and would silently overwrite.
FILLED_VARIABLES = {"XLA_FLAGS": "--set=xla_FLAG=VALUE for each flag"}
FLAG_GROUP = "xla_group"  # the name of a group of flags in configs/xla_flags.yml
PGLE_PROFILE = "xla_gpu_pgle_profile_file_or_directory_path"
FILLED_XLA_FLAGS = {
    "xla_force_host_platform_device_count": "--gpus",
    PGLE_PROFILE: "--pgle=nsys, which checks that the profile is read",
}

# Larger than any size in a training run, and still exact as a float.
LARGEST_NUMBER = 10**12


VALUE_TYPES: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float)}


def sort_settings(
    settings: Mapping[str, str], backend: Backend
) -> tuple[dict[str, int], dict[str, str], dict[str, str], dict[str, Scalar]]:
    """Sort the keys of --set: Stepmark's own, env.NAME, xla_FLAG, and the framework's settings."""
    own: dict[str, int] = {}
    environment: dict[str, str] = {}
    xla: dict[str, str] = {}
    knobs: dict[str, Scalar] = {}
    for key, text in settings.items():
        if key in OWN_SETTINGS:
            own[key] = positive(f"--set={key}", int(typed(key, text, "int")))
        elif key == ROUTING:
            continue  # resolve.py chooses it together with the recipe's routing
        elif key.startswith("env."):
            environment[_environment_name(key, backend)] = text
        elif key.startswith("xla_"):
            xla[key] = _xla_flag(key, text)
        else:
            knobs[key] = _framework_setting(key, text, backend)
    return own, environment, xla, knobs


def _environment_name(key: str, backend: Backend) -> str:
    name = key.removeprefix("env.")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise RequestError(f"'{name}' is not a valid name of an environment variable", where=f"--set={key}")
    refused: list[tuple[bool, str, str]] = [
        (
            name in FILLED_VARIABLES or name.startswith("STEPMARK_"),
            "cannot be set directly",
            f"use {FILLED_VARIABLES.get(name, 'flags')}",
        ),
        (
            name.startswith(backend.reserved_variables),
            "cannot be set directly",
            f"{backend.title} would read it outside the plan; use the backend's setting with --set=SETTING=VALUE",
        ),
        (
            is_secret_name(name),
            "looks like a secret, and --set is written to the run folder",
            f"export {name}=VALUE before the command",
        ),
        (
            name.startswith(("SLURM_", "SRUN_")),
            "belongs to Slurm, and srun would use it instead of the options in the job script",
            "use --slurm_arg=OPTION=VALUE",
        ),
    ]
    for holds, what, why in refused:
        if holds:
            raise RequestError(f"{name} {what}", where=f"--set={key}", why=why)
    return name


def _xla_flag(key: str, text: str) -> str:
    """Check an XLA flag. XLA splits XLA_FLAGS at spaces, so a space would break the flag into two."""
    if key in FILLED_XLA_FLAGS:
        raise RequestError(f"{key} cannot be set directly", where=f"--set={key}", why=f"use {FILLED_XLA_FLAGS[key]}")
    if not re.fullmatch("[a-z0-9_]+", key) or re.search(r"\s", text):
        raise RequestError(f"{key}={text}: an XLA flag and its value must not have spaces", where=f"--set={key}")
    return text


def _framework_setting(key: str, text: str, backend: Backend) -> Scalar:
    advice = backend.reserved_settings.get(key)
    if advice is not None:  # names the replacement, or gives the reason after `nothing: `
        _, none, why = advice.rpartition("nothing: ")
        raise RequestError(f"{key} cannot be set directly", where=f"--set={key}", why=why if none else f"use {why}")
    types = backend.settings()
    if key not in types:
        raise UnknownName(
            f"unknown setting '{key}'",
            key,
            [*OWN_SETTINGS, ROUTING, *types],
            where=f"--set={key}",
            why=f"neither {backend.title} nor Stepmark has a setting with this name",
            next_command=LIST_COMMAND,
        )
    return typed(key, text, types[key])


def typed(key: str, text: str, kind: str) -> Scalar:
    number: int | float
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        if kind not in ("int", "float"):
            return text
        number = int(text) if kind == "int" else float(text)
        if not math.isfinite(number) or (kind == "int" and abs(number) > LARGEST_NUMBER):
            raise ValueError  # JSON cannot represent the number, so the run folder could not be read again
    except (KeyError, ValueError, OverflowError):
        expected = {"bool": "true or false", "int": "a whole number", "float": "a finite number"}[kind]
        raise RequestError(f"{key}={text} is not {expected}", where=f"--set={key}") from None
    return number


def positive(where: str, number: int) -> int:
    name = where.removeprefix("--set=")
    if number > LARGEST_NUMBER:
        raise RequestError(f"{name} is over {LARGEST_NUMBER:,}", where=where)
    if number < 1:
        raise RequestError(f"{name} is {number}, but must be 1 or more", where=where, next_command=f"{where}=1")
    return number


def check_knobs(knobs: Mapping[str, Scalar], backend: Backend, where: str) -> None:
    """Check settings from a config: the framework must know each of them, and its value must have the right type."""
    types = backend.settings()
    for name, value in knobs.items():
        if name not in types:
            raise RequestError(
                f"unknown setting '{name}': {nearest(name, types)}",
                where=where,
                why=f"{backend.title} has no setting with this name",
            )
        allowed = VALUE_TYPES.get(types[name])
        if allowed is not None and type(value) not in allowed:  # so that True is not accepted as an int
            raise RequestError(f"{name}: {value!r} is not of type {types[name]}", where=where)
