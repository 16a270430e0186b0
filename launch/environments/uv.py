"""uv's command, its variables on this machine, and the Pythons that it finds."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

Version = tuple[int, int]

# A setting of pip (pip.conf, PIP_*) -> the equivalent variable of uv.
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
DEFAULTS = {
    "UV_NO_WRAP": "1",  # making.py searches uv's output for whole lines
    "UV_PYTHON_DOWNLOADS": "never",  # the user decides which Pythons to install
    "UV_INDEX_STRATEGY": "unsafe-best-match",  # search all indexes, like pip; the hashes make that safe
}
# Variables that would install packages outside the environment, or contradict its lock file.
UNWANTED = re.compile(
    "PYTHONPATH|PYTHONHOME|VIRTUAL_ENV|UV_(CONSTRAINT|OVERRIDE|EXCLUDE|EXCLUDE_NEWER|BUILD_CONSTRAINT|PRERELEASE|"
    "REQUIRE_HASHES|NO_VERIFY_HASHES|NO_BINARY|NO_BINARY_PACKAGE|NO_BUILD|NO_BUILD_PACKAGE|TORCH_BACKEND|"
    "SYSTEM_PYTHON|PYTHON|PROJECT|WORKING_DIR|VENV_SEED|VENV_CLEAR|VENV_RELOCATABLE)"
)


def command(*words: str) -> list[str]:
    """Return a command of the uv that is installed with the launcher."""
    from uv import find_uv_bin

    return [find_uv_bin(), "--color=never", *words]


def variables(pip: dict[str, str]) -> dict[str, str]:
    """Return the variables for uv, translated from pip's settings; the user's own variables have priority."""
    translated = {OF_PIP[name]: " ".join(value.split()) for name, value in pip.items() if name in OF_PIP}
    if "UV_FIND_LINKS" in translated:
        translated["UV_FIND_LINKS"] = translated["UV_FIND_LINKS"].replace(" ", ",")
    kept = {name: value for name, value in os.environ.items() if not UNWANTED.fullmatch(name)}
    return DEFAULTS | translated | kept | {"PYTHONUNBUFFERED": "1"}


def without_index(pip: dict[str, str]) -> list[str]:
    """Return uv's option for pip's setting no-index, for which uv does not have a variable."""
    return ["--no-index"] if pip.get("no-index", "0").lower() in ("1", "true", "yes", "on", "y", "t") else []


def pip_settings() -> dict[str, str]:
    """Return pip's settings on this machine, from its files and then from its variables."""
    command = [sys.executable, "-I", "-m", "pip", "config", "list"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.+)$", asked.stdout, re.MULTILINE):
            found[name] = str(ast.literal_eval(value))
    return {name: value for name, value in found.items() if value}


# --- Pythons ----------------------------------------------------------------------------------


def find_pythons(versions: Iterable[Version]) -> dict[Version, Path]:
    """Return one installed Python per version, from the launcher, PATH, uv or pyenv. Do not download any."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    of_pyenv = sorted(map(str, pyenv.glob("versions/*/bin")), reverse=True)
    search = os.pathsep.join([f"{sys.base_prefix}/bin", os.environ.get("PATH", ""), *of_pyenv])
    environment = variables({}) | {"PATH": search}
    found = {}
    for major, minor in versions:
        asking = command("python", "find", "--system", f"cpython@{major}.{minor}")
        # In "/", because uv obeys uv.toml in this folder and those above, which another user may have made.
        asked = subprocess.run(asking, env=environment, cwd="/", capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            found[major, minor] = Path(asked.stdout.strip())
    return found
