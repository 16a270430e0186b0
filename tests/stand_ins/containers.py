#!/usr/bin/env python3
"""Stands in for docker and apptainer, by the name it is called with.

A container is a process of this machine. It replaces the client that starts it, as apptainer's does. Options that
Stepmark must not use are errors. A real podman shows how containers end: tests/end_to_end/test_containers.py.

STAND_IN_CONTAINERS names a folder:
    machine.json  what it plays: permission, daemon, nvidia, rootless, pull (false: refused),
                  images (the existing names), python (`python3` in an image)
    calls.jsonl   every call: its words, and which variables reached the container
"""

import json
import os
import sys
from pathlib import Path

FOLDER = Path(os.environ["STAND_IN_CONTAINERS"])
PROGRAM = Path(sys.argv[0]).name
MACHINE = {
    "permission": True,
    "daemon": True,
    "nvidia": True,
    "rootless": False,
    "pull": True,
    "images": [],
    "python": sys.executable,
} | json.loads((FOLDER / "machine.json").read_text())
SOCKET = "unix:///var/run/docker.sock"
FLAGS = ("--rm", "--cleanenv", "--writable-tmpfs", "--nv")
VALUES = (
    "--name", "--stop-timeout", "--network", "--ipc", "--pid", "--uts", "--ulimit", "--security-opt", "--user",
    "--userns", "--gpus", "--device", "--volume", "--bind", "--workdir", "--pwd", "--env", "--entrypoint",
)  # fmt: skip
SYSTEM = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}  # of an image


def main(words):
    record({"words": [PROGRAM, *words]})
    if words == ["--version"]:
        return say("Docker version 28.2.2, build e6534b4" if PROGRAM == "docker" else "apptainer version 1.4.0")
    if PROGRAM == "docker" and not MACHINE["permission"]:
        return fail(f"permission denied while trying to connect to the Docker daemon socket at {SOCKET}: connect")
    if PROGRAM == "docker" and not MACHINE["daemon"]:
        return fail(f"Cannot connect to the Docker daemon at {SOCKET}. Is the docker daemon running?")
    command, rest = words[0], words[1:]
    return {
        "info": info, "image": inspect, "pull": pull, "run": run, "exec": run, "rm": lambda _: 0,
    }[command](rest)  # fmt: skip


def info(_words):
    runtimes = {"runc": {}, **({"nvidia": {}} if MACHINE["nvidia"] else {})}
    return say(json.dumps({"Runtimes": runtimes, "SecurityOptions": ["name=rootless"] * MACHINE["rootless"]}))


def inspect(words):
    assert words[0] == "inspect", words
    assert words[1].startswith("--format="), words
    if words[2] not in images():
        return fail(f"Error response from daemon: No such image: {words[2]}")
    return say(f"sha256:1d {words[2]}@sha256:d19e57")


def pull(words):
    if not MACHINE["pull"]:
        return fail("Error response from daemon: unauthorized: authentication required")
    if PROGRAM == "apptainer":
        Path(words[-2]).write_bytes(b"an image")
    else:
        (FOLDER / "pulled").write_text(words[-1])
    return say("Status: Downloaded newer image")


def images():
    pulled = FOLDER / "pulled"
    return [*MACHINE["images"], *([pulled.read_text()] if pulled.exists() else [])]


def run(words):
    options, environment, mounts = {}, dict(SYSTEM), []
    while words[0].startswith("--"):
        name, _, value = words.pop(0).partition("=")
        assert name in (VALUES if value else FLAGS), name
        options[name] = value
        if name == "--env":
            variable, is_given, text = value.partition("=")
            if is_given or variable in os.environ:
                environment[variable] = text if is_given else os.environ[variable]
        if name in ("--volume", "--bind"):
            mounts.append(value)
            assert Path(value.partition(":")[0]).exists(), f"mounted and not there: {value}"
    image, *command = words
    if PROGRAM == "apptainer":
        assert Path(image).is_file(), image
        environment |= {k.removeprefix("APPTAINERENV_"): v for k, v in os.environ.items() if "APPTAINERENV_" in k}
    else:
        assert image in images(), image
        command.insert(0, options["--entrypoint"])
    record({"name": options.get("--name"), "variables": environment, "mounts": mounts})
    if command[0] == "python3":
        command[0] = MACHINE["python"]
    refuse_unmounted(command, mounts)
    os.chdir(options.get("--workdir") or options["--pwd"])
    os.execve(command[0], command, environment)


def refuse_unmounted(command, mounts):
    """A path that the container would not see."""
    seen = tuple(mount.partition(":")[0] for mount in mounts)
    for word in command[1:]:
        path = word.rpartition("=")[2]
        assert not Path(path).is_absolute() or not Path(path).exists() or path.startswith(seen), (
            f"not mounted: {word}"
        )


def say(text):
    print(text)
    return 0


def fail(text):
    print(text, file=sys.stderr)
    return 1


def record(call):
    with (FOLDER / "calls.jsonl").open("a") as file:
        file.write(json.dumps(call) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
