"""What --list shows, and that each of the other flags filters it."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.text import Rows
from launch.cli.listing import listing, listing_text


def section(sections: Mapping[str, Rows], name: str) -> list[str]:
    """What is named below a heading."""
    return [row for row, _ in sections[name]]


def test_everything_is_shown_without_filters() -> None:
    found = listing(Configs())
    assert section(found, "models") == sorted(Configs().names("models"))
    assert section(found, "hardware") == sorted(Configs().names("hardware"))
    assert section(found, "recipes") == sorted(Configs().names("recipes"))
    assert section(found, "tasks") == ["lora", "mlperf", "pretrain"]
    assert section(found, "backends") == ["jax", "nemo"]
    assert section(found, "sites") == sorted(Configs().names("sites"))
    assert "local" in section(found, "sites")
    assert "64, 128, 256, 512, 1024, 2048" in listing_text(found)


def test_filters() -> None:
    configs = Configs()
    assert section(listing(configs, hardware="a100"), "hardware") == ["a100"]
    assert section(listing(configs, backend="jax", gpus=512), "recipes") == ["jax_llama2_70b_pretrain"]
    assert section(listing(configs, backend="jax", gpus=512), "models") == ["llama2_70b"]
    fp8_on_a100 = section(listing(configs, model="llama2_70b", hardware="a100", dtype="fp8"), "recipes")
    assert fp8_on_a100 == []
    assert section(listing(configs, model="llama2_7b"), "recipes") == ["jax_cpu_pretrain"]
    on_b200 = section(listing(configs, hardware="b200", task="lora", gpus=8), "recipes")
    assert on_b200 == [
        "bridge_llama3_70b_lora_b200",
        "bridge_tiny_lora",
        "jax_llama3_small_lora",
        "jax_tiny_lora",
        "nemo_llama3_70b_lora_b200",
        "nemo_llama3_small_lora",
        "nemo_tiny_lora",
    ]
    with pytest.raises(RequestError, match="no recipe has fp16"):
        listing(configs, dtype="fp16")
    tray = {gpus: section(listing(configs, hardware="gb200", gpus=gpus), "recipes") for gpus in (4, 8)}
    small = [f"{backend}_llama3_small_{task}" for backend in ("jax", "nemo") for task in ("lora", "pretrain")]
    assert set(small) <= set(tray[4])
    assert not set(small) & set(tray[8])


def test_one_broken_site_of_a_users_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("name: mine\nkind: slurm\n")
    (tmp_path / "worse.yml").write_text("broken: [")
    found = listing(Configs(own_sites=tmp_path))
    assert {"example_venv", "local", "mine", "worse"} <= set(section(found, "sites"))
    assert re.search("cannot be read: .*mine.yml", dict(found["sites"])["mine"])


def test_the_title_of_a_site_is_one_line(tmp_path: Path) -> None:
    own = (Path(Configs().root) / "sites/example_venv.yml").read_text().replace("name: example_venv", "name: own")
    (tmp_path / "own.yml").write_text(re.sub("(?m)^title: .*", r'title: "a\\n::error::b"', own))
    rows = dict(listing(Configs(own_sites=tmp_path))["sites"])
    assert rows["own"].splitlines() == ["a\\n::error::b"]


@pytest.mark.parametrize("kind", ["hardware", "models"])
def test_one_broken_file_of_the_checkout_hides_nothing(tmp_path: Path, kind: str) -> None:
    root = shutil.copytree(Configs().root, tmp_path / "configs")
    (root / kind / "mine.yml").write_text("name: mine\n")
    for found in (listing(Configs(root)), listing(Configs(root), model="llama2_tiny")):
        assert {"llama2_tiny"} <= set(section(found, "models")) and "h100" in section(found, "hardware")
    assert "cannot be read: " in dict(listing(Configs(root))[kind])["mine"]
