"""Print the version and packages of a Python, in an image or named by a site, as one line of JSON.

    python_check.py MODULE...

Modules are searched but not imported, because some frameworks need a GPU to import. Uses only the standard library.
"""

import sys

del sys.path[0]  # this folder, whose modules belong to the launcher

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
        if name:  # an interrupted pip can leave a distribution without a name
            yield name.lower(), distribution.version


if __name__ == "__main__":
    main(sys.argv[1:])
