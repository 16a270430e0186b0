"""Common parts of backends' plans and refusals: command lines, settings as text, common refusals."""

from collections.abc import Iterable, Iterator, Mapping

from benchmarks.errors import RequestError, nearest
from benchmarks.values import Benchmark, Scalar

DIMENSIONS_ARE_THE_MODELS = "a model file in configs/models, which has the dimensions"
OTHER_WORK = "nothing: it changes the model or the batch, and Stepmark does not count its FLOPs"
FILLED = "nothing: Stepmark sets it for every run"


def program(path: str, *words: str) -> list[str]:
    """Return the command of a Stepmark program in the framework's environment; -P keeps its folder off sys.path."""
    return ["{python}", "-P", "{repository}/" + path, *words]


def text_of(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def words_of(settings: Mapping[str, Scalar]) -> list[str]:
    return [f"{name}={text_of(value)}" for name, value in settings.items()]


def whole(value: Scalar) -> Scalar:
    """Frameworks take the RoPE base as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def slowdown_option(benchmark: Benchmark) -> list[str]:
    """Return what the worker of the measured phase gets for --inject_slowdown; empty if no step is slowed.

    How a worker slows its steps is in worker_kit.py.
    """
    return (
        [f"--inject_slowdown={benchmark.instruments.inject_slowdown:g}"]
        if benchmark.instruments.inject_slowdown
        else []
    )


# --- refusals -----------------------------------------------------------------------------------------


def model_without_settings(benchmark: Benchmark, setting: str = "") -> Iterator[RequestError]:
    """Refuse a model without settings for the backend, or without this setting."""
    model, backend = benchmark.model, benchmark.backend
    if backend not in model.backend_settings or (setting and setting not in model.backend_settings[backend]):
        where = f"configs/models/{model.name}.yml: backend_settings.{backend}"
        yield RequestError(f"model '{model.name}' has no settings for --backend={backend}", where=where)


def unknown_values(benchmark: Benchmark, choices: Mapping[str, Iterable[str]]) -> Iterator[RequestError]:
    """Texts of which the framework knows only some: a job would end over another after it has started."""
    for name, known in choices.items():
        value = benchmark.settings.knobs.get(name)
        if value is not None and str(value) not in known:
            why = f"known: {', '.join(filter(None, known))}"
            yield RequestError(f"{name}={value}: {nearest(str(value), known)}", where=f"--set={name}", why=why)


def without_effect(name: str, on: str, next_command: str) -> RequestError:
    return RequestError(f"{name} has no effect on {on}", where=f"--set={name}", next_command=next_command)


def refuse_unstated(knobs: Mapping[str, Scalar], examples: Mapping[str, str]) -> None:
    """Settings that make an adapter -> a value that each may have."""
    for name, example in examples.items():
        if knobs.get(name, "") == "":
            raise RequestError(
                f"{name} has no value",
                where=f"--set={name}",
                why="the size and the targets of adapters are part of the benchmark and have no default",
                next_command=f"--set={example}",
            )
