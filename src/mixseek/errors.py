"""Every exception MixSeek raises of its own, in one tree, so that an ``except`` can be as wide as it needs to be.

MixSeekError
├── ConfigurationError            files, environment or arguments; the user can mend it, so no traceback is shown
│   ├── WorkspaceNotFoundError    (also FileNotFoundError)
│   ├── MissingFileError          (also FileNotFoundError)
│   ├── PluginError               a plugin that cannot be loaded or is not what it says
│   ├── NotResumableError         an execution that is whole, not known, or played by another process
│   │   └── RunChangedError       what it depends on is not what it was
│   └── AuthenticationError       no key for a model provider
├── OutputError                   a result could not be written where it was asked for
├── StorageError
│   ├── DatabaseReadError
│   ├── DatabaseWriteError
│   │   └── UnstorableValueError  (also ValueError) a value the file cannot hold bit by bit
│   ├── DatabaseLockedError       (also DatabaseReadError and DatabaseWriteError) another process kept the file too long
│   └── DatabaseVersionError      the file was written by a newer MixSeek
└── RunError                      a run went wrong
    ├── PlaceTakenError           another process plays this execution
    ├── PlaceLostError            another process has taken this execution over; this one may write no more
    ├── ModelError                a model call failed after its retries
    │   ├── ModelRateLimitError   too many calls in too short a time
    │   ├── ModelSpendLimitError  the account's money or quota is used up; never tried again
    │   ├── ModelTimeoutError     no answer in time
    │   ├── ModelUnavailableError the server failed, was overloaded or could not be reached
    │   ├── ModelRefusedError     the server will not answer this request: key, name, size or content
    │   ├── ModelMalformedError   a reply that is no answer
    │   ├── ModelIncompleteError  an answer that broke off
    │   ├── ModelTooLargeError    an answer beyond the size that is read
    │   └── ModelOutputError      answers that never had the form that was asked for
    ├── ToolError                 a tool of a member failed; its model is told so
    ├── SubmissionError           the leader gave no usable answer
    ├── EvaluationError           a submission could not be scored
    ├── SandboxError              code could not be run, through no fault of the code
    ├── RoundTimeoutError         (also TimeoutError) one submission or judgment took too long
    ├── BudgetExhaustedError      the purse of the run or the team cannot pay for more
    ├── TeamTimeoutError          (also TimeoutError) all rounds of a team together took too long
    └── NoResultError             every round of a team failed

Errors of prompt templates are Jinja2's own: ``jinja2.TemplateError`` and below.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = [
    "ACCEPT_CHANGES",
    "AuthenticationError",
    "BudgetExhaustedError",
    "ConfigurationError",
    "DatabaseLockedError",
    "DatabaseReadError",
    "DatabaseVersionError",
    "DatabaseWriteError",
    "EvaluationError",
    "MissingFileError",
    "MixSeekError",
    "ModelError",
    "ModelIncompleteError",
    "ModelMalformedError",
    "ModelOutputError",
    "ModelRateLimitError",
    "ModelRefusedError",
    "ModelSpendLimitError",
    "ModelTimeoutError",
    "ModelTooLargeError",
    "ModelUnavailableError",
    "NoResultError",
    "NotResumableError",
    "OutputError",
    "PlaceLostError",
    "PlaceTakenError",
    "PluginError",
    "Problem",
    "RoundTimeoutError",
    "RunChangedError",
    "RunError",
    "SandboxError",
    "StorageError",
    "SubmissionError",
    "TeamTimeoutError",
    "ToolError",
    "UnstorableValueError",
    "WorkspaceNotFoundError",
    "would_fail_again",
]


class MixSeekError(Exception):
    """The root of the tree."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the configuration: where it stands and what to do about it."""

    message: str
    file: str | None = None
    key: str | None = None
    mended_at_once: bool = field(default=False, compare=False)
    """Whether one remedy is enough wherever it stands, as a key that is set: people are then told once."""

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


class NotResumableError(ConfigurationError):
    """An execution that cannot be gone on with: it is whole, not known, or played by another process."""


