"""A Python that a site names: refused if no run could start with it, and recorded otherwise."""

import platform
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.backend import EnvironmentSpec, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, RequestError
from benchmarks.runs.identity import of_environment
from benchmarks.values import Site, Slurm
from launch.environments import own_python

SPEC = EnvironmentSpec(name="x", locks=(), import_check="json.decoder")
NONE_SUCH = EnvironmentSpec(name="y", locks=(), import_check="no_such_framework.train")


def site(python: Any, *shared: str) -> Site:
    slurm = Slurm(shared_folders=list(shared or ("/",)), hardware=["cpu"])
    return msgspec.structs.replace(Configs().site("example_python"), name="own", python=python, slurm=slurm)


def refusal(python: Any, *shared: str, spec: EnvironmentSpec = SPEC, engine: str = "maxtext") -> RequestError:
    with pytest.raises(RequestError) as caught:
        own_python.refuse(site(str(python) if isinstance(python, Path) else python, *shared), spec, engine)
    assert caught.value.exit_code == EXIT_REFUSED
    assert "site own" in caught.value.where
    return caught.value


def test_one_that_has_the_framework_may_be_used_and_is_recorded() -> None:
    own = site(sys.executable)
    own_python.refuse(own, SPEC, "maxtext")
    about = own_python.origin(own, SPEC, "maxtext")
    assert (about["python"], about["python_version"]) == (sys.executable, platform.python_version())
    assert " msgspec==" in str(about["packages"])
    digest, text = of_environment(about, {})
    assert digest != of_environment({**about, "packages_sha256": "0"}, {})[0]
    assert sys.executable in text


def test_each_engine_may_have_its_own() -> None:
    of_each = {"maxtext": sys.executable}
    own_python.refuse(site(of_each), SPEC, "maxtext")
    error = refusal(of_each, engine="nemo")
    assert "has no Python for engine 'nemo'" in error.what
    assert "maxtext" in error.why


def test_what_is_no_program_of_the_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for path in (tmp_path / "none", tmp_path, tmp_path / "text"):
        assert "is not executable" in refusal(path).what
    error = refusal(sys.executable, str(tmp_path))
    assert "is not in a shared" in error.what
    assert str(tmp_path) in error.why


def test_a_virtual_environment_on_a_shared_folder_may_link_to_each_nodes_own_python(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    own_python.refuse(site(str(tmp_path / "python"), str(tmp_path)), SPEC, "maxtext")


def test_one_without_the_framework_is_refused_with_what_it_has() -> None:
    error = refusal(sys.executable, spec=NONE_SUCH)
    assert "cannot run 'maxtext'" in error.what
    assert "has no module 'no_such_framework'" in error.what
    assert " packages" in error.why
    assert "--python=PATH" in error.why


def test_one_whose_framework_sees_no_gpu_is_refused_for_a_gpu() -> None:
    """All packages of this Python are known, but it has no plugin of jax."""
    on_cpu, on_gpu = (
        msgspec.structs.replace(find_backend("jax").environment("maxtext", there), import_check="json")
        for there in ("cpu", "cuda")
    )
    own_python.refuse(site(sys.executable), on_cpu, "maxtext")
    error = refusal(sys.executable, spec=on_gpu)
    assert "need one of the packages jax-cuda12-plugin, jax-cuda13-plugin" in error.what
    with_one = msgspec.structs.replace(on_gpu, gpu_packages=("jax-cuda12-plugin", "msgspec"))
    own_python.refuse(site(sys.executable), with_one, "maxtext")


def test_a_program_that_is_no_python_is_refused(tmp_path: Path) -> None:
    """Such as a script that loads a module, but does not start a Python with its arguments."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho module loaded\n")
    script.chmod(0o755)
    with pytest.raises(RequestError, match="does not answer") as caught:
        own_python.refuse(msgspec.structs.replace(site(str(script)), slurm=None), SPEC, "maxtext")
    assert "module loaded" in caught.value.why


def test_one_that_does_not_run_here_is_left_to_the_jobs_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with an arm64 interpreter on an amd64 login node: the kernel refuses it, and the nodes may not."""
    foreign = tmp_path / "python"
    foreign.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xf3\x00" + bytes(64))
    foreign.chmod(0o755)
    own = site(str(foreign))
    own_python.refuse(own, SPEC, "maxtext")
    assert "the first phase of the job checks" in capsys.readouterr().err
    with pytest.raises(RequestError, match="does not answer"):  # without a job, it must run here
        own_python.refuse(msgspec.structs.replace(own, slurm=None), SPEC, "maxtext")
    about = own_python.origin(own, SPEC, "maxtext")
    assert about["python_version"] is None
    assert "does not run on this machine" in str(about["not_asked"])
