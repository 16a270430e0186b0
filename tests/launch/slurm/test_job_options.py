"""What a job asks of Slurm: where each option comes from, what is passed on, and what is refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.values import JobOptions, Site
from launch.slurm import options
from launch.slurm.options import choose, refuse_without_slurm

REPOSITORY = Path(__file__).resolve().parents[3]
TABLES = yaml.safe_load(Path(__file__).with_name("options.yml").read_text())
CONFIGS = Configs()
PYXIS, VENV, LOCAL = (CONFIGS.site(name) for name in ("example_pyxis", "example_venv", "local"))


def site_with(**changes: Any) -> Site:
    assert VENV.slurm is not None
    own = msgspec.structs.replace(VENV.slurm, options=JobOptions(**changes))
    return msgspec.structs.replace(VENV, slurm=own)


def refusal(*arguments: Any, **given: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        choose(*arguments, **given)
    assert caught.value.where
    return caught.value


# --- layers -------------------------------------------------------------------------------------


def test_flags_win_over_the_shell_over_the_site() -> None:
    shell = {"SBATCH_PARTITION": "shell", "SBATCH_QOS": "shell"}
    site = site_with(partition="site", account="site", qos="site")
    found = choose(site, {"qos": "typed"}, shell)
    assert (found.account, found.partition, found.qos) == ("site", "shell", "typed")


@pytest.mark.parametrize("case", TABLES["asked"])
def test_what_is_asked_for(case: dict[str, dict[str, Any]]) -> None:
    site = site_with(exclusive=False, qos="site", arguments=["--switches=1"])
    found = choose(site, case.get("typed", {}), case.get("shell", {}))
    assert {name: getattr(found, name) for name in case["options"]} == case["options"]


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(options.DECIDED))
def test_what_stepmark_decides_is_refused_with_what_to_use_instead(key: str) -> None:
    for words in ({"slurm_arg": [f"{key}=1"]}, {"slurm_arg": [f"--{key}"]}):
        error = refusal(PYXIS, words, {})
        assert key in error.what
    assert "site" in refusal(site_with(arguments=[f"--{key}=1"]), {}, {}).where


@pytest.mark.parametrize(("short", "meant"), TABLES["short"].items())
def test_a_shortened_name_does_not_get_past(short: str, meant: str) -> None:
    assert f"--{meant}" in refusal(PYXIS, {"slurm_arg": [short]}, {}).what


WRONG = [{"slurm_arg": [text]} for text in TABLES["no_option"]] + [{"time": text} for text in TABLES["no_time"]]


@pytest.mark.parametrize("typed", WRONG)
def test_values_that_cannot_be(typed: dict[str, Any]) -> None:
    refusal(PYXIS, typed, {})


def test_site_local_has_no_use_for_the_flags_of_a_job() -> None:
    refuse_without_slurm(LOCAL, {})
    refuse_without_slurm(PYXIS, {"time": "1"})
    with pytest.raises(RequestError, match="--mem, --gpu_request cannot be used: site 'local' has no Slurm"):
        refuse_without_slurm(LOCAL, {"memory": "0", "gpus": "none"})
    with pytest.raises(RequestError, match="no Slurm"):
        choose(LOCAL, {}, {})


# --- flags --------------------------------------------------------------------------------------

SCRIPT = '''"""A script."""
import json
from absl import flags
from launch.cli.command import run_main
from launch.slurm import job_flags
flags.DEFINE_string("backend", None, "A backend.")
flags.adopt_module_key_flags(job_flags)
def main(argv):
    print(json.dumps(job_flags.typed()))
    return 0
if __name__ == "__main__":
    run_main(main)
'''


def script(tmp_path: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "script.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
    )


def test_every_field_of_a_job_has_its_flag_or_belongs_to_the_site(tmp_path: Path) -> None:
    shown = script(tmp_path, "--help").stdout
    for field in msgspec.structs.fields(JobOptions):
        if field.name not in ("arguments", "warn_seconds"):
            assert f"{options.flag_of(field.name)}" in shown, field.name
    assert shown.index("--backend") < shown.index("Slurm job flags") < shown.index("--partition")
    assert "--[no]singleton" in shown
    assert "--slurm_arg=KEY=VALUE" in shown
