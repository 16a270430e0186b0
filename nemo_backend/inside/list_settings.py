"""Print nemo_settings.yml: every setting of NeMo and Megatron-core that a recipe or --set may name, with its type.

After a change of the pins, run it by path inside NeMo's environment, in the root of the repository:

    python -P nemo_backend/inside/list_settings.py > nemo_backend/nemo_settings.yml

The name of a setting is its group (build.py: GROUPS) and the name of an argument of the group's class. Arguments
whose values cannot be written as text are excluded.
"""

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import setting_words as words  # noqa: E402
from worker_kit import load  # noqa: E402

# Settings that build.py makes from a text although NeMo's annotation is missing or not a scalar.
FROM_TEXT = {
    "peft.target_modules": "list",
    "comm_overlap.tp_comm_overlap_cfg": "str",
    "model.config_class": "str",
    "garbage_collection.gc_interval_train": "int",
    "garbage_collection.gc_interval_val": "int",
}


def settings(build: Any) -> Iterator[tuple[str, str]]:
    import torch  # type: ignore[import-not-found]

    known = {**words.SCALARS, torch.dtype: "str"}
    for group, path in build.GROUPS.items():
        for name, annotation in annotations(build.class_of(path)).items():
            word = words.word_of(annotation, known)
            if word is not None and f"{group}.{name}" not in build.GROUPS:
                yield f"{group}.{name}", word


def annotations(kind: type) -> dict[str, object]:
    """Return the fields of a dataclass, or the arguments of a class's __init__."""
    if dataclasses.is_dataclass(kind):
        modules = [vars(sys.modules[base.__module__]) for base in reversed(kind.__mro__)]
        names = {name: value for module in modules for name, value in module.items()}
        return {field.name: resolved(field.type, names) for field in dataclasses.fields(kind) if field.init}
    function = inspect.unwrap(kind.__init__)  # type: ignore[misc]
    found = inspect.signature(function).parameters
    return {name: resolved(parameter.annotation, function.__globals__) for name, parameter in found.items()}


def resolved(annotation: object, names: dict[str, Any]) -> object:
    """Return the type of an annotation, or None if its text has names that only type checkers import."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except (NameError, TypeError):
        return None


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        listed = {**dict(settings(load(HERE / "build.py"))), **FROM_TEXT}
    versions = f"NeMo {version('nemo-toolkit')} and Megatron-core {version('megatron-core')}"
    words.show(
        f"Every setting of {versions} that a recipe or --set may name", "nemo_backend/inside/list_settings.py", listed
    )
