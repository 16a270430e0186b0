"""Memory, work and traffic of random models and layouts, against a count that walks through the stages."""

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.model.capacity import memory_by_part, saved_activation_bytes, usable_bytes
from benchmarks.model.flops import parameter_count
from benchmarks.model.traffic import traffic
from benchmarks.values import Benchmark, Model, Parallelism, Recompute
from tests.benchmarks.planned import CONFIGS, bound_of, changed, recipe, storage_of

NEMO = recipe("nemo", "llama31_70b", hardware="h100")  # bf16
JAX = recipe("jax", "llama2_70b", hardware="h100", dtype="bf16")
FLOPS_PER_SECOND = 794.5e12
SEQUENCE = "trainer.strategy.sequence_parallel"


class Stage(NamedTuple):
    layers: int
    tables: int  # embedding and head
    norms: int  # before a head


def walk(model: Model, share: Parallelism, *, repeats_tables: bool) -> list[Stage]:
    """Place every layer. If they do not divide evenly, embedding and loss each take the place of one."""
    pieces = share.pipeline * share.virtual_pipeline
    uneven = model.layers % pieces != 0
    places = [*["embedding"] * uneven, *["layer"] * model.layers, *["loss"] * uneven]
    own = len(places) // pieces
    on = [places[piece * own : (piece + 1) * own] for piece in range(pieces)]
    found = []
    for stage in range(share.pipeline):
        layers = sum(on[piece].count("layer") for piece in range(stage, pieces, share.pipeline))
        first, last = repeats_tables or stage == 0, repeats_tables or stage == share.pipeline - 1
        one_table = first and last and model.tied_embeddings
        found.append(Stage(layers, tables=1 if one_table else first + last, norms=int(last)))
    return found


def layer_weights(model: Model) -> int:
    h, queries, keys = model.hidden_size, model.attention_heads * model.head_dim, model.query_groups * model.head_dim
    return h * queries + 2 * h * keys + queries * h + 3 * h * model.ffn_hidden_size


def parameters(model: Model, stage: Stage) -> int:
    layers = stage.layers * (layer_weights(model) + 2 * model.hidden_size)
    return layers + stage.tables * model.vocabulary_size * model.hidden_size + stage.norms * model.hidden_size


