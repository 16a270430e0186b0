"""Wrong requests (refusals.yml): one message with what to do next, exit code 2, and nothing started or written."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from string import Template

import pytest
import yaml

from tests import forked

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
LOG = REPOSITORY / "tests" / "jax_backend" / "logs" / "maxtext-0.2.5.log"
WORDS = {"PYTHON": sys.executable, "REPOSITORY": str(REPOSITORY), "LOG": str(LOG)}
TABLE = yaml.safe_load((HERE / "refusals.yml").read_text())
CASES = [
    pytest.param(command, typed, says, id=f"{command} {typed}")
    for command, rows in TABLE.items()
    for typed, says in rows.items()
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs, and logs that hold nothing."""
    made = tmp_path_factory.mktemp("refused")
    shutil.copytree(HERE / "stored_runs", made / "results")
    (made / "empty.log").touch()
    os.mkfifo(made / "pipe")
    shutil.copytree(made / "results/jax_local", made / "damaged/cut")
    (made / "damaged/cut/result.json").write_text('{"run_id": "cu')
    adapted = shutil.copytree(made / "results/nemo_lora", made / "damaged/adapted") / "benchmark.json"
    adapted.write_text(adapted.read_text().replace('"query_key_value"', '"gates"'))
    (made / "damaged/sweep-1.json").write_text('{"sweep_id": ')
    (made / "cut.log.gz").write_bytes(b"\x1f\x8b\x08")
    return made


@pytest.mark.parametrize(("command", "typed", "says"), CASES)
def test_refused(command: str, typed: str, says: str, place: Path, tmp_path: Path) -> None:
    before = sorted(place.rglob("*"))
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    words = shlex.split(Template(typed).substitute(WORDS))
    done = forked.run(REPOSITORY / "launch" / f"{command}.py", *words, cwd=place, env=environment)
    assert done.returncode == 2, done.stderr
    assert Template(says).substitute(WORDS) in done.stderr
    assert done.stderr.count("\n  next:") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert sorted(place.rglob("*")) == before
