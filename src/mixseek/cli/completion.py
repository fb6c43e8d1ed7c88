"""Values that a shell completes and only the workspace knows; whatever goes wrong, nothing is offered."""

import asyncio
import os

import typer

from mixseek.embedded import FETCHABLE, PREFIX

__all__ = ["complete_embedded", "complete_execution", "complete_model"]

_MOST = 50
_WAIT_SECONDS = 0.5


def complete_execution(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of executions, the newest first, and ``last``."""
    # A shell waits for this, so it is loaded only when it is asked for, and no lock is waited for long.
    try:
        from mixseek.report.reading import list_executions
        from mixseek.workspace import Workspace

        workspace = Workspace.locate(ctx.params.get("workspace"), os.environ)
        newest = asyncio.run(list_executions(workspace, lock_wait_seconds=_WAIT_SECONDS))
    except Exception:  # noqa: BLE001  # a person who presses a key is shown no error
        return []
    ids = [one.execution_id for one in newest if one.execution_id.startswith(incomplete)][:_MOST]
    return [*(["last"] if "last".startswith(incomplete) else []), *ids]


def complete_model(ctx: typer.Context, incomplete: str) -> list[str]:
    """Models that the files of the workspace name, and the embedded ones."""
    known = [f"{PREFIX}:{name}" for name in FETCHABLE]
    try:
        from mixseek.config.manager import ConfigurationManager

        named, _ = ConfigurationManager(ctx.params.get("workspace"), no_plugins=True).models()
        known += [one.model for one in named]
    except Exception:  # noqa: BLE001, S110  # as above
        pass
    return sorted({model for model in known if model.startswith(incomplete)})[:_MOST]


def complete_embedded(incomplete: str) -> list[str]:
    """Models whose weights can be fetched."""
    return [name for name in FETCHABLE if name.startswith(incomplete)]
