"""Refusals of launch/run.py that need their own machine, folder or config; the others are in refusals.yml."""

import subprocess
from pathlib import Path

import pytest

from tests import forked

REPOSITORY = Path(__file__).resolve().parents[2]


def run(output_dir: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    return forked.run(REPOSITORY / "launch/run.py", f"--output_dir={output_dir}", *flags)


TINY = "--model=llama2_tiny"


SECRET = "correct-horse"


@pytest.mark.parametrize("dry", [[], ["--dry_run"]])
@pytest.mark.parametrize(
    "flags",
    [
        [f"--set=env.FOO=it-is-{SECRET}"],
        [f"--set={SECRET}"],
        [f"--tag={SECRET}"],
        [f"--data=/data/{SECRET}"],
        [f"--set=env.FOO={SECRET}", "--repeats=2"],
        ["--site=example_venv", f"--comment={SECRET}"],
        [f"--modle={SECRET}"],
    ],
)
def test_a_secret_of_the_shell_is_refused_before_anything_shows_it(
    flags: list[str], dry: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_DB_PASSWORD", SECRET)
    done = run(tmp_path / "results", "--backend=jax", TINY, *flags, *dry)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert SECRET not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


def test_an_output_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run(tmp_path / "file" / "results", "--backend=jax", TINY)
    assert done.returncode == 2
    assert "output folder is not writable" in done.stderr
    assert "Traceback" not in done.stderr
    read_only = run(Path("/proc/results"), "--backend=jax", TINY)
    assert read_only.returncode == 2
    assert "--output_dir=DIR" in read_only.stderr


def test_a_config_with_a_typo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
    path = tmp_path / "configs/models/llama2_tiny.yml"
    path.write_text(path.read_text().replace("query_groups:", "query_group:"))
    monkeypatch.setenv("STEPMARK_CONFIGS", str(tmp_path / "configs"))
    done = run(tmp_path / "results", "--backend=jax", TINY)
    assert done.returncode == 2
    assert "llama2_tiny.yml" in done.stderr
    assert "query_group" in done.stderr
    assert "did you mean 'query_groups'?" in done.stderr


def test_no_python_for_maxtext_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are met through launch/run.py here; the many ways are in test_environments.py."""
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    done = run(tmp_path / "results", "--backend=jax", TINY)
    assert done.returncode == 1, done.stderr
    assert "error sending request" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "results").iterdir()) == []  # not even an empty run folder
