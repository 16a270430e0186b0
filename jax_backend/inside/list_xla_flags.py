"""Asks several versions of jaxlib for flags: the `versions` of configs/xla_flags.yml, measured again.

Runs by path, with a Python that every one of these versions was made for (3.12), PyYAML and pip:

    python3.12 jax_backend/inside/list_xla_flags.py                          every flag of the table
    python3.12 jax_backend/inside/list_xla_flags.py xla_gpu_a xla_gpu_b      these, for a new row

Each jaxlib is installed into an environment of its own: below --folder, where it is found again, or in a
temporary one. Prints a line a flag, as it stands in the table. Exit code 1 where a row of the table differs.
"""

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
from worker_kit import load  # noqa: E402

CHECK = load(HERE / "check_request.py")
TABLE = HERE.parents[1] / "configs" / "xla_flags.yml"
AT_ONCE = 2


def main(options: argparse.Namespace) -> int:
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    names = options.flags or sorted(table["flags"])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        pythons = {version: environment(folder, version) for version in table["versions"]}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            measured = dict(zip(names, pool.map(lambda name: known_to(name, pythons), names), strict=True))
    differing = 0
    for name, versions in measured.items():
        print(f"{name}: {yaml.safe_dump(versions, default_flow_style=True, width=1000).strip()}")
        written = table["flags"].get(name, {}).get("versions")
        if written is not None and written != versions:
            differing += 1
            print(f"  {TABLE.name} says {written}", file=sys.stderr)
    print(f"{len(measured)} flags, {differing} differ from {TABLE.name}", file=sys.stderr)
    return 1 if differing else 0


def environment(folder: Path, version: str) -> str:
    """The Python of an environment that has this jaxlib."""
    place = folder / f"jaxlib-{version}"
    python = place / "bin" / "python"
    if not python.exists():
        print(f"installing jaxlib {version}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", f"jaxlib=={version}"]
        subprocess.run(pip, check=True)
    return str(python)


def known_to(name: str, pythons: dict[str, str]) -> list[str]:
    """The versions that know a flag. Asked with an empty value: what takes none says so, and knows the flag."""
    word = f"--{name}="
    return [version for version, python in pythons.items() if not unknown(word, python)]


def unknown(word: str, python: str) -> bool:
    answer = CHECK.ask([word], python)
    if not answer.accepted and not CHECK.UNKNOWN.search(answer.text) and CHECK.USAGE not in answer.text:
        raise SystemExit(f"{python} gave no answer to {word}: {answer.text[-300:]}")
    return bool(CHECK.unknown_among(answer.text, [word]))


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flags", nargs="*", help="names of flags, without -- in front")
    parser.add_argument("--folder", help="where the environments are kept")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
