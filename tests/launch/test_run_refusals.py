"""Bad input to launch/run.py: one clear message, exit code 2, no traceback, and nothing started or written."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked

REPOSITORY = Path(__file__).resolve().parents[2]


def run(output_dir: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    return forked.run(REPOSITORY / "launch/run.py", f"--output_dir={output_dir}", *flags)


TINY = "--model=llama2_tiny"

REFUSED = {
    "unknown model": (["--model=lama2_tiny"], "unknown model 'lama2_tiny': did you mean 'llama2_tiny'?"),
    "unknown backend": (["--backend=jaxx", TINY], "unknown backend 'jaxx': did you mean 'jax'?"),
    "a beginning of one recipe of the task": ([TINY, "--recipe=jax_tiny"], "did you mean 'jax_tiny_pretrain'"),
    "a slip in a list": ([TINY, "--dtype=bf61,fp32"], "did you mean 'bf16'"),
    "unknown setting": ([TINY, "--set=remat_polcy=full"], "did you mean 'remat_policy'?"),
    "unknown site": ([TINY, "--site=mars"], "unknown site 'mars'"),
    "unknown flag": ([TINY, "--modle=x"], "unknown flag --modle: did you mean 'model'?"),
    "flag that another script had": ([TINY, "--install=cron"], "unknown flag --install: none of "),
    "a word that is no flag": ([TINY, "hello"], "unexpected argument 'hello'"),
    "half a setting": ([TINY, "--set=remat_policy"], "KEY=VALUE is expected"),
    "a setting twice": ([TINY, "--set=remat_policy=full", "--set=remat_policy=minimal"], "given twice"),
    "a secret in a setting": ([TINY, "--set=env.HF_TOKEN=x"], "looks like a secret"),
    "a token as a value": ([TINY, "--set=run_name=hf_" + "a" * 32], "it has the shape of a token"),
    "an image that is not there": (
        ["--model=llama2_70b", "--site=example_pyxis", "--image=/lustre/none.sqsh"],
        "the container image is not there",
    ),
    "an interpreter that is not there": (
        ["--model=llama2_70b", "--site=example_python"],
        "the Python of site 'example_python' is not there",
    ),
    "an unknown runtime": ([TINY, "--runtime=dokcer"], "unknown runtime 'dokcer': valid: container, python, venv"),
    "an interpreter typed that is not there": (
        [TINY, "--python=/none/bin/python"],
        "the interpreter of --python is not there",
    ),
    "an interpreter typed without the framework": (
        [TINY, f"--python={sys.executable}"],
        "has no module 'maxtext'",
    ),
    "no model": ([], "--model is missing"),
    "no repeats": ([TINY, "--repeats=0"], "flag --repeats=0"),
    "no queue to leave it in": ([TINY, "--nowait"], "--nowait needs a site with a queue"),
    "a scale without layout": (["--model=llama2_70b", "--gpus=96"], "64, 128, 256, 512, 1024, 2048"),
    "pgle by a profiler that is not there": ([TINY, "--pgle=nsys"], "phase convert runs it; phase profile runs it"),
    "lora": ([TINY, "--task=lora", "--set=gradient_accumulation=2"], "gradients of frozen weights too"),
    "70B on this machine": (["--model=llama2_70b"], "--dry_run shows the plan"),
    "70B on this CPU": (["--model=llama2_70b", "--hardware=cpu"], "llama2_70b needs 1.11 TB of memory"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    flags, words = REFUSED[case]
    backend = [] if any(flag.startswith("--backend") for flag in flags) else ["--backend=jax"]
    done = run(tmp_path / "results", *backend, *flags)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stderr.count("stepmark: ") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "results").exists()


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
    assert "the output folder cannot be written" in done.stderr
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
    assert "network" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "results").iterdir()) == []  # not even an empty run folder
