"""Predictions of recipes that nobody has published, registered in configs/predictions.csv."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.planning.bounds import bound
from benchmarks.planning.calibration import estimate, nearest_scale
from benchmarks.planning.predictions import FILE, Prediction, as_csv, predicted, read_predictions
from benchmarks.planning.published import SETTINGS
from benchmarks.request.resolve import Request, default_gpus, resolve
from benchmarks.values import Benchmark, Recipe
from benchmarks.version import VERSION
from launch.running.provenance import git_state

CHECKOUT = Path(__file__).resolve().parents[2]


def register(configs: Configs) -> str:
    """Adds each prediction that its cell's last line differs from; what is there stays as it was."""
    before = read_predictions(configs.root)
    last = {one.cell: one.predicts for one in before}
    new = [one for one in predictions(configs) if one.predicts != last.get(one.cell)]
    (configs.root / FILE).write_text(as_csv([*before, *new]), encoding="utf-8")
    return f"{len(new)} predictions registered in {configs.root / FILE}, {len(before)} were there"


def predictions(configs: Configs) -> Iterator[Prediction]:
    calibration = configs.calibration()
    today, commit = datetime.now(UTC).date().isoformat(), (git_state(CHECKOUT) or {}).get("commit", "not known")
    for benchmark in unpublished(configs):
        found = bound(benchmark, find_backend(benchmark.backend).storage(benchmark))
        guess = estimate(benchmark, found, calibration)
        if guess.seconds is not None:
            yield predicted(benchmark, guess, guess.seconds, today, VERSION, commit)


def unpublished(configs: Configs) -> Iterator[Benchmark]:
    """Each recipe of NVIDIA's GPUs, model, device and precision, at its default scale."""
    published = configs.calibration().published
    for recipe in configs.recipes():
        for request in _requests(recipe, configs):
            try:
                benchmark = resolve(request, configs, find_backend(recipe.backend))
            except RequestError:
                continue  # a model or precision that this device has no layout for
            if not benchmark.is_submission and nearest_scale(benchmark, published) is None:
                yield benchmark


def _requests(recipe: Recipe, configs: Configs) -> Iterator[Request]:
    for name, dtypes in recipe.dtypes.items():
        if name == "*" or configs.hardware(name).platform != "cuda":
            continue
        for model, dtype in product(recipe.models, dtypes):
            yield Request(
                backend=recipe.backend,
                engine=recipe.engine,
                model=model,
                task=recipe.task,
                dtype=dtype,
                hardware=name,
                gpus=default_gpus(recipe, configs.hardware(name)),
                recipe=recipe.name,
                settings=SETTINGS.get((recipe.engine, recipe.task), {}),
            )
