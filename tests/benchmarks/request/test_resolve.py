"""What a request resolves to, on the real configs and the real MaxText backend, and every way to be refused."""

import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, RequestError
from benchmarks.request.resolve import ProfilerOptions, Request, command_of, request_of, resolve
from benchmarks.request.settings import check_knobs
from benchmarks.values import Benchmark, json_text
from jax_backend import BACKEND

CONFIGS = Configs()
SCALES = [64, 128, 256, 512, 1024, 2048]


def resolved(model: str = "llama2_tiny", **wanted: object) -> Benchmark:
    return resolve(Request(backend="jax", model=model, **wanted), CONFIGS, BACKEND)  # type: ignore[arg-type]


def with_settings(model: str = "llama2_tiny", gpus: int | None = None, **chosen: object) -> Benchmark:
    return resolved(model, gpus=gpus, settings={key: str(value) for key, value in chosen.items()})


def refusal(model: str = "llama2_tiny", **wanted: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        resolved(model, **wanted)
    assert caught.value.exit_code == EXIT_REFUSED
    return caught.value


# --- what a request means -----------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "named"), [(1, False), (2, True)])
def test_a_repeated_command_names_the_nodes_that_its_gpus_do_not_mean(nodes: int, named: bool) -> None:
    benchmark = resolved("llama2_tiny", hardware="cpu", nodes=nodes, gpus=2)
    assert ("--nodes=2" in command_of(request_of(benchmark, {}), "run.py")) == named


@pytest.mark.parametrize(
    ("model", "hardware", "nodes", "gpus"), [("llama2_tiny", "cpu", 4, 4), ("llama2_70b", "h100", 16, 128)]
)
def test_nodes_alone_mean_whole_nodes(model: str, hardware: str, nodes: int, gpus: int) -> None:
    """A virtual device of a CPU each, or all the GPUs of a node."""
    benchmark = resolved(model, hardware=hardware, nodes=nodes)
    assert (benchmark.nodes, benchmark.gpus) == (nodes, gpus)


@pytest.mark.parametrize(("site", "hardware"), [("local", "h100"), ("example_pyxis", None)])
def test_a_site_whose_nodes_are_alike_says_the_device(site: str, hardware: str | None) -> None:
    assert resolved("llama2_70b", site=site, hardware=hardware).hardware.name == "h100"


@pytest.mark.parametrize("dtype", [None, "bf16"])
def test_a_recipe_without_a_precision_for_a_device_is_refused(tmp_path: Path, dtype: str | None) -> None:
    root = shutil.copytree(CONFIGS.root, tmp_path / "configs")
    for path in (root / "recipes").glob("jax_llama2_70b*.yml"):
        path.write_text(path.read_text().replace("  h100:", "  other:"))
    request = Request(backend="jax", model="llama2_70b", hardware="h100", gpus=64, dtype=dtype)
    with pytest.raises(RequestError) as caught:
        resolve(request, Configs(root), BACKEND)
    assert "h100" in caught.value.what


def test_a_device_that_a_site_has_not_is_refused() -> None:
    error = refusal("llama2_70b", site="example_pyxis", hardware="a100")
    assert "are not" in error.what
    assert error.next_command == "--hardware=h100"


def test_a_model_alone_is_enough() -> None:
    benchmark = resolved()
    assert (benchmark.hardware.name, benchmark.dtype, benchmark.gpus, benchmark.nodes) == ("cpu", "bf16", 1, 1)
    assert (benchmark.batch.sequence_length, benchmark.batch.global_batch_size, benchmark.steps) == (128, 2, 50)
    assert (benchmark.window, benchmark.instruments.profile, benchmark.instruments.pgle, benchmark.site.name) == (
        "steady",
        "none",
        "off",
        "local",
    )
    assert benchmark.recipe.name == "jax_tiny_pretrain"
    assert benchmark.parallelism.devices == 1


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("gpus", SCALES)
def test_the_layouts_of_a_70b_at_every_scale(gpus: int, dtype: str) -> None:
    """FSDP takes all GPUs up to 256; from 512 on it stops at 128 and data parallelism takes the rest."""
    benchmark = resolved("llama2_70b", dtype=dtype, gpus=gpus)
    fsdp = gpus if gpus <= 256 else 128
    assert (benchmark.parallelism.fsdp, benchmark.parallelism.data) == (fsdp, gpus // fsdp)
    assert benchmark.nodes == gpus // 8
    assert benchmark.batch.global_batch_size == 2 * gpus
    assert (
        benchmark.batch.sequence_length,
        benchmark.batch.micro_batch_size,
        benchmark.batch.gradient_accumulation,
    ) == (4096, 2, 1)
    assert benchmark.hardware.name == "h100"


def test_settings_go_where_they_belong_and_win() -> None:
    benchmark = with_settings(
        "llama2_70b",
        64,
        **{"env.NCCL_DEBUG": "INFO", "env.NVTE_FUSED_ATTN": "0", "xla_gpu_enable_triton_gemm": "true"},
        sequence_length=2048,
        remat_policy="full",
        learning_rate=1e-4,
    )
    assert (benchmark.settings.environment["NCCL_DEBUG"], benchmark.settings.environment["NVTE_FUSED_ATTN"]) == (
        "INFO",
        "0",
    )
    assert benchmark.settings.xla_flags["xla_gpu_enable_triton_gemm"] == "true"
    assert benchmark.batch.sequence_length == 2048
    assert (benchmark.settings.knobs["remat_policy"], benchmark.settings.knobs["learning_rate"]) == ("full", 1e-4)


@pytest.mark.parametrize(
    ("chosen", "micro", "accumulation", "global_batch"),
    [
        ({}, 2, 1, 16),
        ({"micro_batch_size": 3}, 3, 1, 24),
        ({"gradient_accumulation": 4}, 2, 4, 64),
        ({"global_batch_size": 64}, 8, 1, 64),
        ({"global_batch_size": 64, "micro_batch_size": 2}, 2, 4, 64),
        ({"global_batch_size": 64, "gradient_accumulation": 2}, 4, 2, 64),
        ({"global_batch_size": 64, "gradient_accumulation": 2, "micro_batch_size": 4}, 4, 2, 64),
    ],
)
def test_batch_sizes_follow_from_each_other(
    chosen: dict[str, int], micro: int, accumulation: int, global_batch: int
) -> None:
    benchmark = with_settings(gpus=8, **chosen)
    found = (
        benchmark.batch.micro_batch_size,
        benchmark.batch.gradient_accumulation,
        benchmark.batch.global_batch_size,
    )
    assert found == (micro, accumulation, global_batch)


def test_a_benchmark_is_frozen_whole_and_reads_back() -> None:
    benchmark = resolved("llama2_70b", gpus=512, dtype="fp8")
    with pytest.raises(AttributeError):
        benchmark.steps = 3  # type: ignore[misc]
    assert msgspec.json.decode(json_text(benchmark), type=Benchmark) == benchmark
    assert benchmark.lora is None  # which is an answer: everything is trained
    assert benchmark.instruments.profiling is None  # and this too: no profiler runs
    assert benchmark.routing is None  # the model has no experts
    for name in set(Benchmark.__struct_fields__) - {"lora", "profiling", "routing"}:
        assert getattr(benchmark, name) is not None, f"{name} is left open"
    assert -1 not in benchmark.settings.knobs.values()


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "gpus", "chosen", "words"),
    [
        ("llama2_tiny", 8, {"ici_tensor_parallelism": 8, "ici_fsdp_parallelism": 1}, "attention heads (4)"),
        ("llama2_tiny", 4, {"ici_tensor_parallelism": 4, "ici_fsdp_parallelism": 1}, "query groups (2)"),
        ("llama2_tiny", 4, {"ici_pipeline_parallelism": 4, "ici_fsdp_parallelism": 1}, "layers (2)"),
        ("llama2_tiny", 5, {"ici_fsdp_parallelism": 5}, "hidden size (64) is not divisible"),
        ("llama2_tiny", 8, {"global_batch_size": 12}, "global batch of 12"),
        ("llama2_tiny", 8, {"global_batch_size": 24, "micro_batch_size": 2}, "global batch of 24"),
        (
            "llama2_tiny",
            8,
            {"global_batch_size": 64, "micro_batch_size": 2, "gradient_accumulation": 2},
            "global batch of 64",
        ),
        ("llama2_tiny", 8, {"ici_data_parallelism": 2}, "needs 16 devices, but"),
        ("llama2_tiny", 1, {"sequence_length": 256}, "longer than the 128"),
        ("llama2_tiny", 8, {"ici_fsdp_parallelism": -1}, "must be 1 or more"),
        ("llama2_tiny", 2, {"ici_fsdp_parallelism": 1, "dcn_fsdp_parallelism": 2}, "dcn"),
        ("llama2_tiny", 1, {"attention": "flash"}, "attention=flash does not run on a CPU"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(model: str, gpus: int, chosen: dict[str, object], words: str) -> None:
    assert words in refusal(model, gpus=gpus, settings={k: str(v) for k, v in chosen.items()}).what


def test_a_scale_without_a_layout_says_which_there_are() -> None:
    error = refusal("llama2_70b", gpus=96)
    assert "no layout for 96 devices" in error.what
    assert "for 64, 128, 256, 512, 1024, 2048 devices" in error.why
    assert error.next_command == "--gpus=64"


@pytest.mark.parametrize(("steps", "window"), [(1, None), (1, "last"), (50, "0-0"), (50, "0-9")])
def test_the_step_that_compiles_cannot_be_measured(steps: int, window: str | None) -> None:
    assert "compiles" in refusal(steps=steps, window=window).what


def test_what_a_config_sets_must_be_known_to_the_framework() -> None:
    for knobs, words in (({"remat_polizy": "full"}, "did you mean 'remat_policy'?"), ({"scan_layers": 17}, "17")):
        with pytest.raises(RequestError) as caught:
            check_knobs(knobs, BACKEND, "configs/recipes/x.yml")
        assert words in caught.value.what
        assert caught.value.where == "configs/recipes/x.yml"


@pytest.mark.parametrize(
    ("model", "hardware", "dtype"),
    [
        ("llama2_70b", "a100", "fp8"),
        ("llama2_tiny", "a100", "fp8"),
        ("llama2_70b", "h100", "mxfp8"),
        ("llama2_70b", "h100", "nvfp4"),
    ],
)
def test_a_precision_is_refused_where_the_hardware_has_none(model: str, hardware: str, dtype: str) -> None:
    error = refusal(model, hardware=hardware, dtype=dtype)
    assert f"does not support {dtype}" in error.what
    assert error.next_command.startswith("--dtype=")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"gpus": 8, "nodes": 3}, "evenly among 3 nodes"),
        ({"gpus": 0}, "--gpus is 0"),
        ({"steps": 0}, "--steps is 0"),
        ({"window": "35-44", "steps": 40}, "needs step 44"),
        ({"window": "best"}, "unknown window rule 'best'"),
        ({"pgle": "ncu"}, "--pgle=ncu"),
        ({"profile": "xplan"}, "did you mean 'xplane'?"),
        ({"profile": "nccl"}, "does not use NCCL"),
        ({"profiler": ProfilerOptions(start_step=3)}, "no effect with --profile=none"),
        ({"task": "mlperf"}, "has no recipe for task 'mlperf'"),
        ({"dtype": "fp32", "model": "llama2_70b"}, "has no fp32 on h100"),
        ({"gpus": 64, "nodes": 4, "model": "llama2_70b"}, "64 h100 do not fit on 4 nodes"),
        ({"hardware": "h100", "model": "llama2_7b"}, "recipe trains model 'llama2_7b' on 'h100'"),
        ({"settings": {"env.SLURM_HINT": "nomultithread"}}, "belongs to Slurm"),
        ({"settings": {"env.db_password": "hunter2"}}, "looks like a secret"),
        ({"settings": {"env.M_ENABLE_DROPOUT": "true"}}, "cannot be set directly"),
    ],
)
def test_requests_that_cannot_work(wanted: dict[str, object], words: str) -> None:
    error = refusal(**wanted)  # type: ignore[arg-type]
    assert words in error.what
    assert error.where


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("steps", "--steps"),
        ("per_device_batch_size", "--set=micro_batch_size=N"),
        ("hf_access_token", "HF_TOKEN"),
        ("decoder_block", "count the wrong FLOPs"),
        ("num_experts", "has the dimensions"),
        ("env.XLA_FLAGS", "--set=xla_FLAG=VALUE"),
        ("env.STEPMARK_RANK", "flags"),
        ("xla_force_host_platform_device_count", "--gpus"),
    ],
)
def test_a_reserved_setting_says_what_to_use(key: str, instead: str) -> None:
    error = refusal(settings={key: "1"})
    assert "cannot be set directly" in error.what
    assert instead in error.why


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("micro_batch_size", "two"),
        ("micro_batch_size", "0"),
        ("sequence_length", "-128"),
        ("learning_rate", "fast"),
        ("learning_rate", "nan"),
        ("env.", "1"),
        ("xla_gpu_enable_triton_gemm", "true --xla_other=1"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(key: str, text: str) -> None:
    assert refusal(settings={key: text}).where == f"--set={key}"


# --- for any request ------------------------------------------------------------------------------

AXES = [f"{network}_{axis}_parallelism" for network in ("ici", "dcn") for axis in ("fsdp", "data", "tensor")]
AXES += ["ici_pipeline_parallelism", "ici_context_parallelism", "ici_sequence_parallelism"]
SIZES = st.sampled_from(["1", "2", "4", "8", "16", "3", "0", "-1", "x", "1000000000000000"])
LAYOUTS = st.dictionaries(st.sampled_from(AXES), SIZES, max_size=3)
BATCHES = st.dictionaries(
    st.sampled_from(["micro_batch_size", "gradient_accumulation", "global_batch_size", "sequence_length"]),
    st.sampled_from(["1", "2", "3", "64", "128", "4096", "0", "", "1e3"]),
    max_size=3,
)


@settings(max_examples=400)
@given(
    model=st.sampled_from(["llama2_tiny", "llama3_tiny", "llama2_13b", "llama2_70b", "llama9"]),
    hardware=st.sampled_from([None, "cpu", "h100", "a100", "tpu_v5e"]),
    dtype=st.sampled_from([None, "bf16", "fp8", "mxfp8", "nvfp4", "fp32", "int8"]),
    gpus=st.none() | st.sampled_from([-1, 0, 1, 2, 3, 4, 8, 12, 16, 64, 512]),
    nodes=st.none() | st.integers(-1, 9),
    chosen=st.builds(lambda layout, batch: layout | batch, LAYOUTS, BATCHES),
)
def test_any_request_is_a_sound_benchmark_or_one_refusal(
    model: str,
    hardware: str | None,
    dtype: str | None,
    gpus: int | None,
    nodes: int | None,
    chosen: dict[str, str],
) -> None:
    try:
        benchmark = resolved(model, hardware=hardware, dtype=dtype, gpus=gpus, nodes=nodes, settings=chosen)
    except RequestError as error:
        assert error.what
        return
    layout, shape = benchmark.parallelism, benchmark.model
    assert layout.devices == benchmark.gpus
    replicas = layout.data * layout.fsdp
    micro_steps = benchmark.batch.micro_batch_size * benchmark.batch.gradient_accumulation
    assert benchmark.batch.global_batch_size == micro_steps * replicas > 0
    assert benchmark.gpus % benchmark.nodes == 0
    assert (
        benchmark.hardware.kind == "cpu" or benchmark.gpus // benchmark.nodes <= benchmark.hardware.devices_per_node
    )
    for size in (shape.attention_heads, shape.query_groups, shape.ffn_hidden_size):
        assert size % layout.tensor == 0
    assert shape.layers % layout.pipeline == 0
    assert benchmark.batch.sequence_length % layout.context == 0
    assert benchmark.batch.sequence_length <= shape.max_sequence_length
    assert gpus in (None, benchmark.gpus)
    assert dtype in (None, benchmark.dtype)
    assert msgspec.json.decode(json_text(benchmark), type=Benchmark) == benchmark
    BACKEND.plan(benchmark)


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ({"model": "llama2_70"}, "did you mean 'llama2_70b'?"),
        ({"hardware": "h10"}, "did you mean 'h100'?"),
        ({"dtype": "bf61"}, "did you mean 'bf16'?"),
        ({"settings": {"remat_polcy": "full"}}, "did you mean 'remat_policy'?"),
        ({"settings": {"remat": "full"}}, ": remat_policy, "),  # what holds the word comes first
    ],
)
def test_an_unknown_name_gets_the_nearest(wanted: dict[str, object], hint: str) -> None:
    assert hint in str(refusal(**wanted))  # type: ignore[arg-type]
