"""Identify what all runs of one series share: the benchmark, the environment and the machine. No I/O.

Each of them has a digest to compare and a text to show. The benchmark's digest ignores what does not change the
work: sources and dates, peaks, the recipe's name, the spelling of --set, the site, and an injected slowdown. It also
ignores empty and disabled settings, so that a setting that a later version adds does not change the digest.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

KINDS = ("benchmark", "environment", "machine")
NO_WORK = ("site", "recipe", "overrides", "measured_peaks", "inject_slowdown", "pgle_profile", "image")
NO_WORK_OF_MODEL = ("source", "date", "max_sequence_length")
SHOWN_DIGITS = 7

_ENCODER = msgspec.json.Encoder(order="deterministic")


def definition(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of benchmark.json that determines what is trained and measured."""
    kept = {name: value for name, value in benchmark.items() if name not in NO_WORK}
    model = {name: value for name, value in benchmark["model"].items() if name not in NO_WORK_OF_MODEL}
    own = model.pop("backend_settings", {})
    kept["model"] = {**model, "settings": own.get(benchmark["backend"])}
    kept["hardware"] = benchmark["hardware"]["name"]
    # Runs of versions without the axis of experts have no such size.
    kept["parallelism"] = {axis: size for axis, size in kept["parallelism"].items() if (axis, size) != ("expert", 1)}
    pruned = _without_empty(kept)
    return dict(pruned) if pruned else {}


def digest(value: object) -> str:
    return hashlib.sha256(_ENCODER.encode(value)).hexdigest()


def of_benchmark(benchmark: Mapping[str, Any]) -> tuple[str, str]:
    """Return the digest of a benchmark's definition, and its first digits as text."""
    found = digest(definition(benchmark))
    return found, found[:SHOWN_DIGITS]


def of_environment(environment: Mapping[str, Any], site_variables: Mapping[str, str]) -> tuple[str, str]:
    """Return a digest and a text for the software (lock file, image or packages) and the site's variables."""
    if environment.get("lock_sha256"):
        sha = str(environment["lock_sha256"])
        text = f"{environment.get('lock_file') or environment.get('name') or 'lock file'} {sha[:SHOWN_DIGITS]}"
        what: object = ["lock", sha]
    elif environment.get("image"):
        # Its content, or its size and date, identify an image file. Its path does not: a copy has the same digest.
        sha, size = str(environment.get("image_digest") or ""), environment.get("file_bytes")
        written = environment.get("file_written")
        file = f"{size} bytes of {written}" if size else "file unknown"
        text = f"{environment['image']} ({sha.rpartition(':')[2][:SHOWN_DIGITS] or file})"
        what = ["image", environment["image"], *([sha] if sha else [str(size), str(written)])]
    elif environment.get("packages_sha256"):
        sha = str(environment["packages_sha256"])
        text = f"{environment.get('python') or 'python'} ({sha[:SHOWN_DIGITS]})"
        what = ["packages", sha]
    else:
        text, what = "unknown", ["unknown"]
    if site_variables:
        shown = digest(dict(site_variables))[:SHOWN_DIGITS]
        text += f", {len(site_variables)} variables of the site ({shown})"
    return digest([what, dict(site_variables)]), text


def of_machine(parts: Sequence[tuple[str, object]]) -> tuple[str, str]:
    """Return a digest and a text for the machine from (name, value) pairs. Unknown values are ignored."""
    known = [(name, value) for name, value in parts if value not in (None, "")]
    return digest([[name, value] for name, value in known]), ", ".join(f"{name} {value}" for name, value in known)


def _without_empty(value: Any) -> Any:
    """Return the value without entries of dictionaries that are null, false, zero or empty. Lists are unchanged."""
    if isinstance(value, dict):
        inner = {name: _without_empty(one) for name, one in value.items()}
        return {name: one for name, one in inner.items() if one}
    return value
