"""Where things are."""

from pathlib import Path

import pytest

from mixseek.errors import ConfigurationError
from mixseek.workspace import Workspace


def test_a_given_path_wins_over_the_environment(tmp_path: Path) -> None:
    named = tmp_path / "named"
    named.mkdir()
    environ = {"MIXSEEK_WORKSPACE": str(tmp_path)}
    assert Workspace.locate(named, environ).root == named
    assert Workspace.locate(None, environ).root == tmp_path


@pytest.mark.parametrize("environ", [{}, {"MIXSEEK_WORKSPACE": ""}])
def test_without_a_name_there_is_no_workspace(environ: dict[str, str]) -> None:
    with pytest.raises(FileNotFoundError, match="no workspace: give --workspace DIR or set MIXSEEK_WORKSPACE"):
        Workspace.locate(None, environ)


def test_what_is_not_a_directory_is_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="is not a directory"):
        Workspace.locate(tmp_path / "file")
    with pytest.raises(ConfigurationError, match="does not exist"):
        Workspace.locate(tmp_path / "nothing")


def test_a_path_with_detours_is_told_without_them_where_that_is_the_same_place(tmp_path: Path) -> None:
    for name in ("here", "there/below"):
        (tmp_path / name).mkdir(parents=True)
    assert Workspace.locate(tmp_path / "there/../here/.").root == tmp_path / "here"
    (tmp_path / "link").symlink_to(tmp_path / "there/below")
    behind = Workspace.locate(tmp_path / "link/../below").root
    assert behind == tmp_path / "link/../below"
    (tmp_path / "below").mkdir()
    assert Workspace.locate(tmp_path / "link/../below").root == behind


def test_paths_inside_files_start_at_the_workspace(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert workspace.resolve("configs/team.toml") == tmp_path / "configs" / "team.toml"
    assert workspace.resolve("/etc/team.toml") == Path("/etc/team.toml")


def test_paths_on_the_command_line_are_tried_here_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, workspace = tmp_path / "here", tmp_path / "workspace"
    for directory in (here, workspace):
        directory.mkdir()
        (directory / "both.toml").write_text("")
    monkeypatch.chdir(here)
    assert Workspace(workspace).find("both.toml") == here / "both.toml"
    assert Workspace(workspace).find("only.toml") == workspace / "only.toml"
