"""Does a command that is run on the submission succeed? It runs in a sandbox: nobody has read what it runs."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo

from mixseek.config.schema import Fault, FilePath, MetricOptions, Text
from mixseek.config.shape import Words
from mixseek.errors import ConfigurationError
from mixseek.evaluator.metrics.base import BaseMetric, Measured
from mixseek.evaluator.metrics.code_blocks import code_blocks
from mixseek.records import MetricScore
from mixseek.sandbox import BubblewrapSandbox, CodeResult, Limits, bubblewrap_is_missing

__all__ = ["ExitCode"]

_MOST_BYTES = 32 * 1024 * 1024


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f'{path!r} leads out of the directory the command runs in: give a name like "answer.py"')
    return path


def _of_the_workspace(path: str, info: ValidationInfo) -> str:
    """The file as the metric finds it whatever the current directory is."""
    workspace = (info.context or {}).get("workspace")
    file = Path(path) if workspace is None else workspace.resolve(path)
    if not file.is_file():
        raise ValueError(f"file {path!r} does not exist: a path starts at the workspace")
    return str(file)


def _together(files: list[str]) -> list[str]:
    names = Counter(Path(file).name for file in files)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(f"two files are named {twice[0]!r}: they stand side by side, rename one")
    if sum(Path(file).stat().st_size for file in files) > _MOST_BYTES:
        raise ValueError(f"the files hold more than {_MOST_BYTES // 1024 // 1024} MiB")
    return files


NameInside = Annotated[Text, AfterValidator(_inside), Words("a path within the directory the command runs in")]
FileOfTheWorkspace = Annotated[FilePath, AfterValidator(_of_the_workspace)]


class ExitCodeOptions(MetricOptions):
    """What is run, on what, and what its end is worth."""

    command: list[Text] = Field(
        min_length=1, description="Program and arguments; there is no shell unless you name one."
    )
    submission_file: NameInside = Field(default="submission.txt", description="File the submission is written to.")
    code_block: bool = Field(
        default=False, description="Whether only the first fenced code block is written; without one it has failed."
    )
    files: Annotated[list[FileOfTheWorkspace], AfterValidator(_together)] = Field(
        default=[], description="Files of the workspace that are put beside it, each under its own name."
    )
    timeout_seconds: int = Field(default=30, ge=1, le=600, description="Longest run, in seconds; then it has failed.")
    memory_mb: int = Field(default=256, ge=64, le=65536, description="Most memory of a run, in MiB.")
    pass_score: float = Field(default=100, ge=0, le=100, description="Score if it ends with exit code 0.")
    fail_score: float = Field(default=0, ge=0, le=100, description="Score if it ends otherwise.")
    output_chars: int = Field(
        default=0, ge=0, le=20_000, description="Characters of what it prints that the team gets to read; 0: none."
    )

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        files, name = data.get("files"), data.get("submission_file", "submission.txt")
        if isinstance(files, list) and name in {Path(file).name for file in files if isinstance(file, str)}:
            yield ("submission_file",), f"one of the files is named {name!r} too, and would be written over"


class ExitCode(BaseMetric):
    """Runs a command on the submission, in bubblewrap, and scores by its exit code."""

    Options = ExitCodeOptions

    def __init__(self, options: ExitCodeOptions) -> None:
        if missing := bubblewrap_is_missing():
            raise ConfigurationError(missing)
        self.options = options
        limits = Limits(options.timeout_seconds, options.memory_mb, options.output_chars)
        self._sandbox = BubblewrapSandbox(limits)
        self._files = {Path(file).name: Path(file).read_bytes() for file in options.files}

    async def evaluate(
        self,
        user_query: str,
        submission: str,
        execution_id: str | None = None,
        team_id: str | None = None,
        round_number: int | None = None,
        **kwargs: Any,
    ) -> MetricScore:
        """Run the command once, among nothing but the submission and the files."""
        measured = await self._measured(submission)
        return MetricScore(metric_name=type(self).__name__, score=measured.score, evaluator_comment=measured.comment)

    async def _measured(self, submission: str) -> Measured:
        text = first_code_block(submission) if self.options.code_block else submission
        if text is None:
            return Measured(self.options.fail_score, "the submission holds no fenced code block")
        written = text.encode("utf-8", "replace")
        if len(written) > _MOST_BYTES:
            return Measured(self.options.fail_score, "the submission is too large to be run")
        result = await self._sandbox.run(self.options.command, {**self._files, self.options.submission_file: written})
        score = self.options.pass_score if result.succeeded else self.options.fail_score
        return Measured(score, self._told(result))

    def _told(self, result: CodeResult) -> str:
        end = f"the command ended with exit code {result.exit_code}"
        if result.limit:
            end = f"the command was ended: too much {result.limit}"
        output = result.output.strip()
        return f"{end}; it printed:\n{output}" if self.options.output_chars and output else end


def first_code_block(text: str) -> str | None:
    """What stands in the first fenced code block of a Markdown text; an open block goes on to the end.

    >>> first_code_block("So:\\n```python\\nprint(1)\\n```\\nThat is all.")
    'print(1)\\n'
    """
    first = next(code_blocks(text), None)
    return None if first is None else first.text
