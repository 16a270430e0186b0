"""Print maxtext_settings.yml: every setting of MaxText with its type. A test compares that file with this output.

Run it after a change of the pinned version, from the repository's root with the Python of MaxText's environment:

    DECOUPLE_GCLOUD=TRUE JAX_PLATFORMS=cpu python -P jax_backend/inside/list_settings.py \\
        > jax_backend/maxtext_settings.yml

The file has only names and types, because some default values contain tokens.
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
    """Yield the name and type of every field of MaxTextConfig, except the fields that MaxText derives itself."""
    import yaml
    from maxtext.configs import types  # type: ignore[import-not-found]
    from pydantic import BaseModel

    base = yaml.safe_load((Path(types.__file__).parent / "base.yml").read_text())
    known = {**words.SCALARS, list: "list", tuple: "list", dict: "dict"}
    known |= {enum.IntEnum: "int", enum.Enum: "str", BaseModel: "dict"}

    def word(annotation: object, value: Any) -> str:
        """Return the word for a field's type. If no word fits its annotation, use its default's type."""
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
