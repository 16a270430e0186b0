"""Put the checkout on the import path. A launch script that is run by path imports this module first.

If this Python lacks Stepmark's dependencies, this module restarts the script with the Python in the checkout's
`.venv`. Without a `.venv`, it shows the command that makes it. This module imports only the standard library.
"""

import importlib.util
import os
import sys
from pathlib import Path

NEEDED = ("absl", "jinja2", "matplotlib", "msgspec", "numpy", "rich", "scipy", "tensorboard", "yaml")
CHECKOUT = Path(__file__).resolve().parents[1]


def start() -> None:
    sys.path[0] = str(CHECKOUT)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return
    venv_python = CHECKOUT / ".venv" / "bin" / "python"
    if venv_python.exists() and Path(sys.prefix).resolve() != (CHECKOUT / ".venv").resolve():
        os.execv(venv_python, [str(venv_python), *sys.argv])
    print(
        f"stepmark: {sys.executable} lacks {', '.join(missing)}\n"
        "  why:   Stepmark's launcher needs a few packages\n"
        f"  next:  make -C {CHECKOUT} install"
        f"     # or: python -m pip install -e {CHECKOUT}",
        file=sys.stderr,
    )
    sys.exit(2)


start()
