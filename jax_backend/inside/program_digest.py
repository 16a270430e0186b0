"""What the training step is, in a digest: of its StableHLO as jax lowered it, before XLA makes anything of it.

Runs inside MaxText's environment, loaded by its path. It looks on where jax hands the lowered step to the compiler,
so nothing is traced or lowered twice. Source locations are left out: equal programs have equal digests whatever the
folder or the machine, as long as jax and jaxlib are the same, whose printer it is. MaxText's learning rate schedule
is compiled into the step, so runs of another number of steps have another digest; XLA's flags are not in it.

jax has no public name for that place. Where it is gone, or is called otherwise, the run goes on without a digest, and
`notes` says why.
"""

import functools
import hashlib
import importlib
from collections.abc import Callable
from typing import Any

STEP = "train_step"  # in the module's name; jax puts jit_ before it
COMPILER = "jax._src.compiler"
PLACE = "compile_or_get_cached"  # (backend, computation, ...)


class ProgramDigest:
    """`sha256` once the step is compiled: ahead of the first step, but where jax profiles its first steps itself."""

    def __init__(self) -> None:
        self.sha256: str | None = None
        self.on_found: Callable[[str], None] | None = None  # is told a digest that is found after this was set
        self._problem = f"no program named {STEP} was compiled"

    def listen(self, compiler: Any = None) -> None:
        """From now on; before MaxText is set up."""
        try:
            compiler = compiler or importlib.import_module(COMPILER)
            compile_program = getattr(compiler, PLACE)
        except (ImportError, AttributeError) as error:
            self._problem = words_of(error)
            return

        @functools.wraps(compile_program)
        def compile_and_look(*arguments: Any, **named: Any) -> Any:
            if self.sha256 is None:
                self._look_at(arguments, named)
            return compile_program(*arguments, **named)

        setattr(compiler, PLACE, compile_and_look)

    def notes(self) -> "list[str]":
        return [] if self.sha256 else [f"the training step has no digest: {self._problem}"]

    def _look_at(self, arguments: "tuple[Any, ...]", named: "dict[str, Any]") -> None:
        try:
            module = named["computation"] if "computation" in named else arguments[1]
            if STEP not in str(module.operation.attributes["sym_name"]):
                return
            self.sha256 = digest_of(module)
        except Exception as error:  # no digest is worth a run, whatever jax has in that place by then
            self._problem = words_of(error)
            return
        if self.on_found:
            self.on_found(self.sha256)


def words_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def digest_of(module: Any) -> str:
    """Streamed: the text of a large model's step is not held."""
    sink = Sink()
    module.operation.print(file=sink, binary=True, enable_debug_info=False)
    return sink.digest.hexdigest()


class Sink:
    """A file that keeps no more than a digest of what is written into it."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, text: bytes) -> None:
        self.digest.update(text)
