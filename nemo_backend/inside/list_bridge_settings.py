"""Prints bridge_settings.yml: what Megatron-Bridge's run_recipe.py takes, and its Llama recipes.

Reads the released sources alone (no GPU, no torch, nothing is imported), after a change of the pinned versions:

    pip download --no-deps --only-binary=:all: --python-version=3.12 --platform=manylinux_2_28_x86_64 \
        --dest=WHEELS megatron-bridge==0.6.2 megatron-core==0.19.2
    git clone --branch=v0.6.0 https://github.com/NVIDIA-NeMo/Megatron-Bridge CHECKOUT
    python nemo_backend/inside/list_bridge_settings.py WHEELS CHECKOUT > nemo_backend/bridge_settings.yml

The checkout is for the script, which no wheel holds; of Llama, its tag and the wheel have the same settings and
recipes. Only names and types are listed: the defaults are a recipe's business.
"""

import ast
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

CONFIG = "megatron.bridge.training.config"

# Beginning of a setting -> the dataclasses that it may be, as ConfigContainer declares them for a Llama.
GROUPS: dict[str, tuple[str, ...]] = {
    "checkpoint": (f"{CONFIG}.CheckpointConfig",),
    "comm_overlap": ("megatron.bridge.training.comm_overlap.CommOverlapConfig",),
    "dataset": (
        f"{CONFIG}.GPTDatasetConfig",
        "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig",
    ),
    "dataset.offline_packing_specs": ("megatron.bridge.data.packing.config.PackedSequenceSpecs",),
    "ddp": (f"{CONFIG}.DistributedDataParallelConfig",),
    "dist": (f"{CONFIG}.DistributedInitConfig",),
    "logger": (f"{CONFIG}.LoggerConfig",),
    "mixed_precision": ("megatron.bridge.training.mixed_precision.MixedPrecisionConfig",),
    "model": ("megatron.bridge.models.gpt_provider.GPTModelProvider",),
    "optimizer": (f"{CONFIG}.OptimizerConfig",),
    "peft": ("megatron.bridge.peft.lora.LoRA",),
    "profiling": (f"{CONFIG}.ProfilingConfig",),
    "rerun_state_machine": (f"{CONFIG}.RerunStateMachineConfig",),
    "rng": (f"{CONFIG}.RNGConfig",),
    "scheduler": (f"{CONFIG}.SchedulerConfig",),
    "tokenizer": ("megatron.bridge.training.tokenizers.config.TokenizerConfig",),
    "train": (f"{CONFIG}.TrainingConfig",),
    "validation": (f"{CONFIG}.ValidationConfig",),
}

TAG = "v0.6.0"
SCRIPT = "scripts/training/run_recipe.py"
DATASETS = "megatron.bridge.recipes.utils.dataset_utils"
HUB = "meta-llama/"  # how the names of the models begin whose configuration a recipe reads from Hugging Face

# Arguments of run_recipe.py itself, and the whole of a group that a recipe may hold as a name.
ARGUMENTS = {"recipe": "str", "mixed_precision": "str"}

BENCHMARK_RECIPES = "megatron.bridge.perf_recipes.llama."
LIBRARY_RECIPES = "megatron.bridge.recipes.llama"

# Of a union's arms the first here wins: text takes in the rest.
WORDS = ("str", "float", "int", "bool", "list", "dict")
WORD_OF_NAME = {
    **{name: name for name in WORDS},
    "Path": "str",
    **dict.fromkeys(("List", "Tuple", "tuple", "Sequence"), "list"),
    **dict.fromkeys(("Dict", "Mapping"), "dict"),
}


