"""The digest of what jax compiles, with a substitute for its compiler; the real one is tested end to end."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jax_backend.inside import program_digest
from jax_backend.inside.program_digest import ProgramDigest


class Module:
    """An MLIR module: its text has locations only on request."""

    def __init__(self, name: str, text: str = "stablehlo.add", broken: bool = False) -> None:
        self.text, self.broken = text, broken
        self.operation = SimpleNamespace(attributes={"sym_name": f'"{name}"'}, print=self._print)

    def _print(self, file: Any, binary: bool, enable_debug_info: bool) -> None:
        assert binary
        if self.broken:
            raise RuntimeError("no printer")
        for word in (self.text, 'loc("/home/me/train.py")' if enable_debug_info else ""):
            file.write(word.encode())


def looked(*modules: Any) -> tuple[Any, list[str], list[Any]]:
    """Return the digest of modules compiled in this order, its events, and what reached the compiler."""
    compiled: list[Any] = []

    def compile_or_get_cached(backend: str, computation: Any) -> str:
        compiled.append(computation)
        return f"executable on {backend}"

    compiler = SimpleNamespace(compile_or_get_cached=compile_or_get_cached)
    digest, messages = ProgramDigest(), list[str]()
    digest.listen(compiler)
    digest.on_found = messages.append
    for number, module in enumerate(modules):
        given = {"computation": module} if number % 2 else {}
        assert compiler.compile_or_get_cached("cpu", *([] if given else [module]), **given) == "executable on cpu"
    return digest, messages, compiled


def test_a_kernel_that_jax_names_by_its_address_changes_nothing() -> None:
    """cuDNN's attention is such a one: without this, equal programs would differ in every process of a GPU's run."""
    text = (
        'x = 1\n%2 = stablehlo.custom_call @CustomSPMDPartitioning(%1) {backend_config = "%s", api_version = 2}\nend'
    )
    first, second, other = (text.replace("%s", at) for at in ("140581837118000", "140581702899792", "1"))
    digests = [looked(Module("jit_train_step", one))[0].sha256 for one in (first, second, other.replace("x", "y"))]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Module("jit_train_step", broken=True), "no printer"),
        (None, "has no attribute 'operation'"),
        (Module("jit_init"), "no program named train_step was compiled"),
    ],
)
def test_a_program_that_cannot_be_looked_at_is_compiled_all_the_same(module: Any, words: str) -> None:
    digest, messages, compiled = looked(module)
    assert (compiled, digest.sha256, messages) == ([module], None, [])
    assert words in digest.notes()[0]


def test_a_jax_that_has_moved_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    without_place = ProgramDigest()
    without_place.listen(SimpleNamespace(compiles="elsewhere"))
    assert "has no attribute 'compile_or_get_cached'" in without_place.notes()[0]
    monkeypatch.setitem(sys.modules, program_digest.COMPILER, None)
    without_module = ProgramDigest()
    without_module.listen()
    assert "ModuleNotFoundError" in without_module.notes()[0]
