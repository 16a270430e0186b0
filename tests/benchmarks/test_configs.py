"""The loader: every row by name, and one clear message for each way to write a file wrongly."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.configs import DEFAULT_ROOT, ROOT_VARIABLE, Configs
from benchmarks.errors import EXIT_REFUSED, RequestError

Change = Callable[[str], str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the configs that a test may spoil."""
    return Path(shutil.copytree(DEFAULT_ROOT, tmp_path / "configs"))


def replaced(old: str, new: str) -> Change:
    def change(text: str) -> str:
        assert old in text, f"the test expects {old!r} in the file it spoils"
        return text.replace(old, new, 1)

    return change


def load(root: Path, file: str) -> object:
    kind, name = file.split("/")
    configs = Configs(root)
    readers = {
        "models": configs.model,
        "hardware": configs.hardware,
        "sites": configs.site,
        "recipes": configs.recipe,
    }
    return readers[kind](name)


MODEL, HARDWARE, SITE = "models/llama2_tiny", "hardware/h100", "sites/local"
RECIPE = "recipes/jax_tiny_pretrain"

TYPOS = {
    "a mistyped key": (
        MODEL,
        replaced("layers:", "layrs:"),
        "unknown field `layrs`",
    ),
    "a missing key": (MODEL, replaced("layers: 2\n", ""), "missing required field `layers`"),
    "text for a number": (MODEL, replaced("layers: 2", "layers: two"), "layers: expected `int`, got `str`"),
    "a float that YAML 1.1 reads as text": (
        MODEL,
        replaced("1.0e-05", "1e-5"),
        "norm_epsilon: expected `float`, got `str`",
    ),
    "on, which YAML 1.1 reads as true": (
        "recipes/jax_llama2_70b_pretrain",
        replaced('xla_gpu_enable_triton_gemm: "false"', "xla_gpu_enable_triton_gemm: off"),
        "xla_flags[...]: expected `str`, got `bool`",
    ),
    "an unquoted date": (MODEL, replaced('"2026-11-21"', "2026-11-21"), "date: expected `str`, got `date`"),
    "a choice that is none": (
        HARDWARE,
        replaced("kind: gpu", "kind: gpus"),
        "kind: invalid enum value 'gpus'",
    ),
    "a condition of an overlay": (
        RECIPE,
        replaced("when: {dtype: [fp32]}", "when: {dtypes: [fp32]}"),
        "when: object contains unknown field `dtypes`",
    ),
    "text for a list": (
        RECIPE,
        replaced('hardware: ["*"]', "hardware: cpu"),
        "hardware: expected `array`, got `str`",
    ),
    "a key that is no text": (
        RECIPE,
        replaced("attention: dot_product", "on: dot_product"),
        "expected `str`, got `bool`",
    ),
    "a key given twice": (MODEL, lambda text: text + "layers: 3\n", "the key 'layers' appears twice"),
    "a name that is not the file's": (
        MODEL,
        replaced("name: llama2_tiny", "name: llama_tiny"),
        "name is 'llama_tiny', but the file is called 'llama2_tiny'",
    ),
    "an empty file": (MODEL, lambda _: "", "expected `object`, got `null`"),
}


