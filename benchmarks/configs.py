"""Reads configs/: one YAML file for each row. Checks are strict, and files are read only when they are needed.

Other capabilities read their rows with `Configs.row`; models, hardware, sites and recipes have methods here.

For a typo, the message names the file, the key, the expected value, and the nearest key.
benchmarks/request/resolve.py checks whether rows fit together (is there a recipe for this model?).
"""

import os
import re
import typing
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from benchmarks import files
from benchmarks.errors import RequestError, UnknownName, nearest
from benchmarks.secret_rules import is_secret_name, refuse_secrets
from benchmarks.values import Hardware, Model, Recipe, Site, Value, to_builtins

ROOT_VARIABLE = "STEPMARK_CONFIGS"
DEFAULT_ROOT = Path(__file__).resolve().parent.parent / "configs"

Kind = Literal["models", "hardware", "sites", "recipes", "assets", "suites", "mlperf", "submissions"]
SINGULAR: dict[Kind, str] = {
    "models": "model",
    "hardware": "hardware",
    "sites": "site",
    "recipes": "recipe",
    "assets": "list of assets",
    "suites": "suite",
    "mlperf": "MLPerf benchmark",
    "submissions": "MLPerf submission",
}

WHERE_TO_LOOK: dict[Kind, str] = {
    "suites": "python launch/nightly.py --list",
    "mlperf": "ls configs/mlperf",
    "sites": "python launch/setup.py --new_site=mycluster",
}

NOT_IN_SCOPE: dict[Kind, str] = {
    "models": "models are decoders with attention in every layer; hybrids such as Nemotron-H are not supported"
}

EXAMPLE = "example_"  # the prefix of sites that only serve as templates
OF_BACKEND = re.compile(r"^backend: (\w+)$", re.MULTILINE)  # finds a recipe's backend without parsing YAML

AnyValue = TypeVar("AnyValue", bound=Value)


