"""Makes a dataset: has the backend's program write it into a folder beside its place, and moves it there whole.

The folder in the making is `.NAME.making`. Whoever holds its lock writes into it, the program included; what a killed
one leaves there is removed by the next.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.assets.datasets import (
    MANIFEST,
    TEXT_ENDINGS,
    Dataset,
    DatasetJob,
    differences,
    estimated_bytes,
    read_dataset,
)
from benchmarks.backend import Backend, MakesDatasets, offered
from benchmarks.errors import RequestError, RunError
from benchmarks.rendering.report import bytes_text
from launch.assets.files import Checksum, refuse_without_room, say, shown_bytes
from launch.assets.hub import TOKEN_VARIABLE
from launch.environments.making import end_group, signals_as_exit
from launch.environments.venvs import ensure
from launch.running.local import REPOSITORY, fill, inherited_environment

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SHOWN_LINES = 3  # of what a program said that failed


def make_dataset(backend: Backend, job: DatasetJob) -> Dataset:
    """The dataset at `job.folder`: made, or there already from the same inputs and checked."""
    _refuse(job)
    if job.folder.exists() and (not job.folder.is_dir() or any(job.folder.iterdir())):
        return _already_there(job)
    making = msgspec.structs.replace(job, folder=making_folder(job.folder))
    synthetic = "is measured on synthetic data: it has no dataset to make"
    command = offered(backend, MakesDatasets, synthetic, f"--out={job.folder}").dataset_command(making)
    refuse_without_room(job.folder.absolute().parent, estimated_bytes(job.texts))
    python = ensure(backend.environment(backend.engines[0]))
    with signals_as_exit(), _only_maker(making.folder) as lock:
        _run([fill(word, {"python": str(python), "repository": str(REPOSITORY)}) for word in command], lock, job)
        dataset = read_dataset(making.folder)
        making.folder.replace(job.folder)
    say(f"dataset: {dataset.documents:,} documents, {dataset.tokens:,} tokens in {job.folder}")
    return dataset


def making_folder(folder: Path) -> Path:
    return folder.absolute().with_name(f".{folder.name}.making")


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
    with shown_bytes() as show:

        def sha256(path: Path) -> str:
            return Checksum("sha256", "").of(path, show)

        tokenizer = None if job.tokenizer is None else sha256(_tokenizer_file(job.tokenizer))
        found = differences(dataset, job, tokenizer, [sha256(path) for path in job.texts])
        changed = [name for name, digest in dataset.sha256.items() if sha256(job.folder / name) != digest]
    if found or changed:
        raise RequestError(
            f"another dataset is there already: {', '.join(found)}"
            if found
            else f"{', '.join(changed)} was changed after it was made: its SHA-256 is another one",
            where=f"--out={job.folder}",
            next_command=f"another --out, or rm -r {job.folder}     (and make it again)",
        )
    say(f"dataset: there already, every file as it was made, in {job.folder}")
    return dataset


@contextlib.contextmanager
def _only_maker(folder: Path) -> Iterator[int]:
    """The empty folder in the making, held by its lock; gone afterwards, unless it was moved."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestError(
                "another process makes this dataset", where=str(folder), next_command=f"fuser {folder}     (shows it)"
            ) from None
        try:
            (folder / MANIFEST).unlink(missing_ok=True)  # first: half removed, it must not read as whole
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            yield descriptor
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _run(command: list[str], lock: int, job: DatasetJob) -> None:
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
            pass_fds=(lock,),  # if we are killed, nobody else writes there before it has ended
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
    with shown_bytes() as show:
        for line in process.stdout:
            event: dict[str, Any] = json.loads(line)
            if "refused" in event:
                refused = event
            elif "say" in event:
                say(f"dataset: {event['say']}")
            else:
                more = f"{event['documents']:,} documents, {event['tokens']:,} tokens" if "tokens" in event else ""
                show(f"dataset: {event['progress']}", event["done"], event["total"], more)
    return refused
