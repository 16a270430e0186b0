"""What MaxText hides: its own reason behind an exit code, and any error inside its context for Transformer Engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jax_backend.inside.maxtext_errors import in_words, reason_of, words_of


@contextmanager
def yields_again() -> Iterator[None]:
    """As MaxText 0.2.5's transformer_engine_context does (utils/max_utils.py:1253)."""
    try:
        yield
    except Exception:
        yield


def out_of_memory() -> None:
    with yields_again():
        raise MemoryError("RESOURCE_EXHAUSTED")


def test_an_error_inside_the_context_for_transformer_engine_is_the_one_that_ends_it() -> None:
    with pytest.raises(RuntimeError, match="generator didn't stop"):
        out_of_memory()
    with pytest.raises(MemoryError, match="RESOURCE_EXHAUSTED"):
        in_words(out_of_memory)()


def refused() -> None:
    """As MaxText 0.2.5's pyconfig does."""
    try:
        raise ValueError("no such setting")
    except ValueError:
        raise SystemExit(2)  # noqa: B904


def test_an_exit_by_a_number_has_its_reason() -> None:
    with pytest.raises(SystemExit, match="MaxText refuses: ValueError: no such setting"):
        in_words(refused)()


def test_an_error_that_hides_nothing_is_its_own_reason() -> None:
    for error in (SystemExit("in words"), RuntimeError("INTERNAL: cuBLAS"), SystemExit(2)):
        assert reason_of(error) is error


class Refused(Exception):
    def errors(self) -> list[dict[str, Any]]:
        return [{"msg": "Value error, one thing"}, {"msg": "Input should be 'a' or 'b'"}]


def test_a_refusal_of_pydantic_is_its_messages_alone() -> None:
    assert words_of(Refused("and all of the input")) == "one thing; Input should be 'a' or 'b'"
