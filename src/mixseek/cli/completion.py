"""Values that a shell completes and only the workspace knows; whatever goes wrong, nothing is offered."""

import asyncio
import os

import typer

__all__ = ["complete_execution"]

_MOST = 50
_WAIT_SECONDS = 0.5


def complete_execution(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of executions, the newest first, and ``last``."""
    # A shell waits for this, so it is loaded only when it is asked for, and no lock is waited for long.
    try:
        from mixseek.storage.executions import StoredExecutions
        from mixseek.workspace import Workspace

        workspace = Workspace.locate(ctx.params.get("workspace"), os.environ)
        stored = asyncio.run(StoredExecutions(workspace.database, lock_wait_seconds=_WAIT_SECONDS).all())
    except Exception:  # noqa: BLE001  # a person who presses a key is shown no error
        return []
    newest = sorted(stored, key=lambda one: (one.started_at is not None, one.started_at), reverse=True)
    ids = [one.execution_id for one in newest if one.execution_id.startswith(incomplete)][:_MOST]
    return [*(["last"] if "last".startswith(incomplete) else []), *ids]
