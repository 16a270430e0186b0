"""Make the pictures of commands: they run here, and their output becomes an SVG.

.venv/bin/python docs/make_pictures.py [NAME ...]
"""

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURES = REPOSITORY / "docs" / "pictures"
LOGS = REPOSITORY / "tests" / "nemo_backend" / "logs"  # what the report is made of
COLUMNS = 118
MOST_LINES = 44

COMMANDS = {
    "equivalence": "launch/verify.py --equivalence --model=llama2_tiny",
    "report": "launch/report.py timing --window=2-8 logs",
}


def printed(command: str, folder: str) -> list[str]:
    """Return the lines of standard error, which has the progress, and then those of standard output."""
    words = command.split()
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / words[0]), *words[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
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
    PICTURES.mkdir(parents=True, exist_ok=True)
    unknown = set(sys.argv[1:]) - set(COMMANDS)
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; pictures: {', '.join(COMMANDS)}")
    for name in sys.argv[1:] or COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(LOGS, f"{folder}/logs")
            (PICTURES / f"{name}.svg").write_text(picture(COMMANDS[name], printed(COMMANDS[name], folder)))
        print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
