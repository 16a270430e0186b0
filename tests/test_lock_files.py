"""The lock files: all pinned and hashed, nothing of one machine in them, in step with their sources."""

import configparser
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
JAX = REPOSITORY / "jax_backend" / "requirements.lock"
LAUNCHER = REPOSITORY / "requirements.lock"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?: ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in lock.read_text().splitlines():
        if match := PIN.match(line):
            found.setdefault(canonical(match[1]), set()).add(match[2])
    return found


@pytest.mark.parametrize("lock", [JAX, LAUNCHER], ids=["jax", "launcher"])
def test_every_line_is_a_pin_a_hash_or_a_comment(lock: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if not line.lstrip().startswith("#")]
    assert [line for line in lines if not PIN.match(line) and not HASH.match(line)] == []
    for before, line in zip(lines, [*lines[1:], ""], strict=True):
        assert before.endswith("\\") == line.startswith("    --hash"), before
    assert len(pins(lock)) > 10


@pytest.mark.parametrize("lock", [JAX, LAUNCHER], ids=["jax", "launcher"])
def test_nothing_of_one_machine_is_in_it(lock: Path) -> None:
    text = lock.read_text()
    assert re.findall(r"://|--(?:extra-)?index|--find-links| @ |file:", text) == []
    assert re.findall(r"(?m)(?:^|[\s(])/\S+", text) == []


def test_direct_pins_of_jax_are_locked_at_those_versions() -> None:
    locked = pins(JAX)
    source = (JAX.parent / "requirements.in").read_text()
    direct = re.findall(r"(?m)^([A-Za-z0-9._-]+)==(\S+)", source)
    unpinned = re.findall(r"(?m)^(?!#)[^\s=#]+\s*(?!==)(?:#.*)?$", source)
    assert [name for name, version in direct if locked.get(canonical(name)) != {version}] == []
    assert unpinned == []
    assert len(direct) >= 20


def test_jax_lock_is_for_the_cpu() -> None:
    assert [name for name in pins(JAX) if re.search(r"cuda|nvidia|rocm|libtpu", name)] == []


def test_launcher_lock_holds_all_that_setup_cfg_asks_for() -> None:
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    asked = config["options"]["install_requires"] + config["options.extras_require"]["dev"]
    names = {canonical(re.split(r"[\s<>=!~;\[]", line.strip())[0]) for line in asked.splitlines() if line.strip()}
    assert names - set(pins(LAUNCHER)) == set()