ACCEPT_CHANGES = "accept_changes=True"
"""How Python says that an execution goes on with what has changed: the end of every remedy that needs it, so that the
command line can name its option there."""


class RunChangedError(NotResumableError):
    """Settings, plugins or files are not what they were when the execution was begun; ``problems`` names them."""


class AuthenticationError(ConfigurationError):
    """A model provider's key is missing or was refused."""


class OutputError(MixSeekError):
    """A result could not be written to the file or stream it was asked for; it may be in the database."""


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


class PlaceTakenError(RunError):
    """Another process plays this execution; the message names it, and so does ``holder`` where it is known."""

    def __init__(self, message: str, *, holder: str = "another process") -> None:
        self.holder = holder
        super().__init__(message)


class PlaceLostError(RunError):
    """Another process has taken this execution over while this one stood still; nothing was written since."""


class ModelError(RunError):
    """A model call failed and its retries are spent."""

    retryable: bool = False
    """Whether another try had a chance; the tries are spent by the time anyone but the retry layer sees this."""

    def __init__(
        self,
        message: str,
        *,
        model: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        retryable: bool | None = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(message)
        self.model = model
        """The model as it was named, ``"provider:name"``."""
        self.status = status
        """The HTTP status, if there was one."""
        self.retry_after = retry_after
        """Seconds the server asked to wait, if it did."""
        self.attempts = attempts
        """How often it was tried."""
        if retryable is not None:
            self.retryable = retryable

    @property
    def provider(self) -> str | None:
        """The part of the model's name before the colon."""
        return self.model.partition(":")[0] if self.model else None

    def __str__(self) -> str:
        tries = f" (after {self.attempts} tries)" if self.attempts > 1 else ""
        return f"{self.model}: {self.args[0]}{tries}" if self.model else f"{self.args[0]}{tries}"


class ModelRateLimitError(ModelError):
    """The server asks for fewer calls in the same time."""

    retryable = True


class ModelSpendLimitError(ModelError):
    """The account's money or quota is used up; waiting does not help, so it is not tried again."""


class ModelTimeoutError(ModelError):
    """No complete answer in time. Not a ``TimeoutError``: those are the limits of submissions, judgments and teams."""

    retryable = True


class ModelUnavailableError(ModelError):
    """The server failed, was overloaded, or could not be reached."""

    retryable = True


class ModelRefusedError(ModelError):
    """The server will not answer this request however often it is sent: a wrong key, name, size or content."""


class ModelMalformedError(ModelError):
    """A reply that is no answer: not JSON, without choices, or an error under the status of success."""

    retryable = True


class ModelIncompleteError(ModelError):
    """An answer that broke off, or that does not say why it ended."""

    retryable = True


class ModelTooLargeError(ModelError):
    """An answer beyond the size that is read; the rest of it was not fetched."""


class ModelOutputError(ModelError):
    """The model kept giving answers of another form than the one it was asked for."""


class ToolError(RunError):
    """A tool of a member failed, in words its model can do something with."""


class SubmissionError(RunError):
    """A leader gave an empty or malformed answer."""


class EvaluationError(RunError):
    """A submission could not be scored; this is a state of its own and never a zero."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable
        """Whether the same submission may be scored another time."""


class SandboxError(RunError):
    """A sandbox failed, not the code that was to run in it."""


class RoundTimeoutError(RunError, TimeoutError):
    """One submission or one judgment took longer than its own limit; the team may go on."""


class TeamTimeoutError(RunError, TimeoutError):
    """All rounds of a team together took longer than the team's limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"all rounds together took longer than {seconds:g} s")


class BudgetExhaustedError(RunError):
    """The purse of the run or of the team cannot pay for what was to be done; what is done counts."""


class NoResultError(RunError):
    """No round of a team ended with a submission that could be scored."""


def would_fail_again(reason: str) -> bool:
    """Whether a team that failed for this reason has played all its rounds: to resume it changes nothing."""
    return _NO_SCORED_ROUND.match(reason) is not None


_NO_SCORED_ROUND = re.compile(r"no round of team .+ has a scored submission")
