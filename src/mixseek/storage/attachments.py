"""What comes with tasks, kept once for all executions: a file named by the hash of its content."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from mixseek.errors import StorageError
from mixseek.records import Attachment, AttachmentInfo
from mixseek.storage.remedies import remedied

__all__ = ["keep_attachments", "read_kept_attachments"]


def keep_attachments(directory: Path, attachments: Iterable[Attachment]) -> None:
    """Write what is not there yet; a file appears whole or not at all, also when several processes write it."""
    for attachment in attachments:
        try:
            _keep(directory, attachment)
        except OSError as error:
            is_taken = isinstance(error, FileExistsError) and not directory.is_dir()
            why = "that is a file, and has to be a directory: move it away" if is_taken else remedied(error)
            raise StorageError(
                f"attachment {attachment.name!r} could not be kept in {str(directory)!r}: {why}"
            ) from error


def read_kept_attachments(directory: Path, attachments: Iterable[AttachmentInfo]) -> tuple[Attachment, ...]:
    """What came with a task, as it was kept; a file that is gone or is another is a StorageError."""
    return tuple(_read(directory, info) for info in attachments)


def _read(directory: Path, info: AttachmentInfo) -> Attachment:
    file = directory / info.sha256
    try:
        found = Attachment(name=info.name, media_type=info.media_type, data=file.read_bytes())
    except OSError as error:
        raise StorageError(f"attachment {info.name!r} cannot be read from {str(file)!r}: {error}") from error
    if found.sha256 != info.sha256:
        raise StorageError(f"attachment {info.name!r} in {str(file)!r} is not what came with the task")
    return found


def _keep(directory: Path, attachment: Attachment) -> None:
    file = directory / attachment.sha256
    if file.is_file() and file.stat().st_size == attachment.size:
        return
    directory.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(attachment.data)
            new.flush()
            os.fsync(new.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
