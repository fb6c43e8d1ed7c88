"""What a run depends on, as hashes, and what of it is different when somebody wants to go on with the run.

A part is a table of settings, a file that a setting names (an answer schema, a metric's class, a list of words), a
prompt template, or a module whose classes and functions take part. Settings are looked at as they are shown, so that
another key of the same account changes nothing; the paths of files do not count, only what stands in them.
"""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel

from mixseek import __version__, plugins
from mixseek.config.checks import type_of_metric
from mixseek.config.manager import RunSettings
from mixseek.config.schema import EvaluatorSettings, MemberAgentConfig
from mixseek.errors import Problem
from mixseek.events import RunStarted
from mixseek.records import Attachment
from mixseek.workspace import Workspace

__all__ = ["Reach", "changes", "fingerprint", "outdated_scores", "reach_of"]

_ORCHESTRATOR = "orchestrator"
_OTHERS = ("evaluator", "judgment", "prompt_builder", "providers")
_LONGEST_NAME = 300
_LARGEST_FILE = 16 * 1024 * 1024
_MOST_TOLD = 20
_LONGEST_VALUE = 60
_NO_PART_OF_A_SCORE = frozenset({"weight", "max_retries", "timeout_seconds", "metrics", "custom_metrics"})

Reach = Literal["nothing", "end", "rounds"]
"""What a change of a setting can make different: nothing that was played, how teams end, or what rounds come to."""

_REACHES: Final[Mapping[str, Reach]] = {
    "budget": "nothing",
    "prices": "nothing",
    "storage": "nothing",
    "timeout_seconds": "nothing",
    "timeout_per_team_seconds": "nothing",
    "submission_timeout_seconds": "nothing",
    "judgment_timeout_seconds": "nothing",
    "max_retries": "nothing",
    "max_retries_per_team": "nothing",
    "max_concurrency": "nothing",
    "max_concurrent_teams": "nothing",
    "max_concurrent_members": "nothing",
    "requests_per_minute": "nothing",
    "max_rounds": "end",
    "min_rounds": "end",
    "target_score": "end",
    "plateau_rounds": "end",
    "plateau_min_gain": "end",
    "judge_on_final_round": "end",
    "max_output_tokens": "rounds",  # of a budget: requests have it as their max_tokens
}
"""By the name of a setting, or of the table at the top of its file; any other reaches the rounds."""
_READ_BY_OTHERS: Final = frozenset({"answer_schema", "metadata", "options", "tool_settings"})
"""Tables whose keys mean what a metric, a tool or a model takes them for, whatever they are named."""


def fingerprint(
    configured: RunSettings, shown: Mapping[str, Any], attachments: Iterable[Attachment] = ()
) -> dict[str, str]:
    """A hash of each part, by its name; ``shown`` are the settings as :meth:`RunSettings.shown` gives them."""
    parts = {"mixseek": __version__, **{name: _hash_of(part) for name, part in _settings(shown).items()}}
    if configured.reference is not None:
        parts["reference"] = _hash(configured.reference.encode("utf-8", "surrogatepass"))
    for attachment in attachments:
        parts[f"attachment {attachment.name}"] = attachment.sha256
    parts |= {f"file {name}": _hash_of_file(file) for name, file in sorted(_files(shown, configured.workspace))}
    return parts | dict(_hashed_module(name, configured.workspace) for name in sorted(_modules(configured)))


def changes(before: RunStarted, now: RunStarted, configured: RunSettings | None = None) -> list[Problem]:
    """What is different from when the run was begun: setting by setting where the record shows it.

    With the settings that it is now ``configured`` by, each has the file that it stands in.
    """
    if not before.fingerprint:
        return [Problem("it was begun by a version that did not keep what the run depends on")]
    told: list[Problem] = []
    old, new = (_settings(one.configuration) if isinstance(one.configuration, dict) else {} for one in (before, now))
    for part in {**before.fingerprint, **now.fingerprint}:
        was, now_is = before.fingerprint.get(part), now.fingerprint.get(part)
        if was != now_is:
            differences = _differences(part, old.get(part), new.get(part)) or [_changed(part, was, now_is)]
            told += differences if configured is None else [_in_its_file(one, part, configured) for one in differences]
    more = len(told) - _MOST_TOLD
    return [*told[:_MOST_TOLD], Problem(f"and {more} more")] if more > 0 else told