class Configs:
    """The rows of one configs folder. Each file is read when it is first needed, and only once."""

    def __init__(
        self, root: Path | None = None, own_sites: Path | None = None, own_suites: Path | None = None
    ) -> None:
        self.root = root or Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)
        self._own: dict[Kind, Path | None] = {"sites": own_sites, "suites": own_suites}  # the user's own folders
        self._learned: dict[str, Hardware] = {}
        self._kept: dict[Hashable, Any] = {}  # the results of compute_once

    def compute_once(self, key: Hashable, made: Callable[[], Any]) -> Any:
        """Return the result of `made`, which is called only once for each key."""
        if key not in self._kept:
            self._kept[key] = made()
        return self._kept[key]

    def model(self, name: str) -> Model:
        return self.row("models", name, Model)

    def hardware(self, name: str) -> Hardware:
        return self._learned.get(name) or self.row("hardware", name, Hardware)

    def register_hardware(self, hardware: Hardware) -> None:
        """Add a device of this machine that has no file in configs/hardware."""
        self._learned[hardware.name] = hardware

    def site(self, name: str) -> Site:
        """Return a site. A site in the user's own folder replaces the checkout's site of the same name."""
        site: Site = self.compute_once(("site", name), lambda: self._checked_site(name))
        return site

    def _checked_site(self, name: str) -> Site:
        site = self.row("sites", name, Site)
        self._refuse_half_a_site(site)
        refuse_secrets(to_builtins(site), f"site {site.name}:")
        return site

    def recipe(self, name: str) -> Recipe:
        return self.row("recipes", name, Recipe)

    def recipes(self, backend: str | None = None) -> list[Recipe]:
        """Return all recipes, or those for one backend, sorted by name. Recipes for other backends are not parsed."""
        found: list[Recipe] = self.compute_once(("recipes", backend), lambda: self._recipes_of(backend))
        return found

    def _recipes_of(self, backend: str | None) -> list[Recipe]:
        recipes = [self.recipe(name) for name in self.names("recipes") if self._may_be_of(backend, name)]
        recipes = [recipe for recipe in recipes if backend in (None, recipe.backend)]
        for recipe in recipes:  # otherwise, a recipe with a mistyped model or device would silently never apply
            where = self.path("recipes", recipe.name)
            refuse_unknown(recipe.models, [*self.names("models"), "*"], f"{where}: models")
            refuse_unknown(recipe.hardware, [*self.names("hardware"), "*"], f"{where}: hardware")
        return recipes

    def _may_be_of(self, backend: str | None, recipe: str) -> bool:
        path = self.path("recipes", recipe)
        if backend is None or path in self._kept:
            return True
        match = OF_BACKEND.search(path.read_text(encoding="utf-8", errors="replace"))
        return match is None or match[1] == backend

    def _refuse_half_a_site(self, site: Site) -> None:
        where = f"{self.path('sites', site.name)}"
        for problem in _problems_of(site):
            cure = "python launch/setup.py --new_site=mycluster"
            raise RequestError(f"site '{site.name}': {problem}", where=where, next_command=cure)
        devices = site.slurm.hardware if site.slurm else []
        refuse_unknown(devices, self.names("hardware"), f"{where}: slurm: hardware")

    def names(self, kind: Kind) -> list[str]:
        if kind == "sites":  # never cached, because a command may have written a new site
            return self._listed(kind)
        names: list[str] = self.compute_once(("names", kind), lambda: self._listed(kind))
        return names

    def _listed(self, kind: Kind) -> list[str]:
        folder = self.root / kind
        if not folder.is_dir():
            raise RequestError(
                f"the configs have no folder {kind}",
                where=str(folder),
                why=f"Stepmark reads configs from {ROOT_VARIABLE}, or from the folder next to the package",
            )
        return sorted({path.stem for path in [*folder.glob("*.yml"), *self._own_files(kind, "*")]})

    def path(self, kind: Kind, name: str) -> Path:
        """Return the path of a row's file."""
        return next(iter(self._own_files(kind, name)), self.root / kind / f"{name}.yml")

    def _own_files(self, kind: Kind, pattern: str) -> list[Path]:
        folder = self._own.get(kind)
        return list(folder.glob(f"{pattern}.yml")) if folder else []

    def row(self, kind: Kind, name: str, row_type: type[AnyValue]) -> AnyValue:
        """Return a row of configs/ as a value of type `row_type`."""
        names = self.names(kind)
        if name not in names:
            raise UnknownName(
                f"unknown {SINGULAR[kind]} '{name}'",
                name,
                names,
                where=" and ".join(str(folder) for folder in (self.root / kind, self._own.get(kind)) if folder),
                why=NOT_IN_SCOPE.get(kind, ""),
                next_command=WHERE_TO_LOOK.get(kind, "python launch/run.py --list"),
            )
        path = self.path(kind, name)
        return typing.cast(AnyValue, self.compute_once(path, lambda: _read_row(path, row_type)))


def refuse_unknown(names: Iterable[str], known: Sequence[str], where: str) -> None:
    """Raise RequestError for the first unknown name. The message suggests the nearest known name."""
    for name in names:
        if name not in known:
            raise RequestError(f"unknown name '{name}': {nearest(name, known)}", where=where)


def _problems_of(site: Site) -> list[str]:
    """Return the problems of a site's file that make it impossible to run a job there."""
    slurm, container = site.slurm, site.container
    wrong = {
        "use 'kind: slurm' and a section 'slurm' together, or neither of them": (site.kind == "slurm")
        != (slurm is not None),
        "'runtime: python' needs a section 'python'": site.runtime == "python" and not site.python,
        "'runtime: container' needs a section 'container'": slurm and site.runtime == "container" and not container,
        "section 'container' needs a folder in 'images'": slurm and container and not container.images,
    }
    # The messages contain names only, because a value may be the secret that is refused.
    secret = [name for name in site.environment if is_secret_name(name)]
    return [
        *(problem for problem, holds in wrong.items() if holds),
        *(f"environment: {name}: a secret must not be in a file" for name in secret),
    ]


