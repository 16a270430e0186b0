"""Makes the pictures of commands: they run here, and their output becomes an SVG.

.venv/bin/python docs/make_pictures.py [NAME ...]
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from launch.environments.venvs import environments_root  # noqa: E402

PICTURES = REPOSITORY / "docs" / "pictures"
LOGS = REPOSITORY / "tests" / "nemo_backend" / "logs"  # what the report is made of
COLUMNS = 118
MOST_LINES = 44

COMMANDS = {
    "equivalence": "launch/verify.py --equivalence --model=llama2_tiny",
    "report": "launch/report.py timing --window=2-8 logs",
}

# On a private cluster that is brought up and down around them, in this order.
ON_A_CLUSTER = {
    "cluster": "launch/cluster.py up --nodes=4",
    "doctor": "launch/doctor.py nodes --site=dev",
    "down": "launch/cluster.py down",
}


def printed(command: str, folder: str, **variables: str) -> list[str]:
    """Standard error first: that is where the progress goes, and it comes first."""
    words = command.split()
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / words[0]), *words[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **variables},
    )
    text = (
        (done.stderr + done.stdout).replace(str(REPOSITORY), ".").replace(folder, "~").replace(str(Path.home()), "~")
    )
    return text.splitlines()


def picture(command: str, lines: list[str]) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ python {command}", style="bold"))
    for line in lines[:MOST_LINES]:
        console.print(Text(line), soft_wrap=False)
    if len(lines) > MOST_LINES:
        console.print(Text(f"... and {len(lines) - MOST_LINES} more lines", style="dim"))
    svg = console.export_svg(title="Stepmark")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # no font is fetched from anywhere


def main() -> None:
    """All of them, or those that are named, of the ones that need no series."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:]
    unknown = set(wanted) - set(COMMANDS)
    if unknown:
        raise SystemExit(f"no picture of its own: {', '.join(sorted(unknown))}; there are: {', '.join(COMMANDS)}")
    for name, command in COMMANDS.items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(LOGS, f"{folder}/logs")
            (PICTURES / f"{name}.svg").write_text(picture(command, printed(command, folder)))
        print(f"docs/pictures/{name}.svg")
    if wanted:
        return
    with tempfile.TemporaryDirectory() as folder:
        made = environments_root()
        (Path(folder) / "home" / "environments").mkdir(parents=True)
        for place in made.glob("*-py3*"):
            (Path(folder) / "home" / "environments" / place.name).symlink_to(place)
        draw_on_a_cluster(folder, STEPMARK_HOME=f"{folder}/home")


def draw_on_a_cluster(folder: str, **variables: str) -> None:
    for name, command in ON_A_CLUSTER.items():
        lines = printed(command, folder, **variables)
        if name == "doctor":
            (PICTURES / f"{name}.svg").write_text(picture(command, lines))
            print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
