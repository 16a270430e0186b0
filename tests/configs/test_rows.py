"""Every row of configs/ loads, names its source, and is consistent with its framework and with itself."""

import math
import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from benchmarks.configs import Configs, parse_yaml
from benchmarks.mlperf.definitions import read_definition
from benchmarks.model.flops import embedding_parameters, is_llama, mtp_parameters, parameter_count
from benchmarks.model.published_rows import read_references
from benchmarks.request.resolve import default_gpus, scales
from benchmarks.values import SUBMISSION_ENGINE, Hardware, Layout, Model, Recipe, Scalar, Site
from jax_backend import BACKEND as JAX
from nemo_backend import BACKEND as NEMO
from nemo_backend import bridge_planning, mlperf_planning, planning
from nemo_backend.experts import COUNTED_AS_LAYERS, STAGES
from nemo_backend.layout import EXPERT, PLACES, SIZES

CONFIGS = Configs()
SETTINGS_FILE = Path(__file__).parents[2] / "jax_backend" / "maxtext_settings.yml"
TYPE_WORDS = {"bool": bool, "int": int, "float": (int, float), "str": str, "list": str}

MODELS = [CONFIGS.model(name) for name in CONFIGS.names("models")]
COUNTED = [model for model in MODELS if not model.uncounted]
HARDWARE = [CONFIGS.hardware(name) for name in CONFIGS.names("hardware")]
RATED = [one for one in HARDWARE if one.rates]
SITES = [CONFIGS.site(name) for name in CONFIGS.names("sites")]
RECIPES = CONFIGS.recipes()
JAX_RECIPES = [recipe for recipe in RECIPES if recipe.backend == "jax"]
NEMO_RECIPES = [recipe for recipe in RECIPES if recipe.backend == "nemo"]
LAYOUTS = [(recipe, layout) for recipe in JAX_RECIPES for layout in recipe.layouts]
SUBMISSIONS = [recipe for recipe in NEMO_RECIPES if recipe.engine.startswith(SUBMISSION_ENGINE)]
NEMO_LAYOUTS = [(recipe, layout) for recipe in NEMO_RECIPES if recipe not in SUBMISSIONS for layout in recipe.layouts]
SETTINGS_OF_ENGINE = {
    "nemo": planning.settings,
    "bridge": bridge_planning.settings,
    **{name: lambda: {**mlperf_planning.settings(), **ADAPTERS} for name in mlperf_planning.engines()},
}
# For a submission they belong to its program, and define its adapters.
ADAPTERS = {name: kind for name, kind in planning.settings().items() if name.startswith("peft.")}


def name_of(row: object) -> str:
    if isinstance(row, Layout):
        return str(row.gpus)
    return str(getattr(row, "name", row))


@cache
def maxtext_settings() -> dict[str, str]:
    settings: dict[str, str] = parse_yaml(SETTINGS_FILE)
    return settings


def assert_known(knobs: dict[str, Scalar], types: Mapping[str, str]) -> None:
    for name, value in knobs.items():
        assert name in types, f"the framework has no setting '{name}'"
        wanted = TYPE_WORDS[types[name]]
        assert isinstance(value, wanted), f"{name}={value!r}"
        assert isinstance(value, bool) == (wanted is bool), f"{name}={value!r}"


def assert_known_to_maxtext(knobs: dict[str, Scalar]) -> None:
    assert_known(knobs, maxtext_settings())


# --- all rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [*MODELS, *HARDWARE, *SITES, *RECIPES], ids=name_of)
def test_every_row_says_where_it_is_from_and_when_it_was_read(row: Model | Hardware | Site | Recipe) -> None:
    assert len(row.source) > 10
    assert date.fromisoformat(row.date) <= date(2100, 1, 1)


# --- models -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", COUNTED, ids=name_of)
def test_dimensions_divide(model: Model) -> None:
    assert model.attention_heads % model.query_groups == 0
    assert model.attention_heads * model.head_dim == model.hidden_size or not is_llama(model)
    assert model.head_dim % 2 == 0, "rotary embeddings turn pairs"
    if model.experts:
        assert model.experts.active <= model.experts.count
        assert model.experts.dense_layers or model.ffn_hidden_size == model.experts.ffn_hidden_size


