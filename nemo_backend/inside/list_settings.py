"""Prints nemo_settings.yml: every setting of NeMo and Megatron-core that a recipe or --set may name, with its type.

Runs by path inside NeMo's environment, after a change of the pinned versions, from the repository's root:

    python -P nemo_backend/inside/list_settings.py > nemo_backend/nemo_settings.yml

A setting is named by its group (build.py: GROUPS) and the name its class takes it under. What only code can
hold (callables, modules, nested objects) is left out; defaults are the frameworks' business.
"""

import contextlib
import dataclasses
import inspect
import sys
import types as python_types
import typing
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
from worker_kit import load  # noqa: E402

# Of a union's arms the first here wins.
WORDS = ("str", "float", "int", "bool", "list")
WORD_OF_TYPE = {bool: "bool", int: "int", float: "float", str: "str"}
# What NeMo annotates with nothing, or with what is no scalar, and build.py makes from a text all the same.
FROM_TEXT = {
    "peft.target_modules": "list",
    "comm_overlap.tp_comm_overlap_cfg": "str",
    "model.config_class": "str",
    "garbage_collection.gc_interval_train": "int",
    "garbage_collection.gc_interval_val": "int",
}


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        build = load(HERE / "build.py")
        found = dict(settings(build)) | FROM_TEXT
    print(
        f"# Every setting of NeMo {version('nemo-toolkit')} and Megatron-core {version('megatron-core')} "
        "that a recipe or --set may name, with its type."
    )
    print("# Made by nemo_backend/inside/list_settings.py; do not edit.")
    for name in sorted(found):
        print(f"{name}: {found[name]}")


def settings(build: typing.Any) -> Iterator[tuple[str, str]]:
    for group, path in build.GROUPS.items():
        for name, annotation in annotations(build.class_of(path)).items():
            word = word_of(annotation)
            if word is not None and f"{group}.{name}" not in build.GROUPS:
                yield f"{group}.{name}", word


def annotations(kind: type) -> dict[str, object]:
    """What a class is made from: its fields where it is a dataclass, else the arguments of its __init__."""
    if dataclasses.is_dataclass(kind):
        names = {
            name: value
            for base in reversed(kind.__mro__)
            for name, value in vars(sys.modules[base.__module__]).items()
        }
        return {field.name: resolved(field.type, names) for field in dataclasses.fields(kind) if field.init}
    function = inspect.unwrap(kind.__init__)  # type: ignore[misc]
    found = inspect.signature(function).parameters
    return {name: resolved(parameter.annotation, function.__globals__) for name, parameter in found.items()}


def resolved(annotation: object, names: dict[str, typing.Any]) -> object:
    """An annotation that is written as text; some name what is imported for type checkers alone."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except (NameError, TypeError):
        return None


def word_of(annotation: object) -> str | None:
    found = set(words_of(annotation))
    return next((word for word in WORDS if word in found), None)


def words_of(annotation: object) -> Iterator[str]:
    """The type words of an annotation; none for what a text cannot say."""
    import torch  # type: ignore[import-not-found]

    origin = typing.get_origin(annotation)
    if origin in (typing.Union, python_types.UnionType):
        for arm in typing.get_args(annotation):
            yield from words_of(arm)
    elif origin is typing.Literal:
        yield from (WORD_OF_TYPE[type(value)] for value in typing.get_args(annotation) if value is not None)
    elif annotation is torch.dtype:
        yield "str"
    elif isinstance(annotation, type) and annotation in WORD_OF_TYPE:
        yield WORD_OF_TYPE[annotation]


if __name__ == "__main__":
    main()
