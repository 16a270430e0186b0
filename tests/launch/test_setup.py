"""launch/setup.py: what a run needs, and downloads from a hub played by a local server."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.assets import read_needs
from benchmarks.configs import Configs
from tests import forked
from tests.launch.assets.file_server import FileServer, serving

REPOSITORY = Path(__file__).resolve().parents[2]
TOKEN = "hf_a-token-that-must-not-be-seen"
LORA = ("--model=llama3_70b", "--task=lora")
TOKENIZER_FOLDER = Path("datasets/squad/tokenizer")
GB = 10**9


Setup = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """Run launch/setup.py in its own home, without a token unless one is given."""

    def run(*flags: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = {name: value for name, value in os.environ.items() if name not in ("HF_TOKEN", "HF_ENDPOINT")}
        environment |= {"HOME": str(tmp_path), "no_proxy": "127.0.0.1", **variables}
        done = forked.run(REPOSITORY / "launch/setup.py", *flags, env=environment, cwd=tmp_path)
        assert "Traceback" not in done.stdout + done.stderr
        assert TOKEN not in done.stdout + done.stderr
        return done

    return run


def refused(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return done.stderr


# --- what a run needs -------------------------------------------------------------------------


def sparse(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.truncate(size)


def fill_lora(out: Path) -> None:
    """Everything of the LoRA run, as its row lists it; the large files are sparse."""
    for asset in read_needs(Configs(), "nemo_llama3_70b_lora").assets:
        for part in asset.parts:
            path = part.path + "x" if part.path.endswith("/") else part.path
            sparse(out / asset.folder / path, round((part.gb or 0) * GB) or 10)


def test_an_empty_folder_lacks_everything(setup: Setup, tmp_path: Path) -> None:
    done = setup(*LORA, f"--out={tmp_path / 'data'}")
    assert done.returncode == 1
    assert "checkpoint  747 GB   missing  engine bridge  models/" in done.stdout
    assert "squad       unknown  missing  every run      datasets/squad/" in done.stdout
    assert "missing: 0 GB, and squad, tokenizer of unknown size; 747 GB more for some" in done.stdout
    assert f"--out={tmp_path / 'data'} --download --asset=tokenizer" in done.stdout


def test_a_whole_folder_is_enough(setup: Setup, tmp_path: Path) -> None:
    fill_lora(tmp_path)
    done = setup(*LORA, f"--out={tmp_path}", HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stdout
    assert " has all files" in done.stdout
    assert f"--model=llama3_70b --task=lora --data={tmp_path}/datasets/squad --dry_run" in done.stdout


def test_a_checkpoint_cut_off_is_incomplete(setup: Setup, tmp_path: Path) -> None:
    fill_lora(tmp_path)
    sparse(tmp_path / "models/meta-llama/Meta-Llama-3-70B/weights/__0_1.distcp", 40 * GB)
    (tmp_path / "datasets/squad/test.jsonl").unlink()
    done = setup(*LORA, f"--out={tmp_path}")
    assert done.returncode == 1
    assert "weights/__0_1.distcp: 40.0 GB, 66 GB expected" in done.stdout
    assert "squad: test.jsonl: missing" in done.stdout
    assert "641 GB more" in done.stdout


# --- downloads from a hub ---------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "meta-llama/Meta-Llama-3-70B"
LARGE = bytes(range(256)) * 400
SMALL = b'{"eos_token": "<|end_of_text|>"}'
TWO = {"tokenizer.json": LARGE, "tokenizer_config.json": SMALL}


@pytest.fixture
def hub() -> Iterator[FileServer]:
    with serving() as state:
        state.serve_repository(NAME, COMMIT, TWO, {"model-00001-of-00030.safetensors": 5 * GB})
        yield state


def download(setup: Setup, hub: FileServer, out: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    return setup("--download", *LORA, f"--out={out}", *flags, HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN)


def test_what_can_be_downloaded_is_and_the_table_says_what_is_left(
    setup: Setup, hub: FileServer, tmp_path: Path
) -> None:
    hub.breaks = [5000]  # it is tried again
    done = download(setup, hub, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "tokenizer   unknown  present" in done.stdout
    assert "checkpoint  747 GB   missing" in done.stdout
    assert COMMIT in done.stderr
    folder = tmp_path / TOKENIZER_FOLDER
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == TWO
    assert {headers["authorization"] for _, headers in hub.asked} == {f"Bearer {TOKEN}"}
    assert not any("safetensors" in path for path, _ in hub.asked)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()] == []


def test_a_second_download_asks_for_no_whole_file_again_and_mends_a_damaged_one(
    setup: Setup, hub: FileServer, tmp_path: Path
) -> None:
    download(setup, hub, tmp_path)
    damaged = tmp_path / TOKENIZER_FOLDER / "tokenizer.json"
    for content, asked in ((LARGE, []), (LARGE[:100], ["tokenizer.json"]), (LARGE[:50], ["tokenizer.json"])):
        hub.asked.clear()
        damaged.write_bytes(content)
        moment = time.time() + 60 if asked else 0
        os.utime(damaged, (moment, moment))
        assert download(setup, hub, tmp_path, "--asset=tokenizer").returncode == 0
        assert {path.rpartition("/")[2] for path in hub.paths_asked() if "/resolve/" in path} == set(asked)
        assert damaged.read_bytes() == LARGE
        aside = damaged.with_name("tokenizer.json.before-download")
        assert aside.exists() == bool(asked)
    # They may have been the user's own work.
    assert [aside.read_bytes(), aside.with_name(f"{aside.name}1").read_bytes()] == [LARGE[:100], LARGE[:50]]


def test_what_was_not_asked_for_is_left_as_it_is(setup: Setup, hub: FileServer, tmp_path: Path) -> None:
    """The user's own file with the name of a hub file, and a link to another place."""
    own, folder = tmp_path / "own.txt", tmp_path / TOKENIZER_FOLDER
    own.write_text("mine")
    folder.mkdir(parents=True)
    (folder / "model-00001-of-00030.safetensors").symlink_to(own)
    download(setup, hub, tmp_path, "--asset=tokenizer")
    assert (folder / "model-00001-of-00030.safetensors").read_text() == "mine"
    assert (folder / "tokenizer.json").read_bytes() == LARGE


