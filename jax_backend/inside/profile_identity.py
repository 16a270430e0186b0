"""Check before training whether a profile belongs to this program.

XLA matches a profile to a program only by the names of instructions, such as `fusion.12`, which every program has.
It therefore accepts the profile of another model. So Stepmark stores the profiled program's inputs with the profile,
and compares them with this program's inputs. This module imports only the standard library; it can be loaded by path.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Settings of MaxText that change no instruction: the number of steps, the recorded data, and the output folders.
# (The number of steps changes the learning rate's schedule, which changes numbers in the program, not instructions.)
OTHER_SETTINGS = (
    "steps", "run_name", "base_output_directory", "jax_cache_dir", "log_period", "log_config", "metrics_file",
    "profiler", "skip_first_n_steps_for_profiler", "upload_all_profiler_results", "profile_cleanly",
    "profile_periodically_period", "profile_power_events", "hide_profiler_step_metric", "enable_jax_profiler",
    "jax_profiler_port", "jax_debug_log_modules", "enable_tensorboard", "enable_goodput_recording",
    "monitor_goodput", "skip_jax_distributed_system", "dump_hlo", "dump_jaxpr",
)  # fmt: skip

# Packages that do not affect the program. (On a GPU, XLA is in the pjrt plugin and not in jaxlib.)
OTHER_PACKAGES = ("python", "numpy", "orbax-checkpoint")

# XLA flags that intentionally differ between the profiled phase and the phase that uses the profile. XLA decides
# about CUDA graphs after it has chosen the names and the order of instructions.
OTHER_FLAGS = (
    "xla_gpu_enable_latency_hiding_scheduler", "xla_gpu_disable_async_collectives", "xla_gpu_enable_command_buffer",
    "xla_gpu_pgle_profile_file_or_directory_path", "xla_gpu_pgle_accuracy_checker", "xla_dump_",
)  # fmt: skip

CANNOT_BE_USED = "the profile cannot be used"
SHOWN = 5


def first_few(names: Sequence[str]) -> str:
    """Return a text with the first names and the number of the remaining names."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def identity(
    argv: Iterable[str],
    versions: Mapping[str, str],
    mesh: Mapping[str, int],
    device_kind: str | None,
    devices: int | None,
    xla_flags: str,
) -> dict[str, Any]:
    """Return all inputs that must be the same for a profile to be valid, as values for JSON."""
    return {
        **_excluding(dict(word.partition("=")[::2] for word in argv), OTHER_SETTINGS),
        **_excluding(versions, OTHER_PACKAGES),
        **{f"the mesh's {axis}": size for axis, size in sorted(mesh.items())},
        "the device": device_kind,
        "the number of devices": devices,
        **{f"XLA's flag {name}": value for name, value in _excluding(flags_of(xla_flags), OTHER_FLAGS).items()},
    }


def _excluding(values: Mapping[str, Any], beginnings: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in sorted(values.items()) if not name.startswith(beginnings)}


def of_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity from a worker's facts."""
    names = ("argv", "versions", "mesh", "device_kind", "device_count", "xla_flags")
    return identity(*(facts[name] for name in names))


def flags_of(text: str) -> dict[str, str]:
    """Parse "--xla_a=b --xla_c" to {"xla_a": "b", "xla_c": "true"}. XLA uses the last value of a repeated flag."""
    parts = (word.lstrip("-").partition("=") for word in text.split())
    return {name: value if given else "true" for name, given, value in parts}


def differences(made_by: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe each difference between the profiled program and this one."""
    return [
        f"{name} is {now.get(name)!r} in this run, but {made_by.get(name)!r} in the profile"
        for name in {**now, **made_by}
        if now.get(name) != made_by.get(name)
    ]


def check(profile_json: str | Path, now: Mapping[str, Any]) -> str | None:
    """Return why the program with the identity `now` cannot use the profile next to profile_json; None if it can."""
    path = Path(profile_json)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        whole = hashlib.sha256(path.with_name("profile.pbtxt").read_bytes()).hexdigest() == stored["sha256"]
        found = differences(stored["made_by"], now)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{CANNOT_BE_USED}: {error!r}; XLA would ignore it without a message"
    if not whole:
        return f"{CANNOT_BE_USED}: profile.pbtxt does not belong to {path}"
    return f"{CANNOT_BE_USED}: it belongs to a different program: {first_few(found)} ({path})" if found else None
