"""Whatever stands where a file should: a clear answer, at once."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mixseek.config.reading import MAX_FILE_BYTES, read_dotenv, read_text, read_toml
from mixseek.errors import ConfigurationError


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "gone")


def _unreadable(path: Path) -> None:
    path.symlink_to("/proc/self/mem")


def _nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_directory, "is a directory, not a file"),
        (_pipe, "is not a regular file"),
        (_endless_device, "is not a regular file"),
        (_loop, "cannot be read: too many levels of symbolic links"),
        (_dangling_link, "does not exist"),
        (_unreadable, "cannot be read: input/output error"),
        (_nothing, "does not exist"),
    ],
)
def test_what_is_no_file_is_told_at_once(make: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    make(path)
    started = time.perf_counter()
    with pytest.raises(ConfigurationError) as caught:
        read_toml(path, "x.toml")
    assert str(caught.value) == f"x.toml: {told}"
    assert time.perf_counter() - started < 1


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_toml(path, "x.toml") == {"a": 1}


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("#" * MAX_FILE_BYTES)
    assert read_toml(path, "x.toml") == {}
    path.write_text("#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigurationError, match="larger than 1,000,000 bytes"):
        read_text(path, "x.toml")


def test_dotted_words_inside_a_text_are_no_long_key(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('text = """\nsee ' + "a." * 40 + "b\nand " + "word. " * 40 + '\n"""\n')
    assert read_toml(path, "x.toml")["text"].startswith("see a.a.")


def test_a_key_of_thirty_two_parts_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("a." * 31 + "b = 1\n")
    assert "a" in read_toml(path, "x.toml")


def test_variables_are_read_from_a_dotenv_file(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("# keys\nMIXSEEK_MAX_ROUNDS=3\nexport NAME='a b'\nEMPTY=\nALONE\n")
    assert read_dotenv(path, ".env") == ({"MIXSEEK_MAX_ROUNDS": "3", "NAME": "a b", "EMPTY": ""}, ())


def test_no_dotenv_file_is_no_variables(tmp_path: Path) -> None:
    assert read_dotenv(tmp_path / ".env", ".env") == ({}, ())


def test_a_wrong_line_of_a_dotenv_file_is_told_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1 2\n1 2\nB='open\nC=3\n")
    values, problems = read_dotenv(path, ".env")
    assert values == {"A": "1 2", "C": "3"}
    assert [str(problem) for problem in problems] == [
        ".env: line 2 is not NAME=value",
        ".env: line 3 is not NAME=value",
    ]


def test_a_dotenv_file_that_is_a_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    with pytest.raises(ConfigurationError, match=r"\.env: is a directory"):
        read_dotenv(tmp_path / ".env", ".env")
