"""Says what a Python is and has, as one line of JSON: run by the Python of a container's image, or by one that a site
names.   python_check.py MODULE...

Modules are looked for and not imported: frameworks want a GPU for that, which the node that asks may not have. On the
standard library alone, for any Python 3.
"""

import sys

del sys.path[0]  # this folder: its modules are the launcher's

import importlib.util  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
from importlib import metadata  # noqa: E402


def main(modules):
    found = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "packages": dict(sorted(packages())),
        "missing": [module for module in modules if importlib.util.find_spec(module) is None],
    }
    print(json.dumps(found))


def packages():
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a folder that an interrupted pip left has none
            yield name.lower(), distribution.version


if __name__ == "__main__":
    main(sys.argv[1:])
