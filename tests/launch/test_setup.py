"""launch/setup.py: what a run needs, downloads from a hub played by a local server, and the making of datasets."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.assets.datasets import DatasetJob, read_dataset
from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError
from launch.assets import making_dataset
from launch.assets.making_dataset import make_dataset
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
    """Runs launch/setup.py in a home of its own, without a token unless one is given."""

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
    for asset in Configs().needs("nemo_llama3_70b_lora").assets:
        for part in asset.parts:
            path = part.path + "x" if part.path.endswith("/") else part.path
            sparse(out / asset.folder / path, round((part.gb or 0) * GB) or 10)


def test_an_empty_folder_lacks_everything(setup: Setup, tmp_path: Path) -> None:
    done = setup(*LORA, f"--out={tmp_path / 'data'}")
    assert done.returncode == 1
    assert "checkpoint  747 GB   missing  engine bridge  models/" in done.stdout
    assert "squad       unknown  missing  every run      datasets/squad/" in done.stdout
    assert "missing: 0 GB, and squad, tokenizer of unknown size; 747 GB more where not every run" in done.stdout
    assert f"--out={tmp_path / 'data'} --download --asset=tokenizer" in done.stdout


def test_a_whole_folder_is_enough(setup: Setup, tmp_path: Path) -> None:
    fill_lora(tmp_path)
    done = setup(*LORA, f"--out={tmp_path}", HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stdout
    assert "all is there" in done.stdout
    assert f"--model=llama3_70b --task=lora --data={tmp_path}/datasets/squad --dry_run" in done.stdout


def test_without_the_checkpoint_engine_nemo_has_enough(setup: Setup, tmp_path: Path) -> None:
    fill_lora(tmp_path)
    shutil.rmtree(tmp_path / "models")
    done = setup(*LORA, f"--out={tmp_path}")
    assert done.returncode == 0, done.stdout
    assert "all that engine nemo reads is there" in done.stdout
    assert "checkpoint  747 GB   missing" in done.stdout


def test_a_checkpoint_cut_off_is_incomplete(setup: Setup, tmp_path: Path) -> None:
    fill_lora(tmp_path)
    sparse(tmp_path / "models/meta-llama/Meta-Llama-3-70B/weights/__0_1.distcp", 40 * GB)
    (tmp_path / "datasets/squad/test.jsonl").unlink()
    done = setup(*LORA, f"--out={tmp_path}")
    assert done.returncode == 1
    assert "weights/__0_1.distcp: 40.0 GB, 66 GB expected" in done.stdout
    assert "squad: test.jsonl: missing" in done.stdout
    assert "641 GB more" in done.stdout


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "--model is needed"),
        (("--model=llama3_70b",), "--task is needed"),
        (("--model=llama3_7b", "--task=lora"), "did you mean"),
        (("--model=llama2_7b", "--task=lora"), "nothing is known of what"),
        ((*LORA, "--backend=jax"), "nothing is known of what"),
        ((*LORA, "--asset=tokenizer"), "--asset is for --download"),
        ((*LORA, "--text=a.txt"), "--text is for --dataset"),
        ((*LORA, "--download"), "--out is needed"),
        ((*LORA, "--download", "--out=x", "--asset=nothing"), "there is no asset 'nothing'"),
        ((*LORA, "--download", "--out=x", "--asset=checkpoint"), "cannot be downloaded: it is made"),
        (("--dataset",), "--backend is needed"),
        (("--dataset", "--backend=jax", "--out=x", "--tokenizer=t", "--vocabulary_size=300"), "has its own vocab"),
        (("--dataset", "--backend=jax", "--out=x", "--vocabulary_size=100"), "257"),
        (("--dataset", "--backend=jax", "--out=x", "--vocabulary_size=99999999999"), "1000000"),
        (("--dataset", "--backend=jax", "--out=x", *LORA), "has no meaning with --dataset"),
        (("words",), "unexpected argument 'words'"),
    ],
)
def test_wrong_requests(setup: Setup, flags: tuple[str, ...], words: str) -> None:
    text = refused(setup(*flags))
    assert words in text
    assert "pw" not in text


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
    # They may have been somebody's own work.
    assert [aside.read_bytes(), aside.with_name(f"{aside.name}1").read_bytes()] == [LARGE[:100], LARGE[:50]]


def test_what_was_not_asked_for_is_left_as_it_is(setup: Setup, hub: FileServer, tmp_path: Path) -> None:
    """Somebody's own file with the name of one of the hub's, and a link to somewhere else."""
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
    assert "is not the expected one: tokenizer_config.json" in done.stderr
    folder = tmp_path / TOKENIZER_FOLDER
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["tokenizer.json"]


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, 2, "HF_TOKEN is set: it is not valid, or access to the repository was not granted"),
        (403, 2, "request access on the repository's page, then export HF_TOKEN=<your token>"),
        (404, 2, "there is no such repository"),
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


# --- making datasets, with a program in the place of NeMo's ------------------------------------

PROGRAM = """
import hashlib, json, os, pathlib, sys, time
texts, folder, mode = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
assert "HF_TOKEN" not in os.environ
def event(**fields):
    print(json.dumps(fields), flush=True)
