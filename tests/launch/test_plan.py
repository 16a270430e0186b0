"""launch/plan.py as a user runs it: what it shows, what it refuses, and that a dry run shows the same."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests import forked

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPE = ("--backend=jax", "--model=llama2_70b", "--dtype=fp8", "--hardware=h100", "--gpus=64")
NOTING = (("plan",), ("run", "--dry_run"))
MEGATRON = ("--backend=nemo", "--model=llama31_70b", "--hardware=h100", "--gpus=64")


def run(*flags: str, cwd: Path, script: str = "plan", **environment: str) -> subprocess.CompletedProcess[str]:
    done = forked.run(REPOSITORY / f"launch/{script}.py", *flags, cwd=cwd, env={"HOME": str(cwd), **environment})
    assert "Traceback" not in done.stderr, done.stderr
    return done


def shown(*flags: str, cwd: Path, **options: Any) -> str:
    done = run(*flags, cwd=cwd, **options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def report(*flags: str, cwd: Path) -> Any:
    return json.loads(shown(*flags, "--json", cwd=cwd))


def test_the_plan_of_the_recipe(tmp_path: Path) -> None:
    text = shown(*RECIPE, "--verbose", cwd=tmp_path)
    assert "PGLE in the published row" not in shown(*RECIPE, "--pgle=nsys", cwd=tmp_path)
    for words in (
        "--pgle=off in this request",
        "llama2_70b pretrain fp8 · jax (maxtext) · 64 x h100",
        "saved activations  34.90 GB",
        "workspace          3.49 GB",
        "63.26 GB of 79.85 GB usable: fits (+16.6 GB, +20.8%)",
        "at the fastest known matmul rate",
        "6 x weights of the layers x tokens = 3.365e+15 FLOPs at 1402.6 TFLOP/s fp8",
        "fsdp over network",
        "at least                       3.083 s",
        "estimate (the nearest published run",
        "4.324 s; 1.40 x the bound",
        "llama2_70b pretrain fp8 64 x h100: 4.324 s",
        "at worst",
        "1,000,000,000,000 in 1,907,349 steps",
        "efficiency come from the estimate",
    ):
        assert words in text
    assert "layouts with global" not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "first"),
    [
        (RECIPE, "llama2_70b pretrain fp8 "),
        (("layouts", *RECIPE), "llama2_70b pretrain fp8 "),
        (("--backend=jax", "--model=llama31_8b", "--hardware=h100", "--gpus=1", "--price=2"), "would be refused: "),
    ],
)
def test_it_is_a_screen_that_begins_with_what_is_refused(tmp_path: Path, flags: tuple[str, ...], first: str) -> None:
    lines = shown(*flags, cwd=tmp_path).splitlines()
    assert lines[0].startswith(first)
    assert len(lines) <= 40 and "--verbose" in lines[-1]
    assert "expected" in lines and "cost" in lines


def test_unfused_attention_has_no_estimate_from_fused_attention(tmp_path: Path) -> None:
    small = ("--backend=nemo", "--model=llama32_1b", "--hardware=h100", "--gpus=8")
    found = report(*small, cwd=tmp_path)["estimate"]
    assert found["seconds"] is None and "fused attention in the published row" in str(found["differs"])
    assert "Step time   at least " in shown(*small, cwd=tmp_path)
    assert report(*small, "--runtime=container", cwd=tmp_path)["estimate"]["seconds"] > 0


def test_without_a_layout_the_next_command_lists_layouts_of_a_gpu(tmp_path: Path) -> None:
    refused = run("--backend=jax", "--model=llama31_8b", "--gpus=16", cwd=tmp_path)
    assert refused.returncode == 2
    _, _, following = refused.stderr.partition("next:  python launch/plan.py ")
    assert "--hardware=h100" in following
    assert "sorted by bound" in shown(*following.split(), cwd=tmp_path)


def test_another_recipe_that_fits_is_noted_unless_one_is_named(tmp_path: Path) -> None:
    flags = ("--backend=nemo", "--model=llama31_8b", "--hardware=h100", "--gpus=8", "--dtype=fp8")
    noted = {script: run(*flags, *more, script=script, cwd=tmp_path).stderr for script, *more in NOTING}
    assert all("--recipe=nemo_llama31_8b_pretrain" in text for text in noted.values()), noted
    assert shown(*flags, "--recipe=nemo_llama3_small_pretrain", cwd=tmp_path)


def test_scales_are_those_of_the_recipe_or_as_typed(tmp_path: Path) -> None:
    assert [point["gpus"] for point in report(*RECIPE, cwd=tmp_path)["scaling"]] == [64, 128, 256, 512, 1024, 2048]
    typed = report(*RECIPE, "--scale=256, 64,96", cwd=tmp_path)["scaling"]
    assert [(point["gpus"], bool(point["refused"])) for point in typed] == [(64, False), (96, False), (256, False)]
    assert [point["of_recipe"] for point in typed] == [True, False, True]
    assert "(not the recipe's layout)" in shown(*RECIPE, "--scale=64,96", cwd=tmp_path)
    own = report(*RECIPE, "--set=ici_fsdp_parallelism=8", "--set=dcn_fsdp_parallelism=8", cwd=tmp_path)["scaling"]
    assert [point["gpus"] for point in own] == [64]


def test_scales_share_a_recipe_and_efficiency_is_of_a_row_that_fits(tmp_path: Path) -> None:
    eight_b = ("--backend=nemo", "--model=llama31_8b", "--hardware=h100")
    large = report(*eight_b, "--gpus=64", cwd=tmp_path)["scaling"]
    assert {point["global_batch_size"] // point["gpus"] for point in large} == {16}
    assert all(0.95 < point["efficiency"] < 1.05 for point in large)
    small = report(*eight_b, "--gpus=8", "--recipe=nemo_llama3_small_pretrain", cwd=tmp_path)["scaling"]
    assert [point["efficiency"] is None for point in small] == [not point["fits"] for point in small]
    assert next(point["efficiency"] for point in small if point["fits"]) == 1


def test_layouts_are_quick_and_their_commands_work(tmp_path: Path) -> None:
    started = time.monotonic()
    text = shown("layouts", *MEGATRON, "--top=2", cwd=tmp_path)
    assert time.monotonic() - started < 60
    assert "global batch 128, sorted by" in text
    assert "<- as requested" in text
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("python launch/run.py")]
    assert len(commands) == 2
    flags = commands[0].split()[2:]
    assert "nothing was started" in shown(*flags, "--dry_run", script="run", cwd=tmp_path)


def test_without_rates_the_traffic_of_layouts_is_unknown_and_not_0(tmp_path: Path) -> None:
    pcie = ("layouts", "--backend=jax", "--model=llama32_1b", "--hardware=h100_pcie", "--gpus=8")
    assert {one["traffic_seconds"] for one in report(*pcie, cwd=tmp_path)["layouts"]["layouts"]} == {None}
    assert "traffic unknown" in shown(*pcie, cwd=tmp_path)


def test_a_dry_run_shows_the_same_bound_and_estimate(tmp_path: Path) -> None:
    plan = shown(*RECIPE, "--verbose", cwd=tmp_path)
    dry = shown(*RECIPE, "--dry_run", "--verbose", script="run", cwd=tmp_path)
    for first, last in (("expected\n", "\n\n"), ("bound (the shortest", "\n\nscaling")):
        start = plan.index(first)
        assert plan[start : plan.index(last, start)] in dry
