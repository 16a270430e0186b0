"""NVIDIA's config_*.sh as they are written: what is read of them, and that the rest is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.mlperf.shell_config import NOT_PLAIN, NOT_SOURCED, ShellConfig, read

COMMON = """#!/bin/bash
export DGXSYSTEM=$(basename $(readlink -f ${BASH_SOURCE[1]}) | sed 's/^config_//' | sed 's/\\.sh$//' )
export NCCL_MIN_CTAS=32;
export FP8=True # one that we don't need
export CP=2
"""
CONFIG = """#!/bin/bash
source $(dirname ${BASH_SOURCE[0]})/config_common.sh

# hyperparameters
export MAX_STEPS=800
export LR=0.0005
export MINIBS=1; export TP=4
export EXTRA="a b"' c'
export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
export LEARNING_RATE=${LEARNING_RATE:-"0.00019"}
export DGXNGPU=4
export DGXNNODES=2
export MLPERF_NUM_NODES=$DGXNNODES
export SEGMENT=$(( (TP * CP) / DGXNGPU ))
export WALLTIME_RUNANDTIME=80
export WALLTIME=$((5 + ${NEXP:-1} * ($WALLTIME_RUNANDTIME + 5)))
"""


def read_one(text: str) -> ShellConfig:
    return read("config.sh", text, {"config_common.sh": COMMON}.get)


def test_a_configuration_is_read_with_what_it_sources() -> None:
    found = read_one(CONFIG)
    assert found.variables == {
        "NCCL_MIN_CTAS": "32",
        "FP8": "True",
        "CP": "2",
        "MAX_STEPS": "800",
        "LR": "0.0005",
        "MINIBS": "1",
        "TP": "4",
        "EXTRA": "a b c",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "LEARNING_RATE": "0.00019",
        "DGXNGPU": "4",
        "DGXNNODES": "2",
        "MLPERF_NUM_NODES": "2",
        "SEGMENT": "2",
        "WALLTIME_RUNANDTIME": "80",
        "WALLTIME": "90",
    }
    assert [(one.file, one.line, one.why) for one in found.unread] == [("config_common.sh", 2, NOT_PLAIN)]


def test_a_command_is_named_and_never_executed(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    found = read_one(f"touch {proof}\nexport A=$(touch {proof})\nexport B=`touch {proof}`\nexport C=$A\nexport D=1\n")
    assert not proof.exists()
    assert found.variables == {"D": "1"}
    assert {"A", "B", "C"} <= found.unknown.keys()
    assert [one.line for one in found.unread] == [1, 2, 3, 4]
    assert found.unread[3].why == "made from A, which is not known"


@pytest.mark.parametrize(
    "lines",
    [
        *("true && A=2", "(export A=2)", "{ A=2; }", "declare -x A=2", "A+=2", "A[0]=2", "let A=2", "((A++))"),
        *("read A <<< 2", "read -r A", "printf -v A 2", "eval 'A=2'", "export -n A", "case x in *) A=2;; esac"),
        *("export A=$1", "export A=$'2'", "export A=(1 2)", "export A={1,2}", "export A=~", "unset A"),
        *('export A="x\ny"', 'export A="`date`"', ': "${A:=2}"', "export A=$NOT_SET", "export A=1 C=2", "A=2"),
        *("if [[ $B ]]; then\n    export A=2\nfi", "for x in 1; do\nif true; then\nexport A=2\nfi\nexport A=3\ndone"),
        *("f() {\nexport A=2\n}", "(\nexport A=2\n)", "echo \\\nexport A=2", "if true; then export A=2; fi"),
        *("export A=" + text for text in ("$((1 / 0))", "$((2 ** 3))", "$((1 +))", "${A", "$((1 - 2))", "$((1.5))")),
        *("export A=" + text for text in ("$((x))", "$((" + "9*" * 90 + "9))", "${A:-" * 3000 + "}" * 3000)),
    ],
)
def test_what_an_unread_line_may_set_is_not_known(lines: str) -> None:
    found = read_one(f"export A=1\nexport B=1\n{lines}\nexport C=3\n")
    assert found.unread
    assert "A" in found.unknown and "A" not in found.variables
    assert found.variables.get("C", "3") == "3" and found.variables.get("B", "1") == "1"


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("if [[ $B ]]; then\n    export A=2\nfi\nexport A=3\n", {"C": "1", "A": "3"}),  # after a block it goes on
        # after a here-document or an open quotation nothing is read
        *((text + "export A=4\n", {"C": "1"}) for text in ("cat <<EOF\nexport A=2\nEOF\n", "echo 'x\n")),
        ('export B="x\nexport A=3\n"\nexport A=4\n', {"C": "1"}),
        ("export A=xxxxxxxxxx\n" + "export A=$A$A$A$A\n" * 40, {"C": "1"}),  # it ends somewhere
    ],
)
def test_what_is_read_again_after_an_unread_line(text: str, variables: dict[str, str]) -> None:
    assert read_one(f"export C=1\n{text}").variables == variables


@pytest.mark.parametrize(
    "line",
    [
        *("source $(dirname ${BASH_SOURCE[0]})/config_gone.sh", "source config.sh", ". config_gone.sh"),
        *("source $(dirname ${BASH_SOURCE[0]})/../other/config_common.sh", "[ -f x ] && . x"),
        "if true; then\nsource config_common.sh\nfi",
    ],
)
def test_a_file_that_is_not_read_is_named(line: str) -> None:
    found = read("config.sh", f"{line}\nexport A=1\n", {"config.sh": line, "config_common.sh": COMMON}.get)
    assert any(one.why.startswith(NOT_SOURCED) for one in found.unread)
    assert found.variables == {"A": "1"}


@given(st.text(alphabet="exportAB= ${}()'\"\\#;\n`1+/:-", max_size=60))
def test_no_text_at_all_breaks_it(text: str) -> None:
    read_one(text)
