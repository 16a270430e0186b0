"""Containers of this machine, by a stand-in for docker and apptainer; end_to_end has a real podman."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.backend import installed_backends
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError
from benchmarks.values import Container
from launch.environments import container_programs
from launch.environments.container_programs import (
    NAMES,
    ContainerOptions,
    Program,
    client_variables,
    command_words,
    select_program,
)
from tests import forked, toy_backend

REPOSITORY = Path(__file__).resolve().parents[3]
RUN, SETUP = REPOSITORY / "launch/run.py", REPOSITORY / "launch/setup.py"
STAND_IN = REPOSITORY / "tests/stand_ins/containers.py"
PLAYED = ("docker", "apptainer")
IMAGE = "registry.example/toy:1.0"
TOKEN = "hf_" + "a1B2" * 8
TOY = ("--backend=toy", "--model=llama2_tiny", "--notelemetry")


class Machine:
    """A machine with container programs and the toy backend; its own site mounts the backend's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output_dir = folder, folder / "runs"
        self.variables = toy_backend.install(folder)
        self.variables |= {"STAND_IN_CONTAINERS": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        (folder / "bin").mkdir()
        for name in PLAYED:
            (folder / "bin" / name).symlink_to(STAND_IN)
        (folder / "home/sites").mkdir(parents=True)
        self.plays()
        self.site("docker")

    def plays(self, **machine: Any) -> None:
        text = json.dumps({"python": sys.executable, "images": [IMAGE], **machine})
        (self.folder / "machine.json").write_text(text)

    def site(self, program: str) -> None:
        site = {
            "name": "own", "kind": "local", "title": "a test", "runtime": "container", "source": "a test",
            "date": "2026-11-23",
            "container": {"program": program, "mounts": [f"{self.folder}/site:{self.folder}/site"]},
        }  # fmt: skip
        (self.folder / "home/sites/own.yml").write_text(json.dumps(site))

    def run(self, *flags: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        done = forked.run(
            RUN, *TOY, f"--output_dir={self.output_dir}", *flags, env={**os.environ, **self.variables} | variables
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def read(self, name: str) -> Any:
        (folder,) = self.output_dir.iterdir()
        return json.loads((folder / name).read_text())

    @property
    def calls(self) -> list[dict[str, Any]]:
        file = self.folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def containers(self) -> list[dict[str, Any]]:
        """Those of ranks, as they were started."""
        return [call for call in self.calls if "variables" in call and "NAPPING" in call["variables"]]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    yield Machine(tmp_path)
    installed_backends.cache_clear()


# --- whole runs -----------------------------------------------------------------------------------


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("program", PLAYED)
def test_each_rank_runs_in_a_container_of_its_own(machine: Machine, program: str) -> None:
    machine.site(program)
    machine.plays(images=[])
    done = machine.run("--site=own", "--gpus=2", HF_TOKEN=TOKEN, CUDA_HOME="/usr/local/cuda")
    assert done.returncode == EXIT_VALID, done.stderr
    assert done.stderr.index(f"{program} pulls it once (") < done.stderr.index("Downloaded newer image")
    assert machine.read("result.json")["status"] == "valid"
    environment = machine.read("provenance.json")["environment"]
    assert environment["image"] == IMAGE
    assert environment["container_program"].lower().startswith(program)
    assert environment["image_digest"] and " msgspec==" in environment["packages"]
    assert sorted(one["variables"]["STEPMARK_RANK"] for one in machine.containers) == ["0", "1"]
    for one in machine.containers:
        assert one["variables"]["HF_TOKEN"] == TOKEN
        assert not {"CUDA_HOME", "STEPMARK_HOME", "PYTHONPATH"} & one["variables"].keys()
        assert f"{REPOSITORY}:{REPOSITORY}:ro" in one["mounts"]
    assert not any(TOKEN in word for call in machine.calls for word in call.get("words", []))


@pytest.mark.slow(seconds=3)
def test_the_runtime_may_be_typed_and_is_recorded(machine: Machine) -> None:
    mounted = {"STEPMARK_CONFIGS": machine.variables["STEPMARK_CONFIGS"]}
    done = machine.run("--runtime=container", "--dry_run", "--verbose", **mounted)
    assert done.returncode == EXIT_VALID
    assert "--entrypoint=" in done.stdout
    assert f"--volume={REPOSITORY}:{REPOSITORY}:ro" in done.stdout
    assert "refused" not in done.stdout
    assert machine.run("--site=own", "--runtime=venv", "--dry_run").returncode == EXIT_VALID
    done = machine.run("--site=own", f"--python={sys.executable}")
    assert done.returncode == EXIT_VALID, done.stderr
    site = machine.read("benchmark.json")["site"]
    assert (site["runtime"], site["python"], site["container"]) == ("python", sys.executable, None)
    assert site["typed"] == ["--python"]


@pytest.mark.slow(seconds=2)
def test_a_site_s_images_are_pulled_and_asked_at_set_up(machine: Machine) -> None:
    machine.plays(images=[])
    flags = ("--site=own", "--backend=toy", f"--out={machine.output_dir}")
    planned = forked.run(SETUP, *flags, "--dry_run", env={**os.environ, **machine.variables})
    assert planned.stdout.startswith("no job")
    assert not any("pull" in call.get("words", []) for call in machine.calls)
    done = forked.run(SETUP, *flags, env={**os.environ, **machine.variables})
    assert done.returncode == EXIT_VALID, done.stderr
    assert f"ready: {IMAGE}, Python 3." in done.stdout


REFUSED = {
    "no permission": ({"permission": False}, (), ["docker cannot be used", "permission denied"]),
    "no daemon": ({"daemon": False}, (), ["docker cannot be used", "Is the docker daemon running?"]),
    "a pull that is refused": (
        {"images": [], "pull": False},
        (),
        ["cannot pull the container", "unauthorized", "docker login"],
    ),
    "a file": ({}, ("--image=/images/a.sqsh",), ["docker cannot run image files"]),
}


@pytest.mark.parametrize(("plays", "flags", "messages"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_run_is_refused_in_one_message(
    machine: Machine, plays: dict[str, Any], flags: tuple[str, ...], messages: list[str]
) -> None:
    machine.plays(**plays)
    done = machine.run("--site=own", *flags)
    assert done.returncode == EXIT_REFUSED, done.stderr
    assert [word for word in messages if word not in done.stderr] == []
    assert not any(machine.output_dir.glob("*"))


def test_without_nvidias_runtime_nothing_is_pulled(machine: Machine, play_machine: Callable[[str], None]) -> None:
    play_machine("dgx_h100")
    machine.plays(images=[], nvidia=False)
    done = machine.run("--site=own", "--hardware=h100", "--gpus=2")
    assert done.returncode == EXIT_REFUSED
    assert "docker cannot give a container NVIDIA's GPUs" in done.stderr
    assert "nvidia-ctk" in done.stderr
    assert not any("pull" in call.get("words", []) for call in machine.calls)
    machine.plays()
    done = machine.run(
        "--site=own", "--hardware=h100", "--gpus=2", "--dry_run", "--verbose", CUDA_VISIBLE_DEVICES="4,5,6"
    )
    (given,) = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("--gpus=")]
    assert given.startswith('--gpus="device=GPU-') and given.count("GPU-") == 2


def test_without_a_container_program_the_refusal_names_the_alternatives(machine: Machine, tmp_path: Path) -> None:
    done = machine.run("--runtime=container", PATH=str(tmp_path / "none"))
    assert done.returncode == EXIT_REFUSED
    assert "this machine has no docker or podman or apptainer" in done.stderr
    assert "--runtime=venv" in done.stderr
    machine.site("apptainer")
    assert "the container image does not exist" in machine.run("--site=own", "--image=/none/a.sif").stderr
    machine.site("podman")
    done = machine.run("--site=own", PATH=str(tmp_path / "bin"))
    assert "this machine has no podman" in done.stderr


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A docker without its daemon, and a podman that does this."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(podman: str) -> None:
        lines = {"docker": "echo 'Cannot connect to the Docker daemon' >&2; exit 1", "podman": podman}
        for name, line in lines.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
            (tmp_path / name).chmod(0o755)

    return write


def test_a_client_without_its_daemon_is_passed_over(programs: Callable[[str], None]) -> None:
    programs("echo podman version 5")
    local_site = Configs().site("local")
    assert select_program(local_site).name == "podman"
    with pytest.raises(RequestError, match="docker cannot be used"):
        select_program(msgspec.structs.replace(local_site, container=Container(program="docker")))


def test_without_a_usable_program_the_first_reason_is_given(programs: Callable[[str], None]) -> None:
    programs("echo no subuid >&2; exit 125")
    with pytest.raises(RequestError, match="docker cannot be used") as refused:
        select_program(Configs().site("local"))
    assert "Cannot connect" in refused.value.why


# --- the command ----------------------------------------------------------------------------------


def command(name: Any, **changes: Any) -> list[str]:
    rootless = changes.pop("rootless", False)
    program = Program(name=name, path=f"/bin/{name}", version="1", rootless=rootless)
    box = ContainerOptions(program=program, image="image", mounts=[], user="1000:1000", user_name="ann", **changes)
    return command_words(box, "own", Path("/run"), {"A": "b"}, ["python3", "x.py"])


def test_gpus_are_named_as_each_program_takes_them() -> None:
    gpus = ["GPU-1", "GPU-2"]
    assert '--gpus="device=GPU-1,GPU-2"' in command("docker", gpus=gpus)
    assert {"--device=nvidia.com/gpu=GPU-1", "--device=nvidia.com/gpu=GPU-2"} <= set(command("podman", gpus=gpus))
    assert "--nv" in command("apptainer", gpus=gpus)
    for name in NAMES:
        assert not any("gpu" in word.lower() or word == "--nv" for word in command(name))


def test_files_belong_to_the_caller() -> None:
    assert "--user=1000:1000" in command("docker")
    for name in ("docker", "podman"):
        assert "--user=0:0" in command(name, rootless=True)


def test_only_a_daemon_raises_the_limits_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that podman cannot raise is the caller's."""
    monkeypatch.setattr(container_programs, "MAY_RAISE_LIMITS", 0)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (7, 1000))
    limits = {"--ulimit=memlock=1000", "--ulimit=stack=1000", "--ulimit=nofile=1000", "--ulimit=nproc=1000"}
    assert limits <= set(command("podman"))
    assert {"--ulimit=memlock=-1", "--ulimit=stack=67108864"} <= set(command("docker"))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (7, resource.RLIM_INFINITY))
    assert {"--ulimit=memlock=-1", "--ulimit=stack=67108864", "--ulimit=nofile=1048576"} <= set(command("podman"))


def test_apptainers_containers_get_their_variables_through_its_own() -> None:
    program = Program(name="apptainer", path="/bin/apptainer", version="1")
    box = ContainerOptions(
        program=program, image="i", mounts=[], user="1:1", user_name="a", inherited_variables=["HF_TOKEN"]
    )
    given = client_variables(box, {"HF_TOKEN": "t", "PATH": "/bin"}, {"A": "b,c"})
    assert given["APPTAINERENV_A"] == "b,c"
    assert given["APPTAINERENV_HF_TOKEN"] == "t"
    assert "APPTAINERENV_PATH" not in given
