"""Which container image a run gets: --image, the site's or Stepmark's own, for the CPUs of its nodes."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import nemo_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request import images
from benchmarks.request.resolve import Request, RuntimeOptions, resolve
from benchmarks.values import Benchmark, Site, changed_benchmark, json_text

CONFIGS = Configs()
PYXIS, VENV = CONFIGS.site("example_pyxis"), CONFIGS.site("example_venv")
H100, GB200, A100 = (CONFIGS.hardware(name) for name in ("h100", "gb200", "a100"))
OWN = {"amd64": "nvcr.io/own:amd", "arm64": "nvcr.io/own:arm"}


def site_with(**changes: Any) -> Site:
    return msgspec.structs.replace(PYXIS, **changes)


def choose(typed: str | None = None, own: Any = OWN, hardware: Any = H100, **of_site: Any) -> str:
    return images.choose(typed, site_with(images=of_site), "nemo", own, hardware)


# --- the choice -----------------------------------------------------------------------------------


def test_what_was_typed_goes_before_the_sites_and_that_before_stepmarks() -> None:
    assert choose() == "nvcr.io/own:amd"
    assert choose(nemo="nvcr.io/site:1") == "nvcr.io/site:1"
    assert choose("nvcr.io/typed:1", nemo="nvcr.io/site:1") == "nvcr.io/typed:1"
    assert choose(bridge="nvcr.io/site:1") == "nvcr.io/own:amd"  # another engine's


def test_the_architecture_of_the_nodes_decides() -> None:
    assert choose(hardware=GB200) == "nvcr.io/own:arm"
    assert choose(hardware=GB200, own="nvcr.io/both:1") == "nvcr.io/both:1"
    of_site = {"amd64": "nvcr.io/site:amd"}
    assert choose(nemo=of_site) == "nvcr.io/site:amd"
    assert choose(nemo=of_site, hardware=GB200) == ""  # not Stepmark's: the user would not notice the replacement


def test_no_image_is_guessed() -> None:
    """An A100 may have a CPU of either architecture."""
    assert choose(hardware=A100) == ""
    assert choose(hardware=A100, own="nvcr.io/both:1") == "nvcr.io/both:1"
    assert choose(hardware=GB200, own={"amd64": "nvcr.io/own:amd"}) == ""


def test_without_containers_there_is_none_and_image_is_refused() -> None:
    assert images.choose(None, VENV, "nemo", OWN, H100) == ""
    with pytest.raises(RequestError, match=r"cannot run \.sif files"):
        choose("/a.sif")
    with pytest.raises(RequestError, match="does not use containers"):
        images.choose("nvcr.io/typed:1", VENV, "nemo", OWN, H100)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "file", "uri"),
    [
        ("nvcr.io/nvidia/nemo:24.09", "nvidia+nemo+24.09.sqsh", "docker://nvcr.io#nvidia/nemo:24.09"),
        (
            "ghcr.io/nvidia/jax:maxtext-2024-12-09",
            "nvidia+jax+maxtext-2024-12-09.sqsh",
            "docker://ghcr.io#nvidia/jax:maxtext-2024-12-09",
        ),
        ("ubuntu:22.04", "ubuntu+22.04.sqsh", "docker://ubuntu:22.04"),
        ("library/ubuntu", "library+ubuntu.sqsh", "docker://library/ubuntu"),
        ("host:5000/a/b:1", "host+5000+a+b+1.sqsh", "docker://host:5000#a/b:1"),
        ("nvcr.io#nvidia/nemo:25.09", "nvidia+nemo+25.09.sqsh", "docker://nvcr.io#nvidia/nemo:25.09"),
        ("a/b@sha256:" + "0" * 64, f"a+b+sha256+{'0' * 64}.sqsh", f"docker://a/b@sha256:{'0' * 64}"),
        ("docker://nvcr.io#nvidia/nemo:25.09", "nvidia+nemo+25.09.sqsh", "docker://nvcr.io#nvidia/nemo:25.09"),
    ],
)
def test_names_of_images(image: str, file: str, uri: str) -> None:
    assert images.file_name(image) == file
    assert images.import_uri(image) == uri


NO_NAMES = ("", "a b", "$x", "docker://a\n", "a;b", "nvcr.io/a:$(id)", "`id`", "a|b", "-a", "me:secret@nvcr.io/a:1")
NO_FILES = ("/a.img", "/$(id).sqsh", "/a\n.sqsh", "/a'b.sqsh")


@pytest.mark.parametrize("name", [*NO_NAMES, *NO_FILES])
def test_what_a_shell_would_read_is_no_name(name: str) -> None:
    with pytest.raises(RequestError) as refusal:
        images.checked(name, "--image")
    assert refusal.value.where == "--image"
    assert refusal.value.why
    assert refusal.value.next_command


# --- a run's --------------------------------------------------------------------------------------


def lora(hardware: str, site: Site, **wanted: Any) -> Benchmark:
    assert site.slurm is not None
    own = msgspec.structs.replace(site.slurm, hardware=[hardware])
    request = Request(
        backend="nemo", model="llama2_70b_lora", task="mlperf", site="big", hardware=hardware, data="/d", **wanted
    )

    class WithSite(Configs):
        def site(self, name: str) -> Site:
            return msgspec.structs.replace(site, slurm=own) if name == "big" else super().site(name)

    return resolve(request, WithSite(), nemo_backend.BACKEND)


@pytest.mark.parametrize(
    ("hardware", "gpus", "image"),
    [
        ("b200", 8, "nvcr.io/nvdlfwea/mlperftv51/llama2_70b_lora-amd:20251008"),
        ("gb200", 72, "nvcr.io/nvdlfwea/mlperftv51/llama2_70b_lora-arm:20250930"),
        ("gb300", 8, "nvcr.io/nvdlfwea/mlperftv51/llama2_70b_lora-arm:20250930"),
    ],
)
def test_a_submission_runs_in_the_image_for_its_nodes(hardware: str, gpus: int, image: str) -> None:
    benchmark = lora(hardware, PYXIS, gpus=gpus)
    assert benchmark.settings.image == image
    assert f'"image": "{image}"' in json_text(benchmark)  # also in benchmark.json
    assert nemo_backend.BACKEND.plan(benchmark).environment_name == image


def test_an_architecture_without_an_image_is_refused_with_the_way_out() -> None:
    benchmark = changed_benchmark(lora("gb200", PYXIS, gpus=72), image="")
    with pytest.raises(RequestError, match="has no container image for") as refusal:
        images.image_of(benchmark, {"amd64": "nvcr.io/own:amd"})
    assert "with an image: amd64" in refusal.value.why
    assert "--image=" in refusal.value.why


def test_where_an_image_lies() -> None:
    benchmark = lora("b200", PYXIS, gpus=8)
    name = "nvdlfwea+mlperftv51+llama2_70b_lora-amd+20251008.sqsh"
    assert images.image_of(benchmark, OWN) == Path("/lustre/stepmark/images") / name
    own = lora("b200", PYXIS, gpus=8, runs_in=RuntimeOptions(image="/lustre/my own.sqsh"))
    assert images.image_of(own, OWN) == Path("/lustre/my own.sqsh")
    assert images.image_of(msgspec.structs.replace(benchmark, site=VENV), OWN) is None
    for broken, words in (
        (changed_benchmark(benchmark, image=""), "has no container image"),
        (
            msgspec.structs.replace(benchmark, site=msgspec.structs.replace(PYXIS, container=None)),
            "has no folder for",
        ),
    ):
        with pytest.raises(RequestError, match=words):
            images.image_of(broken, "")
