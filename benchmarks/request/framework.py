"""Helpers that several backends share: command lines, settings as text, and refusals."""

from collections.abc import Iterable, Iterator, Mapping

from benchmarks.errors import RequestError, nearest
from benchmarks.values import Benchmark, Scalar

DIMENSIONS_ARE_THE_MODELS = "a model file in configs/models, which has the dimensions"
OTHER_WORK = "nothing: this setting changes the work of a step, and Stepmark would count the wrong FLOPs"
FILLED = "nothing: Stepmark sets it for every run"


def program(path: str, *words: str) -> list[str]:
    """Return the command of a Stepmark program in the framework's environment. -P keeps its folder off sys.path."""
    return ["{python}", "-P", "{repository}/" + path, *words]


def text_of(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def words_of(settings: Mapping[str, Scalar]) -> list[str]:
    return [f"{name}={text_of(value)}" for name, value in settings.items()]


def whole(value: Scalar) -> Scalar:
    """Return a float without a fraction as an int, because frameworks expect the RoPE base as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def slowdown_option(benchmark: Benchmark) -> list[str]:
    """Return the option that slows the worker of the measured phase; empty without --inject_slowdown.

    worker_kit.py describes how a worker slows its steps.
    """
    return (
        [f"--inject_slowdown={benchmark.instruments.inject_slowdown:g}"]
        if benchmark.instruments.inject_slowdown
        else []
    )


# --- refusals -----------------------------------------------------------------------------------------


def model_without_settings(benchmark: Benchmark, setting: str = "") -> Iterator[RequestError]:
    """Refuse a model file that has no settings for the backend, or does not have this setting."""
    model, backend = benchmark.model, benchmark.backend
    if backend not in model.backend_settings or (setting and setting not in model.backend_settings[backend]):
        where = f"configs/models/{model.name}.yml: backend_settings.{backend}"
        yield RequestError(f"model '{model.name}' has no settings for --backend={backend}", where=where)


def unknown_values(benchmark: Benchmark, choices: Mapping[str, Iterable[str]]) -> Iterator[RequestError]:
    """Refuse values that the framework does not know, because it would reject them only after the job has started."""
    for name, known in choices.items():
        value = benchmark.settings.knobs.get(name)
        if value is not None and str(value) not in known:
            why = f"known: {', '.join(filter(None, known))}"
            yield RequestError(f"{name}={value}: {nearest(str(value), known)}", where=f"--set={name}", why=why)


def without_effect(name: str, on: str, next_command: str) -> RequestError:
    return RequestError(f"{name} has no effect on {on}", where=f"--set={name}", next_command=next_command)


def refuse_unstated(knobs: Mapping[str, Scalar], examples: Mapping[str, str]) -> None:
    """Refuse adapter settings without a value. `examples` maps each setting to a valid one."""
    for name, example in examples.items():
        if knobs.get(name, "") == "":
            raise RequestError(
                f"{name} has no value",
                where=f"--set={name}",
                why="the size and the targets of adapters are part of the benchmark and have no default",
                next_command=f"--set={example}",
            )