def models_of(recipe: Recipe) -> list[str]:
    """Return the models that a recipe trains, also if it names benchmarks."""
    if recipe.task != "mlperf":
        return recipe.models
    trained = [read_definition(CONFIGS, name).model for name in recipe.models]
    return [name for name in trained if name is not None]


# In billions, as the vendors state them if the name has no size or another one.
NAMED_WITHOUT_SIZE = {"deepseek_v3": 671, "kimi_k2": 1026, "mixtral_8x7b": 46.7, "gpt_oss_20b": 21}


@pytest.mark.parametrize("model", [m for m in COUNTED if not m.name.endswith("_tiny")], ids=name_of)
def test_a_model_is_as_large_as_its_name_says(model: Model) -> None:
    size_in_name = re.search(r"_(\d+)b(_lora|_a\d+b)?$", model.name)
    billions = NAMED_WITHOUT_SIZE.get(model.name) or int(size_in_name[1] if size_in_name else 0)
    tied = embedding_parameters(model) if model.tied_embeddings else 0  # which the names of Llama 3.2 leave out
    mtp = model.mtp_modules * mtp_parameters(model)
    assert (parameter_count(model) - tied - mtp) / 1e9 == pytest.approx(billions, rel=0.07 if tied else 0.045)


# --- hardware ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hardware", HARDWARE, ids=name_of)
def test_peaks_are_dense_sourced_and_above_what_is_achieved(hardware: Hardware) -> None:
    assert all(peak.source for peak in [*hardware.peaks.values(), *hardware.achievable.values()])
    for precision, achieved in hardware.achievable.items():
        assert 0.4 < achieved.tflops / hardware.peaks[precision].tflops < 1
    for precision, published in hardware.published.items():  # a step may be as fast as the vendor's peak allows
        assert published.source and published.tflops < hardware.peaks[precision].tflops
    if "fp8" in hardware.peaks:
        # A sparse figure in one of the two would make this 4 or 1.
        assert hardware.peaks["fp8"].tflops / hardware.peaks["bf16"].tflops == pytest.approx(2, rel=0.01)
    assert ("mxfp8" in hardware.peaks) == ("nvfp4" in hardware.peaks)  # both came with Blackwell
    assert hardware.peaks.get("mxfp8") is None or hardware.peaks["mxfp8"].tflops == hardware.peaks["fp8"].tflops


def test_the_devices_of_the_references_have_rates() -> None:
    assert {one.name for one in RATED} >= {"h100", "h200", "b200", "b300", "gb200", "gb300", "a100"}
    assert {row.hardware for row in read_references(CONFIGS.root)} <= {one.name for one in RATED}


@pytest.mark.parametrize("hardware", RATED, ids=name_of)
def test_rates_are_sourced_and_above_what_is_reached(hardware: Hardware) -> None:
    assert hardware.rates.keys() == {"memory", "node", "network"}
    for rate in hardware.rates.values():
        assert len(rate.source) > 10
        assert bool(rate.achievable_source) == (rate.achievable_gb_s is not None)
        assert 0.7 < (rate.achievable_gb_s or rate.gb_s) / rate.gb_s <= 1
    memory, node, network = (hardware.rates[name].gb_s for name in ("memory", "node", "network"))  # type: ignore[index]
    assert memory > node >= network


# --- recipes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipes_defaults_are_among_its_own_choices(recipe: Recipe) -> None:
    defaults = recipe.defaults
    assert {defaults.hardware, "*"} & set(recipe.hardware)
    assert defaults.dtype in recipe.dtypes.get(defaults.hardware, recipe.dtypes.get("*", []))
    assert defaults.gpus in {layout.gpus for layout in recipe.layouts}
    assert defaults.steps > 0


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipe_offers_only_precisions_its_hardware_has_a_peak_for(recipe: Recipe) -> None:
    for name, dtypes in recipe.dtypes.items():
        if name != "*" and CONFIGS.hardware(name).kind != "cpu":
            assert set(dtypes) <= set(CONFIGS.hardware(name).peaks)


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_every_overlay_says_why_and_can_apply(recipe: Recipe) -> None:
    offered = {dtype for dtypes in recipe.dtypes.values() for dtype in dtypes}
    for overlay in recipe.overlays:
        assert overlay.reason
        assert overlay.knobs or overlay.environment or overlay.xla_flags
        assert set(overlay.when.dtype or []) <= offered


