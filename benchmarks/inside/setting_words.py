"""List the settings of a framework with their types, which come from the annotations of its classes.

After a backend's pins change, its list_settings.py runs in the framework's environment and loads this file by path.
"""

import types
import typing
from collections.abc import Iterator, Mapping

# The type of a union is the first of these words that fits one of its members: a text or a float can hold the others.
WORDS = ("str", "float", "int", "bool", "list", "dict")
SCALARS: Mapping[type, str] = {bool: "bool", int: "int", float: "float", str: "str"}


def word_of(annotation: object, known: Mapping[type, str]) -> str | None:
    """Return the word for an annotation, or None. `known` maps a class and its subclasses to a word."""
    found = set(_words_of(annotation, known))
    return next((word for word in WORDS if word in found), None)


def _words_of(annotation: object, known: Mapping[type, str]) -> Iterator[str]:
    origin, arms = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        for arm in arms:
            yield from _words_of(arm, known)
    elif origin is typing.Annotated:
        yield from _words_of(arms[0], known)
    elif origin is typing.Literal:
        yield from (SCALARS[type(value)] for value in arms if value is not None)
    elif isinstance(kind := origin or annotation, type):
        yield from [known[base] for base in kind.__mro__ if base in known][:1]


def show(title: str, program: str, settings: Mapping[str, str]) -> None:
    """Print the file that lists the settings."""
    print(f"# {title}, with its type.\n# Made by {program}; do not edit.")
    for name in sorted(settings):
        print(f"{name}: {settings[name]}")
