"""What Python callers give, checked at the door: a mistake is one line that names the argument, before a call is paid.

Where it is clear what was meant it is taken as such: one listener stands for a list of one, and None for nothing.
"""

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mixseek.config.manager import RunSettings
from mixseek.config.problems import words_of_unknown_argument, words_of_unknown_key
from mixseek.config.reading import checked_seconds, checked_text
from mixseek.config.schema import OrchestratorSettings, TeamSettings
from mixseek.errors import ConfigurationError, Problem
from mixseek.events import Listener
from mixseek.llm import Backoff
from mixseek.records import LAST
from mixseek.round_controller import OnRoundCompleteCallback
from mixseek.storage.journal_records import DERIVED

__all__ = [
    "checked_backoff",
    "checked_hook",
    "checked_id",
    "checked_limits",
    "checked_listeners",
    "checked_reference",
    "checked_settings",
    "checked_timeout",
    "listed_teams",
]


def checked_settings(given: Any) -> OrchestratorSettings | RunSettings:
    """The settings of a run."""
    if isinstance(given, OrchestratorSettings | RunSettings):
        return given
    raise _wrong("settings", "OrchestratorSettings, as load_orchestrator_settings(file, workspace) gives them", given)


def checked_limits(given: Mapping[str, Any], others: Iterable[str]) -> Mapping[str, Any]:
    """The settings of an orchestrator file; an argument that is unknown is told here, with all that Python takes."""
    others = set(others)
    unknown = given.keys() - others - OrchestratorSettings.model_fields.keys()
    told = {name: words_of_unknown_argument(OrchestratorSettings, name, others) for name in given if name in unknown}
    # Where that is what the checks of a file say, these say it, with all else that is wrong.
    if any(words != words_of_unknown_key(OrchestratorSettings, (name,)) for name, words in told.items()):
        raise ConfigurationError([Problem(words, "arguments", name) for name, words in told.items()])
    return given


def checked_listeners(given: Any) -> tuple[Listener, ...]:
    """All who want to hear of a run."""
    listeners = (given,) if callable(given) else given or ()
    if not isinstance(listeners, Iterable):
        raise _wrong("listeners", "functions of an event, in a list", given)
    found = tuple(listeners)
    for number, each in enumerate(found):
        if not callable(each):
            raise _wrong(f"listeners[{number}]", "a function of an event", each)
        if inspect.iscoroutinefunction(each) or inspect.iscoroutinefunction(type(each).__call__):
            raise ConfigurationError(
                Problem("is async, but nobody awaits it: write a plain def", f"listeners[{number}]")
            )
    return found


def checked_hook(given: Any) -> OnRoundCompleteCallback | None:
    """What is called after each round."""
    if given is None or callable(given):
        return given  # type: ignore[no-any-return]  # what it takes is seen when it is called
    raise _wrong("on_round_complete", "a function of a RoundState and the round's member submissions", given)


def checked_backoff(given: Any) -> Backoff | None:
    """How retries wait; None stands for the usual way."""
    if given is None or isinstance(given, Backoff):
        return given
    raise _wrong("backoff", "a Backoff of mixseek.llm", given)


def checked_timeout(given: Any) -> int | None:
    """The time-out that somebody asks for; None stands for that of the settings."""
    return None if given is None else checked_seconds(given, "timeout_seconds")


def checked_id(given: Any) -> str | None:
    """An id for a new execution, one that commands can name; None stands for any."""
    if given is None:
        return None
    name = checked_text(given, "execution id")
    fault = _why_it_cannot_be_named(name)
    if fault:
        raise ConfigurationError(f"the execution id {name!r} {fault}, so no command could name it: give another")
    return name


def _why_it_cannot_be_named(name: str) -> str | None:
    if name == LAST:
        return "stands for the newest execution"
    if name.startswith("-"):
        return "begins like an option"
    if name != name.strip():
        return "begins or ends with a space"
    if DERIVED in name:
        return f"holds {DERIVED!r}, which stands before what belongs to another execution"
    return None if name.isprintable() else "holds a character that cannot be typed"


def checked_reference(given: Any) -> str | None:
    """A reference answer; None stands for that of the settings."""
    return None if given is None else checked_text(given, "reference answer")


def listed_teams(given: Any) -> list[Any]:
    """The teams, whatever each may be; one may stand for a list of one."""
    if isinstance(given, TeamSettings | Mapping | Path | str):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise _wrong("teams", "a list of TeamSettings, tables or paths of team files", given)
    teams = list(given)
    if None in teams:
        raise _wrong(f"teams[{teams.index(None)}]", "TeamSettings, a table or the path of a team file", None)
    return teams


def _wrong(name: str, wanted: str, given: object) -> ConfigurationError:
    return ConfigurationError(Problem(f"must be {wanted}, not {type(given).__name__}", key=name))