@st.composite
def benchmarks(draw: Any) -> Benchmark:
    """Sizes divide as resolve wants it; some pipelines of NeMo are uneven, as those of Llama 3.1 405B."""
    base = draw(st.sampled_from([NEMO, JAX]))
    of = lambda *sizes: draw(st.sampled_from(sizes))  # noqa: E731
    pipeline = of(1, 2, 3, 4, 8)
    virtual = of(1, 2, 3) if pipeline > 1 and base is NEMO else 1
    axis = "data" if base is NEMO else "fsdp"
    share = Parallelism(
        tensor=of(1, 2, 4), pipeline=pipeline, virtual_pipeline=virtual, context=of(1, 2), **{axis: of(1, 2, 4)}
    )
    layers = pipeline * virtual * of(2, 3, 5) - (2 * of(0, 1) if pipeline > 1 and base is NEMO else 0)
    heads = of(4, 8)
    sizes = {"layers": layers, "hidden_size": 32 * heads, "head_dim": 32, "attention_heads": heads, "query_groups": 4}
    sizes |= {"ffn_hidden_size": of(128, 512, 2048), "vocabulary_size": 128 * of(1, 16, 1000)}
    model = changed(base.model, **sizes, tied_embeddings=of(False, True))
    knobs = base.settings.knobs | {SEQUENCE: share.tensor > 1}
    size = {"gpus": share.devices, "nodes": max(1, share.devices // 8), "global_batch_size": 16 * share.devices}
    return changed(
        base,
        model=model,
        parallelism=share,
        settings=changed(base.settings, knobs=knobs),
        gradient_accumulation=16,
        **size,
    )


ANY = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def stages(run: Benchmark) -> list[Stage]:
    return walk(run.model, run.parallelism, repeats_tables=run.backend == "jax")


@ANY
@given(benchmarks())
def test_a_device_holds_the_state_of_the_fullest_stage(run: Benchmark) -> None:
    model, share, storage = run.model, run.parallelism, storage_of(run)
    whole = parameter_count(model)
    if run.backend == "nemo":
        copies = model.tied_embeddings and share.pipeline > 1
        assert (
            sum(parameters(model, stage) for stage in stages(run))
            == whole + copies * model.vocabulary_size * model.hidden_size
        )
    else:
        assert sum(stage.layers for stage in stages(run)) == model.layers
    sharers = share.tensor * (share.fsdp * share.context if run.backend == "jax" else 1)
    parts = memory_by_part(run, storage)
    weight, optimizer, replicas = (2, 12, share.data * share.context) if run.backend == "nemo" else (4, 8, 1)
    numbers = parts["parameters"] / weight
    # One that keeps more activations may be fuller than the one with the most parameters.
    of_stages = [parameters(model, stage) / sharers for stage in stages(run)]
    assert any(numbers == pytest.approx(one) for one in of_stages)
    assert numbers >= max(of_stages) - model.hidden_size or parts["logits"]
    assert parts["optimizer"] == pytest.approx(optimizer * numbers / replicas)
    assert (
        whole / share.pipeline - model.hidden_size
        <= numbers * sharers
        <= whole + model.vocabulary_size * model.hidden_size
    )


@ANY
@given(benchmarks())
def test_the_busiest_stage_sets_the_bound(run: Benchmark) -> None:
    model, share = run.model, run.parallelism
    tokens = 16 * share.devices * run.batch.sequence_length / (share.data * share.fsdp * share.context * share.tensor)
    attention = 6 * model.attention_heads * model.head_dim * run.batch.sequence_length
    head = 6 * model.vocabulary_size * model.hidden_size
    works = []
    for stage in stages(run):
        heads = 1 / share.pipeline if run.backend == "jax" else stage.norms
        works.append(stage.layers * (6 * layer_weights(model) + attention) + heads * head)
    found = bound_of(run, recompute=Recompute(matmuls=frozenset()))
    assert found.compute_seconds == pytest.approx(max(works) * tokens / FLOPS_PER_SECOND)


@ANY
@given(benchmarks())
def test_a_pipeline_sends_what_its_busiest_stage_sends(run: Benchmark) -> None:
    share = run.parallelism
    pieces, sent = share.pipeline * share.virtual_pipeline, dict.fromkeys(range(share.pipeline), 0)
    for piece in range(pieces - 1 if share.pipeline > 1 else 0):
        sent[piece % share.pipeline] += 1  # activations to the next piece
        sent[(piece + 1) % share.pipeline] += 1  # and their gradients back
    tokens = 16 * share.devices * run.batch.sequence_length / (share.data * share.fsdp * share.context * share.tensor)
    found = sum(one.node_bytes + one.network_bytes for one in traffic(run, storage_of(run)) if one.axis == "pipeline")
    assert found == pytest.approx(max(sent.values()) * tokens * run.model.hidden_size * 2)


@ANY
@given(benchmarks().filter(lambda run: run.backend == "nemo" and run.parallelism.tensor > 1))
def test_without_sequence_parallelism_hidden_states_are_whole(run: Benchmark) -> None:
    off = changed(run, settings=changed(run.settings, knobs=run.settings.knobs | {SEQUENCE: False}))
    model, tensor = run.model, run.parallelism.tensor
    hidden = 4 * model.hidden_size  # a layer's input, its two norms, and what attention adds
    inner = (2 * model.attention_heads + 2 * model.query_groups) * model.head_dim + 3 * model.ffn_hidden_size
    shared, whole = (saved_activation_bytes(one, storage_of(one)) for one in (run, off))
    assert whole / shared == pytest.approx((hidden + inner / tensor) / ((hidden + inner) / tensor))


@pytest.mark.parametrize("name", CONFIGS.names("hardware"))
def test_a_device_has_the_memory_that_its_driver_reports(name: str) -> None:
    hardware = CONFIGS.hardware(name)
    usable = usable_bytes(changed(NEMO, hardware=hardware), storage_of(NEMO))
    if hardware.compile_target is not None:
        assert usable == pytest.approx(0.94 * hardware.compile_target.memory_bytes)
    else:
        assert usable == (None if hardware.memory_gb is None else pytest.approx(0.94 * 1e9 * hardware.memory_gb))
