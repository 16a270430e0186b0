"""Secrets are recognised, other texts are not, and neither a refusal nor hidden text repeats a secret."""

import pytest

from benchmarks.errors import RequestError
from benchmarks.secret_rules import (
    hidden,
    hidden_in_log,
    is_secret_name,
    refuse_secrets,
    shell_secrets,
    why_secret,
)

TOKENS = [
    "hf_" + "a1B2" * 8,
    "glpat-" + "a1B2" * 5,
    "ghp_" + "a1B2" * 9,
    "nvapi-" + "a1B2" * 8,
    "AKIA" + "A1B2" * 4,
    "ASIA" + "A1B2" * 4,
    "AIza" + "a1B2" * 9,
    "wandb_v1_" + "a1B2" * 4,
    "xoxb-" + "a1B2" * 5,
    "xapp-1-" + "a1B2" * 5,
    "sk-" + "a1B2" * 8,
    "dckr_pat_" + "a1B2" * 6,
    "hooks.slack.com/services/T0/B0/" + "a1B2" * 6,
    "eyJ" + "a1B2" * 5 + "." + "a1B2" * 5 + ".",
]
LOGIN = "https://me:pa@ss@host/x"


@pytest.mark.parametrize("token", [*TOKENS, LOGIN])
def test_a_secret_is_known_by_its_shape(token: str) -> None:
    text = f"--set=a={token} b"
    assert why_secret(text, {})
    assert hidden(text, {}).startswith("--set=a=")
    assert not why_secret(hidden(text, {}), {})
    assert hidden_in_log(text.encode(), {}).startswith(b"--set=a=")
    with pytest.raises(RequestError) as refused:
        refuse_secrets({"settings": {"a": ["plain", text]}}, "the request:", {})
    assert refused.value.where == "the request: settings a"
    assert "a1B2" not in str(refused.value)
    assert "pa@ss" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["token", "access_token", "api_key", "apikey", "key", "X-Amz-Signature", "X-Goog-Signature", "sig", "PASSWORD"],
)
@pytest.mark.parametrize("sign", ["?", "?v=1&", "?v=1&amp;", "?v=1\\u0026"])
def test_a_secret_in_the_query_of_an_address(name: str, sign: str) -> None:
    text = f"see https://host/file{sign}{name}=a1B2 and b"
    assert why_secret(text, {}) == "the text is a URL with a secret in its query"
    assert hidden(text, {}) == text.replace("a1B2", "<redacted>")
    assert hidden(hidden(text, {}), {}) == hidden(text, {})
    assert hidden_in_log(text.encode(), {}) == hidden(text, {}).encode()


@pytest.mark.parametrize(
    "text",
    [
        "https://host/x?max_tokens=5&keys=2&monkey=x",
        "https://host/?seconds_per_token=3",
        "what? token = 5",
        "a && key=5",
        "hf_transfer",
        "hf_datasets_cache",
        "task-of-some-length-or-other",
        "AKIA",
        "https://host/a@b",
        "http://10.0.0.1:8080/x/y@z",
        "docker://nvcr.io:443/nvidia/nemo@sha256:abc",
        "http://[::1]:8080/x@y",
        "",
    ],
)
def test_what_only_looks_like_one_is_none(text: str) -> None:
    assert (why_secret(text, {}), hidden(text, {})) == ("", text)


@pytest.mark.parametrize(
    "login",
    ["KEY:a1/B2+c3", "KEY:a1@B2/c3", "<redacted>:a1/B2", ":a1/B2", "KEY:1234x/B2+c3", "KEY:a1?B2", "KEY:a1:B2/c"],
)
def test_a_login_goes_whole_whatever_its_password_holds(login: str) -> None:
    text = f"read s3://{login}@bucket/x?a=b@c failed"
    assert why_secret(text, {}) == "the text is a URL with a login"
    assert hidden(text, {}) == "read s3://<redacted>@bucket/x?a=b@c failed"
    assert hidden(hidden(text, {}), {}) == hidden(text, {})


