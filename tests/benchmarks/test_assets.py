"""The files that a run needs, compared with the existing ones; and the rows of configs/assets/."""

from datetime import date
from pathlib import Path

import pytest

from benchmarks.assets import Asset, Needs, Part, compare, has_usual_assets, read_all_needs
from benchmarks.configs import DEFAULT_ROOT, Configs
from benchmarks.errors import RequestError

CONFIGS = Configs()
ROWS = read_all_needs(CONFIGS)
GB = 10**9


def asset(**fields: object) -> Asset:
    whole = {
        "name": "checkpoint",
        "title": "t",
        "folder": "models",
        "gb": 100.0,
        "gb_note": "n",
        "parts": [
            Part(path="context/", gb=None),
            Part(path="weights/a.distcp", gb=66.0),
            Part(path="weights/metadata.json", gb=None),
        ],
        "repository": None,
        "made_by": "hand",
    }
    return Asset(**{**whole, **fields})  # type: ignore[arg-type]


def needs(*assets: Asset, **fields: object) -> Needs:
    whole = {
        "name": "row",
        "title": "t",
        "backend": "nemo",
        "task": "lora",
        "models": ["m"],
        "assets": list(assets),
        "run_flags": "",
        "source": "s",
        "date": "2026-11-21",
    }
    return Needs(**{**whole, **fields})  # type: ignore[arg-type]


WHOLE = {"context/model.yaml": 5, "weights/a.distcp": 66 * GB, "weights/metadata.json": 7}


def test_a_whole_asset() -> None:
    found = compare(asset(), WHOLE)
    assert (found.state, found.faults) == ("present", [])
    assert found.bytes == 66 * GB + 12


def test_nothing_is_missing_and_something_incomplete() -> None:
    assert compare(asset(), {}).state == "missing"
    assert compare(asset(), {"context/model.yaml": 5}).state == "incomplete"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"weights/metadata.json": None}, "weights/metadata.json: missing"),
        ({"weights/metadata.json": 0}, "weights/metadata.json: empty"),
        ({"context/model.yaml": None}, "context/: missing or empty"),
        ({"weights/a.distcp": 65 * GB}, "weights/a.distcp: 65.0 GB, 66 GB expected"),
        ({"weights/a.distcp": 72 * GB}, "weights/a.distcp: 72.0 GB, 66 GB expected"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, int | None], fault: str) -> None:
    sizes = {path: size for path, size in {**WHOLE, **change}.items() if size is not None}
    found = compare(asset(), sizes)
    assert (found.state, found.faults) == ("incomplete", [fault])


@pytest.mark.parametrize("size", [int(65.6 * GB), 66 * GB, 66 * 2**30])
def test_66_gb_may_be_decimal_or_binary(size: int) -> None:
    assert compare(asset(), {**WHOLE, "weights/a.distcp": size}).state == "present"


def test_what_is_there_is_not_missing() -> None:
    assert compare(asset(), {}).missing_gb == 100
    assert compare(asset(gb=None), {}).missing_gb == 0
    assert compare(asset(), {"weights/a.distcp": 66 * GB}).missing_gb == pytest.approx(34)
    assert compare(asset(), WHOLE).missing_gb == 0


def test_what_only_other_runs_read_may_be_missing() -> None:
    other, read = asset(only_for="engine bridge"), asset(name="squad", gb=30.0)
    absent = [compare(other, {}), compare(read, {})]
    assert not has_usual_assets(absent)
    assert has_usual_assets([absent[0], compare(read, WHOLE)])
    assert not has_usual_assets([compare(other, WHOLE), absent[1]])


# --- the rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
def test_a_row_says_where_it_is_from_and_how_each_asset_is_come_by(row: Needs) -> None:
    assert len(row.source) > 10
    assert date.fromisoformat(row.date)
    assert len({asset.name for asset in row.assets}) == len(row.assets)
    for one in row.assets:
        assert (one.repository is None) == bool(one.made_by)
        assert one.gb_note
        assert one.parts


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
def test_a_runs_data_lie_where_a_needed_asset_does(row: Needs) -> None:
    if row.task == "mlperf":  # a submission mounts each of them at a separate place
        assert row.run_flags == "--data={out} --site=SITE"
        return
    folder = row.run_flags.removeprefix("--data={out}/")
    assert folder in [one.folder for one in row.assets if not one.only_for]


def altered(tmp_path: Path, old: str, new: str) -> Configs:
    """Configs whose one list of assets has a mistake in it."""
    (tmp_path / "models").symlink_to(DEFAULT_ROOT / "models")
    (tmp_path / "assets").mkdir()
    text = (DEFAULT_ROOT / "assets/nemo_llama3_70b_lora.yml").read_text()
    assert old in text
    (tmp_path / "assets/nemo_llama3_70b_lora.yml").write_text(text.replace(old, new, 1))
    return Configs(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("gated: true", "gate: true", "unknown field `gate`"),
        ("models: [llama3_70b]", "models: [llama3_70]", "unknown name 'llama3_70': did you mean 'llama3_70b'"),
        ("    gb_note: unknown, because the source gives no size\n", "", "missing required field `gb_note`"),
        ("gb: 747", "gb: 0", "gb: expected `float` > 0"),
        ("folder: datasets/squad", "folder: ../squad", "folder"),
        ("folder: datasets/squad", "folder: /squad", "folder"),
        ("kind: models", "kind: model", "invalid enum value 'model'"),
        ("name: meta-llama/Meta-Llama-3-70B", "name: Meta-Llama-3-70B", "name"),
        ("task: lora", "task: finetune", "invalid enum value 'finetune'"),
        ("run_flags: --data={out}/datasets/squad\n", "", "missing required field `run_flags`"),
    ],
)
def test_a_mistake_in_a_row_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_all_needs(altered(tmp_path, old, new))
    assert words in str(caught.value)
    assert "nemo_llama3_70b_lora.yml" in str(caught.value)