def reach_of(change: Problem) -> Reach:
    """What one of the :func:`changes` can make different in what was played."""
    table, *names = (change.key or "").split(".")
    if not _READ_BY_OTHERS.isdisjoint((table, *names)):
        return "rounds"
    return _REACHES.get((names or [table])[-1], _REACHES.get(table, "rounds"))


def outdated_scores(before: RunStarted, now: RunStarted) -> frozenset[str]:
    """The metrics that would be asked something else by now, or computed otherwise: what they said does not hold."""
    was, now_is = _scored_by(before), _scored_by(now)
    return frozenset(name for name, part in was.items() if part != now_is.get(name))


def _scored_by(begun: RunStarted) -> dict[str, list[Any]]:
    """What the scores of each metric depend on; its weight, and how often and how long is tried, change none."""
    shown: dict[str, Any] = begun.configuration if isinstance(begun.configuration, dict) else {}
    evaluator, prompts = shown.get("evaluator") or {}, shown.get("prompt_builder") or {}
    for_all = [prompts.get("evaluator_user_prompt"), begun.reference]
    found: dict[str, list[Any]] = {}
    for metric in evaluator.get("metrics", ()):
        # What a metric sets itself it does not take from the defaults.
        set_itself = {name for name, value in metric.items() if value is not None}
        defaults = _scoring(evaluator, set_itself | ({"default_model"} if "model" in set_itself else set()))
        own = [defaults, _scoring(metric), evaluator.get("custom_metrics", {}).get(metric.get("type"))]
        named = [value for _, value in _leaves(own) if isinstance(value, str)]
        content = [begun.fingerprint.get(f"{kind} {name}") for name in named for kind in ("file", "module")]
        found[metric["name"]] = [*for_all, *own, *content]
    return found


