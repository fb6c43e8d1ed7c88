"""Reports as files: where they are, and what a failure leaves behind."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from mixseek.errors import StorageError
from mixseek.report.html import render, report_path, write_report
from mixseek.workspace import Workspace
from tests.report.execution_records import make_record, make_team

RECORD = make_record(make_team("a", [80.0, 90.0]), make_team("b", [70.0]))
ROOT = Path(__file__).parents[2]


def test_a_report_is_the_same_whenever_it_is_written(tmp_path: Path) -> None:
    file = write_report(RECORD, tmp_path / "new" / "report.html")
    assert file.read_text(encoding="utf-8") == render(RECORD)
    assert [each.name for each in file.parent.iterdir()] == ["report.html"]


def test_an_old_report_stays_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.html"
    file.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(StorageError, match=r"report\.html' cannot be written: No space left on device"):
        write_report(RECORD, file)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("report.html", "old")]


def test_a_pipe_gets_the_report_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_report(RECORD, pipe)
        assert reader.communicate(timeout=10)[0].decode() == render(RECORD)
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    "execution_id", ["../../x", "/etc/passwd", "a\0b", "", ".", "..", "é" * 300, "x\ud800", ".hidden"]
)
def test_no_id_leads_out_of_the_reports(tmp_path: Path, execution_id: str) -> None:
    path = report_path(Workspace(tmp_path), execution_id)
    assert path.parent == tmp_path / "reports"
    path.parent.mkdir()
    path.write_text("it can be written")


def test_the_templates_the_style_sheet_and_the_script_are_in_the_wheel(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=120)
    [wheel] = tmp_path.iterdir()
    here = {f"mixseek/report/templates/{each.name}" for each in (ROOT / "src/mixseek/report/templates").iterdir()}
    assert len(here) == 5
    assert here <= set(ZipFile(wheel).namelist())
