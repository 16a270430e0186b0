"""The tables of `--list`: models, tasks, hardware, recipes, backends and sites that match the other flags."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.backend import backends, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, UnknownName
from benchmarks.model.flops import parameter_count
from benchmarks.request.resolve import ANY, like, scales
from benchmarks.text import Rows, aligned, printable
from benchmarks.values import Hardware, Model, Recipe


def listing(
    configs: Configs,
    backend: str | None = None,
    model: str | None = None,
    task: str | None = None,
    dtype: str | None = None,
    hardware: str | None = None,
    gpus: int | None = None,
) -> dict[str, Rows]:
    # Refuse an unknown name, because a typing error must not look like an empty list.
    if backend is not None:
        find_backend(backend)
    if model is not None:
        configs.model(model)
    row = None if hardware is None else configs.hardware(hardware)
    device = like(row, configs, configs.site("local")) if row else None
    keeps: list[Callable[[Recipe], bool]] = [
        lambda r: backend in (None, r.backend),
        lambda r: model is None or model in r.models or ANY in r.models,
        lambda r: task in (None, r.task),
        lambda r: device is None or device in r.hardware or ANY in r.hardware,
        lambda r: dtype is None or dtype in _dtypes(r, device),
        lambda r: gpus is None or gpus in scales(r, row),
    ]
    if dtype is not None and dtype not in (valid := {name for r in configs.recipes() for name in _dtypes(r, None)}):
        raise UnknownName(f"no recipe has {dtype}", dtype, valid, where=f"--dtype={dtype}")
    recipes = [recipe for recipe in configs.recipes() if all(keep(recipe) for keep in keeps)]
    models = [name for name in configs.names("models") if _named(name, recipes, "models") and model in (None, name)]
    devices = [name for name in configs.names("hardware") if _named(name, recipes, "hardware")]
    return {
        "models": _rows(models, lambda name: _model_text(configs.model(name))),
        "tasks": [(name, "") for name in sorted({recipe.task for recipe in recipes})],
        "hardware": _rows([row.name] if row else devices, lambda name: _hardware_text(configs.hardware(name))),
        "recipes": _recipe_rows(recipes),
        "backends": [(name, found.title) for name, found in backends().items() if backend in (None, name)],
        "sites": _rows(configs.names("sites"), lambda name: configs.site(name).title),
    }


def _rows(names: Sequence[str], text: Callable[[str], str]) -> Rows:
    """Return each name with its text, or why its file cannot be read. A broken file must not hide the other files."""
    found = []
    for name in names:
        try:
            found.append((name, printable(text(name))))
        except RequestError as error:
            found.append((name, f"cannot be read: {error.what}"))
    return found


def _dtypes(recipe: Recipe, hardware: str | None) -> list[str]:
    if hardware is None:
        return [dtype for kinds in recipe.dtypes.values() for dtype in kinds]
    return recipe.dtypes.get(hardware, recipe.dtypes.get(ANY, []))


def _named(name: str, recipes: list[Recipe], part: str) -> bool:
    return any(name in getattr(recipe, part) or ANY in getattr(recipe, part) for recipe in recipes)


def _model_text(model: Model) -> str:
    sizes = f"{model.layers} layers, hidden {model.hidden_size}"
    return model.uncounted or f"{parameter_count(model):,} parameters, {sizes}"


def _hardware_text(hardware: Hardware) -> str:
    peaks = ", ".join(f"{precision} {peak.tflops:g}" for precision, peak in hardware.peaks.items())
    return f"{hardware.title}: {peaks + ' TFLOP/s dense' if peaks else 'no published peak'}"


def _recipe_rows(recipes: Sequence[Recipe]) -> Rows:
    rows = []
    for recipe in recipes:
        dtypes = "; ".join(f"{name}: {', '.join(kinds)}" for name, kinds in recipe.dtypes.items())
        scales = ", ".join(
            f"{one.gpus} ({', '.join(one.hardware)})" if one.hardware else f"{one.gpus}" for one in recipe.layouts
        )
        text = f"{recipe.title}\nmodels {', '.join(recipe.models)} · {dtypes} · devices {scales}"
        rows.append((recipe.name, text))
    return rows


def listing_text(sections: Mapping[str, Rows]) -> str:
    lines: list[str] = []
    for heading, rows in sections.items():
        lines += [heading, *(aligned(rows) if rows else ["  none"]), ""]
    return "\n".join(lines).rstrip()