@pytest.mark.parametrize("recipe", JAX_RECIPES, ids=name_of)
def test_every_knob_is_a_setting_of_maxtext_of_its_type(recipe: Recipe) -> None:
    for group in [*recipe.overlays, *recipe.layouts]:
        assert_known_to_maxtext(group.knobs)


@pytest.mark.parametrize("recipe", NEMO_RECIPES, ids=name_of)
def test_every_knob_is_a_setting_of_its_engine_of_its_type_and_none_is_reserved(recipe: Recipe) -> None:
    for group in [*recipe.overlays, *recipe.layouts]:
        assert_known(group.knobs, SETTINGS_OF_ENGINE[recipe.engine]())
        assert not group.knobs.keys() & NEMO.reserved_settings.keys()


@pytest.mark.parametrize(("recipe", "layout"), NEMO_LAYOUTS, ids=name_of)
def test_a_nemo_layout_holds_sizes_that_share_out_its_gpus_and_layers(recipe: Recipe, layout: Layout) -> None:
    assert layout.knobs.keys() <= {EXPERT, *(f"{PLACES[recipe.engine]}.{size}" for size in SIZES.values())}
    share = NEMO.parallelism(dict(layout.knobs), layout.gpus)
    assert share.devices == layout.gpus
    stated = {
        name for overlay in recipe.overlays for name, value in overlay.knobs.items() if value not in (False, "null")
    }
    for name in models_of(recipe):
        model = CONFIGS.model(name)
        layers = model.layers + len(stated.intersection(COUNTED_AS_LAYERS))
        assert layers % (share.pipeline * share.virtual_pipeline) == 0 or STAGES in stated
        if model.experts:
            assert model.experts.count % share.expert == (share.devices // share.pipeline) % share.expert == 0
        assert model.query_groups % share.tensor == model.vocabulary_size % share.tensor == 0
    if share.virtual_pipeline > 1:
        assert recipe.gradient_accumulation % share.pipeline == 0
    for name in set(layout.hardware or recipe.hardware) - {"*"}:
        on_a_node = CONFIGS.hardware(name).devices_per_node
        assert layout.gpus % on_a_node == 0 or on_a_node % layout.gpus == 0
        assert CONFIGS.hardware(name).devices_per_node % share.tensor == 0, "a tensor group stays within a node"


@pytest.mark.parametrize(("recipe", "layout"), LAYOUTS, ids=name_of)
def test_a_layouts_devices_are_its_gpus(recipe: Recipe, layout: Layout) -> None:
    def product(prefix: str) -> int:
        return math.prod(int(value) for name, value in layout.knobs.items() if name.startswith(prefix))

    assert product("ici_") * product("dcn_") == layout.gpus
    assert all(name.endswith("_parallelism") for name in layout.knobs)
    for hardware in layout.hardware or recipe.hardware:
        if hardware != "*":
            assert product("ici_") <= CONFIGS.hardware(hardware).devices_per_node


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_layouts_are_ordered_and_no_scale_is_there_twice(recipe: Recipe) -> None:
    assert {name for layout in recipe.layouts for name in layout.hardware or []} <= set(recipe.hardware)
    for name in set(recipe.hardware) - {"*"}:
        found = scales(recipe, CONFIGS.hardware(name))
        assert found == sorted(set(found))
        assert default_gpus(recipe, CONFIGS.hardware(name)) in found


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_xla_flags_are_known_to_current_xla(recipe: Recipe) -> None:
    flags = [f"--{flag}={value}" for overlay in recipe.overlays for flag, value in overlay.xla_flags.items()]
    assert all(fact.flag.startswith("--xla_") and fact.status != "unknown" for fact in JAX.flags_check(flags).facts)
