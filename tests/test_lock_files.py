"""The lock files: all pinned and hashed, nothing of one machine in them, in step with their sources."""

import configparser
import re
from pathlib import Path

import pytest

from nemo_backend import BACKEND

REPOSITORY = Path(__file__).resolve().parents[1]
JAX = REPOSITORY / "jax_backend" / "requirements.lock"
JAX_CUDA = REPOSITORY / "jax_backend" / "requirements-cuda.lock"
NEMO_CPU = REPOSITORY / "nemo_backend" / "requirements-cpu.lock"
NEMO_CUDA = REPOSITORY / "nemo_backend" / "requirements-cuda.lock"
BRIDGE = REPOSITORY / "nemo_backend" / "requirements-bridge.lock"
LAUNCHER = REPOSITORY / "requirements.lock"
DEV = REPOSITORY / "requirements-dev.lock"
LOCKS = {
    "jax": JAX,
    "jax-cuda": JAX_CUDA,
    "nemo-cpu": NEMO_CPU,
    "nemo-cuda": NEMO_CUDA,
    "bridge": BRIDGE,
    "launcher": LAUNCHER,
    "dev": DEV,
}
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?: ; [^\\]+)? \\$")
BUILT = re.compile(r"^--no-binary (\S+)$")  # a package without a wheel, which is built
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in lock.read_text().splitlines():
        if match := PIN.match(line):
            found.setdefault(canonical(match[1]), set()).add(match[2])
    return found


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_every_line_is_a_pin_a_hash_or_a_comment(lock: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if line and not line.lstrip().startswith("#")]
    lines = [line for line in lines if not BUILT.match(line)]
    assert [line for line in lines if not PIN.match(line) and not HASH.match(line)] == []
    for before, line in zip(lines, [*lines[1:], ""], strict=True):
        assert before.endswith("\\") == line.startswith("    --hash"), before
    assert len(pins(lock)) > 10


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_nothing_of_one_machine_is_in_it(lock: Path) -> None:
    text = lock.read_text()
    assert re.findall(r"://|--(?:extra-)?index|--find-links| @ |file:", text) == []
    assert re.findall(r"(?m)(?:^|[\s(])/\S+", text) == []


@pytest.mark.parametrize("name", ["jax", "jax-cuda", "nemo-cpu", "nemo-cuda", "bridge"])
def test_direct_pins_are_locked_at_those_versions(name: str) -> None:
    of_engine = LOCKS[name].with_suffix(".in")
    source = (of_engine if name == "bridge" else LOCKS[name].with_name("requirements.in")).read_text()
    # A local version such as +cpu is the same release, built otherwise.
    locked = {package: {v.partition("+")[0] for v in found} for package, found in pins(LOCKS[name]).items()}
    direct = re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[\S+\])?==(\S+)", source)
    unpinned = re.findall(r"(?m)^(?!#)[^\s=#]+\s*(?!==)(?:#.*)?$", source)
    assert [name for name, version in direct if locked.get(canonical(name)) != {version}] == []
    assert unpinned == []
    assert len(direct) >= 13


def test_jax_lock_with_cuda_is_the_other_and_its_plugin() -> None:
    cpu, cuda = pins(JAX), pins(JAX_CUDA)
    assert [name for name in cpu if re.search(r"cuda|nvidia|rocm|libtpu", name)] == []
    assert {name for name in cpu if cpu[name] != cuda.get(name)} == set()
    brought = cuda.keys() - cpu.keys()
    assert {name for name in brought if not name.startswith("nvidia-")} == {"jax-cuda12-plugin", "jax-cuda12-pjrt"}
    assert cuda["jax-cuda12-plugin"] == cuda["jax-cuda12-pjrt"] == cuda["jaxlib"]


def test_nemo_locks_differ_in_torch_and_what_it_brings() -> None:
    cpu, cuda = pins(NEMO_CPU), pins(NEMO_CUDA)
    assert {name for name in cpu if cpu[name] != cuda.get(name)} == {"torch"}
    brought = cuda.keys() - cpu.keys()
    assert {name for name in brought if not name.startswith("nvidia-")} == {"cuda-toolkit", "triton"}
    assert len(brought) > 10


def test_nemo_cpu_lock_needs_the_torch_that_it_pins() -> None:
    assert [lock.offered for lock in BACKEND.environment("nemo").locks] == [
        f"torch=={pins(NEMO_CPU)['torch'].pop()}",
        "",
    ]
    assert NEMO_CPU.read_text().endswith((NEMO_CPU.parent / "torch-cpu.in").read_text())


@pytest.mark.parametrize("lock", [NEMO_CPU, NEMO_CUDA, BRIDGE], ids=["nemo-cpu", "nemo-cuda", "bridge"])
def test_what_nemo_builds_is_locked_with_its_builder(lock: Path) -> None:
    built = {match[1] for line in lock.read_text().splitlines() if (match := BUILT.match(line))}
    assert built == {"antlr4-python3-runtime", *(["wget"] if lock != BRIDGE else [])}
    assert built | {"setuptools"} <= pins(lock).keys()


@pytest.mark.parametrize(("lock", "extra"), [(LAUNCHER, False), (DEV, True)], ids=["launcher", "dev"])
def test_the_launchers_locks_hold_all_that_setup_cfg_asks_for(lock: Path, extra: bool) -> None:
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    asked = config["options"]["install_requires"] + (config["options.extras_require"]["dev"] if extra else "")
    names = {canonical(re.split(r"[\s<>=!~;\[]", line.strip())[0]) for line in asked.splitlines() if line.strip()}
    assert names - set(pins(lock)) == set()
    assert {name for name, found in pins(LAUNCHER).items() if pins(DEV).get(name) != found} == set()
