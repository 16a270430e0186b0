"""Why MaxText ended, in words. Where it refuses its configuration it ends the process by a number; its context for
Transformer Engine, which every run on GPUs is in, replaces an error from inside by one of its own.

Runs inside MaxText's environment, loaded by its path.
"""

from collections.abc import Callable


def in_words(train: Callable[[], None]) -> Callable[[], None]:
    """The same, which ends with the error that was there first."""

    def with_reason() -> None:
        try:
            train()
        except (RuntimeError, SystemExit) as error:
            reason = reason_of(error)
            if reason is error:
                raise
            if isinstance(error, SystemExit):
                raise SystemExit(f"stepmark worker: MaxText refuses: {words_of(reason)}") from error
            raise reason from None

    return with_reason


def reason_of(error: BaseException) -> BaseException:
    """The error that was there first."""
    while _hides_another(error) and error.__context__ is not None:
        error = error.__context__
    return error


def _hides_another(error: BaseException) -> bool:
    if isinstance(error, SystemExit):
        return isinstance(error.code, int)
    return isinstance(error, RuntimeError) and "generator didn't stop" in str(error)


def words_of(error: BaseException) -> str:
    """In one line; the words of pydantic's errors would have the whole configuration in them."""
    problems = getattr(error, "errors", None)
    if callable(problems):
        return "; ".join(str(found["msg"]).removeprefix("Value error, ") for found in problems())
    return f"{type(error).__name__}: {error}"