def _read_row(path: Path, row_type: type[AnyValue]) -> AnyValue:
    row = read_yaml(path, row_type)
    name: str = getattr(row, "name", "")
    if name != path.stem:
        raise RequestError(
            f"{path}: name is '{name}', but the file is called '{path.stem}'",
            where=f"{path}: name",
            why="Stepmark finds a row by its file name, and results show `name`, so both must be equal",
        )
    return row


def read_yaml(path: Path, value_type: type[AnyValue]) -> AnyValue:
    """Return a YAML file as a value. If the file does not fit the type, raise RequestError, which names the key."""
    data = parse_yaml(path)
    try:
        return msgspec.convert(data, value_type, strict=True)
    except msgspec.ValidationError as error:
        what, _, key = str(error).partition(" - at ")
        place = f"{path}: {key.strip('`').removeprefix('$.')}" if key else str(path)
        unknown = re.search(r"unknown field `(.*)`", what)
        hint = f": {nearest(unknown[1], _field_names(value_type))}" if unknown else ""
        raise RequestError(f"{place}: {what[0].lower()}{what[1:]}{hint}", where=place) from None


def _field_names(kind: Any) -> set[str]:
    """Return the keys that a value of this type may have, at any depth."""
    found: set[str] = set()
    for inner in typing.get_args(kind):
        found |= _field_names(inner)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            found |= {field.encode_name} | _field_names(field.type)
    return found


# --- YAML, strictly ---------------------------------------------------------------------------


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 50  # the limit for nested YAML; configs need about ten levels


class _Document:
    """Builds the data of a YAML document from parser events, in half the time of PyYAML's own constructor.

    Duplicate keys are refused, because YAML would silently use the last one. Tags are also refused.
    """

    def __init__(self, text: str) -> None:
        self._next = _LOADER(text).get_event
        self._anchors: dict[str, Any] = {}
        self._depth = 0

    def data(self) -> Any:
        self._next()  # the start of the stream
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        found = self._value(self._next())
        self._next()  # the end of the document
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise _problem("a second document begins", after)
        return found

    def _value(self, event: Any) -> Any:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _problem(f"unknown anchor '{event.anchor}'", event)
            return self._anchors[event.anchor]
        if event.tag not in (None, "!"):
            raise _problem(f"the tag '{event.tag}' is not supported", event)
        if self._depth > DEEPEST:
            raise _problem(f"the data has more than {DEEPEST} levels", event)
        self._depth += 1
        if isinstance(event, yaml.ScalarEvent):
            found = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            found = []
            while not isinstance(item := self._next(), yaml.SequenceEndEvent):
                found.append(self._value(item))
        else:
            found = self._mapping()
        self._depth -= 1
        if event.anchor:
            self._anchors[event.anchor] = found
        return found

    def _scalar(self, event: Any) -> Any:
        try:
            return _plain(event.value) if event.implicit[0] else event.value
        except ValueError as error:  # such as 2026-99-99, or a number with thousands of digits
            raise _problem(f"invalid value: {error}", event) from None

    def _mapping(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._value(event)
            if not isinstance(key, Hashable):
                raise _problem("a key must be text or a number", event)
            if key in found:
                raise _problem(f"the key '{key}' appears twice", event)
            found[key] = self._value(self._next())
        return found


def _problem(what: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)


@cache
def _plain(text: str) -> Any:
    """Return the value of an unquoted YAML scalar: of the type that YAML 1.1 infers, otherwise text."""
    for tag, pattern in _LOADER.yaml_implicit_resolvers.get(text[:1], ()):
        if pattern.match(text):
            return _LOADER("").construct_object(yaml.ScalarNode(tag, text))
    return text


def parse_yaml(path: Path) -> Any:
    """Return the plain data of a YAML file. Raise RequestError with the file and line if the text is not YAML."""
    try:
        return _Document(files.read(path).decode()).data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise RequestError(f"{place}: {error.problem or 'not YAML'}", where=place) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: not readable as YAML: {error}", where=str(path)) from None
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}", where=str(path)) from None
