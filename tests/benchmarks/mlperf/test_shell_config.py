"""NVIDIA's config_*.sh as they are written: what is read of them, and that nothing of them is executed."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.mlperf.shell_config import ShellConfig, read

COMMON = """#!/bin/bash
export DGXSYSTEM=$(basename $(readlink -f ${BASH_SOURCE[1]}) | sed 's/^config_//' | sed 's/\\.sh$//' )
export NCCL_MIN_CTAS=32;
export FP8=True # not a part of it
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
: "${MASTER_PORT:=29500}"
export DGXNGPU=4
export SEGMENT=$(( 8 / DGXNGPU ))
export WALLTIME_RUNANDTIME=80
export WALLTIME=$((5 + ${NEXP:-1} * ($WALLTIME_RUNANDTIME + 5)))
unset CP
"""


def read_one(text: str, **given_variables: str) -> ShellConfig:
    return read("config.sh", text, {"config_common.sh": COMMON}.get, given_variables)


def test_a_configuration_is_read_with_what_it_sources() -> None:
    found = read_one(CONFIG)
    assert found.files == ["config.sh", "config_common.sh"]
    assert found.variables == {
        "NCCL_MIN_CTAS": "32",
        "FP8": "True",
        "MAX_STEPS": "800",
        "LR": "0.0005",
        "MINIBS": "1",
        "TP": "4",
        "EXTRA": "a b c",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "LEARNING_RATE": "0.00019",
        "MASTER_PORT": "29500",
        "DGXNGPU": "4",
        "SEGMENT": "2",
        "WALLTIME_RUNANDTIME": "80",
        "WALLTIME": "90",
    }


def test_what_is_set_before_counts() -> None:
    found = read_one(CONFIG, NEXP="10", LEARNING_RATE="0.1")
    assert (found.variables["WALLTIME"], found.variables["LEARNING_RATE"]) == ("855", "0.1")


def test_a_command_is_named_and_never_executed(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    text = f"touch {proof}\nexport A=$(touch {proof})\nexport B=`touch {proof}`\nexport C=$A\nexport D=1\n"
    found = read_one(text)
    assert not proof.exists()
    assert found.variables == {"D": "1"}
    assert found.unknown.keys() == {"A", "B", "C"}
    assert [(one.line, one.why) for one in found.unread] == [
        (1, "a command: nothing is executed"),
        (2, "a command gives its value: nothing is executed"),
        (3, "a command gives its value: nothing is executed"),
        (4, "it is made from A, which is not known"),
    ]


def test_what_a_condition_sets_is_not_known() -> None:
    found = read_one("export A=1\nif [[ $B ]]; then\n    export A=2\nfi\nexport C=3\n")
    assert found.variables == {"C": "3"}
    assert found.unknown == {"A": "it may be set by: export A=2"}


def test_a_line_of_several_assignments_makes_all_of_them() -> None:
    found = read_one("export A=1 B=2 C=$(date) D='x y'\n")
    assert found.variables == {"A": "1", "B": "2", "D": "x y"}
    assert found.unknown.keys() == {"C"}


@pytest.mark.parametrize(
    "line",
    [
        *("true && A=2", "(export A=2)", "{ A=2; }", "declare -x A=2", "A+=2", "A[0]=2", "let A=2", "((A++))"),
        *("read A <<< 2", "read -r A", "printf -v A 2", "eval 'A=2'", "export -n A", "case x in *) A=2;; esac"),
        *("export A=$1", "export A=$'2'", "export A=(1 2)"),
    ],
)
def test_what_a_line_that_is_left_out_may_set_is_not_known(line: str) -> None:
    found = read_one(f"export A=1\nexport B=1\n{line}\n")
    assert found.variables == {"B": "1"}
    assert "A" in found.unknown
    assert found.unread


def test_the_lines_of_a_here_document_and_of_a_quotation_are_no_exports() -> None:
    found = read_one('export A=1\ncat <<EOF\nexport A=2\nEOF\nexport B="x\nexport A=3\n"\nexport C=4\n')
    assert found.variables == {"A": "1", "B": "x\nexport A=3\n", "C": "4"}


@pytest.mark.parametrize(
    "value",
    [
        "$((" + "9" * 4000 + "*" + "9" * 4000 + "))",
        "$((" + "-" * 9000 + "1))",
        "$((" + "9" * 5000 + "))",
        "${A:-" * 3000 + "}" * 3000,
    ],
)
def test_what_no_shell_would_be_asked_is_named_and_ends_nothing(value: str) -> None:
    assert "X" in read_one(f"export X={value}\n").unknown


def test_a_value_made_from_itself_ends_somewhere() -> None:
    found = read_one("export A=xxxxxxxxxx\n" + "export A=$A$A$A$A\n" * 40)
    assert "A" in found.unknown


def test_a_file_that_is_not_there_and_one_that_sources_itself() -> None:
    found = read_one("source $(dirname ${BASH_SOURCE[0]})/config_gone.sh\nexport A=1\n")
    assert found.variables == {"A": "1"}
    assert "config_gone.sh is not beside the configuration" in found.unread[0].why
    again = read("a.sh", "source a.sh\n", {"a.sh": "source a.sh\nexport A=1\n"}.get, {})
    assert any("source each other" in one.why for one in again.unread)


@pytest.mark.parametrize("text", ["$((1 / 0))", "$((2 ** 3))", "$((1 +))", "${A", "$((7 % 0))"])
def test_arithmetic_that_is_none_is_named(text: str) -> None:
    found = read_one(f"export X={text}\n")
    assert "X" in found.unknown


NUMBERS = st.integers(-50, 50).map(str)
SUMS = st.recursive(
    NUMBERS, lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
)


@settings(deadline=None)  # bash is started for each
@given(st.lists(SUMS, min_size=5, max_size=5))
def test_arithmetic_is_bashs_own(sums: list[str]) -> None:
    lines = [f"export X{place}=$(({text}))" for place, text in enumerate(sums)]
    wanted = subprocess.run(
        ["bash", "-c", "\n".join([*lines, 'echo "$X0 $X1 $X2 $X3 $X4"'])],
        capture_output=True, text=True, check=True, timeout=10,
    ).stdout.split()  # fmt: skip
    assert list(read_one("\n".join(lines)).variables.values()) == wanted


@given(st.text(alphabet="exportAB= ${}()'\"\\#;\n`1+/:-", max_size=60))
def test_no_text_at_all_breaks_it(text: str) -> None:
    read_one(text)