def test_a_small_files_checksum_counts_too(setup: Setup, hub: FileServer, tmp_path: Path) -> None:
    hub.files[f"/{NAME}/resolve/{COMMIT}/tokenizer_config.json"] = SMALL.replace(b"end", b"END")
    done = download(setup, hub, tmp_path, "--asset=tokenizer")
    assert done.returncode == 1
    assert "download is wrong: tokenizer_config.json" in done.stderr
    folder = tmp_path / TOKENIZER_FOLDER
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["tokenizer.json"]


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, 2, "HF_TOKEN is invalid, or its owner"),
        (403, 2, "export HF_TOKEN=YOUR_TOKEN"),
        (404, 2, "does not exist (404)"),
        (503, 1, "the hub answers 503"),
    ],
)
def test_what_the_hub_refuses(
    setup: Setup, hub: FileServer, tmp_path: Path, status: int, code: int, words: str
) -> None:
    paths = [f"/api/models/{NAME}/revision/main", f"/{NAME}/resolve/{COMMIT}/tokenizer.json"]
    for path in paths[:1] if status == 503 else paths:  # a file is tried again for half a minute
        hub.responses |= {path: lambda handler: handler.answer(status)}
        done = download(setup, hub, tmp_path)
        assert (done.returncode, done.stdout) == (code, "")
        assert words in done.stderr
        hub.serve_repository(NAME, COMMIT, TWO, {})


def test_without_a_hub_or_offline(setup: Setup, hub: FileServer, tmp_path: Path) -> None:
    with serving() as gone:
        pass
    done = download(setup, gone, tmp_path)
    assert done.returncode == 1
    assert "the hub cannot be reached" in done.stderr
    command = [sys.executable, REPOSITORY / "launch/setup.py", "--download", *LORA, f"--out={tmp_path}"]
    offline = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "1"}  # huggingface_hub reads it when imported
    done = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
    assert "next:  unset HF_HUB_OFFLINE" in refused(done)
    assert hub.asked == []


# --- a site of virtual environments -------------------------------------------------------------

VENV_SITE = """
name: mine
kind: slurm
title: a cluster of H100 without containers
runtime: venv
source: a test
date: "2026-11-29"
slurm: {shared_folders: [/], hardware: [h100]}
"""


def test_what_run_would_refuse_is_refused_before_an_environment_is_made(setup: Setup, tmp_path: Path) -> None:
    home = tmp_path / "stepmark"
    (home / "sites").mkdir(parents=True)
    (home / "sites/mine.yml").write_text(VENV_SITE)
    site = ("--site=mine", "--backend=nemo", "--dry_run")
    needs_engine = setup(*site, "--model=llama31_70b", STEPMARK_HOME=str(home))
    assert "needs Transformer Engine" in refused(needs_engine)
    small = setup(*site, "--model=llama31_8b", STEPMARK_HOME=str(home))
    assert small.returncode == 0, small.stderr
