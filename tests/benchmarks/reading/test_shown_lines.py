"""How lines are shown: no secret and no control character."""

import pytest

from benchmarks.reading.shown_lines import shown_line


def test_a_line_is_shown_without_writer_colours_secrets_or_control_characters() -> None:
    assert shown_line(b"2026-04-27 00:00:01 [rank1]: a\x00b\tc\x07") == "a\\x00b c\\x07"
    assert shown_line(b"\xff\xfe") == "\\xff\\xfe"
    assert "\n" not in shown_line("a\u2028b\x85c".encode())


@pytest.mark.parametrize(
    "line",
    [
        "OSError: 401 for hf_SeCrEtSeCrEt",
        "url?token=SeCrEtSeCrEt&a=1",
        "Authorization: Bearer SeCrEtSeCrEt",
        "HF_TOKEN=SeCrEtSeCrEt",
        '{"password": "SeCrEt SeCrEt"}',
        r'said "{\\"password\\": \\"SeCrEt b\\"}"',
        "passphrase=two SeCrEt words",
        "curl -u bob:SeCrEt http://host",
        "Set-Cookie: session=SeCrEt; Path=/",
        "--password SeCrEt",
        "SeCrEt -----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY----- SeCrEt",
    ],
)
def test_secrets_are_not_shown(line: str) -> None:
    assert "SeCrEt" not in shown_line(line.encode())
    assert "<redacted>" in shown_line(line.encode())
