"""How uv is started: with the person's own variables, and their settings of pip in uv's words."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from benchmarks.errors import RequestError

# A setting of pip (pip.conf, PIP_*) -> the variable by which uv takes the same.
OF_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
}
REMOTE = re.compile(r"https?://")
DEFAULTS = {
    "UV_NO_WRAP": "1",  # its words are searched
    "UV_PYTHON_DOWNLOADS": "never",  # Pythons are the person's to install
    "UV_INDEX_STRATEGY": "unsafe-best-match",  # all indexes are asked, as pip asks them; the hashes are proved
}
# What would send packages elsewhere than into the environment, or contradict its lock file.
UNWANTED = re.compile(
    "PYTHONPATH|PYTHONHOME|VIRTUAL_ENV|UV_(CONSTRAINT|OVERRIDE|EXCLUDE|EXCLUDE_NEWER|BUILD_CONSTRAINT|PRERELEASE|"
    "REQUIRE_HASHES|NO_VERIFY_HASHES|NO_BINARY|NO_BINARY_PACKAGE|NO_BUILD|NO_BUILD_PACKAGE|TORCH_BACKEND|"
    "SYSTEM_PYTHON|PYTHON|PROJECT|WORKING_DIR|VENV_SEED|VENV_CLEAR|VENV_RELOCATABLE)"
)


def uv(*words: str) -> list[str]:
    """The command that starts the uv installed beside the launcher."""
    from uv import find_uv_bin

    return [find_uv_bin(), "--color=never", *words]


def variables(pip: dict[str, str]) -> dict[str, str]:
    """What uv is started with where pip's settings are these; the person's own variables win."""
    translated = {OF_PIP[name]: _in_uvs_words(name, value) for name, value in pip.items() if name in OF_PIP}
    kept = {name: value for name, value in os.environ.items() if not UNWANTED.fullmatch(name)}
    return DEFAULTS | {name: value for name, value in translated.items() if value} | kept | {"PYTHONUNBUFFERED": "1"}


def without_index(pip: dict[str, str]) -> list[str]:
    """uv's option for pip's no-index, for which it has no variable."""
    return ["--no-index"] if pip.get("no-index", "0").lower() in ("1", "true", "yes", "on", "y", "t") else []


def pip_settings() -> dict[str, str]:
    """pip's settings on this machine: of its files, then of its variables."""
    files = _pip_config_list()
    of_variables = {n[4:].lower().replace("_", "-"): v for n, v in os.environ.items() if n.startswith("PIP_") and v}
    return files.get("global", {}) | files.get("install", {}) | of_variables


def _pip_config_list() -> dict[str, dict[str, str]]:
    command = [sys.executable, "-I", "-m", "pip", "config", "list"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode != 0 and "No module named pip" not in asked.stderr:
        raise RequestError(
            "pip's settings cannot be read",
            where=" ".join(asked.stderr.split())[:300],
            why="the package index of this machine is named there",
            next_command=f"{sys.executable} -m pip config debug",
        )
    found: dict[str, dict[str, str]] = {}
    for section, name, value in re.findall(r"^(global|install)\.([\w-]+)=(.+)$", asked.stdout, re.MULTILINE):
        found.setdefault(section, {})[name] = str(ast.literal_eval(value))
    return found


def _in_uvs_words(name: str, value: str) -> str:
    if name != "find-links":
        return " ".join(value.split())
    places = [place if REMOTE.match(place) else _folder(place) for place in value.split()]
    return ",".join(place for place in places if place)


def _folder(place: str) -> str:
    """A folder of this machine; none where it is not there: uv fails then, where pip warns."""
    path = Path(unquote(urlsplit(place).path) if place.startswith("file:") else place).expanduser().absolute()
    return str(path) if path.exists() else ""
