from benchmarks.errors import RequestError


def test_a_reason_of_several_lines_is_indented() -> None:
    error = RequestError("scontrol failed", why="first\nsecond", next_command="scontrol ping")
    lines = str(error).splitlines()
    assert lines[0] == "scontrol failed"
    assert all(line.startswith("  ") for line in lines[1:])
    assert [line.split()[-1] for line in lines] == ["failed", "first", "second", "ping"]
