"""Prints maxtext_settings.yml: every setting MaxText knows, with its type.

Runs by path inside MaxText's environment, after a change of the pinned version, with
DECOUPLE_GCLOUD=TRUE and JAX_PLATFORMS=cpu, from the repository's root:

    python jax_backend/inside/list_settings.py > jax_backend/maxtext_settings.yml

Only names and types are listed: defaults are MaxText's business, and some hold tokens.
"""

import contextlib
import enum
import sys
import types as python_types
import typing
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import yaml

# Of a union's arms the first here wins: a scalar is what a recipe can hold, text and floats take in the rest.
WORDS = ("str", "float", "int", "bool", "list", "dict")

# For fields whose annotation is Any, the value in base.yml must tell; for None there it is text.
WORD_OF_TYPE = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "list",
    tuple: "list",
    dict: "dict",
}


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):  # MaxText prints while it is imported
        from maxtext.configs import types  # type: ignore[import-not-found]
    base = yaml.safe_load((Path(types.__file__).parent / "base.yml").read_text())
    print(f"# Every setting of MaxText {version('maxtext')} that a configuration may name, with its type.")
    print("# Made by jax_backend/inside/list_settings.py; do not edit. Fields that MaxText computes are left out.")
    for name, word in sorted(settings(types, base)):
        print(f"{name}: {word}")


def settings(types: typing.Any, base: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Every field that a user may set: all of MaxTextConfig less what it derives itself."""
    derived = set(types.DerivedValues.model_fields) - set(base)
    for name, field in types.MaxTextConfig.model_fields.items():
        if name not in derived:
            yield name, word_of_field(field.annotation, base.get(name))
            yield from inside(name, field.annotation)


def inside(name: str, annotation: object) -> Iterator[tuple[str, str]]:
    """The fields of a nested group such as `lora`, which the command line takes as `lora.lora_rank`."""
    for field_name, field in getattr(annotation, "model_fields", {}).items():
        yield f"{name}.{field_name}", word_of_field(field.annotation, field.default)


def word_of_field(annotation: object, value_in_base: object) -> str:
    words = set(words_of(annotation)) or {WORD_OF_TYPE.get(type(value_in_base), "str")}
    return next(word for word in WORDS if word in words)


def words_of(annotation: object) -> Iterator[str]:
    """The type words of an annotation; none for Any and None."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, python_types.UnionType):
        for arm in typing.get_args(annotation):
            yield from words_of(arm)
    elif origin is typing.Annotated:
        yield from words_of(typing.get_args(annotation)[0])
    elif origin is typing.Literal:
        yield from (WORD_OF_TYPE[type(value)] for value in typing.get_args(annotation))
    elif origin in (list, tuple, dict):
        yield WORD_OF_TYPE[origin]
    elif isinstance(annotation, type):
        yield from words_of_class(annotation)


def words_of_class(annotation: type) -> Iterator[str]:
    if annotation in WORD_OF_TYPE:
        yield WORD_OF_TYPE[annotation]
    elif issubclass(annotation, enum.IntEnum):
        yield "int"
    elif issubclass(annotation, enum.Enum):
        yield "str"
    elif hasattr(annotation, "model_fields"):  # a nested group such as `lora`
        yield "dict"


if __name__ == "__main__":
    main()