class Sources:
    """The modules of some wheels, parsed when they are asked for."""

    def __init__(self, wheels: list[Path]) -> None:
        self._files: dict[str, tuple[Path, str]] = {}
        self._parsed: dict[str, ast.Module] = {}
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                for file in archive.namelist():
                    if file.endswith(".py"):
                        self._files[module_name(file)] = (wheel, file)

    def modules(self, beginning: str) -> list[str]:
        return sorted(name for name in self._files if name.startswith(beginning))

    def module(self, name: str) -> ast.Module:
        if name not in self._parsed:
            wheel, file = self._files[name]
            with zipfile.ZipFile(wheel) as archive:
                self._parsed[name] = ast.parse(archive.read(file))
        return self._parsed[name]

    def find_class(self, module: str, name: str) -> tuple[str, ast.ClassDef] | None:
        """A class by the name it has in a module, wherever it was imported from."""
        if module not in self._files:
            return None
        for node in ast.walk(self.module(module)):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return module, node
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self.find_class(self._absolute(module, node), alias.name)
        return None

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = module if self._files[module][1].endswith("__init__.py") else module.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        return ".".join(part for part in (package, node.module) if part)


def module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


# --- settings -----------------------------------------------------------------------------------


def settings(sources: Sources) -> dict[str, str]:
    found = dict(ARGUMENTS)
    for group, classes in GROUPS.items():
        for dotted in classes:
            module, _, name = dotted.rpartition(".")
            fields = fields_of(sources, module, name)
            if not fields:
                raise SystemExit(f"{dotted} has no fields: the sources are not laid out as this script expects")
            found |= {f"{group}.{field}": word for field, word in fields.items()}
    return found


def fields_of(sources: Sources, module: str, name: str) -> dict[str, str]:
    """The fields of a dataclass and of those it extends, with their types in words."""
    found = sources.find_class(module, name)
    if found is None:
        return {}
    where, node = found
    fields: dict[str, str] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            fields |= fields_of(sources, where, base.id)
    return fields | dict(own_fields(sources, where, node))


