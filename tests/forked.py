"""Runs a launch script in a fork of this process: it has the packages loaded already, which is most of a short run.

Changes of a script (flags, environment, folder, signals) stay in the fork. Other tests start scripts as users do, to
test the start of the interpreter and the imports.
"""

import contextlib
import importlib
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Never

from absl import flags

from benchmarks.backend import installed_backends

# Modules that most scripts import when needed.
LOADED = (
    "benchmarks.model.plan_text",
    "benchmarks.nightly.night",
    "jax_backend",
    "launch.cli.listing",
    "launch.campaigns.nights.launcher",
    "launch.campaigns.nights.outputs",
    "launch.running.runners",
    "launch.slurm.submit",
    "nemo_backend",
)


def run(script: Path, *words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """As run_bytes has it, with its output as text."""
    done = run_bytes(script, *words, **options)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_bytes(
    script: Path,
    *words: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout: int = 120,
    prepare: Callable[[], object] = lambda: None,
) -> "subprocess.CompletedProcess[bytes]":
    """As subprocess.run has it; `prepare` is called in the fork before the script begins."""
    for name in LOADED:
        importlib.import_module(name)
    argv, variables = [str(script), *map(str, words)], dict(os.environ if env is None else env)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(stdin)
        streams[0].seek(0)
        child = os.fork()
        if child == 0:
            _be_the_script(argv, variables, cwd, timeout, prepare, streams)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out, err = (_content(stream) for stream in streams[1:])
    assert code != -signal.SIGALRM, f"{argv} did not end within {timeout} s: {out + err!r}"
    return subprocess.CompletedProcess(argv, code, out, err)


def _content(stream: IO[bytes]) -> bytes:
    stream.seek(0)
    return stream.read()


def _be_the_script(
    argv: list[str],
    environment: dict[str, str],
    cwd: Path | None,
    timeout: int,
    prepare: Callable[[], object],
    streams: list[IO[bytes]],
) -> Never:
    code = 1
    try:
        signal.alarm(timeout)
        _take_streams(streams)
        os.chdir(cwd or Path.cwd())
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:0] = [str(Path(argv[0]).parent), *filter(None, environment.get("PYTHONPATH", "").split(":"))]
        sys.argv = argv
        _forget_flags_of_scripts()
        installed_backends.cache_clear()
        prepare()
        runpy.run_path(argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # not through pytest's own end


def _take_streams(streams: list[IO[bytes]]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, closefd=False) for n, mode in enumerate(("r", "w", "w")))


def _forget_flags_of_scripts() -> None:
    """Tests may have imported a script as a module, whose flags have the names of this one's."""
    for module, defined in list(flags.FLAGS.flags_by_module_dict().items()):
        if module.count(".") == 1 and hasattr(sys.modules.get(module), "main"):
            for flag in list(defined):
                delattr(flags.FLAGS, flag.name)
