"""The end of a log, for errors."""

from __future__ import annotations

from sparkps._log import tail


def test_a_tail_is_the_last_lines_indented(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert tail(str(log), lines=2) == "  line 98\n  line 99"


def test_what_was_said_to_the_parent_is_not_in_it(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("ERROR sparkps.server no port is free\nsparkps failed no port is free\n")
    assert tail(str(log)) == "  ERROR sparkps.server no port is free"


def test_a_huge_log_is_not_read_whole_and_odd_bytes_are_kept_readable(tmp_path):
    log = tmp_path / "x.log"
    log.write_bytes(b"x" * 10_000_000 + b"\n\xff end")
    assert tail(str(log)).endswith("\n  � end")


def test_an_empty_or_missing_log_says_so(tmp_path):
    (tmp_path / "empty").touch()
    assert tail(str(tmp_path / "empty")) == "  (the log is empty)"
    assert tail(str(tmp_path / "none")) == "  (no log: No such file or directory)"
