"""Start TensorBoard as a child process, watch it, and end it."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.dashboard.folders import STATE
from benchmarks.errors import RunError

LOG = "tensorboard.log"
START_SECONDS = 120.0
END_SECONDS = 10.0
LOOK_SECONDS = 0.2
REST = 10  # an update is followed by a pause of 10 times its duration, so that many runs do not keep a core busy
POINTS = 20_000  # per line; by default TensorBoard samples 1,000 points of a longer line
_ADDRESS = re.compile(r"TensorBoard \S+ at (http://\S+)")


@contextlib.contextmanager
def tensorboard(logdir: Path, host: str, port: int) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Start TensorBoard. Yield its address, once it is known, and its process."""
    program = Path(__file__).with_name("landing.py")
    command = [sys.executable, "-P", str(program), f"--logdir={logdir}", f"--host={host}", f"--port={port}"]
    command += [f"--samples_per_plugin=scalars={POINTS}", "--window_title=Stepmark"]
    path = logdir / STATE / LOG
    # TensorBoard writes a file with a predictable name to the temporary folder, and would follow another user's link.
    with tempfile.TemporaryDirectory(prefix="stepmark-") as private:
        path.unlink(missing_ok=True)
        with path.open("xb") as log:  # mode x does not follow a link
            server = subprocess.Popen(
                command,
                env={**os.environ, "TMPDIR": private},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this process, which then ends the server
            )
        try:
            yield _address(server, path), server
        finally:
            _end(server)


def _address(server: "subprocess.Popen[bytes]", log: Path) -> str:
    """Return the address from the server's log: with --port=0, only the server knows it."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        ended = server.poll() is not None
        if found := _ADDRESS.search(log.read_text(errors="replace")):
            return found[1].rstrip("/")
        if ended:
            break
        time.sleep(LOOK_SECONDS)
    raise _failed(log)


def _failed(log: Path) -> RunError:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last_line = lines[-1].strip() if lines else "no output"
    in_use = "in use" in last_line or "could not bind" in last_line
    return RunError(
        f"TensorBoard did not start or has ended: {last_line}",
        where=str(log),
        next_command="--port=0" if in_use else "",
    )


def watch(
    server: "subprocess.Popen[bytes]", log: Path, update: Callable[[], list[str]], last: Sequence[str], seconds: float
) -> None:
    """Update the dashboard until the server ends or the user presses Ctrl-C.

    After a failed update, print each new problem once, and continue.
    """
    due = time.monotonic() + seconds
    while server.poll() is None:
        time.sleep(LOOK_SECONDS)
        began = time.monotonic()
        if not seconds or began < due:
            continue
        try:
            troubles = update()
        except Exception as error:  # the server keeps the old data, and the next update may succeed
            troubles = [f"not updated: {type(error).__name__}: {error}"]
        for trouble in troubles:
            if trouble not in last:
                print(f"stepmark: {trouble}", file=sys.stderr, flush=True)
        last = troubles
        ended = time.monotonic()
        due = ended + max(seconds, REST * (ended - began))
    raise _failed(log)


def _end(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
