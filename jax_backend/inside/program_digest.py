"""Compute a digest of the training step's StableHLO, which jax passes to XLA's compiler.

The worker loads this module by path inside MaxText's environment. It hooks the function by which jax passes the
lowered step to the compiler, so nothing is traced or lowered twice. Source locations are excluded: with the same jax
and jaxlib, equal programs have equal digests in any folder and on any machine. MaxText compiles the learning rate
schedule into the step, so the digest depends on the number of steps. It does not depend on XLA's flags. The hooked
function is not public. If jax does not have it, the run continues without a digest, and `notes` returns the reason.
"""

import functools
import hashlib
import importlib
import re
from types import SimpleNamespace

STEP = "train_step"  # part of the module's name, to which jax adds jit_
COMPILER, PLACE = "jax._src.compiler", "compile_or_get_cached"  # its arguments are (backend, computation, ...)


class ProgramDigest:
    """Sets `sha256` when jax compiles the step: before the first step, or later if jax profiles the first steps."""

    def __init__(self):
        self.sha256 = None
        self.on_found = None  # called with the digest if jax compiles the step after the first step has started
        self._problem = f"no program named {STEP} was compiled"

    def listen(self, compiler=None):
        """Start listening. Call this before MaxText is set up."""
        try:
            compiler = compiler or importlib.import_module(COMPILER)
            compile_program = getattr(compiler, PLACE)
        except (ImportError, AttributeError) as error:
            self._problem = repr(error)
            return

        @functools.wraps(compile_program)
        def compile_and_look(*arguments, **named):
            if self.sha256 is None:
                self._look_at(arguments, named)
            return compile_program(*arguments, **named)

        setattr(compiler, PLACE, compile_and_look)

    def notes(self):
        return [] if self.sha256 else [f"the training step has no digest: {self._problem[:200]}"]

    def _look_at(self, arguments, named):
        try:
            operation = (named["computation"] if "computation" in named else arguments[1]).operation
            if STEP not in str(operation.attributes["sym_name"]):
                return
            self.sha256 = of_lowered(operation)
        except Exception as error:  # a missing digest must not end the run
            self._problem = repr(error)
            return
        if self.on_found:
            self.on_found(self.sha256)


def of_lowered(operation):
    lines = _Lines()
    operation.print(file=SimpleNamespace(write=lines.write), binary=True, enable_debug_info=False)
    return lines.hexdigest()


class _Lines:
    """A digest of a text, computed line by line, because the whole text of a large model's step needs much memory."""

    # jax names a kernel with custom partitioning, such as cuDNN's attention, after its address in this process.
    ADDRESS = re.compile(rb'(@CustomSPMDPartitioning\(.*backend_config = ")\d+"')

    def __init__(self):
        self._digest, self._rest = hashlib.sha256(), b""

    def write(self, text):
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            self._take(line + b"\n")

    def hexdigest(self):
        self._take(self._rest)
        return self._digest.hexdigest()

    def _take(self, line):
        self._digest.update(self.ADDRESS.sub(rb'\1"', line))