def own_fields(sources: Sources, module: str, node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        words = set(words_of(sources, module, statement.annotation))
        if words and not statement.target.id.startswith("_") and not is_computed(statement.value):
            yield statement.target.id, next(word for word in WORDS if word in words)


def is_computed(value: ast.expr | None) -> bool:
    """A field that its dataclass fills itself: field(init=False)."""
    return isinstance(value, ast.Call) and any(
        keyword.arg == "init" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        for keyword in value.keywords
    )


def words_of(sources: Sources, module: str, annotation: ast.expr) -> Iterator[str]:
    """The type words of an annotation; none for functions and classes, which no override can hold."""
    if isinstance(annotation, ast.BinOp):
        yield from words_of(sources, module, annotation.left)
        yield from words_of(sources, module, annotation.right)
    elif isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        yield from words_of(sources, module, ast.parse(annotation.value, mode="eval").body)
    elif isinstance(annotation, ast.Subscript):
        yield from words_of_subscript(sources, module, annotation)
    elif isinstance(annotation, ast.Attribute):
        if ast.unparse(annotation) == "torch.dtype":
            yield "str"  # the override is turned back into a dtype
    elif isinstance(annotation, ast.Name):
        if annotation.id in WORD_OF_NAME:
            yield WORD_OF_NAME[annotation.id]
        elif is_enumeration(sources, module, annotation.id):
            yield "str"


def words_of_subscript(sources: Sources, module: str, annotation: ast.Subscript) -> Iterator[str]:
    name = ast.unparse(annotation.value).rpartition(".")[2]
    arms = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    if name in ("Optional", "Union"):
        for arm in arms:
            yield from words_of(sources, module, arm)
    elif name == "Literal":
        yield from (
            type(arm.value).__name__ for arm in arms if isinstance(arm, ast.Constant) and arm.value is not None
        )
    elif name in WORD_OF_NAME:
        yield WORD_OF_NAME[name]


def is_enumeration(sources: Sources, module: str, name: str) -> bool:
    found = sources.find_class(module, name)
    return found is not None and any("Enum" in ast.unparse(base) for base in found[1].bases)


# --- recipes ------------------------------------------------------------------------------------


def benchmark_recipes(sources: Sources) -> list[str]:
    """The functions of the packages by hardware, as run_recipe.py finds them."""
    return sorted({name for module in sources.modules(BENCHMARK_RECIPES) for name in functions(sources, module)})


def library_recipes(sources: Sources) -> list[str]:
    """The names without hardware: one that a benchmark recipe has too would mean that one."""
    names: set[str] = set()
    for module in sources.modules(LIBRARY_RECIPES):
        for node in ast.walk(sources.module(module)):
            if isinstance(node, ast.ImportFrom):
                names |= {alias.asname for alias in node.names if alias.asname}
        names |= set(functions(sources, module))
    return sorted(name for name in names if name.endswith("_config") and "gpu_" not in name and name[0] != "_")


def functions(sources: Sources, module: str) -> Iterator[str]:
    for node in sources.module(module).body:
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_config") and not node.name.startswith("_"):
            yield node.name


# --- the script, and what it reads ----------------------------------------------------------------


def options(sources: Sources, script: Path) -> dict[str, list[str]]:
    """The options of run_recipe.py -> the values each takes; none: any."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
            names = [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
            choices = next((keyword.value for keyword in node.keywords if keyword.arg == "choices"), None)
            found |= dict.fromkeys(names, _choices(sources, choices))
    return found


def _choices(sources: Sources, choices: ast.expr | None) -> list[str]:
    if isinstance(choices, ast.List):
        return [str(ast.literal_eval(value)) for value in choices.elts]
    return presets(sources) if choices is not None else []


def presets(sources: Sources) -> list[str]:
    """The kinds of data that the script knows by name."""
    for node in sources.module(DATASETS).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "DATASET_PRESETS":
            assert isinstance(node.value, ast.Dict)
            return sorted(str(ast.literal_eval(key)) for key in node.value.keys if key is not None)
    raise SystemExit(f"{DATASETS} has no DATASET_PRESETS")


def configurations(sources: Sources, recipes: list[str]) -> dict[str, str]:
    """A recipe's model -> the Hugging Face repository whose config.json it is made from."""
    bodies = {
        node.name: node
        for module in (*sources.modules(BENCHMARK_RECIPES), *sources.modules(LIBRARY_RECIPES))
        for node in sources.module(module).body
        if isinstance(node, ast.FunctionDef)
    }
    aliases = {
        alias.asname: alias.name
        for module in sources.modules(LIBRARY_RECIPES)
        for node in ast.walk(sources.module(module))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    found: dict[str, str] = {}
    for recipe in recipes:
        model = re.split(r"_(?:pretrain|peft|sft|low)_", recipe)[0]
        repository = _repository(recipe, bodies, aliases)
        if repository and found.setdefault(model, repository) != repository:
            raise SystemExit(f"the recipes of {model} read {found[model]} and {repository}")
    return found


def _repository(name: str, bodies: dict[str, ast.FunctionDef], aliases: dict[str, str]) -> str | None:
    """From the function itself, or from the one that it begins with."""
    body = bodies.get(name) or bodies.get(aliases.get(name, ""))
    if body is None:
        return None
    for node in ast.walk(body):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(HUB):
            return node.value
    called = [
        node.func.id for node in ast.walk(body) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return next((found for one in called if one != name and (found := _repository(one, bodies, aliases))), None)


def main() -> None:
    wheels = sorted(Path(sys.argv[1]).glob("*.whl"))
    sources = Sources(wheels)
    versions = " and ".join(" ".join(wheel.name.split("-")[:2]).replace("_", "-") for wheel in wheels)
    print(f"# Every override of {versions} that a configuration may name, with its type;")
    print(
        "# and the Llama recipes of that version by name. A benchmark recipe is tuned for the hardware in its name."
    )
    print("# Made by nemo_backend/inside/list_bridge_settings.py; do not edit.")
    print("settings:")
    for name, word in sorted(settings(sources).items()):
        print(f"  {name}: {word}")
    print(f"options:  # of {SCRIPT} at tag {TAG}; none after the colon: any value")
    for name, values in sorted(options(sources, Path(sys.argv[2]) / SCRIPT).items()):
        print(f"  {name}: [{', '.join(values)}]")
    recipes = {"benchmark": benchmark_recipes(sources), "library": library_recipes(sources)}
    print("configurations:  # a recipe's model -> the Hugging Face repository whose config.json it begins with")
    for model, repository in sorted(
        configurations(sources, [name for names in recipes.values() for name in names]).items()
    ):
        print(f"  {model}: {repository}")
    for title, names in recipes.items():
        print(f"{title}_recipes:")
        for name in names:
            print(f"  - {name}")


if __name__ == "__main__":
    main()
