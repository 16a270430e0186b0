"""What --set may say: Stepmark's own settings, env.NAME, xla_FLAG, and the framework's settings, each typed."""

from collections.abc import Mapping

from benchmarks.backend import Backend
from benchmarks.errors import LIST_COMMAND, RequestError, nearest
from benchmarks.values import Scalar

OWN_SETTINGS = ("sequence_length", "micro_batch_size", "gradient_accumulation", "global_batch_size")
SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY")


def is_secret_name(name: str) -> bool:
    return any(word in name.upper() for word in SECRET_WORDS)


def sort_settings(
    settings: Mapping[str, str], backend: Backend
) -> tuple[dict[str, int], dict[str, str], dict[str, str], dict[str, Scalar]]:
    """--set's keys by where they go: Stepmark's own, env.NAME, xla_FLAG, and the framework's settings."""
    own: dict[str, int] = {}
    environment: dict[str, str] = {}
    xla: dict[str, str] = {}
    knobs: dict[str, Scalar] = {}
    for key, text in settings.items():
        if key in OWN_SETTINGS:
            own[key] = positive(f"--set={key}", int(_typed(key, text, "int")))
        elif key.startswith("env."):
            environment[_environment_name(key)] = text
        elif key.startswith("xla_"):
            xla[key] = text
        else:
            knobs[key] = _framework_setting(key, text, backend)
    return own, environment, xla, knobs


def _environment_name(key: str) -> str:
    name = key.removeprefix("env.")
    if is_secret_name(name):
        raise RequestError(
            f"{name} looks like a secret, and --set is written to the run folder",
            where=f"--set={key}",
            next_command=f"export {name}=... before the command",
        )
    return name


def _framework_setting(key: str, text: str, backend: Backend) -> Scalar:
    if key in backend.reserved_settings:
        raise RequestError(
            f"{key} is not set directly", where=f"--set={key}", why=f"use {backend.reserved_settings[key]}"
        )
    types = backend.settings()
    if key not in types:
        raise RequestError(
            f"unknown setting '{key}': {nearest(key, [*OWN_SETTINGS, *types])}",
            where=f"--set={key}",
            why=f"{backend.title} has no setting of that name, nor has Stepmark",
            next_command=LIST_COMMAND,
        )
    return _typed(key, text, types[key])


def _typed(key: str, text: str, kind: str) -> Scalar:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except (KeyError, ValueError):
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise RequestError(f"{key}={text}: {expected} is expected", where=f"--set={key}") from None
    return text


def positive(where: str, number: int) -> int:
    if number < 1:
        raise RequestError(f"{where.removeprefix('--set=')} is {number}: it must be 1 or more", where=where)
    return number