event(progress="making tokens", done=0, total=10, documents=0, tokens=0)
(folder / "d_00_text_document.bin").write_bytes(b"tokens")
if mode == "refuse":
    event(refused="the line is no JSON", where="a.jsonl:3", why="because", next="mend it"); sys.exit(2)
if mode == "crash":
    raise SystemError("the last word")
if mode == "killed":
    os.kill(os.getpid(), 9)
for name in ("tokenizer.json", "d_00_text_document.idx"):
    (folder / name).write_bytes(b"x")
def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
names = sorted(p.name for p in folder.iterdir())
manifest = dict(
    name="d", format="megatron", prefixes=["d_00_text_document"], tokenizer="tokenizer.json",
    tokenizer_sha256=sha256(folder / "tokenizer.json"), trained_vocabulary_size=300, vocabulary_size=300,
    end_of_document="<e>", end_of_document_id=0, documents=1, empty_documents=0, tokens=3,
    texts=[dict(name=pathlib.Path(t).name, bytes=os.path.getsize(t), sha256=sha256(t)) for t in texts],
    files={n: os.path.getsize(folder / n) for n in names}, sha256={n: sha256(folder / n) for n in names})
(folder / "dataset.json").write_text(json.dumps(manifest))
"""


class FakeBackend:
    """A backend whose program writes the dataset at once, or fails as it is told to."""

    def __init__(self, mode: str = "good") -> None:
        self.mode = mode
        self.made = 0

    engines = ("fake",)

    def environment(self, _engine: str, _platform: str = "cpu") -> Any:
        return SimpleNamespace(name="fake")

    def dataset_command(self, job: DatasetJob) -> list[str]:
        self.made += 1
        texts = json.dumps([str(path) for path in job.texts])
        return ["{python}", "-c", PROGRAM, texts, str(job.folder), self.mode]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetJob:
    monkeypatch.setattr(making_dataset, "ensure", lambda _: Path(sys.executable))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    text = tmp_path / "a.txt"
    text.write_text("some text")
    return DatasetJob(
        texts=[text], tokenizer=None, vocabulary_size=300, folder=tmp_path / "data" / "set", name="d", shards=2
    )


def make(backend: FakeBackend, job: DatasetJob) -> Any:
    return make_dataset(cast(Backend, backend), job)


def changed(job: DatasetJob, **fields: Any) -> DatasetJob:
    return DatasetJob(**{name: getattr(job, name) for name in DatasetJob.__struct_fields__} | fields)


def left(job: DatasetJob) -> list[str]:
    folder = job.folder.parent
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_the_same_again_is_verified_and_not_made(job: DatasetJob, capsys: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend()
    make(backend, job)
    assert (read_dataset(job.folder).tokens, left(job)) == (3, ["set"])
    make(backend, job)
    assert backend.made == 1
    assert "there already, every file as it was made" in capsys.readouterr().err


@pytest.mark.parametrize("fields", [{"vocabulary_size": 400}, {"name": "other"}, {"text": "other"}])
def test_another_dataset_is_not_overwritten(job: DatasetJob, fields: dict[str, Any]) -> None:
    make(FakeBackend(), job)
    if "text" in fields:
        job.texts[0].write_text(fields.pop("text"))
    with pytest.raises(RequestError, match="another dataset is there already"):
        make(FakeBackend(), changed(job, **fields))


def test_a_changed_byte_is_found(job: DatasetJob) -> None:
    make(FakeBackend(), job)
    (job.folder / "d_00_text_document.bin").write_bytes(b"tokenS")
    with pytest.raises(RequestError, match="was changed after it was made"):
        make(FakeBackend(), job)


def test_a_folder_of_something_else_is_left_alone(job: DatasetJob) -> None:
    job.folder.mkdir(parents=True)
    (job.folder / "thesis.tex").write_text("years of work")
    with pytest.raises(RequestError, match=r"the place is taken[^$]*next:  --out=DIR"):
        make(FakeBackend(), job)
    assert (job.folder / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("refuse", RequestError, ["the line is no JSON", "a.jsonl:3", "because", "mend it"]),
        ("crash", RunError, ["exit code 1", "the last word"]),
        ("killed", RunError, ["signal 9", "memory"]),
    ],
)
def test_a_program_that_fails_leaves_nothing(
    job: DatasetJob, mode: str, error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        make(FakeBackend(mode), job)
    assert [word for word in words if word not in str(caught.value)] == []
    assert left(job) == []


def test_too_small_a_disk_is_refused_before_anything_starts(job: DatasetJob) -> None:
    sparse(job.texts[0], 10**16 // 1024)
    backend = FakeBackend()
    with pytest.raises(RequestError, match="the disk has no room"):
        make(backend, job)
    assert left(job) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"texts": []}, "no text given"),
        ({"texts": [Path("nothing.txt")]}, "there is no such text"),
        ({"texts": [Path(__file__)]}, "there is no such text"),
        ({"name": "../x"}, "is no name for files"),
        ({"tokenizer": Path("nowhere")}, "there is no such tokenizer"),
    ],
)
def test_wrong_jobs(job: DatasetJob, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        make(FakeBackend(), changed(job, **fields))
    assert left(job) == []
