"""Real containers of podman, as root and as another user: ranks train, fail, are interrupted and refused."""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.errors import EXIT_INTERRUPTED, EXIT_REFUSED, EXIT_VALID
from benchmarks.values import Phase
from launch.environments.container import TaskContainers
from launch.environments.container_programs import ContainerOptions, Program
from launch.running import local
from tests import toy_backend
from tests.end_to_end import containers
from tests.end_to_end.containers import User, import_image
from tests.end_to_end.runs import JAX, LIMIT_SECONDS, LLAMA3, NEMO, REPOSITORY, TINY, TOKEN, Run, finish, verify

pytestmark = [
    pytest.mark.slow(seconds=10),
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(bool(containers.MISSING), reason=f"not installed: {', '.join(containers.MISSING)}"),
]
RUN = REPOSITORY / "launch/run.py"
EMPTY = "localhost/python:1"  # a Python without a framework, which is enough for the toy
TOY = ("--backend=toy", TINY, "--notelemetry", "--site=own", "--gpus=2")

ENDLESS = ("--steps=100000", "--set=nap_seconds=0.05")

as_root, as_another = (pytest.mark.parametrize("user", [name], indirect=True) for name in ("root", "another user"))
StartAs = Callable[..., tuple["subprocess.Popen[str]", Path]]


@pytest.fixture(scope="module")
def users() -> Iterator[Callable[[str], User]]:
    with contextlib.ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(user_with_toy(name)))


@pytest.fixture(params=["root", "another user"])
def user(request: pytest.FixtureRequest, users: Callable[[str], User]) -> User:
    return users(request.param)


@contextlib.contextmanager
def user_with_toy(name: str) -> Iterator[User]:
    """Yield a user with an own storage, an image, and a site that mounts the toy backend."""
    with containers.user(name) as one:
        import_image(one, "python", Path(sys.executable).resolve())
        one.variables = toy_backend.install(one.folder / "toy") | one.variables
        place = f"{one.folder}/toy/site"
        site = {
            "name": "own", "kind": "local", "title": "a test", "runtime": "container", "source": "a test",
            "date": "2026-11-30", "container": {"program": "podman", "mounts": [f"{place}:{place}"]},
            "images": {"nap": EMPTY},
        }  # fmt: skip
        (one.folder / "home/stepmark/sites").mkdir(parents=True)
        (one.folder / "home/stepmark/sites/own.yml").write_text(json.dumps(site))
        yield one


@pytest.fixture
def start(user: User, request: pytest.FixtureRequest) -> StartAs:
    def start(*flags: str, **variables: str) -> tuple["subprocess.Popen[str]", Path]:
        output_dir = user.folder / "results" / re.sub(r"\W", "_", request.node.name)
        return user.start(sys.executable, RUN, f"--output_dir={output_dir}", *flags, **variables), output_dir

    return start


def wait_for(process: "subprocess.Popen[str]", output_dir: Path, count: int) -> None:
    """Wait for `count` steps of a run; show the output of a launcher that ends before."""
    deadline = time.monotonic() + 120
    while sum(path.read_bytes().count(b"\n") for path in output_dir.glob("*/steps.jsonl")) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {count} steps in {output_dir}"
        time.sleep(0.1)


def running(user: User) -> list[str]:
    """Return the user's containers, also those that have ended and still exist."""
    return user.podman("ps", "--all", "--format={{.Names}} {{.Status}}").splitlines()


def check(user: User, run: Run) -> None:
    assert run.code == EXIT_VALID, run.err
    assert {step["rank"] for step in run.steps} == {0, 1}
    assert run.losses[-1] < run.losses[0]
    assert run.provenance["environment"]["container_program"].startswith("podman version")
    assert run.provenance["environment"]["image_digest"].startswith("sha256:")
    assert {path.stat().st_uid for path in run.folder.rglob("*")} == {user.number}
    assert TOKEN not in (run.folder / "provenance.json").read_text()
    assert verify(str(run.folder), **user.variables).returncode == 0
    assert running(user) == []


# --- two ranks of a framework ---------------------------------------------------------------------


@as_another
def test_maxtext_trains_as_another_user(user: User, start: StartAs, jax_python: Path) -> None:
    image = import_image(user, "maxtext", jax_python)
    flags = ("--runtime=container", f"--image={image}", "--gpus=2", "--nodes=2", "--steps=12")
    check(user, finish(*start(JAX, TINY, *flags, HF_TOKEN=TOKEN)))


