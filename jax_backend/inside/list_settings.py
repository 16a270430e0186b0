"""Prints maxtext_settings.yml: every setting MaxText knows, with its type; a test compares the two.

Runs by path inside MaxText's environment, after a change of the pinned version, from the repository's root:

    DECOUPLE_GCLOUD=TRUE JAX_PLATFORMS=cpu python -P jax_backend/inside/list_settings.py \\
        > jax_backend/maxtext_settings.yml

Only names and types are listed: defaults are MaxText's business, and some hold tokens.
"""

import contextlib
import enum
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import setting_words as words  # noqa: E402


def settings() -> Iterator[tuple[str, str]]:
    """Every field that a user may set: all of MaxTextConfig less what it derives itself."""
    import yaml
    from maxtext.configs import types  # type: ignore[import-not-found]
    from pydantic import BaseModel

    base = yaml.safe_load((Path(types.__file__).parent / "base.yml").read_text())
    known = {**words.SCALARS, list: "list", tuple: "list", dict: "dict"}
    known |= {enum.IntEnum: "int", enum.Enum: "str", BaseModel: "dict"}

    def word(annotation: object, value: Any) -> str:
        """Return the word for a field's type. If its annotation is Any, its value's type counts; None is text."""
        return words.word_of(annotation, known) or known.get(type(value), "str")

    derived = set(types.DerivedValues.model_fields) - set(base)
    for name, field in types.MaxTextConfig.model_fields.items():
        if name not in derived:
            yield name, word(field.annotation, base.get(name))
            for inner, one in getattr(field.annotation, "model_fields", {}).items():  # a group such as `lora`
                yield f"{name}.{inner}", word(one.annotation, one.default)


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # MaxText prints while it is imported
        found = dict(settings())
    title = f"Every setting of MaxText {version('maxtext')} that a configuration may name"
    words.show(title, "jax_backend/inside/list_settings.py", found)
