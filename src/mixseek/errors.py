"""Every exception MixSeek raises of its own, in one tree, so that an ``except`` can be as wide as it needs to be.

MixSeekError
├── ConfigurationError            files, environment or arguments; the user can mend it, so no traceback is shown
│   ├── WorkspaceNotFoundError    (also FileNotFoundError)
│   ├── MissingFileError          (also FileNotFoundError)
│   ├── PluginError               a plugin that cannot be loaded or is not what it says
│   └── AuthenticationError       no key for a model provider
├── StorageError
│   ├── DatabaseReadError
│   ├── DatabaseWriteError
│   │   └── UnstorableValueError  (also ValueError) a value the file cannot hold bit by bit
│   ├── DatabaseLockedError       (also DatabaseReadError and DatabaseWriteError) another process kept the file too long
│   └── DatabaseVersionError      the file was written by a newer MixSeek
└── RunError                      a run went wrong
    ├── ModelError                a model call failed after its retries
    ├── SubmissionError           the leader gave no usable answer
    ├── EvaluationError           a submission could not be scored
    ├── RoundTimeoutError         (also TimeoutError) one submission or judgment took too long
    ├── TeamTimeoutError          (also TimeoutError) all rounds of a team together took too long
    └── NoResultError             every round of a team failed

Errors of prompt templates are Jinja2's own: ``jinja2.TemplateError`` and below.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "AuthenticationError",
    "ConfigurationError",
    "DatabaseLockedError",
    "DatabaseReadError",
    "DatabaseVersionError",
    "DatabaseWriteError",
    "EvaluationError",
    "MissingFileError",
    "MixSeekError",
    "ModelError",
    "NoResultError",
    "PluginError",
    "Problem",
    "RoundTimeoutError",
    "RunError",
    "StorageError",
    "SubmissionError",
    "TeamTimeoutError",
    "UnstorableValueError",
    "WorkspaceNotFoundError",
]


class MixSeekError(Exception):
    """The root of the tree."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the configuration: where it stands and what to do about it."""

    message: str
    file: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class ConfigurationError(MixSeekError):
    """Something the user can mend, told all at once: ``problems`` holds one entry for every mistake found."""

    def __init__(self, problems: str | Problem | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class WorkspaceNotFoundError(ConfigurationError, FileNotFoundError):
    """No workspace was named, or the one that was named is not a directory."""

    # FileNotFoundError prints its errno and file name when it has them; the sentence is ours alone.
    __str__ = Exception.__str__


class MissingFileError(ConfigurationError, FileNotFoundError):
    """A configuration file that was named does not exist."""

    __str__ = Exception.__str__


class PluginError(ConfigurationError):
    """A member, metric or provider that cannot be imported, or that is not of the kind it is used as."""


class AuthenticationError(ConfigurationError):
    """A model provider's key is missing or was refused."""


class StorageError(MixSeekError):
    """The results could not be read or written."""


class DatabaseReadError(StorageError):
    """A read failed."""


class DatabaseWriteError(StorageError):
    """A write failed after its retries; nothing of it was stored."""


class UnstorableValueError(DatabaseWriteError, ValueError):
    """A value that cannot be kept bit by bit; it is refused by name rather than changed."""


class DatabaseLockedError(DatabaseReadError, DatabaseWriteError):
    """Another process held the file for longer than the wait that is allowed; the message names it."""


class DatabaseVersionError(StorageError):
    """The file was written by a newer MixSeek than this one."""


class RunError(MixSeekError):
    """A competition went wrong while it ran."""


class ModelError(RunError):
    """A model call failed and its retries are spent."""


class SubmissionError(RunError):
    """A leader gave an empty or malformed answer."""


class EvaluationError(RunError):
    """A submission could not be scored; this is a state of its own and never a zero."""


class RoundTimeoutError(RunError, TimeoutError):
    """One submission or one judgment took longer than its own limit; the team may go on."""


class TeamTimeoutError(RunError, TimeoutError):
    """All rounds of a team together took longer than the team's limit."""


class NoResultError(RunError):
    """No round of a team ended with a submission."""
