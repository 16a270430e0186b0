"""The word of a setting's type, from the annotation that a framework gives it."""

import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest

from benchmarks.inside.setting_words import SCALARS, word_of


class Number(enum.IntEnum):
    ONE = 1


class Name(enum.Enum):
    A = "a"


KNOWN = {**SCALARS, list: "list", dict: "dict", enum.IntEnum: "int", enum.Enum: "str"}


@pytest.mark.parametrize(
    ("annotation", "word"),
    [
        *((kind, kind.__name__) for kind in (bool, int, float, str, list, dict)),
        *((int | None, "int"), (int | float, "float"), (int | str, "str"), (bool | int, "int")),
        *((Literal["a", None], "str"), (Literal[1, 2], "int"), (Annotated[int, "over 0"], "int")),
        *((Number, "int"), (Name | None, "str"), (list[str], "list"), (dict[str, int], "dict")),
        *((Callable[[], None], None), (Callable[[], None] | bool, "bool"), (None, None), (Any, None)),
    ],
)
def test_the_word_for_an_annotation(annotation: object, word: str | None) -> None:
    assert word_of(annotation, KNOWN) == word
