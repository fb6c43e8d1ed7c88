"""What ``mixseek doctor`` looks at. It calls no model, loads no code of others and makes no file."""

import asyncio
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import mixseek
from mixseek.amounts import counted
from mixseek.cli.extras import EXTRAS, has_extra
from mixseek.clock import timezone_from_environment
from mixseek.config.manager import ConfigurationManager, Report
from mixseek.config.schema import ProvidersSettings
from mixseek.embedded import FETCHABLE, PREFIX, cache_directory, is_fetched
from mixseek.errors import ConfigurationError, WorkspaceNotFoundError
from mixseek.keys import keyring_fault
from mixseek.providers import find_provider, key_fault, missing_address, split_model_id, where_key_is
from mixseek.sandbox import bubblewrap_is_missing, monty_is_missing
from mixseek.storage.health import FileHealth, database_health, journal_health
from mixseek.workspace import Workspace

__all__ = ["Area", "Finding", "State", "look_around"]

State = Literal["ok", "warn", "fail"]
Area = Literal["environment", "workspace", "providers", "embedded model", "sandbox"]

_PACKAGES = ("pydantic-ai-slim", "pydantic", "duckdb", "aiohttp", "httpx2", "typer", "rich")
_OLDEST_PYTHON = (3, 11)
_MB = 1024 * 1024
_TOO_FULL, _NEARLY_FULL = 100 * _MB, 1024 * _MB
_A_DAY = 86_400


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    area: Area
    state: State
    message: str
    remedy: str = ""


