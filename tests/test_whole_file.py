import os
import threading
from pathlib import Path

import pytest

from mixseek.whole_file import try_to_write, write_whole


def _names(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir()]


def test_a_text_takes_the_place_of_another_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "answer.md"
    write_whole(file, "one\n")
    write_whole(file, "two\r\n")
    assert file.read_bytes() == b"two\r\n"
    assert _names(tmp_path) == ["answer.md"]


def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "secret.md"
    file.touch(0o600)
    write_whole(file, "text")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_must_not_be_replaced_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text("mine")
    with pytest.raises(FileExistsError):
        write_whole(file, "other", replace=False)
    assert file.read_text() == "mine"
    assert _names(tmp_path) == ["team.toml"]


def test_half_a_character_costs_nobody_the_text(tmp_path: Path) -> None:
    write_whole(tmp_path / "answer.md", "before \ud800 after")
    assert (tmp_path / "answer.md").read_text() == "before \\ud800 after"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "answer")
    reader.join(timeout=30)
    assert read == ["answer"]
    assert pipe.is_fifo()


def test_several_threads_write_one_file_and_one_of_the_texts_is_there_whole(tmp_path: Path) -> None:
    file, texts = tmp_path / "report.html", [letter * 100_000 for letter in "abcdefgh"]
    threads = [threading.Thread(target=write_whole, args=(file, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert file.read_text() in texts
    assert _names(tmp_path) == ["report.html"]


def test_trying_leaves_no_trace_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.md").symlink_to(tmp_path / "real.md")
    assert try_to_write(tmp_path / "link.md") == tmp_path / "real.md"
    assert _names(tmp_path) == ["link.md"]


@pytest.mark.parametrize(("name", "kind"), [("", IsADirectoryError), ("missing/answer.md", FileNotFoundError)])
def test_trying_raises_what_writing_would(tmp_path: Path, name: str, kind: type[OSError]) -> None:
    with pytest.raises(kind):
        try_to_write(tmp_path / name)
