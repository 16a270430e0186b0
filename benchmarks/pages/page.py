"""Parts -> one HTML file that needs nothing besides: no network, no script. The templates lie beside this file."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.version import VERSION

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

HERE = Path(__file__).parent


class Part(NamedTuple):
    """A report as it stands on a page; `key` is its own there, and begins all names inside it."""

    key: str
    title: str
    kind: str  # run, comparison, night, sweep
    html: "Markup"


def page(parts: Sequence[Part]) -> str:
    """One file for one or several reports; several have a list of contents."""
    title = parts[0].title if len(parts) == 1 else f"{len(parts)} reports"
    css = (HERE / "page.css").read_text(encoding="utf-8")
    text = str(render("page.html.j2", title=title, parts=parts, css=css, version=VERSION))
    return text.encode(errors="backslashreplace").decode()  # a file's name may hold what no text can


def render(template: str, **values: Any) -> "Markup":
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(**values))


@cache
def _environment() -> "Environment":
    """What is not said is an error, and all that is said is escaped."""
    import jinja2  # takes 30 ms: only who makes a page waits for it

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
