"""Make NeMo and Megatron train on a CPU: redirect their requests for a CUDA device to the CPU.

NeMo 2.x, Megatron-Bridge and Megatron-core call torch.cuda.current_device(), .to("cuda"), streams and pinned memory
without checking for a GPU. This module does not replace code of models, optimizers, losses or loops. If CUDA is
available, `install` does nothing. Each replacement for Bridge is used only if the environment lacks the original.
"""

import builtins
import contextlib
import importlib.util
import sys
import types

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import cpp_extension

CPU = torch.device("cpu")
NOTE = "requests for a CUDA device received the CPU instead"


def install():
    """Install the redirect unless CUDA is available, and return whether it is installed."""
    if torch.cuda.is_available():
        return False
    answers = {
        "current_device": lambda: CPU,
        "set_device": lambda _device: None,
        "synchronize": lambda *_a, **_k: None,
        "current_stream": lambda *_a, **_k: _Stream(),
        "default_stream": lambda *_a, **_k: _Stream(),
        "stream": lambda _stream: contextlib.nullcontext(),
        "LongTensor": torch.LongTensor,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.cuda.Stream = torch.cuda.Event = _Stream
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_a, **_k: None
    torch.nn.Module.cuda = lambda module, device=None: module  # noqa: ARG005
    cpp_extension.load_inline = _nothing_to_compile_for
    CudaToCpu().__enter__()
    return True


def _nothing_to_compile_for(*_args, **_kwargs):
    """Raise an error when Megatron-core compiles CUDA code on import, so that it continues without that code."""
    raise RuntimeError("CUDA is not available")


class CudaToCpu(TorchFunctionMode):
    """Redirects torch calls that name a CUDA device or pinned memory. All other calls run unchanged."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if _names_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        if func is torch.Tensor.to and len(args) > 1 and _names_cuda(args[1]):
            args = (args[0], CPU, *args[2:])
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            # Megatron-core only clips gradients of tensors whose type contains `cuda`.
            return func(*args).replace("torch.", "torch.cuda.", 1)
        return func(*args, **kwargs)


def _names_cuda(device):
    return (isinstance(device, str) and device.split(":")[0] == "cuda") or (
        isinstance(device, torch.device) and device.type == "cuda"
    )


class _Stream:
    """Replaces CUDA's streams and events. On a CPU, a call returns when its work is done, so nothing has to wait."""

    device = CPU
    cuda_stream = 0

    def __init__(self, *_args, **_kwargs):
        pass

    def _do_nothing(self, *_args, **_kwargs):
        return None

    wait_stream = wait_event = synchronize = record = wait = _do_nothing

    def record_event(self, *_args):
        return _Stream()

    def query(self):
        return True


# --- Megatron-Bridge 0.6 without Transformer Engine, without CUDA, or outside of its container ----------------------


def before_bridge():
    """Replace missing packages that Bridge imports without a check. Call this before Bridge is imported."""
    if not importlib.util.find_spec("transformer_engine"):
        _answer_the_import_of_transformer_engine()
    if not importlib.util.find_spec("nvidia_resiliency_ext"):
        # pretrain.py imports a class of this package for a type hint. The wheel needs a newer glibc than Debian 12's.
        package, inprocess = (types.ModuleType(f"nvidia_resiliency_ext{end}") for end in ("", ".inprocess"))
        package.__path__, package.inprocess = [], inprocess
        inprocess.CallWrapper = type("CallWrapper", (), {})
        sys.modules.update({module.__name__: module for module in (package, inprocess)})


def _answer_the_import_of_transformer_engine():
    """Replace Transformer Engine only for peft/lora_layers.py. Megatron-core checks whether it is installed."""
    real = builtins.__import__

    def imported(name, *rest, **named):
        importer = (rest[0] if rest else {}) or {}
        if name == "transformer_engine.pytorch" and importer.get("__name__") == "megatron.bridge.peft.lora_layers":
            return _NoTransformerEngine
        return real(name, *rest, **named)

    builtins.__import__ = imported


class _Absent(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class _NoTransformerEngine(metaclass=_Absent):
    """Replaces transformer_engine.pytorch and each class in it. No object is an instance of it."""


def adapt_bridge(on_cpu):
    """Adapt Bridge to its environment. Call this after Bridge is imported."""
    from megatron.bridge.peft import utils
    from megatron.bridge.training import initialize, setup

    if not importlib.util.find_spec("transformer_engine"):
        # Megatron-core sets the names of Transformer Engine's classes to None, but Bridge uses them as classes.
        utils.HAVE_TE = False
    with contextlib.suppress(ImportError):
        from megatron.core.datasets import helpers_cpp  # noqa: F401

        # Bridge runs `make` for these helpers and exits if it fails. The wheel has them compiled, but no Makefile.
        initialize.compile_helpers = lambda: None
    if on_cpu:
        # Bridge does not pass this option to Megatron.
        started = initialize.initialize_megatron
        setup.initialize_megatron = lambda *a, **k: started(*a, **{**k, "allow_no_cuda": True})
        fork_no_random_state()


def fork_no_random_state():
    """Replace Megatron's random state, which needs CUDA, with one that does nothing. Dropout must be off."""
    from megatron.core.tensor_parallel.random import initialize_rng_tracker

    initialize_rng_tracker(use_te_rng_tracker=False, inference_rng_tracker=True, force_reset=True)
