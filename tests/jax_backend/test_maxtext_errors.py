"""What MaxText hides: its own reason behind an exit code, and any error inside its context for Transformer Engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jax_backend.inside.maxtext_errors import in_words


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


class Refused(Exception):
    """As pydantic's, whose own words hold all of the input."""

    def errors(self) -> list[dict[str, Any]]:
        return [{"msg": "Value error, one thing"}, {"msg": "Input should be 'a' or 'b'"}]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ValueError("no such setting"), "ValueError: no such setting"),
        (Refused("and all of the input"), "one thing; Input should be 'a' or 'b'"),
    ],
)
def test_an_exit_by_a_number_has_its_reason(reason: Exception, words: str) -> None:
    def refused() -> None:
        """As MaxText 0.2.5's pyconfig does."""
        try:
            raise reason
        except Exception:
            raise SystemExit(2)  # noqa: B904

    with pytest.raises(SystemExit) as ended:
        in_words(refused)()
    assert ended.value.code == f"stepmark worker: MaxText refuses: {words}"


@pytest.mark.parametrize("error", [SystemExit("in words"), RuntimeError("INTERNAL: cuBLAS"), SystemExit(2)])
def test_an_error_that_hides_nothing_is_its_own_reason(error: BaseException) -> None:
    def ends() -> None:
        raise error

    with pytest.raises(type(error)) as ended:
        in_words(ends)()
    assert ended.value is error
