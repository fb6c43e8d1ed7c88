"""Where things are: one workspace is one directory, and these are the names inside it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mixseek.errors import WorkspaceNotFoundError

__all__ = ["WORKSPACE_VARIABLE", "Workspace"]

WORKSPACE_VARIABLE = "MIXSEEK_WORKSPACE"


@dataclass(frozen=True)
class Workspace:
    """A directory with configuration, results and logs.

    >>> Workspace(Path("/srv/mixseek")).database
    PosixPath('/srv/mixseek/mixseek.db')
    """

    root: Path
    is_bare: bool = False
    """Whether it is only where relative paths start: it has no files of its own, and nothing is kept in it."""

    @classmethod
    def bare(cls) -> "Workspace":
        """The current directory, for runs that are configured from Python alone."""
        return cls(Path.cwd(), is_bare=True)

    @classmethod
    def locate(
        cls, path: "Path | str | Workspace | None" = None, environ: Mapping[str, str] = os.environ
    ) -> "Workspace":
        """The workspace at ``path``, else the one ``$MIXSEEK_WORKSPACE`` names; it has to be a directory."""
        if isinstance(path, Workspace):
            return path
        named = path if path is not None else environ.get(WORKSPACE_VARIABLE)
        if not named:
            raise WorkspaceNotFoundError(
                f"no workspace: give --workspace DIR or set {WORKSPACE_VARIABLE}; mixseek init makes one"
            )
        if not isinstance(named, str | os.PathLike):
            raise WorkspaceNotFoundError(f"workspace: must be the path of a directory, not {type(named).__name__}")
        try:
            root = Path(named).expanduser().absolute()
            is_there = root.exists()
        except PermissionError:
            raise WorkspaceNotFoundError(
                f"workspace {str(root)!r} may not be read; check its permissions and those of the directory it is in"
            ) from None
        except (OSError, RuntimeError, ValueError):
            # Too long, or "~somebody", and there is no such user.
            raise WorkspaceNotFoundError(f"workspace {str(named)!r} is not the name of a directory") from None
        if not is_there:
            raise WorkspaceNotFoundError(
                f"workspace {str(root)!r} does not exist: create the directory or name another"
            )
        if not root.is_dir():
            raise WorkspaceNotFoundError(
                f"workspace {str(root)!r} is not a directory: name the directory that holds it"
            )
        return cls(_without_detours(root))

    @property
    def configs(self) -> Path:
        """Where the TOML files are."""
        return self._own / "configs"

    @property
    def prompt_templates(self) -> Path:
        """Where a workspace may keep ``initial_prompt.jinja2`` and ``continuation_prompt.jinja2``."""
        return self.configs / "prompt_templates"

    @property
    def env_file(self) -> Path:
        """Variables that hold where the environment is silent."""
        return self._own / ".env"

    @property
    def database(self) -> Path:
        """The results (DuckDB)."""
        return self.root / "mixseek.db"

    @property
    def journal(self) -> Path:
        """What happened, call by call (SQLite)."""
        return self.root / "journal.db"

    @property
    def attachments(self) -> Path:
        """What came with tasks, each file named by the hash of its content."""
        return self.root / "attachments"

    @property
    def reports(self) -> Path:
        """Where a page of each execution is written, if one is wanted."""
        return self.root / "reports"

    @property
    def _own(self) -> Path:
        # Nothing can ever exist below this file.
        return Path(os.devnull) if self.is_bare else self.root

    def resolve(self, path: Path | str) -> Path:
        """A path found inside a file: relative ones start at the workspace."""
        return self.root / Path(path).expanduser()

    def find(self, path: Path | str) -> Path:
        """A path given on the command line: relative ones are tried in the current directory, then in the workspace."""
        given = Path(path).expanduser()
        return given.absolute() if given.is_absolute() or given.exists() else self.root / given


def _without_detours(path: Path) -> Path:
    """The same directory without ``..``, if it is the same: behind a link the one above is another."""
    plain = Path(os.path.normpath(path))
    try:
        return plain if plain.samefile(path) else path
    except OSError:
        return path
