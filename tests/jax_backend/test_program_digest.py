"""The digest of what jax compiles, on a stand-in for the place where it does; the real one is end to end."""

import hashlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jax_backend.inside import program_digest
from jax_backend.inside.program_digest import ProgramDigest


class Module:
    """An MLIR module: its text has locations only where they are asked for."""

    def __init__(self, name: str, text: str = "stablehlo.add", broken: bool = False) -> None:
        self.text, self.broken = text, broken
        self.operation = SimpleNamespace(attributes={"sym_name": f'"{name}"'}, print=self._print)

    def _print(self, file: Any, binary: bool, enable_debug_info: bool) -> None:
        assert binary
        if self.broken:
            raise RuntimeError("no printer")
        for word in (self.text, 'loc("/home/me/train.py")' if enable_debug_info else ""):
            file.write(word.encode())


def compiler_that(compiled: list[Any]) -> SimpleNamespace:
    def compile_or_get_cached(backend: str, computation: Any, *_rest: Any, **_named: Any) -> str:
        compiled.append(computation)
        return f"executable on {backend}"

    return SimpleNamespace(compile_or_get_cached=compile_or_get_cached)


@pytest.fixture
def compiler() -> Any:
    return compiler_that([])


def test_the_step_is_found_among_all_that_is_compiled_and_nothing_is_changed(compiler: Any) -> None:
    digest = ProgramDigest()
    digest.listen(compiler)
    assert compiler.compile_or_get_cached("cpu", Module("jit_init"), "devices") == "executable on cpu"
    assert (digest.sha256, len(digest.notes())) == (None, 1)
    assert compiler.compile_or_get_cached("cpu", Module("jit_train_step"), "devices") == "executable on cpu"
    assert digest.sha256 == hashlib.sha256(b"stablehlo.add").hexdigest()
    assert digest.notes() == []


def test_the_step_stays_what_was_compiled_first(compiler: Any) -> None:
    """With PGLE jax compiles it once more; the program is the same, what XLA makes of it is not."""
    digest = ProgramDigest()
    digest.listen(compiler)
    compiler.compile_or_get_cached("cpu", computation=Module("jit_train_step"))
    compiler.compile_or_get_cached("cpu", Module("jit_train_step", "another"))
    assert digest.sha256 == hashlib.sha256(b"stablehlo.add").hexdigest()


def test_a_digest_that_comes_late_is_told_once(compiler: Any) -> None:
    digest, told = ProgramDigest(), list[str]()
    digest.listen(compiler)
    digest.on_found = told.append
    compiler.compile_or_get_cached("cpu", Module("jit_train_step"))
    compiler.compile_or_get_cached("cpu", Module("jit_train_step"))
    assert told == [digest.sha256]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Module("jit_train_step", broken=True), "RuntimeError: no printer"),
        (None, "AttributeError: 'NoneType' object has no attribute 'operation'"),
        (Module("jit_init"), "no program named train_step was compiled"),
    ],
)
def test_a_program_that_cannot_be_looked_at_is_compiled_all_the_same(module: Any, words: str) -> None:
    compiled: list[Any] = []
    digest, compiler = ProgramDigest(), compiler_that(compiled)
    digest.listen(compiler)
    compiler.compile_or_get_cached("cpu", module)
    assert (compiled, digest.sha256) == ([module], None)
    assert digest.notes() == [f"the training step has no digest: {words}"]


def test_a_jax_that_has_moved_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    without_place = ProgramDigest()
    without_place.listen(SimpleNamespace(compiles="elsewhere"))
    assert "has no attribute 'compile_or_get_cached'" in without_place.notes()[0]
    monkeypatch.setitem(sys.modules, program_digest.COMPILER, None)
    without_module = ProgramDigest()
    without_module.listen()
    assert "ModuleNotFoundError" in without_module.notes()[0]
