"""Makes a dataset: has the backend's program write it into a folder beside its place, and moves it there whole.

The folder in the making is `.NAME.making`. Whoever holds its lock writes into it, the program
included, and is named in `.NAME.making.pid`; what a killed one leaves there is removed by the next.
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
from typing import IO, Any

import msgspec

from benchmarks.assets.datasets import (
    MANIFEST,
    TEXT_ENDINGS,
    Dataset,
    DatasetJob,
    Inputs,
    SourceText,
    differences,
    estimated_bytes,
    read_dataset,
)
from benchmarks.backend import Backend, MakesDatasets, offered
from benchmarks.errors import RequestError, RunError
from launch.assets.byte_progress import Show, say, shown_bytes, size_text
from launch.assets.checks import Checksum, refuse_without_room
from launch.assets.hub_access import TOKEN_VARIABLE
from launch.environments.making import end_group, signals_as_exit
from launch.environments.venvs import ensure
from launch.running.local import REPOSITORY, fill, inherited_environment

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
PARENT_VARIABLE = "STEPMARK_PARENT"  # the process without which the program is to end
TAIL_BYTES = 4000  # of what a program said that failed
TAIL_LINES = 3


def make_dataset(backend: Backend, job: DatasetJob) -> Dataset:
    """The dataset at `job.folder`: made, or there already from the same inputs and checked."""
    refuse_job(job)
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


# --- before anything starts -------------------------------------------------------------------


def refuse_job(job: DatasetJob) -> None:
    if not job.texts:
        raise RequestError("no text given", next_command="--text=FILE     (" + ", ".join(TEXT_ENDINGS) + ")")
    for path in job.texts:
        _refuse_text(path)
    if not NAME.fullmatch(job.name):
        raise RequestError(f"'{job.name}' is no name for files", where="--name", why="letters, digits, . _ - alone")
    if job.tokenizer is not None and not _tokenizer_file(job.tokenizer).is_file():
        raise RequestError(
            "there is no such tokenizer",
            where=f"--tokenizer={job.tokenizer}",
            why="a Hugging Face tokenizer.json, or a folder that holds one, is read",
            next_command="leave --tokenizer out: then one is trained on the texts",
        )


def _refuse_text(path: Path) -> None:
    where = f"--text={path}"
    if not path.is_file():
        raise RequestError("there is no such text", where=where)
    if not path.name.endswith(TEXT_ENDINGS):
        endings = ", ".join(TEXT_ENDINGS)
        raise RequestError("the kind of text is not known by its ending", where=where, why=f"known: {endings}")
    if not os.access(path, os.R_OK):
        raise RequestError("the text cannot be read", where=where, why="its permissions forbid it")


def _tokenizer_file(path: Path) -> Path:
    return path / "tokenizer.json" if path.is_dir() else path


# --- there already ----------------------------------------------------------------------------


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
        found = differences(dataset, _inputs(job, show))
        if found:
            raise RequestError(
                "another dataset is there already: " + "; ".join(found),
                where=f"--out={job.folder}",
                next_command="another --out, or remove that folder",
            )
        for name, digest in dataset.sha256.items():
            if _sha256(job.folder / name, show) != digest:
                raise RequestError(
                    f"{name} was changed after it was made: its SHA-256 is another one",
                    where=f"--out={job.folder}",
                    next_command=f"rm -r {job.folder}     (and make it again)",
                )
    say(f"dataset: there already, every file as it was made, in {job.folder}")
    return dataset


def _inputs(job: DatasetJob, show: Show) -> Inputs:
    texts = [SourceText(name=p.name, bytes=p.stat().st_size, sha256=_sha256(p, show)) for p in job.texts]
    tokenizer = None if job.tokenizer is None else _sha256(_tokenizer_file(job.tokenizer), show)
    return Inputs(job.name, job.shards, tokenizer, job.vocabulary_size, texts)


def _sha256(path: Path, show: Show) -> str:
    return Checksum("sha256", "").of(path, show)


# --- one maker at a time ----------------------------------------------------------------------


@contextlib.contextmanager
def _only_maker(folder: Path) -> Iterator[int]:
    """The empty folder in the making, held by its lock; gone afterwards, unless it was moved."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _made_by_another(folder) from None
        holder = _holder_file(folder)
        try:
            _empty(folder)
            holder.write_text(f"{os.getpid()}\n")
            yield descriptor
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            holder.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _holder_file(folder: Path) -> Path:
    """Where the process that holds the lock is named. Beside the folder: all that is in it becomes the dataset."""
    return folder.with_name(folder.name + ".pid")


def _made_by_another(folder: Path) -> RequestError:
    try:
        pid = _holder_file(folder).read_text().strip()
    except OSError:  # it has only just begun, or is just ending
        pid = ""
    return RequestError(
        f"another process makes this dataset{f': {pid}' if pid else ''}",
        where=str(folder),
        next_command="wait until it has ended" + (f", or end it: kill {pid}" if pid else ""),
    )


def _empty(folder: Path) -> None:
    (folder / MANIFEST).unlink(missing_ok=True)  # first: half removed, it must not read as whole
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# --- the program ------------------------------------------------------------------------------


def _run(command: list[str], lock: int, job: DatasetJob) -> None:
    """Run the backend's program to its end and show how far it is; it does not outlive us."""
    environment = {name: value for name, value in inherited_environment().items() if name != TOKEN_VARIABLE}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", PARENT_VARIABLE: str(os.getpid())}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C reaches it through us
            pass_fds=(lock,),  # if we are killed, it dies too; nobody else writes there before it has
        )
        try:
            refused = _follow(process)
            code = process.wait()
        finally:
            if process.poll() is None:
                end_group(process, (signal.SIGKILL,))  # it has nothing to clear up, and hears nothing while it trains
        if code or refused:
            raise _failure(code, refused, errors, job)


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


def _failure(
    code: int, refused: dict[str, str] | None, errors: IO[bytes], job: DatasetJob
) -> RequestError | RunError:
    if refused is not None:
        kind = RequestError if code == 2 else RunError
        return kind(refused["refused"], where=refused["where"], why=refused["why"], next_command=refused["next"])
    if code < 0:
        return RunError(
            f"the program that makes the dataset was ended by signal {-code}",
            where=str(job.folder),
            why="signal 9 without a person behind it means that memory ran out" if code == -9 else "",
            next_command="run the same command again",
        )
    return RunError(
        f"the program that makes the dataset failed (exit code {code})",
        where=str(job.folder),
        why=_tail(errors),
        next_command=f"what was written is removed; about {size_text(estimated_bytes(job.texts))} of disk are needed",
    )


def _tail(errors: IO[bytes]) -> str:
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - TAIL_BYTES))
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-TAIL_LINES:]) or "it ended without a word"
