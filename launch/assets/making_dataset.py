"""Makes a dataset: has the backend's program write it into a folder beside its place, and moves it there whole."""

import contextlib
import hashlib
import json
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.assets.datasets import MANIFEST, TEXT_ENDINGS, Dataset, DatasetJob, estimated_bytes, read_dataset
from benchmarks.backend import Backend, MakesDatasets, offered
from benchmarks.errors import RequestError, RunError
from benchmarks.rendering.report import bytes_text
from launch.assets.hub import TOKEN_VARIABLE
from launch.assets.needed import free_bytes
from launch.command_line.progress import say, shown
from launch.environments.making import end_group, signals_as_exit
from launch.environments.venvs import ensure
from launch.machine.processes import REPOSITORY, fill, inherited_environment

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SHOWN_LINES = 3  # of what a program said that failed


def make_dataset(backend: Backend, job: DatasetJob) -> Dataset:
    """The dataset at `job.folder`: made, or there already from the same inputs and checked."""
    _refuse(job)
    if job.folder.exists() and (not job.folder.is_dir() or any(job.folder.iterdir())):
        return _already_there(job)
    place = job.folder.absolute()
    making = place.with_name(f".{place.name}.making-{secrets.token_hex(4)}")
    synthetic = "is measured on synthetic data: it has no dataset to make"
    program = offered(backend, MakesDatasets, synthetic, f"--out={job.folder}")
    command = program.dataset_command(msgspec.structs.replace(job, folder=making))
    _refuse_without_room(job)
    where = {"python": str(ensure(backend.environment(backend.engines[0]))), "repository": str(REPOSITORY)}
    with signals_as_exit(), _gone_afterwards(making):
        _run([fill(word, where) for word in command], job)
        dataset = read_dataset(making)
        try:
            making.replace(job.folder)
        except OSError as error:
            raise RunError(
                f"the dataset cannot be put in its place: {error.strerror}", where=str(job.folder)
            ) from None
    say(f"dataset: {dataset.documents:,} documents, {dataset.tokens:,} tokens in {job.folder}")
    return dataset


def _refuse(job: DatasetJob) -> None:
    """Before an environment is made for it."""
    endings = ", ".join(TEXT_ENDINGS)
    if not job.texts:
        raise RequestError("no text given", next_command=f"--text=FILE     ({endings})")
    for path in job.texts:
        if not path.is_file() or not path.name.endswith(TEXT_ENDINGS):
            raise RequestError("there is no such text", where=f"--text={path}", why=f"a file *{endings} is read")
    if not NAME.fullmatch(job.name):
        raise RequestError(f"'{job.name}' is no name for files", where="--name", why="letters, digits, . _ - alone")
    if job.tokenizer is not None and not _tokenizer_file(job.tokenizer).is_file():
        raise RequestError(
            "there is no such tokenizer",
            where=f"--tokenizer={job.tokenizer}",
            why="a Hugging Face tokenizer.json, or a folder that holds one, is read",
            next_command="leave --tokenizer out: then one is trained on the texts",
        )


def _refuse_without_room(job: DatasetJob) -> None:
    needed, free = estimated_bytes(job.texts), free_bytes(job.folder)
    if needed > free:
        raise RequestError(
            f"the disk has no room: {bytes_text(needed)} are needed, {bytes_text(free)} are free",
            where=str(job.folder),
            next_command="free some space, or another --out",
        )


def _tokenizer_file(path: Path) -> Path:
    return path / "tokenizer.json" if path.is_dir() else path


def _already_there(job: DatasetJob) -> Dataset:
    """The dataset in the folder, where these inputs would give it again; everything else is left alone."""
    if not (job.folder / MANIFEST).is_file():
        raise RequestError(
            "the place is taken: it is no dataset of Stepmark",
            where=f"--out={job.folder}",
            next_command="--out=DIR with a DIR that is not there yet, or is empty",
        )
    dataset = read_dataset(job.folder)
    same = (
        dataset.name == job.name
        and dataset.trained_vocabulary_size == job.vocabulary_size
        and (job.tokenizer is None or dataset.tokenizer_sha256 == _sha256(_tokenizer_file(job.tokenizer)))
        and len(dataset.prefixes) == min(job.shards, dataset.documents)
        and [text.sha256 for text in dataset.texts] == [_sha256(path) for path in job.texts]
    )
    changed = [name for name, digest in dataset.sha256.items() if _sha256(job.folder / name) != digest]
    if changed or not same:
        raise RequestError(
            f"{', '.join(changed)} was changed after it was made: its SHA-256 is another one"
            if changed
            else "another dataset is there already: of another name, text, tokenizer or number of shards",
            where=f"--out={job.folder}",
            next_command=f"another --out, or rm -r {job.folder}     (and make it again)",
        )
    say(f"dataset: there already, every file as it was made, in {job.folder}")
    return dataset


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def _gone_afterwards(folder: Path) -> Iterator[None]:
    """An empty folder, gone in the end unless it was moved."""
    folder.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], job: DatasetJob) -> None:
    """Run the backend's program to its end and show how far it is."""
    environment = {name: value for name, value in inherited_environment().items() if name != TOKEN_VARIABLE}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C reaches it through us
        )
        try:
            refused = _follow(process)
            code = process.wait()
        finally:
            if process.poll() is None:
                end_group(process, (signal.SIGKILL,))  # it has nothing to clear up, and hears nothing while it trains
        if refused is not None:
            kind = RequestError if code == 2 else RunError
            raise kind(refused["refused"], where=refused["where"], why=refused["why"], next_command=refused["next"])
        if code:
            errors.seek(0)
            last = [line.strip() for line in errors if line.strip()][-SHOWN_LINES:]
            needed = bytes_text(estimated_bytes(job.texts))
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise RunError(
                f"the program that makes the dataset failed ({how})",
                where=str(job.folder),
                why="memory ran out, or somebody ended it" if code == -signal.SIGKILL else " | ".join(last),
                next_command=f"run the same command again; about {needed} of disk are needed",
            )


def _follow(process: "subprocess.Popen[str]") -> dict[str, str] | None:
    """Show the program's events as they come; the one that says why it stopped is returned."""
    assert process.stdout is not None
    refused = None
    with shown() as show:
        for line in process.stdout:
            event: dict[str, Any] = json.loads(line)
            if "refused" in event:
                refused = event
            elif "say" in event:
                say(f"dataset: {event['say']}")
            else:
                counted = (
                    f", {event['documents']:,} documents, {event['tokens']:,} tokens" if "tokens" in event else ""
                )
                more = f"{bytes_text(event['done'])} of {bytes_text(event['total'])}{counted}"
                show(f"dataset: {event['progress']}", event["done"], event["total"], more)
    return refused
