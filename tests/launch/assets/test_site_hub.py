"""What Megatron-Bridge reads from Hugging Face, fetched once for a site by a hub that a local server plays."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.assets import hub_home
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, JobOptions, Site, Slurm
from launch.assets import site_hub
from launch.environments.wanted import Work
from launch.sites import site_setup
from nemo_backend import BACKEND
from tests.launch.assets.file_server import FileServer, serving

TOKEN = "hf_a-token-that-must-not-be-seen"
NAME = "meta-llama/Meta-Llama-3-70B"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIGURATION = json.dumps({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80}).encode()
WANTED = site_hub.hub_repositories(None, "bridge", "llama3_70b", Configs())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with serving() as state:
        weights = {"model-00001-of-00030.safetensors": 5 * 10**9}
        state.serve_repository(NAME, COMMIT, {"config.json": CONFIGURATION}, weights)
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield state


@pytest.fixture
def site(tmp_path: Path) -> Site:
    example = Configs().site("example_pyxis")
    assert example.container is not None
    container = msgspec.structs.replace(example.container, images=str(tmp_path / "images"))
    return msgspec.structs.replace(example, container=container)


def benchmark(site: Site) -> Benchmark:
    asked = Request(backend="nemo", engine="bridge", model="llama3_70b", hardware="h100", gpus=64)
    return msgspec.structs.replace(resolve(asked, Configs(), BACKEND), site=site)


def test_what_is_wanted_is_named_by_engine_or_model() -> None:
    assert [repository.name for repository in WANTED] == [NAME]
    assert WANTED[0].gated
    every = site_hub.hub_repositories("nemo", "bridge", None, Configs())
    llamas = {"meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-405B"}
    assert {repository.name for repository in every if repository.gated} == {NAME, *llamas}
    assert {repository.name for repository in every if not repository.gated} >= {"deepseek-ai/DeepSeek-V3"}
    assert site_hub.hub_repositories(None, None, None, Configs()) == []
    assert site_hub.hub_repositories("jax", None, "llama2_70b", Configs()) == []


def test_a_job_is_refused_until_somebody_has_fetched_it(hub: FileServer, site: Site) -> None:
    asked = benchmark(site)
    with pytest.raises(RequestError, match="site 'example_pyxis' does not have") as refusal:
        site_hub.refuse(asked, BACKEND)
    assert "setup.py --site=example_pyxis --engine=bridge --model=llama3_70b" in refusal.value.next_command
    assert site_hub.fetch(site, WANTED)[0][1].startswith("fetched: ")
    site_hub.refuse(asked, BACKEND)
    hub.asked.clear()
    assert site_hub.fetch(site, WANTED)[0][1].startswith("exists: ")
    assert hub.asked == []


def test_the_job_mounts_it_and_is_offline(site: Site) -> None:
    (phase,) = BACKEND.plan(benchmark(site)).phases
    home = str(hub_home(site))
    assert phase.mounts == [f"{home}:{home}"]
    assert (phase.environment["HF_HOME"], phase.environment["HF_HUB_OFFLINE"]) == (home, "1")


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_token_is_refused_with_one_message_and_reaches_no_file(
    hub: FileServer, site: Site, tmp_path: Path, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = [path for path in hub.responses if path.startswith("/api/")]
    answers = dict(hub.responses)
    hub.responses |= dict.fromkeys(asked, lambda handler: handler.answer(status))
    with pytest.raises(RequestError, match=rf"refuses access \({status}\)") as refusal:
        site_hub.fetch(site, WANTED)
    hub.responses = answers
    site_hub.fetch(site, WANTED)
    printed = str(refusal.value) + "".join(capfd.readouterr())
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert {headers["authorization"] for _, headers in hub.asked} == {f"Bearer {TOKEN}"}
    assert TOKEN not in printed
    assert TOKEN.encode() not in written


def test_a_repository_that_the_token_does_not_open_is_a_row_of_the_set_up(
    hub: FileServer, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    hub.responses |= {path: lambda handler: handler.answer(403) for path in hub.responses if path.startswith("/api/")}
    shared = Slurm(shared_folders=[str(tmp_path)], hardware=["h100"])
    here = msgspec.structs.replace(site, slurm=shared)
    asked = Work(here, JobOptions(), None, {}, tmp_path / "results", False, [], repositories=WANTED)
    assert site_setup.set_up(asked) == 1
    out = capsys.readouterr().out
    assert f"{NAME}  refused: the server refuses access (403)" in out
    assert "missing: site 'example_pyxis' needs scontrol" in out
    assert TOKEN not in out


def test_a_machine_without_a_folder_for_it_is_refused() -> None:
    """In docker a program would find no configuration, and the hub is not asked."""
    here = msgspec.structs.replace(Configs().site("local"), runtime="container")
    with pytest.raises(RequestError, match="has no folder for the configuration of meta-llama") as refused:
        site_hub.refuse(benchmark(here), BACKEND)
    assert "container: {images: /FOLDER}" in refused.value.why
