"""``mixseek models``: which models a workspace names, fetching the embedded one, and a try of each."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixseek.amounts import cost_words, tokens_words
from mixseek.cli.completion import complete_embedded, complete_model
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format, warn
from mixseek.config.manager import ConfigurationManager, redactor_of
from mixseek.config.model_names import NamedModel
from mixseek.config.reading import checked_seconds
from mixseek.config.schema import OrchestratorSettings, PriceSettings, ProvidersSettings
from mixseek.embedded import FETCHABLE, PREFIX, Weights, fault_in, is_fetched, place_of
from mixseek.errors import ConfigurationError, WorkspaceNotFoundError
from mixseek.keys import keyring_fault
from mixseek.providers import check_model, missing_package, split_model_id, where_key_is
from mixseek.redaction import Redactor
from mixseek.workspace import Workspace

if TYPE_CHECKING:
    from mixseek.llm.trying import Trial

__all__ = ["app"]

EXIT_SOME_FAILED = 1
EXIT_ALL_FAILED = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    help="""List, fetch and try models.

    \b
    Examples:
      mixseek models list -w my-workspace
      mixseek models check openai:gpt-5-mini
    """,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


# --- list -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Listed:
    """A model, whether it could be asked, and where it is named."""

    model: str
    provider: str
    problems: tuple[str, ...]
    key: str | None
    """Where its key comes from, in words; None: it has or needs none."""
    price_known: bool
    priced_in: tuple[str, ...] | None
    """The orchestrator files that alone give it a price; None: all do, or it needs none of them."""
    named_in: tuple[NamedModel, ...]

    def as_json(self) -> dict[str, Any]:
        places = [{"file": place.file, "key": place.key} for place in self.named_in]
        return {**asdict(self), "problems": list(self.problems), "ready": not self.problems, "named_in": places}

    @property
    def price_words(self) -> str:
        """Whether it has a price, and where it does not have it everywhere."""
        if not self.price_known:
            return "price not known"
        return f"price known with {' and '.join(self.priced_in)} alone" if self.priced_in else "price known"


@app.command("list")
def list_(output: FormatOption = Format.TEXT, workspace: WorkspaceOption = None) -> None:
    """List the models the files of a workspace name: where, and whether key, package and price are there.

    \b
    Examples:
      mixseek models list
      mixseek models list -w my-workspace -f json
    """
    use_format(output)
    manager = ConfigurationManager(workspace)
    environ = manager.environ  # a .env that cannot be read is told once, as what it is
    named, problems = manager.models()
    for problem in problems:
        warn(f"mixseek: {problem}")
    listed = _listed(manager, named)
    fault = keyring_fault()
    if fault is not None:
        warn(f"mixseek: the keyring was asked for a key, but {fault}")
    fetchable = [_fetchable(weights, environ) for weights in FETCHABLE.values()]
    if output is Format.JSON:
        print_json({"models": [one.as_json() for one in listed], "embedded": fetchable})
        return
    for line in _list_lines(listed, fetchable):
        print_line(line)


def _listed(manager: ConfigurationManager, named: Sequence[NamedModel]) -> list[_Listed]:
    from mixseek.llm.prices import PriceList  # with the code of models, which takes a second

    servers = manager.get_providers_settings().providers
    tables = _price_tables(manager)
    prices, without_files = PriceList(_prices(manager)), PriceList()
    places: dict[str, list[NamedModel]] = {}
    for one in named:
        places.setdefault(one.model, []).append(one)
    return [
        _Listed(
            model,
            split_model_id(model)[0],
            _why_not_ready(model, servers, manager),
            where_key_is(split_model_id(model)[0], servers, manager.environ),
            prices.knows(model),
            None if without_files.knows(model) else _priced_in(model, tables),
            tuple(found),
        )
        for model, found in sorted(places.items())
    ]


def _why_not_ready(model: str, servers: Mapping[str, Any], manager: ConfigurationManager) -> tuple[str, ...]:
    prefix, name = split_model_id(model)
    problems = [problem.message for problem in check_model(model, servers, manager.environ)]
    found = [missing_package(prefix, servers)]
    if prefix == PREFIX and prefix not in servers:
        found.append(fault_in(name, manager.workspace.root) or _not_fetched(name, manager.environ))
    return (*problems, *(text for text in found if text))


def _not_fetched(name: str, environ: Mapping[str, str]) -> str | None:
    weights = FETCHABLE.get(name)
    if weights is None or is_fetched(weights, environ):
        return None
    return f"its weights are not here yet; the first run fetches them ({weights.megabytes} MB)"


def _fetchable(weights: Weights, environ: Mapping[str, str]) -> dict[str, Any]:
    file = place_of(weights, environ)
    return {
        "model": f"{PREFIX}:{weights.name}",
        "fetched": is_fetched(weights, environ),
        "file": str(file),
        "bytes": weights.size,
    }


def _list_lines(listed: Sequence[_Listed], fetchable: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [] if listed else ["No file of this workspace names a model.", ""]
    for one in listed:
        key = f", {one.key}" if one.key else ""
        lines.append(f"{one.model}: {'; '.join(one.problems) or 'ready'}{key}, {one.price_words}")
        lines += [f"  {place.file}: {place.key}" for place in one.named_in]
    for one_of in fetchable:
        state = one_of["file"] if one_of["fetched"] else "not fetched; mixseek models pull does it"
        lines.append(f"Embedded {one_of['model']}: {state}")
    return lines


def _prices(manager: ConfigurationManager) -> dict[str, PriceSettings]:
    """The prices of all orchestrator files."""
    return {model: price for prices in _price_tables(manager).values() for model, price in prices.items()}


def _price_tables(manager: ConfigurationManager) -> dict[str, dict[str, PriceSettings]]:
    """Each orchestrator file with its prices."""
    files = [] if manager.workspace.is_bare else manager.files()
    reports = [manager.validate(file, complete=False) for file in files]
    settings = [(report.file, each) for report in reports for each in report.settings]
    return {file: each.prices for file, each in settings if isinstance(each, OrchestratorSettings)}


def _priced_in(model: str, tables: Mapping[str, Mapping[str, PriceSettings]]) -> tuple[str, ...] | None:
    having = tuple(file for file, prices in tables.items() if model in prices)
    return None if len(having) == len(tables) else having


# --- pull -------------------------------------------------------------------------------------------------------------


@app.command("pull")
def pull(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The embedded model.", autocompletion=complete_embedded)
    ] = next(iter(FETCHABLE)),
    output: FormatOption = Format.TEXT,
) -> None:
    """Fetch the weights of the embedded model into the cache, if they are not there, and verify them.

    \b
    Examples:
      mixseek models pull
      MIXSEEK_CACHE=/srv/models mixseek models pull smollm2-135m
    """
    use_format(output)
    weights = FETCHABLE.get(name.removeprefix(f"{PREFIX}:"))
    if weights is None:
        raise ConfigurationError(f"no embedded model {name!r}: known are {', '.join(FETCHABLE)}")
    there = is_fetched(weights)
    file = _fetch(weights)
    if output is Format.JSON:
        print_json({**_fetchable(weights, {"MIXSEEK_CACHE": str(file.parent.parent)}), "was_there": there})
        return
    print_line(f"{weights.name}: {weights.megabytes} MB, verified, {'was' if there else 'now'} in {file}")


def _fetch(weights: Weights) -> Path:
    from mixseek.llm.local import fetch

    told: list[int] = []
    on_terminal = sys.stderr.isatty()

    def heard(size: int) -> None:
        share = min(99, 100 * size // weights.size)
        if on_terminal and share not in told[-1:]:
            told.append(share)
            typer.echo(f"\r{share:3d} % of {weights.megabytes} MB", nl=False, err=True)

    try:
        return fetch(weights, heard=heard)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        if told:
            typer.echo("\r" + " " * 24 + "\r", nl=False, err=True)


# --- check ------------------------------------------------------------------------------------------------------------


@app.command("check")
def check(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Models to try; none: all that the workspace's files name.",
            autocompletion=complete_model,
        ),
    ] = None,
    timeout: Annotated[int, typer.Option("--timeout", help="Seconds for one model.")] = 60,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Ask each model for one word, all at once, and tell how long it took and what it cost, or what went wrong.

    Exit codes: 0 all answered, 1 some did not, 2 none did or a mistake in the configuration, 130 Ctrl-C.

    \b
    Examples:
      mixseek models check
      mixseek models check local:smollm2-135m openai:gpt-5-mini
    """
    use_format(output)
    timeout = checked_seconds(timeout, "--timeout")
    manager = _manager(workspace, needs_files=not models)
    wanted = list(dict.fromkeys(models or _named(manager)))
    providers = manager.get_providers_settings()
    try:
        trials = asyncio.run(_try_all(wanted, manager, providers, timeout))
    except KeyboardInterrupt:
        warn("interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _print_trials(trials, output, redactor_of(manager.environ, providers))
    failed = sum(trial.error is not None for trial in trials)
    raise typer.Exit(EXIT_ALL_FAILED if failed == len(trials) else EXIT_SOME_FAILED if failed else 0)


def _manager(workspace: Path | None, *, needs_files: bool) -> ConfigurationManager:
    """The workspace; models that are named on the command line can do without one."""
    try:
        return ConfigurationManager(workspace)
    except WorkspaceNotFoundError:
        if needs_files or workspace is not None:
            raise
        return ConfigurationManager(Workspace.bare())


def _named(manager: ConfigurationManager) -> list[str]:
    named, problems = manager.models()
    if problems:
        raise ConfigurationError(problems)
    if not named:
        raise ConfigurationError("no file of this workspace names a model: name one, as in local:smollm2-135m")
    return sorted({one.model for one in named})


async def _try_all(
    models: Sequence[str], manager: ConfigurationManager, providers: ProvidersSettings, seconds: float
) -> "list[Trial]":
    from mixseek.llm import ModelHub
    from mixseek.llm.trying import try_model

    hub = ModelHub(providers, _prices(manager), environ=manager.environ, root=manager.workspace.root)
    async with hub:
        return await asyncio.gather(*(try_model(hub, model, seconds=seconds) for model in models))


def _print_trials(trials: "Sequence[Trial]", output: Format, redactor: Redactor) -> None:
    if output is Format.JSON:
        print_json({"models": [redactor.value(_trial_as_json(trial)) for trial in trials]})
        return
    for trial in trials:
        print_line(redactor.text(_trial_line(trial)))


def _trial_line(trial: "Trial") -> str:
    if trial.error is not None:
        return f"{trial.model}: failed: {trial.error}"
    spent = f"{tokens_words(trial.usage)}, {cost_words(trial.cost_usd)}"
    return f"{trial.model}: answered in {trial.seconds:.1f} s, {spent}"


def _trial_as_json(trial: "Trial") -> dict[str, Any]:
    counts = {"input_tokens": trial.usage.input_tokens, "output_tokens": trial.usage.output_tokens}
    return {
        "model": trial.model,
        "ok": trial.error is None,
        "seconds": round(trial.seconds, 3),
        **counts,
        "cost_usd": trial.cost_usd,
        "error": trial.error,
    }
