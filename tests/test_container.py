"""Dockerfile: what it copies is what an installed launcher consists of. No image is built here."""

import configparser
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_image_gets_what_the_launcher_is_made_of(tmp_path: Path) -> None:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    copied = {line.removeprefix("!") for line in lines if line.startswith("!")}
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    packages = {name for name in setup["options.packages.find"]["include"].split() if not name.endswith(".*")}
    described = {setup["metadata"]["long_description"].removeprefix("file: "), setup["metadata"]["license_files"]}
    named = {"docs/explanation", "docs/how-to", "docs/reference", "docs/schemas.json"}  # by messages and help texts
    assert packages | described | named <= copied
    for name in copied:
        for path in (found := [*REPOSITORY.glob(name)]):
            link = tmp_path / path.relative_to(REPOSITORY)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(path)
        assert found, name
    made = subprocess.run(["make", "-n", "install"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