def test_the_value_of_a_secret_variable_is_a_secret_wherever_it_is() -> None:
    known = shell_secrets({"MY_DB_PASSWORD": "correct horse", "HOME": "/home/me", "PWD": "/a/long/folder"})
    assert known == {"correct horse": "MY_DB_PASSWORD"}
    assert "MY_DB_PASSWORD" in why_secret("so correct horse it is", known)
    assert hidden("so correct horse it is", known) == "so <redacted> it is"
    assert hidden_in_log(b"so correct horse it is", known) == b"so <redacted> it is"


def test_a_short_value_or_a_part_of_a_path_is_none() -> None:
    shell = {"A_TOKEN": "short", "B_PASS": "benchuser"}
    assert shell_secrets(shell, paths=("/home/benchuser/results",)) == {}
    assert shell_secrets(shell) == {"benchuser": "B_PASS"}


SECRET_NAMES = """
HF_TOKEN TOKENS JAX_TOKENS db_password JAX_PASSPHRASE SLURM_JWT
NGC_API_KEY X_PAT A_PASS NCCL_MYPASS WIFI_PSK AZURE_SAS DB_PW A_WEBHOOK
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


NO_SECRET_NAMES = "TOKENIZERS_PARALLELISM PATH NCCL_DEBUG KEYBOARD MAX_TOKENS VLLM_MAX_NUM_BATCHED_TOKENS CUDA_BYPASS"


@pytest.mark.parametrize("name", NO_SECRET_NAMES.split())
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


# --- in a log -----------------------------------------------------------------------------------


def test_a_private_key_is_taken_out_with_all_its_lines() -> None:
    key = b"-----BEGIN RSA PRIVATE KEY-----\nSeCrEt\nSeCrEt\n-----END RSA PRIVATE KEY-----"
    assert hidden_in_log(b"a\n" + key + b"\nb") == b"a\n<redacted>\nb"
    assert hidden_in_log(key[40:] + b"\nb") == b"<redacted>\nb"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (b"wandb login --relogin " + b"0a1b2c3d" * 5, b"wandb login --relogin <redacted>"),
        (b"wandb.login(key='" + b"0a1b2c3d" * 5 + b"')", b"wandb.login(key='<redacted>')"),
        (b"sig=" + b"aB1%2F" * 8 + b"%3D se=2026", b"sig=<redacted> se=2026"),
        (b"X-Amz-Signature=a1b2", b"X-Amz-Signature=<redacted>"),
        (b"Authorization: Bearer a1b2", b"Authorization: <redacted>"),
        (b"WANDB_API_KEY=" + b"0a1b2c3d" * 5, b"WANDB_API_KEY=<redacted>"),
    ],
)
def test_a_secret_without_a_shape_of_its_own_in_a_log(line: bytes, left: bytes) -> None:
    assert hidden_in_log(line) == hidden_in_log(hidden_in_log(line)) == left


@pytest.mark.parametrize(
    "line",
    [
        b"eos_token: </s>", b"tokens/s: 5", b"Config param hf_access_token: \nnext", b"use_auth_token=None",
        b'{"HF_TOKEN": "<redacted>"}', b"time_per_token: 3", b"https://<redacted>@host", b"hf_transformers loaded",
        b"exit sig=11", b"step 100 loss=2.3 commit " + b"0a1b2c3d" * 5, b"wandb login: see /a/b",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(line: bytes) -> None:
    assert hidden_in_log(line) == line


@pytest.mark.parametrize(
    "piece",
    [b"QUJD", b"token ", b'password="', b"\\", b"-u a", b"--a-", b"://a", b"?a", b"&key=", b"://a:", b"://a:b/@"],
)
def test_long_lines_take_no_more_than_their_length(piece: bytes) -> None:
    """Each of these would take minutes if every place were the beginning of a search."""
    hidden_in_log(piece * (1 << 17))
