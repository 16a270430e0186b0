"""Documents with parts that scripts make: <!-- NAME --> to <!-- end of NAME -->."""

from pathlib import Path


def replace_part(document: Path, name: str, text: str) -> None:
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = document.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"{document.name} lacks the markers of '{name}'")
    document.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
