"""Workspaces for tests: a few tiny teams, an evaluator and a judgment, ready to play."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mixseek.testing.scripted_models import SCRIPTED

__all__ = ["temporary_workspace", "tiny_team", "write_workspace"]

_SERVED = "loopback"


def tiny_team(team_id: str, *, members: int = 0, provider: str = SCRIPTED) -> str:
    """The TOML of a team: leader ``leader-<team_id>`` and members ``member-1`` and so on."""
    team = f"""\
[team]
team_id = "{team_id}"
team_name = "Team {team_id.upper()}"

[team.leader]
model = "{provider}:leader-{team_id}"
"""
    return team + "".join(_member(number, provider) for number in range(1, members + 1))


def _member(number: int, provider: str) -> str:
    return f"""
[[team.members]]
name = "member-{number}"
type = "plain"
model = "{provider}:member-{number}"
description = "Does part {number} of the task."
"""


def write_workspace(
    root: Path,
    *,
    teams: int = 2,
    members: int = 0,
    max_rounds: int = 2,
    base_url: str | None = None,
    orchestrator: str = "",
    evaluator: str = "",
    judgment: str = "",
) -> Path:
    """Write a workspace whose teams ``a``, ``b``, ... play on scripted models, or on the server at ``base_url``.

    The models are ``leader-<team>``, ``member-<n>``, ``judge`` and ``judgment``. ``orchestrator``, ``evaluator`` and
    ``judgment`` are lines added to these files. Returns the orchestrator file.
    """
    provider = SCRIPTED if base_url is None else _SERVED
    names = [_name(number) for number in range(teams)]
    listed = "".join(f'\n[[orchestrator.teams]]\nconfig = "configs/agents/team-{name}.toml"\n' for name in names)
    files = {
        "orchestrator.toml": f"[orchestrator]\nmax_rounds = {max_rounds}\n{orchestrator}\n{listed}",
        "evaluator.toml": f'default_model = "{provider}:judge"\n{evaluator}\n',
        "judgment.toml": f'model = "{provider}:judgment"\n{judgment}\n',
        **{f"agents/team-{name}.toml": tiny_team(name, members=members, provider=provider) for name in names},
    }
    if base_url is not None:
        files["providers.toml"] = f'[providers.{_SERVED}]\nbase_url = "{base_url}"\n'
    for name, text in files.items():
        path = root / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root / "configs" / "orchestrator.toml"


def _name(number: int) -> str:
    """a to z, then aa and so on."""
    first, rest = divmod(number, 26)
    return (_name(first - 1) if first else "") + chr(ord("a") + rest)


@contextmanager
def temporary_workspace(
    *,
    teams: int = 2,
    members: int = 0,
    max_rounds: int = 2,
    base_url: str | None = None,
    orchestrator: str = "",
    evaluator: str = "",
    judgment: str = "",
) -> Iterator[Path]:
    """The directory of a workspace as :func:`write_workspace` makes it, gone afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_workspace(
            root,
            teams=teams,
            members=members,
            max_rounds=max_rounds,
            base_url=base_url,
            orchestrator=orchestrator,
            evaluator=evaluator,
            judgment=judgment,
        )
        yield root