@pytest.mark.parametrize(("file", "change", "message"), TYPOS.values(), ids=TYPOS.keys())
def test_a_typo_gives_one_clear_message(root: Path, file: str, change: Change, message: str) -> None:
    path = root / f"{file}.yml"
    path.write_text(change(path.read_text()))
    with pytest.raises(RequestError) as refusal:
        load(root, file)
    assert message in refusal.value.what
    assert str(path) in refusal.value.what
    assert refusal.value.where.startswith(str(path))
    assert "\n" not in refusal.value.what
    assert refusal.value.exit_code == EXIT_REFUSED


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: x\nlayers: [1, 2\nhidden_size: 3\n", 3),
        ("name: x\n\tlayers: 2\n", 2),
        ("name: x\n? [a]\n: 1\n", 2),
        ("name: x\na: " + "[" * 100_000, 2),
        ("name: x\na: {b: " * 100_000, 2),
        ("name: x\ndate: 2026-99-99\n", 2),
        (f"name: x\nlayers: {'9' * 5000}\n", 2),
    ],
)
def test_broken_yaml_is_named_by_file_and_line(root: Path, text: str, line: int) -> None:
    path = root / f"{MODEL}.yml"
    path.write_text(text)
    with pytest.raises(RequestError) as refusal:
        load(root, MODEL)
    assert refusal.value.where == f"{path}:{line}"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("models/lama2_tiny", "unknown model 'lama2_tiny': did you mean 'llama2_tiny'?"),
        ("hardware/h1000", "unknown hardware 'h1000': did you mean 'h100'?"),
        ("sites/mars", "unknown site 'mars': valid: example_b200, example_gb200"),
        ("recipes/jax_tiny_pretrian", "unknown recipe 'jax_tiny_pretrian': did you mean 'jax_tiny_pretrain'?"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(file: str, message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        load(DEFAULT_ROOT, file)
    assert message in refusal.value.what


def test_a_name_is_no_way_out_of_the_folder(root: Path) -> None:
    with pytest.raises(RequestError, match="unknown model"):
        Configs(root).model("../hardware/h100")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as refusal:
        Configs(tmp_path).recipes()
    assert refusal.value.where == str(tmp_path / "recipes")
    assert ROOT_VARIABLE in refusal.value.why


def test_the_environment_variable_moves_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(root / "models/llama2_tiny.yml", root / "models/mine.yml")
    path = root / "models/mine.yml"
    path.write_text(replaced("name: llama2_tiny", "name: mine")(path.read_text()))
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    assert Configs().model("mine").layers == 2
    monkeypatch.delenv(ROOT_VARIABLE)
    assert Configs().root == DEFAULT_ROOT


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("jax_tiny_pretrain", "models: [llama2_tiny", "models: [llama2_tyni"),
        ("jax_cpu_pretrain", "hardware: [cpu]", "hardware: [cpuu]"),
    ],
)
def test_a_recipe_for_something_unknown_is_refused(root: Path, name: str, old: str, new: str) -> None:
    path = root / "recipes" / f"{name}.yml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RequestError, match="did you mean"):
        Configs(root).recipes()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("MY_SETTING", "hf_" + "a1B2" * 8, "looks like a token"),
        ("HTTPS_PROXY", "http://someone:password@proxy:3128", "a URL with a login"),
        ("HF_TOKEN", "x", "a secret must not be in"),
        ("NCCL-DEBUG", "INFO", "matching regex"),
        ("1X", "1", "matching regex"),
    ],
)
def test_a_site_has_no_secret_and_no_odd_name_in_its_environment(root: Path, name: str, value: str, why: str) -> None:
    path = root / "sites/example_venv.yml"
    path.write_text(f'{path.read_text()}environment:\n  "{name}": "{value}"\n')
    with pytest.raises(RequestError, match=why) as refused:
        Configs(root).site("example_venv")
    assert len(value) < 5 or value not in str(refused.value)


@pytest.mark.parametrize(
    ("site", "old", "new", "words"),
    [
        ("example_venv", "kind: slurm", "kind: local", "and a section 'slurm' together"),
        ("example_venv", "runtime: venv", "runtime: python", "needs a section 'python'"),
        ("example_python", "/shared/conda/envs/nemo", "conda/envs/nemo", "matching regex '^/'"),
        (
            "example_pyxis",
            "container:\n",
            "images: {nemo: {x86: a}}\ncontainer:\n",
            "invalid enum value 'x86'",
        ),
        (
            "example_gb200",
            "# segment: none",
            "segment: few",
            "slurm.options.segment: invalid enum value 'few'",
        ),
    ],
)
def test_what_a_site_says_of_its_runtime_fits_together(root: Path, site: str, old: str, new: str, words: str) -> None:
    path = root / f"sites/{site}.yml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RequestError) as refusal:
        Configs(root).site(site)
    assert words in str(refusal.value)
