"""Lets NeMo and Megatron train on a CPU: their requests for a CUDA device are answered with the CPU.

NeMo 2.x and Megatron-core ask for torch.cuda.current_device(), .to("cuda"), streams and pinned memory
without asking whether there is a GPU. No model, optimizer, loss or loop code is replaced here, and where
CUDA exists nothing is done at all. Loaded by worker.py, inside NeMo's environment.
"""

import contextlib

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import cpp_extension

CPU = torch.device("cpu")
NOTE = "requests for a CUDA device were answered with the CPU"


def install():
    """Whether the redirect is active: never where CUDA exists."""
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
    """Fail the compilation of CUDA code that Megatron-core tries on import; it continues without that code."""
    raise RuntimeError("there is no CUDA here")


class CudaToCpu(TorchFunctionMode):
    """Sees every call of a torch function, and changes nothing but the device it names."""

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
    """A stream or an event of a device without streams: all work is done when a call returns."""

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