@as_root
def test_nemo_trains_as_root(user: User, start: StartAs, nemo_python: Path) -> None:
    image = import_image(user, "nemo", nemo_python)
    flags = ("--runtime=container", f"--image={image}", "--gpus=2", "--steps=12")
    check(user, finish(*start(NEMO, LLAMA3, *flags, HF_TOKEN=TOKEN)))


# --- how containers end ---------------------------------------------------------------------------


def test_ranks_train_in_the_containers_of_their_user(user: User, start: StartAs) -> None:
    check(user, finish(*start(*TOY, HF_TOKEN=TOKEN)))


def test_ctrl_c_ends_the_containers(user: User, start: StartAs) -> None:
    process, output_dir = start(*TOY, *ENDLESS)
    wait_for(process, output_dir, 6)
    assert len(running(user)) == 2
    process.send_signal(signal.SIGINT)
    run = finish(process, output_dir)
    assert run.code == EXIT_INTERRUPTED, run.err
    assert running(user) == []
    assert run.result["status"] == "failed"


@as_another
def test_no_container_outlives_a_killed_launcher(user: User, start: StartAs) -> None:
    process, output_dir = start(*TOY, *ENDLESS)
    wait_for(process, output_dir, 4)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + LIMIT_SECONDS
    while (left := running(user)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []


# Each rank of these is a line of Python in a container of root's.


def phase_in_containers(user: User, script: str, ranks: int, mounted: str = "") -> tuple[list[int | None], str]:
    """Return the exit codes of the ranks and the log of the first."""
    program = Program(name="podman", path=str(shutil.which("podman")), version="podman")
    mounts = [f"{user.folder}:{user.folder}{mounted}"]
    options = ContainerOptions(program=program, image=EMPTY, mounts=mounts, user="0:0", user_name="root")
    phase = Phase(
        name="perf", command=["python3", "-c", script], environment={}, nodes=1, tasks_per_node=ranks,
        devices_per_task=1, writes_steps=True,
    )  # fmt: skip
    folder = Path(tempfile.mkdtemp(dir=user.folder)) / "attempt-1/perf"
    tasks = TaskContainers(options)
    ended = local.run_phase(phase, folder, Path("python3"), list, lambda _: None, containers=tasks)
    return [one.exit_code for one in ended], (folder / "rank-0.log").read_text()


@pytest.fixture
def root(user: User, monkeypatch: pytest.MonkeyPatch) -> User:
    for name, value in user.variables.items():
        monkeypatch.setenv(name, value)
    return user


@as_root
def test_a_container_that_does_not_listen_is_removed(root: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client can be killed; podman's container continues."""
    monkeypatch.setattr(local, "GRACE_SECONDS", 1)
    script = (
        "import os, signal, time\n"
        "while os.environ['STEPMARK_RANK'] == '1' and not os.path.exists('deaf'): time.sleep(0.02)\n"
        "if os.environ['STEPMARK_RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('deaf', 'w').close()\n"
        "time.sleep(3600)\n"
    )
    assert phase_in_containers(root, script, 2)[0] == [None, -signal.SIGKILL]
    assert running(root) == []


@as_root
def test_a_folder_that_a_container_cannot_write_is_named_in_its_log(root: User) -> None:
    codes, log = phase_in_containers(root, "open('steps', 'w')", 1, ":ro")
    assert codes == [1]
    assert "Read-only file system: 'steps'" in log


# --- refusals -------------------------------------------------------------------------------------

REFUSED = {
    "no such image": (
        (*TOY, "--image=localhost:9/none:1"),
        ["podman cannot pull the container", "podman login localhost:9"],
    ),
    "no framework": (
        (JAX, TINY, "--runtime=container", f"--image={EMPTY}"),
        ["a container of this image cannot run", "has no module 'maxtext'"],
    ),
}


@as_another
@pytest.mark.parametrize(("flags", "messages"), REFUSED.values(), ids=REFUSED)
def test_an_unusable_image_is_refused(start: StartAs, flags: tuple[str, ...], messages: list[str]) -> None:
    process, output_dir = start(*flags)
    run = finish(process, output_dir)
    assert run.code == EXIT_REFUSED, run.err
    assert [text for text in messages if text not in run.err] == []
    assert not [*output_dir.glob("*")]