def _scoring(settings: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    kept = {name: value for name, value in settings.items() if name not in {*_NO_PART_OF_A_SCORE, *without}}
    return {name: _scoring(value, without) if isinstance(value, Mapping) else value for name, value in kept.items()}


# --- settings ---------------------------------------------------------------------------------------------------------


def _settings(shown: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of settings by their names; where files are is nothing that a run depends on."""
    orchestrator = {
        name: value
        for name, value in shown[_ORCHESTRATOR].items()
        if name != "teams" and not name.endswith("_config") and name != "reference"
    }
    teams = {f"team {team['team_id']}": team for team in shown["teams"]}
    return {_ORCHESTRATOR: orchestrator, **teams, **{name: shown[name] for name in _OTHERS}}


def _differences(part: str, before: Any, after: Any) -> list[Problem]:
    if before is None or after is None:
        return []
    was, now_is = dict(_leaves(before)), dict(_leaves(after))
    keys = [key for key in {**was, **now_is} if was.get(key) != now_is.get(key)]
    return [Problem(f"was {_short(was.get(key))}, is {_short(now_is.get(key))}", part, key) for key in keys]


def _in_its_file(difference: Problem, part: str, configured: RunSettings) -> Problem:
    """The same with the file to look into, or with none where the part stands in no file."""
    settings: dict[str, BaseModel] = {f"team {team.team_id}": team for team in configured.teams}
    settings |= {name: getattr(configured, name) for name in (_ORCHESTRATOR, *_OTHERS)}
    named = part.removeprefix("file ")
    if part in settings:
        file = configured.file_of(settings[part], difference.key or "")
    else:
        file = named if named != part else None
    if file is None:
        return replace(difference, file=None, key=": ".join(one for one in (part, difference.key) if one))
    return replace(difference, file=file)


def _leaves(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{above}.{name}" if above else str(name))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{above}[{number}]")
    else:
        yield above, value


def _short(value: Any) -> str:
    words = "not set" if value is None else repr(value)
    return words if len(words) <= _LONGEST_VALUE else f"{words[: _LONGEST_VALUE - 3]}..."


def _changed(part: str, was: str | None, now_is: str | None) -> Problem:
    if part == "mixseek":
        return Problem(f"was {was}, is {now_is}", part)
    gone = "is gone, or nothing names it any more"
    return Problem("is new" if was is None else gone if now_is is None else "has changed", part)


# --- files and modules ------------------------------------------------------------------------------------------------


def _files(shown: Mapping[str, Any], workspace: Workspace) -> set[tuple[str, Path]]:
    """Every file that a setting names, and the workspace's own prompt templates."""
    named = {value for part in _settings(shown).values() for _, value in _leaves(part) if isinstance(value, str)}
    found = {workspace.resolve(name) for name in named if _may_name_a_file(name) and _is_file(workspace, name)}
    if workspace.prompt_templates.is_dir():
        found |= {file for file in workspace.prompt_templates.rglob("*") if file.is_file()}
    return {(_name_of(file, workspace), file) for file in found}


def _may_name_a_file(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and "\n" not in text and "\0" not in text and "." in text


def _is_file(workspace: Workspace, name: str) -> bool:
    try:
        return workspace.resolve(name).is_file()
    except (OSError, RuntimeError, ValueError):
        return False  # "~somebody" who is nobody


def _name_of(file: Path, workspace: Workspace) -> str:
    return str(_within(file, workspace) or file)


def _within(file: Path, workspace: Workspace) -> Path | None:
    """Its name in the workspace, which is the same by whatever path that is reached; None for one that is elsewhere."""
    roots = (workspace.root, workspace.root.resolve())
    return next((file.relative_to(root) for root in roots if file.is_relative_to(root)), None)


def _modules(configured: RunSettings) -> set[str]:
    """The modules of others that take part; what a file holds is known by the file."""
    named = {name for team in configured.teams for member in team.members for name in _of_member(member, configured)}
    named |= set(_of_evaluator(configured.evaluator)) if configured.is_scored else set()
    return {name for name in named if name.partition(".")[0] not in ("mixseek", "__main__")}


def _of_member(member: MemberAgentConfig, configured: RunSettings) -> Iterator[str]:
    if member.plugin is None:
        yield plugins.members.get(member.type).__module__
    elif member.plugin.agent_module is not None:
        yield member.plugin.agent_module
    for name in member.functions:
        yield plugins.load_function(name, root=configured.workspace.root).__module__


def _of_evaluator(evaluator: EvaluatorSettings) -> Iterator[str]:
    for metric in evaluator.metrics:
        custom = evaluator.custom_metrics.get(metric.type)
        if custom is None:
            yield plugins.metrics.get(type_of_metric(metric, evaluator)).__module__
        elif custom.module is not None:
            yield custom.module


def _hashed_module(name: str, workspace: Workspace) -> tuple[str, str]:
    """By its file, and the version of the package it came with: a package is more than the one file."""
    file = Path(getattr(sys.modules.get(name), "__file__", None) or "/")
    if not file.is_file():
        return f"module {name}", _hash_of(_versions(name))
    if _within(file, workspace) is not None:
        return f"file {_name_of(file, workspace)}", _hash_of_file(file)
    return f"module {name}", _hash_of([_hash_of_file(file), *_versions(name)])


def _versions(module: str) -> list[str]:
    try:
        return [version(each) for each in packages_distributions().get(module.partition(".")[0], ())]
    except PackageNotFoundError:
        return []


def _hash_of_file(file: Path) -> str:
    size = file.stat().st_size
    # The weights of a model would take longer than all the rest of the start.
    return f"{size} bytes" if size > _LARGEST_FILE else _hash(file.read_bytes())


def _hash_of(value: Any) -> str:
    return _hash(json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()