def look_around(workspace: Path | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Everything that can keep MixSeek from working here."""
    yield from _environment(environ)
    try:
        manager = ConfigurationManager(workspace, no_plugins=True)
    except WorkspaceNotFoundError as error:
        yield _no_workspace(str(error), named=workspace is not None or bool(environ.get("MIXSEEK_WORKSPACE")))
    else:
        yield from _in_workspace(manager)
    yield from _embedded(environ)
    yield from _sandboxes()


# --- environment ------------------------------------------------------------------------------------------------------


def _environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    area: Area = "environment"
    told = (
        f"mixseek {mixseek.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    if sys.version_info >= _OLDEST_PYTHON:
        yield Finding(area, "ok", told)
    else:
        yield Finding(area, "fail", told, "use Python 3.11 or newer")
    yield from _packages(area)
    there = [extra for extra in EXTRAS if has_extra(extra)]
    absent = [extra for extra in EXTRAS if extra not in there]
    yield Finding(area, "ok", f"extras installed: {_listed(there)}; not installed: {_listed(absent)}")
    yield _clock(area)
    try:
        timezone_from_environment(environ)
    except ValueError as error:
        yield Finding(area, "fail", str(error), "mend or unset TZ")


def _packages(area: Area) -> Iterator[Finding]:
    found = {name: _version(name) for name in _PACKAGES}
    missing = [name for name, number in found.items() if number is None]
    if missing:
        yield Finding(area, "fail", f"not installed: {_listed(missing)}", "pip install --force-reinstall mixseek")
    yield Finding(area, "ok", ", ".join(f"{name} {number}" for name, number in found.items() if number))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _clock(area: Area) -> Finding:
    """Certificates and the order of executions need a clock that is about right; it cannot be before this was made."""
    made = Path(mixseek.__file__).stat().st_mtime
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if time.time() < made - _A_DAY:
        return Finding(area, "fail", f"the clock says {now}, which is before MixSeek was installed", "set the clock")
    return Finding(area, "ok", f"the clock says {now}")


# --- workspace --------------------------------------------------------------------------------------------------------


def _no_workspace(words: str, *, named: bool) -> Finding:
    wrong, _, remedy = words.partition("; ")
    return Finding("workspace", "fail" if named else "warn", wrong, remedy or "mixseek init makes one")


def _in_workspace(manager: ConfigurationManager) -> Iterator[Finding]:
    workspace = manager.workspace
    yield Finding("workspace", "ok", f"found at {workspace.root}")
    reports = [manager.validate(file, complete=False) for file in manager.files()]
    yield from _files(reports)
    results, journal = asyncio.run(database_health(workspace.database)), journal_health(workspace.journal)
    yield from _database(results, journal, workspace)
    yield from _journal(journal, workspace)
    yield from _place(workspace)
    yield from _providers(manager)


def _files(reports: list[Report]) -> Iterator[Finding]:
    if not reports:
        remedy = "mixseek init writes some to start from"
        yield Finding("workspace", "warn", "there is no TOML file in configs/", remedy)
        return
    problems = list(dict.fromkeys(problem for report in reports for problem in report.problems))
    for problem in problems:
        yield Finding("workspace", "fail", str(problem), "mend the file; mixseek config validate checks it")
    if not problems:
        count = len(reports)
        yield Finding("workspace", "ok", f"{counted(count, 'file')} in configs/, all valid")


def _database(health: FileHealth, journal: FileHealth, workspace: Workspace) -> Iterator[Finding]:
    name, executions = workspace.database.name, len(health.executions | journal.executions)
    match health.state:
        case "absent":
            yield Finding("workspace", "ok", f"no {name} yet: the first execution makes it")
        case "good":
            yield Finding("workspace", "ok", f"{name} opens, {counted(executions, 'execution')}")
        case "old":
            remedy = "the next execution brings it up to date and keeps a copy"
            yield Finding("workspace", "warn", f"{name} is of an older MixSeek ({health.words})", remedy)
        case "held":
            yield Finding("workspace", "warn", health.words, "end that program, or wait for it")
        case "broken":
            anew = f"mixseek rebuild makes it anew from {workspace.journal.name}" if journal.executions else ""
            yield Finding("workspace", "fail", health.words, _remedy(workspace.database, anew))


def _journal(health: FileHealth, workspace: Workspace) -> Iterator[Finding]:
    name = workspace.journal.name
    if health.state == "broken":
        logs = f"move {name} away together with {name}-wal and {name}-shm, or bring back a copy of all three"
        yield Finding("workspace", "fail", f"{name}: {health.words}", _remedy(workspace.journal, logs))
    elif health.state == "good":
        yield Finding("workspace", "ok", f"{name} opens")


def _remedy(broken: Path, remedy: str = "") -> str:
    """What to do about a file that does not open; nothing is wrong with one that only may not be read."""
    if not os.access(broken, os.R_OK):
        return "give yourself the right to read it"
    return remedy or f"move {broken.name} away, or bring back a copy of it"


def _place(workspace: Workspace) -> Iterator[Finding]:
    wanted = [workspace.root, workspace.root / "logs", workspace.database, workspace.journal]
    barred = [str(path) for path in wanted if path.exists() and not os.access(path, os.W_OK)]
    if barred:
        remedy = "give yourself the right to write, or name another workspace"
        yield Finding("workspace", "fail", f"cannot be written: {_listed(barred)}", remedy)
    free = shutil.disk_usage(workspace.root).free
    state: State = "fail" if free < _TOO_FULL else "warn" if free < _NEARLY_FULL else "ok"
    yield Finding("workspace", state, f"{free / 1e9:.1f} GB free on its disk", "" if state == "ok" else "make room")


# --- providers --------------------------------------------------------------------------------------------------------


def _providers(manager: ConfigurationManager) -> Iterator[Finding]:
    try:
        servers = manager.get_providers_settings()
    except ConfigurationError:
        return  # told with the files
    environ = manager.environ
    asked, _ = manager.models()
    named = _by_provider(one.model for one in asked)
    for prefix, models in sorted(named.items()):
        yield _provider(prefix, models, servers, environ)
    yield from _keyring()


def _provider(prefix: str, models: list[str], servers: ProvidersSettings, environ: Mapping[str, str]) -> Finding:
    used = f"{prefix}: {_listed(models)}"
    provider = None if prefix in servers.providers else find_provider(prefix)
    if prefix not in servers.providers and provider is None:
        return Finding("providers", "fail", f"{used}; no such provider", "mend the name of the model")
    at = prefix, servers.providers, environ
    missing = key_fault(*at) or missing_address(*at)
    if missing:
        return Finding("providers", "fail", f"{used}; {missing.partition(':')[0]}", missing.partition(": ")[2])
    extra = "openai" if provider is None else provider.extra
    if extra and not has_extra(extra):
        return Finding("providers", "fail", f"{used}; its SDK is not installed", f'pip install "mixseek[{extra}]"')
    return Finding("providers", "ok", f"{used}; {_key_in_words(prefix, servers, environ)}")


def _key_in_words(prefix: str, servers: ProvidersSettings, environ: Mapping[str, str]) -> str:
    own = "needs no key" if prefix in servers.providers else "no key to set"
    return where_key_is(prefix, servers.providers, environ) or own


def _keyring() -> Iterator[Finding]:
    """A keyring that could not be asked; one that was not needed is not looked at."""
    fault = keyring_fault()
    if fault is not None:
        remedy = "unlock it, or set the variables in the environment or in .env of the workspace"
        yield Finding("providers", "warn", f"the keyring was asked for a key, but {fault}", remedy)


def _by_provider(models: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for model in dict.fromkeys(models):
        try:
            prefix, name = split_model_id(model)
        except ConfigurationError:
            continue  # told with the files
        found.setdefault(prefix, []).append(name)
    return found


# --- what may be there besides ----------------------------------------------------------------------------------------


def _embedded(environ: Mapping[str, str]) -> Iterator[Finding]:
    if not has_extra("local"):
        remedy = 'pip install "mixseek[local]", if you want to try it without a key'
        yield Finding("embedded model", "warn", "its package is not installed", remedy)
        return
    for name, weights in FETCHABLE.items():
        if is_fetched(weights, environ):
            yield Finding("embedded model", "ok", f"{PREFIX}:{name} is in {cache_directory(environ)}")
        else:
            told = f"the weights of {PREFIX}:{name} are not here yet"
            yield Finding("embedded model", "warn", told, f"mixseek models pull fetches {weights.megabytes} MB")


def _sandboxes() -> Iterator[Finding]:
    for name, missing in (("Monty", monty_is_missing()), ("bubblewrap", bubblewrap_is_missing())):
        if missing is None:
            yield Finding("sandbox", "ok", f"{name} works")
        else:
            words, _, remedy = missing.partition(": ")
            yield Finding("sandbox", "warn", words, remedy or "members of type code_execution cannot use it")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
