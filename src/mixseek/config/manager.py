"""The one door from files, environment and command line to settings: read, merged, checked, all problems told at once.

A file becomes a layer; command line, environment and ``.env`` are layers above it; their deep merge is handed to the
settings model, and what is left to check (references, templates, classes of others) is checked on the model. Every
step adds to one list of findings, and only at the end a non-empty list becomes a :class:`ConfigurationError`.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined, to_jsonable_python

from mixseek.config.checks import (
    Surroundings,
    check,
    check_clock,
    check_prompt_templates,
    metrics_that_need_a_reference,
    missing_sandboxes,
    reference_file,
    servers_not_ready,
)
from mixseek.config.environment import environment_layer, unclaimed
from mixseek.config.kinds import (
    EVALUATOR,
    JUDGMENT,
    KINDS,
    MEMBER,
    ORCHESTRATOR,
    PROMPT_BUILDER,
    PROVIDERS,
    TEAM,
    Kind,
    as_document,
    detect_kind,
    other_kind,
    toml_layer,
)
from mixseek.config.layers import KeyPath, Layer, Merged, Origin, Place, Provenance, Source, TraceInfo, merge, show_path
from mixseek.config.masking import mask
from mixseek.config.model_names import (
    KnownProviders,
    NamedModel,
    Server,
    all_models,
    models_not_ready,
    unknown_models,
    unused_prices,
)
from mixseek.config.problems import misplaces_a_model, no_such_file, problem_at, problems_of
from mixseek.config.reading import (
    Dotenv,
    existing_file,
    is_there,
    named_file,
    read_dotenv,
    read_text,
    read_toml,
    referred_file,
)
from mixseek.config.schema import (
    OLDER_SPELLINGS,
    PROMPTS,
    EvaluatorSettings,
    JudgmentSettings,
    MemberAgentConfig,
    OrchestratorSettings,
    PromptBuilderSettings,
    ProvidersSettings,
    Settings,
    TeamSettings,
)
from mixseek.config.shape import key_of
from mixseek.errors import ConfigurationError, MissingFileError, Problem, WorkspaceNotFoundError
from mixseek.keys import Environment
from mixseek.redaction import Redactor
from mixseek.workspace import Workspace

__all__ = [
    "ConfigurationManager",
    "Given",
    "Report",
    "RunSettings",
    "is_explicit",
    "load_orchestrator_settings",
    "locate_workspace",
    "problems_within",
    "read_prompt_builder_settings",
    "read_team_settings",
    "redactor_of",
    "warn_of_prices",
]

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=BaseModel)

_BESIDE_CONFIG = ("config", "tool_name", "tool_description")
_PROMPT_TEMPLATES = "configs/prompt_templates"


@dataclass(frozen=True)
class RunSettings:
    """Everything a competition is configured by: the orchestrator file and all it refers to."""

    orchestrator: OrchestratorSettings
    teams: tuple[TeamSettings, ...]
    evaluator: EvaluatorSettings
    judgment: JudgmentSettings
    prompt_builder: PromptBuilderSettings
    providers: ProvidersSettings
    workspace: Workspace
    reference: str | None = None
    """The text of the reference answer, wherever it was found."""
    is_scored: bool = True
    """Whether the evaluator is asked; if not, the teams' last submissions are their results."""
    borrows_prices: bool = False
    """Whether ``[prices]`` are those of the workspace's own orchestrator file, where others need them, too."""

    @property
    def all(self) -> tuple[BaseModel, ...]:
        """Every part of it, in the order of a run."""
        return (self.orchestrator, *self.teams, self.evaluator, self.judgment, self.prompt_builder, self.providers)

    @property
    def file(self) -> str | None:
        """The orchestrator file, as a path from the workspace on; None for settings that were made in Python."""
        name = self.orchestrator._provenance.file
        return name if name is not None and self.workspace.resolve(name).is_file() else None

    def file_of(self, part: BaseModel, key: str) -> str | None:
        """The file in which a setting of a part stands, or would stand; None where a variable or Python decides it."""
        if not isinstance(part, Settings | PromptBuilderSettings):
            return None
        origins = _climb(part._provenance.origins, _parse_path(key))
        decided = next((one for one in origins if one.source != "default"), None)
        return part._provenance.file if decided is None else decided.place.file

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of the orchestrator that the command line gave in place of the file's."""
        origins = self.orchestrator._provenance.origins
        given = {str(path[0]) for path, found in origins.items() if found and found[0].source == "command line"}
        values: dict[str, Any] = to_jsonable_python({name: getattr(self.orchestrator, name) for name in sorted(given)})
        return values

    @property
    def unused_prices(self) -> dict[str, str | None]:
        """Names in ``[prices]`` that no model of these settings has, each with the model that may be meant."""
        return {} if self.borrows_prices else unused_prices(self.orchestrator.prices, self.all)

    def shown(self) -> dict[str, Any]:
        """The settings in effect as JSON, with secrets masked; what is not set is left out."""
        parts = {
            "orchestrator": self.orchestrator.model_copy(update={"workspace_path": None}),
            "teams": self.teams,
            "evaluator": self.evaluator,
            "judgment": self.judgment,
            "prompt_builder": self.prompt_builder,
            "providers": self.providers,
        }
        # Tables of any shape may hold whatever Python was given: an object is shown by its text.
        values = to_jsonable_python(parts, by_alias=True, exclude_none=True, fallback=str)
        # Once more, now that there are plain values alone: a number of a model's field keeps its NaN.
        masked: dict[str, Any] = mask(to_jsonable_python(values, inf_nan_mode="null"))
        return masked


Table = Mapping[str, Any]


@dataclass(frozen=True)
class Given:
    """Settings that are given in Python instead of in files: as what they are, or as tables like those of a file.

    A table may leave out the name its settings stand under in a file (``[team]``). A team may also be a path.
    """

    teams: Sequence[TeamSettings | Table | Path | str]
    evaluator: EvaluatorSettings | Table | None = None
    judgment: JudgmentSettings | Table | None = None
    prompt_builder: PromptBuilderSettings | Table | None = None
    providers: ProvidersSettings | Table | None = None

    def part(self, kind: Kind) -> Any:
        """What is given in place of the default file of this kind."""
        return getattr(self, kind.name, None)


@dataclass(frozen=True)
class Report:
    """What a look at one file found: its kind, what is wrong, and what is only worth knowing."""

    file: str
    kind: str | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    settings: tuple[BaseModel, ...] = ()
    run: RunSettings | None = None
    """The competition an orchestrator file describes, if its settings could be made."""


@dataclass
class _Findings:
    """What the steps of one reading found. ``complete``: a prompt builder file has to have all its keys.

    ``for_a_run``: a model without a key is a problem, and not only worth a note.
    """

    complete: bool = False
    for_a_run: bool = False
    is_told: bool = False
    """Whether somebody read the same files before, and warned of what is only worth a warning."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    """Files given in Python that were told not to exist: what names them then need not be told again."""
    providers: KnownProviders | None = None
    """Where models may come from, once somebody has asked: hundreds of files are checked by it."""

    def raise_problems(self) -> None:
        if self.problems:
            raise ConfigurationError(list(dict.fromkeys(self.problems)))


@dataclass(frozen=True)
class _Reading(Generic[S]):
    """One file as it was read: its settings, if they could be made, and the values they were to be made of."""

    settings: S | None
    values: Mapping[str, Any]
    place: Callable[[KeyPath], Place]


class ConfigurationManager:
    """Reads the configuration of one workspace.

    ``overrides`` are values from the command line by kind of file: ``{"orchestrator": {"max_rounds": 3}}``, and
    ``options`` the names they have there: ``{"orchestrator": {"max_rounds": "--max-rounds"}}``. ``given`` are settings
    in place of the workspace's files; they win over the environment.
    """

    def __init__(
        self,
        workspace: Path | str | Workspace | None = None,
        *,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        options: Mapping[str, Mapping[str, str]] | None = None,
        environ: Mapping[str, str] | None = None,
        no_plugins: bool = False,
        given: Given | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self.workspace = locate_workspace(workspace, self._environ)
        self._overrides = overrides or {}
        self._options = options or {}
        self._around = Surroundings(self.workspace, no_plugins)
        self._given = given or Given(())
        self._told: set[str] = set()
        """What was warned of: a command may read a file more than once, and nobody wants to hear of it again."""

    # --- settings ---------------------------------------------------------------------------------------------------

    def load_orchestrator_settings(self, path: Path | str) -> OrchestratorSettings:
        """The competition a file describes, after a check of every file it refers to."""
        return self.load_run_settings(path).orchestrator

    def load_run_settings(self, path: Path | str, *, for_a_run: bool = False) -> RunSettings:
        """The competition a file describes, with the settings of every file it refers to.

        ``for_a_run``: calls follow, so the keys of all models have to be there.
        """
        findings = _Findings(for_a_run=for_a_run)
        run = self._read_run(self._existing(path), findings)
        findings.raise_problems()
        assert run is not None  # noqa: S101  # without a problem there are settings
        return run

    def complete(self, settings: OrchestratorSettings, *, reference: str | None = None) -> RunSettings:
        """The run of settings that are made already: every file they refer to, read and checked now, keys included.

        ``reference`` is the text of a reference answer and wins over the one of the settings.
        """
        # Settings with a known origin were read by a manager, whose warnings are not repeated by this one.
        findings = _Findings(for_a_run=True, is_told=settings._provenance.known)
        values = settings.model_dump(exclude_none=True)
        place = Place("orchestrator settings").inside
        self._check(OrchestratorSettings, values, place, findings)
        run = self._read_parts(_Reading(settings, values, place), findings, reference)
        findings.raise_problems()
        assert run is not None  # noqa: S101  # what keeps a part from being made is a problem
        return run

    def assemble(self, limits: Table, *, is_scored: bool = True, borrows_prices: bool = False) -> RunSettings:
        """The run of the settings that are given in Python, checked as files are, keys included.

        ``limits`` are the other settings of the orchestrator file; with ``borrows_prices`` its prices are those of
        :meth:`own_prices_and_storage`. A run that is not scored needs nothing of the evaluator.
        """
        findings = _Findings(for_a_run=True)
        teams = [self._team_file(number, team, findings) for number, team in enumerate(self._given.teams)]
        document = {**limits, "teams": teams}
        main = self._make_given(ORCHESTRATOR, OrchestratorSettings, document, "arguments", findings)
        run = self._read_parts(main, findings, is_scored=is_scored, borrows_prices=borrows_prices)
        findings.raise_problems()
        assert run is not None  # noqa: S101  # what keeps a part from being made is a problem
        return run

    def _team_file(self, number: int, team: Any, findings: _Findings) -> dict[str, str]:
        """The path of a team's file, or how messages call a team that has none."""
        if not isinstance(team, Path | str):
            return {"config": f"teams[{number}]"}
        try:
            return {"config": str(self._existing(team))}
        except MissingFileError as error:
            findings.problems += error.problems
            findings.missing.add(str(team))
            return {"config": str(team)}

    def load_team_settings(self, path: Path | str) -> TeamSettings:
        """The team a file describes, its members' files included."""
        return self._load(TEAM, TeamSettings, self._existing(path))

    def load_member_settings(self, path: Path | str) -> MemberAgentConfig:
        """The member a file describes."""
        return self._load(MEMBER, MemberAgentConfig, self._existing(path))

    def get_evaluator_settings(self, path: Path | str | None = None, *, for_a_run: bool = False) -> EvaluatorSettings:
        """How submissions are scored: by the file, by ``configs/evaluator.toml``, or by the defaults.

        ``for_a_run``: calls follow, so the keys of all models have to be there.
        """
        return self._load(EVALUATOR, EvaluatorSettings, self._named(path), for_a_run=for_a_run)

    def load_one_member(self, path: Path | str, name: str | None = None) -> MemberAgentConfig:
        """A member that is to be asked now, keys included: of a member file, or by its name of a team file."""
        file, kind, findings = self._existing(path), self.kind_of(path), _Findings()
        if kind is TEAM:
            team = self._read(TEAM, TeamSettings, file, findings)
            findings.raise_problems()
            number = _number_of(name, team.values.get("members", []), self._shown(file))
            return self._member(team.values["members"][number], team.place(("members", number)))
        if kind is not MEMBER:
            raise ConfigurationError(Problem(f"is {kind.words}: give a member or a team file", self._shown(file)))
        member = self._read(MEMBER, MemberAgentConfig, file, findings)
        findings.raise_problems()
        if name is not None and member.settings is not None and member.settings.name != name:
            raise ConfigurationError(Problem(f"is the file of member {member.settings.name!r}", self._shown(file)))
        return self._member(member.values, Place(self._shown(file), MEMBER.key(())))

    def make_member(self, values: Table, shown: str) -> MemberAgentConfig:
        """A member that has no file and is to be asked now, keys included; ``shown`` is how messages call it."""
        return self._member(values, Place(shown))

    def _member(self, values: Table, written: Place) -> MemberAgentConfig:
        """What is written somewhere, with what the command line says above it."""
        findings = _Findings(for_a_run=True)
        merged = merge([self._command_line(MEMBER), Layer("TOML", values, {(): written})])

        def place(path: KeyPath) -> Place:
            return merged.place(_as_written(merged.values, path)) or written.inside(path)

        settings = None
        try:
            settings = MemberAgentConfig.model_validate(dict(merged.values))
            _remember(settings, merged.origins, written.file)
        except ValidationError as error:
            findings.problems += problems_of(error, MemberAgentConfig, place)
        self._check(MemberAgentConfig, merged.values, place, findings)
        self._check_variables(findings)
        findings.raise_problems()
        assert settings is not None  # noqa: S101  # without a problem there are settings
        return settings

    def own_prices_and_storage(self) -> OrchestratorSettings:
        """``[prices]`` and ``[storage]`` of the workspace's own orchestrator file, for what is asked without one."""
        file, findings = self.default_file(ORCHESTRATOR), _Findings()
        document = self._document(file) if is_there(file) else {}
        tables = {name: table for name, table in document.items() if name in ("prices", "storage")}
        tables["orchestrator"] = {"teams": [{"config": "none"}]}
        made = self._make(ORCHESTRATOR, OrchestratorSettings, tables, self._shown(file), findings)
        findings.raise_problems()
        assert made.settings is not None  # noqa: S101  # without a problem there are settings
        return made.settings

    def get_judgment_settings(self, path: Path | str | None = None) -> JudgmentSettings:
        """How a stop is decided: by the file, by ``configs/judgment.toml``, or by the defaults."""
        return self._load(JUDGMENT, JudgmentSettings, self._named(path))

    def get_prompt_builder_settings(self, path: Path | str | None = None) -> PromptBuilderSettings:
        """The prompt templates: of the file, of ``configs/prompt_builder.toml``, or the defaults."""
        return self._load(PROMPT_BUILDER, PromptBuilderSettings, self._named(path))

    def get_providers_settings(self, path: Path | str | None = None) -> ProvidersSettings:
        """Further servers of models: of the file, of ``configs/providers.toml``, or none."""
        return self._load(PROVIDERS, ProvidersSettings, self._named(path))

    def load(self, kind: Kind, path: Path | str | None = None) -> BaseModel:
        """The settings of one file of any kind; without a path those of the default file, or the defaults."""
        return self._load(kind, kind.model, self._named(path))

    # --- where they come from, and whether they are right -----------------------------------------------------------

    def get_trace_info(self, settings: BaseModel, field: str | KeyPath) -> TraceInfo:
        """The value of a field, also a nested one such as ``"leader.model"``, and the place that decided it."""
        path = _parse_path(field) if isinstance(field, str) else field
        value = _value_at(settings, path)
        origins = (*_origins_at(settings, path), *_default_at(settings, path))
        winner, *overrode = origins or (Origin("default"),)
        return TraceInfo(show_path(path), value, winner.source, str(winner.place), tuple(overrode))

    def kind_of(self, path: Path | str) -> Kind:
        """The kind of a file, by what stands in it."""
        file = self._existing(path)
        return detect_kind(self._document(file), file, self._shown(file))

    def validate(self, path: Path | str, *, complete: bool = True) -> Report:
        """Look at one file of any kind and at all it refers to; ``complete``: a prompt that is missing is a problem."""
        file = named_file(path, self.workspace)
        if self.workspace.prompt_templates in (file, file.parent):
            return self._validate_templates()
        findings = _Findings(complete)
        kind: Kind | None = None
        settings: tuple[BaseModel, ...] = ()
        run: RunSettings | None = None
        try:
            kind = detect_kind(self._document(file), file, self._shown(file))
            if kind is ORCHESTRATOR:
                run = self._read_run(file, findings)
                settings = run.all if run else ()
            else:
                settings = self._read_alone(kind, file, findings)
        except ConfigurationError as error:
            findings.problems += error.problems
        return Report(
            self._shown(file),
            kind.name if kind else None,
            tuple(dict.fromkeys(findings.problems)),
            tuple(dict.fromkeys(findings.notes)),
            settings,
            run,
        )

    def _validate_templates(self) -> Report:
        problems = tuple(check_prompt_templates(self.workspace, _PROMPT_TEMPLATES))
        return Report(_PROMPT_TEMPLATES, "prompt_templates", problems)

    def files(self, directory: Path | str | None = None) -> list[Path]:
        """The files of settings below a directory, by default all of the workspace; prompt templates by theirs."""
        below = self.workspace.configs if directory is None else named_file(directory, self.workspace)
        templates = self.workspace.prompt_templates
        there = [templates] if templates.is_dir() and templates.is_relative_to(below) else []
        return sorted(below.rglob("*.toml")) + there

    def models(self) -> tuple[tuple[NamedModel, ...], tuple[Problem, ...]]:
        """Every model the workspace's files name or would ask by default, and what is wrong with these files."""
        findings = _Findings()
        named: list[NamedModel] = []
        for kind, file in self._files_with_models(findings):
            reading = self._read(kind, kind.model, file, findings)
            for path, model in all_models(kind.model, reading.values, self.workspace):
                place = reading.place(path)
                named.append(NamedModel(model, place.file or "", show_path(place.key)))
        return tuple(dict.fromkeys(named)), tuple(dict.fromkeys(findings.problems))

    def _files_with_models(self, findings: _Findings) -> list[tuple[Kind, Path | None]]:
        """All files of settings; where there is a competition, also the defaults of files that are not there."""
        found: list[tuple[Kind, Path | None]] = []
        for file in self.files():
            try:
                if file.suffix == ".toml":
                    found.append((detect_kind(self._document(file), file, self._shown(file)), file))
            except ConfigurationError as error:
                findings.problems += error.problems
        kinds = {kind for kind, _ in found}
        if ORCHESTRATOR in kinds:
            found += [(kind, None) for kind in (EVALUATOR, JUDGMENT) if kind not in kinds]
        return found

    def file_of(self, settings: BaseModel) -> str | None:
        """The file settings were read from, as messages name it; None for defaults."""
        return settings._provenance.file if isinstance(settings, Settings | PromptBuilderSettings) else None

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment over the workspace's ``.env``, and for the keys of model providers a keyring behind both.

        Where an environment was given, it is all there is beside ``.env``.
        """
        dotenv = self._dotenv(_Findings())
        if self._environ is os.environ:
            return Environment(os.environ, None if self.workspace.is_bare else dotenv)
        return {**dotenv, **self._environ}

    @property
    def redactor(self) -> Redactor:
        """What takes secrets out of texts before any settings are read.

        It knows the variables that a providers file names for its keys, also where something else in it is wrong.
        """
        try:
            document = self._document(self.default_file(PROVIDERS))
        except ConfigurationError:
            document = {}
        servers = document.get("providers")
        tables = [one for one in servers.values() if isinstance(one, dict)] if isinstance(servers, dict) else []
        return Redactor.from_environment(self.environ, variables={str(one.get("api_key_env")) for one in tables})

    def default_file(self, kind: Kind) -> Path:
        """Where a file of this kind is looked for, or written, when no other is named."""
        return self.workspace.configs / kind.file

    # --- one file ---------------------------------------------------------------------------------------------------

    def _load(self, kind: Kind, model: type[S], file: Path | None, *, for_a_run: bool = False) -> S:
        findings = _Findings(for_a_run=for_a_run)
        settings = self._read(kind, model, file, findings).settings
        self._check_variables(findings)
        findings.raise_problems()
        assert settings is not None  # noqa: S101  # without a problem there are settings
        return settings

    def _read(self, kind: Kind, model: type[S], file: Path | None, findings: _Findings) -> _Reading[S]:
        """One file, or what is given in its place, or the default file, or the defaults where there is no such file."""
        if file is None and self._given.part(kind) is not None:
            return self._make_given(kind, model, self._given.part(kind), kind.name, findings)
        if file is None and kind.is_default and is_there(self.default_file(kind)):
            file = self.default_file(kind)
        shown = self._shown(file) if file else None
        try:
            document = self._document(file) if file else None
        except ConfigurationError as error:
            findings.problems += error.problems
            return _Reading(None, {}, Place(shown).inside)
        return self._make(kind, model, document, shown, findings)

    def _make_given(self, kind: Kind, model: type[S], given: Any, shown: str, findings: _Findings) -> _Reading[S]:
        if isinstance(given, model):
            values = given.model_dump(by_alias=True, exclude_unset=True)
            self._check(model, values, Place(shown).inside, findings)
            return _Reading(given, values, Place(shown).inside)
        if not isinstance(given, Mapping):
            message = f"must be {model.__name__} or a table of the same settings, not {type(given).__name__}"
            findings.problems.append(Problem(message, shown))
            return _Reading(None, {}, Place(shown).inside)
        written, document = as_document(kind, given)
        return self._make(written, model, document, shown, findings, is_given=True)

    def _make(
        self,
        kind: Kind,
        model: type[S],
        document: Mapping[str, Any] | None,
        shown: str | None,
        findings: _Findings,
        *,
        is_given: bool = False,
    ) -> _Reading[S]:
        merged = self._merge(kind, document, shown, findings, is_given=is_given)

        def place(path: KeyPath) -> Place:
            written = merged.place(_as_written(merged.values, path))
            return written or Place(shown or f"{kind.name} defaults", kind.key(path))

        settings, defaults = None, True
        try:
            settings = _of_values(model, merged.values)
            _remember(settings, merged.origins, shown)
            findings.notes += _notes(settings, merged.values, place)
        except ValidationError as error:
            findings.problems += problems_of(error, model, place)
            # A run would not ask the default model once that is mended, so nothing is said of its key.
            defaults = not misplaces_a_model(error, model)
        self._check(model, merged.values, place, findings, defaults=defaults)
        return _Reading(settings, merged.values, place)

    def _check(
        self,
        model: type[BaseModel],
        values: Mapping[str, Any],
        place: Callable[[KeyPath], Place],
        findings: _Findings,
        *,
        defaults: bool = True,
    ) -> None:
        findings.problems += (problem_at(place(path), text) for path, text in check(model, values, self._around))
        if self._around.no_plugins:
            return  # a provider may come with the code of others, which is not loaded
        known = findings.providers = findings.providers or self._known_providers()
        if known is None:
            return  # what tells of the workspace's own is broken, which is told where it is read
        findings.problems += (
            problem_at(place(path), text) for path, text in unknown_models(model, values, known, self.workspace)
        )
        unusable = models_not_ready(model, values, known, self.workspace, defaults=defaults)
        heard = findings.problems if findings.for_a_run else findings.notes
        heard += (replace(problem_at(place(path), text), mended_at_once=True) for path, text in unusable)
        heard += (problem_at(place(path), text) for path, text in missing_sandboxes(model, values))
        not_ready = servers_not_ready(model, values, known.environ, self.workspace)
        heard += (problem_at(place(path), text) for path, text in not_ready)

    def _merge(
        self,
        kind: Kind,
        document: Mapping[str, Any] | None,
        shown: str | None,
        findings: _Findings,
        *,
        is_given: bool = False,
    ) -> Merged:
        layers = self._layers(kind, document, shown, findings)
        if is_given:
            # What the caller says here and now is meant more than what the environment happens to hold.
            layers.insert(0, replace(layers.pop(), source="argument"))
        findings.problems += (problem for layer in layers for problem in layer.problems)
        merged = merge(layers)
        if kind is PROMPT_BUILDER:
            self._tell_missing_prompts(document, shown, merged, findings)
        return self._with_member_files(merged, findings) if kind.model is TeamSettings else merged

    def _tell_missing_prompts(
        self, document: Mapping[str, Any] | None, shown: str | None, merged: Merged, findings: _Findings
    ) -> None:
        if document is None:
            logger.info("no prompt builder file: the default templates are used")
            return
        table = document.get(PROMPT_BUILDER.table or "")
        if "language" in merged.values:
            return  # whoever names a language chooses its templates
        for name in PROMPTS:
            if findings.complete and isinstance(table, Mapping) and name not in table:
                findings.problems.append(Problem("is required: a template", shown, f"prompt_builder.{name}"))
            elif not findings.complete and name not in merged.values:
                self._warn_once(f"{shown}: prompt_builder.{name} is missing: the default template is used", findings)

    def _warn_once(self, words: str, findings: _Findings) -> None:
        if not findings.is_told and words not in self._told:
            logger.warning("%s", words)
        self._told.add(words)

    def _layers(
        self, kind: Kind, document: Mapping[str, Any] | None, shown: str | None, findings: _Findings
    ) -> list[Layer]:
        layers = [self._command_line(kind)]
        if kind.variables is not None:
            layers.append(environment_layer(kind.model, kind.variables, self._environ, "environment"))
            dotenv = self._dotenv(findings)
            layers.append(environment_layer(kind.model, kind.variables, dotenv, ".env", ".env"))
        if document is not None and shown is not None:
            layers.append(toml_layer(kind, document, shown))
        return layers

    def _command_line(self, kind: Kind) -> Layer:
        named = self._options.get(kind.name, {})
        places: dict[KeyPath, Place] = {(name,): Place(key=(option,)) for name, option in named.items()}
        return Layer("command line", self._overrides.get(kind.name, {}), {(): Place(key=(kind.name,)), **places})

    def _known_providers(self) -> KnownProviders | None:
        given = self._given.part(PROVIDERS)
        if isinstance(given, ProvidersSettings):
            return KnownProviders(given.providers, self.environ)
        if given is not None and not isinstance(given, Mapping):
            return None
        file = self.default_file(PROVIDERS)
        try:
            read = self._document(file) if given is None and is_there(file) else {}
        except ConfigurationError:
            return None
        document = read if given is None else as_document(PROVIDERS, given)[1]
        values = self._merge(PROVIDERS, document, self._shown(file), _Findings()).values
        servers = values.get("providers")
        named = servers.items() if isinstance(servers, Mapping) else ()
        return KnownProviders({name: _server(table) for name, table in named}, self.environ)

    def _dotenv(self, findings: _Findings) -> Mapping[str, str]:
        try:
            dotenv = read_dotenv(self.workspace.env_file, ".env")
        except ConfigurationError as error:
            dotenv = Dotenv({}, tuple(error.problems))
        findings.problems += dotenv.problems
        return dotenv.values

    def _check_variables(self, findings: _Findings) -> None:
        """Those that belong to no kind of file but can only be meant for us, and the zone of the clock."""
        known = {kind.model: kind.variables for kind in KINDS.values() if kind.variables is not None}
        findings.problems += unclaimed(known, self._environ)
        findings.problems += unclaimed(known, self._dotenv(findings), ".env")
        findings.problems += check_clock(self._environ)

    def _document(self, file: Path) -> dict[str, Any]:
        return read_toml(file, self._shown(file))

    def _named(self, path: Path | str | None) -> Path | None:
        return None if path is None else self._existing(path)

    def _existing(self, path: Path | str) -> Path:
        return existing_file(path, self.workspace)

    def _shown(self, file: Path) -> str:
        inside = file.is_relative_to(self.workspace.root)
        return str(file.relative_to(self.workspace.root)) if inside else str(file)

    # --- files that refer to files ----------------------------------------------------------------------------------

    def _read_alone(self, kind: Kind, file: Path, findings: _Findings) -> tuple[BaseModel, ...]:
        """The settings of a file that is not the one of a competition."""
        settings = self._read(kind, kind.model, file, findings).settings
        self._check_variables(findings)
        return (settings,) if settings else ()

    def _read_run(self, file: Path | None, findings: _Findings) -> RunSettings | None:
        return self._read_parts(self._read(ORCHESTRATOR, OrchestratorSettings, file, findings), findings)

    def _read_parts(
        self,
        main: _Reading[OrchestratorSettings],
        findings: _Findings,
        reference: str | None = None,
        *,
        is_scored: bool = True,
        borrows_prices: bool = False,
    ) -> RunSettings | None:
        teams = self._read_teams(main, findings)
        evaluator: EvaluatorSettings | None = EvaluatorSettings()
        if is_scored:
            evaluator = self._read_named(EVALUATOR, EvaluatorSettings, main, findings)
        judgment = self._read_named(JUDGMENT, JudgmentSettings, main, findings)
        prompt_builder = self._read_named(PROMPT_BUILDER, PromptBuilderSettings, main, findings)
        providers = self._read(PROVIDERS, ProvidersSettings, None, findings).settings
        self._check_variables(findings)
        findings.problems += check_prompt_templates(self.workspace, _PROMPT_TEMPLATES)
        if not (main.settings and evaluator and judgment and prompt_builder and providers):
            return None
        orchestrator = _located(main.settings, self.workspace.root)
        answer = reference or self._reference_text(orchestrator.reference)
        if answer is None and is_scored:
            self._tell_missing_references(evaluator, findings)
        parts = (orchestrator, teams, evaluator, judgment, prompt_builder, providers)
        run = RunSettings(*parts, self.workspace, answer, is_scored, borrows_prices)
        findings.notes += _prices_of_nobody(run)
        return run

    def _reference_text(self, given: str | None) -> str | None:
        file = reference_file(given, self.workspace) if given else None
        try:
            return read_text(file, str(given)) if file else given
        except ConfigurationError:
            return given  # told where the orchestrator file is checked

    def _tell_missing_references(self, evaluator: EvaluatorSettings, findings: _Findings) -> None:
        """Metrics without the reference they need; before a run only worth a note, since a task may bring it."""
        heard = findings.problems if findings.for_a_run else findings.notes
        remedy = f"give it with {self._options.get(ORCHESTRATOR.name, {}).get('reference', 'the task')}"
        if not self._given.teams:  # else there is no such file
            remedy = f"set reference in the orchestrator file, or {remedy}"
        for number in metrics_that_need_a_reference(evaluator, self._around):
            name = evaluator.metrics[number].name
            told = f"{name!r} needs a reference answer: {remedy}"
            heard.append(Problem(told, self.file_of(evaluator), f"metrics[{number}]"))

    def _read_teams(self, main: _Reading[OrchestratorSettings], findings: _Findings) -> tuple[TeamSettings, ...]:
        references = main.values.get("teams")
        teams: list[tuple[Place, TeamSettings]] = []
        for number, reference in enumerate(references if isinstance(references, list) else []):
            place = main.place(("teams", number, "config"))
            given = _inside(list(self._given.teams), number)
            if given is None or isinstance(given, Path | str):
                team = self._read_referred(TEAM, TeamSettings, _inside(reference, "config"), place, findings)
            else:
                place = Place(f"teams[{number}]")
                team = self._make_given(TEAM, TeamSettings, given, f"teams[{number}]", findings).settings
            if team is not None:
                teams.append((place, team))
        findings.problems += _team_ids_used_twice(teams)
        return tuple(team for _, team in teams)

    def _read_named(
        self, kind: Kind, model: type[S], main: _Reading[OrchestratorSettings], findings: _Findings
    ) -> S | None:
        name = f"{kind.name}_config"
        if name not in main.values:
            return self._read(kind, model, None, findings).settings
        return self._read_referred(kind, model, main.values[name], main.place((name,)), findings)

    def _read_referred(self, kind: Kind, model: type[S], given: Any, place: Place, findings: _Findings) -> S | None:
        file = self._referred(given, place, findings)
        document = self._referred_document(kind, file, place, findings) if file else None
        if file is None or document is None:
            return None
        return self._make(kind, model, document, self._shown(file), findings).settings

    def _referred_document(self, kind: Kind, file: Path, place: Place, findings: _Findings) -> dict[str, Any] | None:
        """What stands in a file that a setting names; what cannot be it is a problem of the place that names it."""
        shown = self._shown(file)
        try:
            document = self._document(file)
        except ConfigurationError as error:
            named_in = f" (named in {place})"
            findings.problems += (replace(problem, message=problem.message + named_in) for problem in error.problems)
            return None
        other = other_kind(document, kind)
        if other is not None:
            findings.problems.append(problem_at(place, f"{shown} is {other.words}, but {kind.words} is wanted here"))
            return None
        return document

    def _referred(self, given: Any, place: Place, findings: _Findings) -> Path | None:
        """The file a setting names; a missing one is a problem of the place that names it."""
        if not isinstance(given, str) or not given.strip() or given in findings.missing:
            return None
        file = referred_file(self.workspace, given)
        if file is None:
            findings.problems.append(problem_at(place, no_such_file(given)))
        return file

    def _with_member_files(self, merged: Merged, findings: _Findings) -> Merged:
        """Put the contents of member files where a team's members only name them."""
        members = merged.values.get("members")
        if not isinstance(members, list):
            return merged
        origins = dict(merged.origins)
        source = origins[("members",)][0].source
        filled: list[Any] = []
        for number, member in enumerate(members):
            written = merged.place(("members", number)) or Place()
            # A member whose file cannot be read is left out; those after it move up, but not in the file.
            here: KeyPath = ("members", len(filled))
            origins[here] = (Origin(source, written, member),)
            if isinstance(member, Mapping) and "config" in member:
                filled += self._member_of_file(member, written, here, origins, findings)
            else:
                filled.append(member)
        return Merged({**merged.values, "members": filled}, origins)

    def _member_of_file(
        self,
        member: Mapping[str, Any],
        written: Place,
        here: KeyPath,
        origins: dict[KeyPath, tuple[Origin, ...]],
        findings: _Findings,
    ) -> list[Mapping[str, Any]]:
        for name in sorted(member.keys() - set(_BESIDE_CONFIG)):
            message = "may not stand beside config: move it into the member file"
            findings.problems.append(problem_at(written.inside((name,)), message))
        document, shown = self._member_document(member["config"], written.inside(("config",)), findings)
        if document is None:
            return []
        layer = toml_layer(MEMBER, document, shown)
        findings.problems += layer.problems
        beside = {name: member[name] for name in _BESIDE_CONFIG[1:] if name in member}
        origins[here] = (Origin("TOML", Place(shown, MEMBER.key(()))),)
        for name, value in beside.items():
            origins[(*here, name)] = (Origin("TOML", written.inside((name,)), value),)
        return [{**layer.values, **beside}]

    def _member_document(self, given: Any, place: Place, findings: _Findings) -> tuple[dict[str, Any] | None, str]:
        if not isinstance(given, str) or not given.strip():
            findings.problems.append(problem_at(place, f"{given!r} is not allowed: must be the path of a member file"))
        file = self._referred(given, place, findings)
        if file is None:
            return None, ""
        return self._referred_document(MEMBER, file, place, findings), self._shown(file)


def load_orchestrator_settings(path: Path | str, workspace: Path | str | None = None) -> OrchestratorSettings:
    """:meth:`ConfigurationManager.load_orchestrator_settings` for one call."""
    return ConfigurationManager(workspace).load_orchestrator_settings(path)


def read_prompt_builder_settings(workspace: Path | str) -> PromptBuilderSettings:
    """The prompt templates of a workspace as the builder's contract has them.

    Invalid settings are pydantic's ``ValidationError``, and templates are left to be checked when they are built.
    """
    manager = ConfigurationManager(workspace)
    file = manager.default_file(PROMPT_BUILDER)
    findings = _Findings()
    document = manager._document(file) if is_there(file) else None
    merged = manager._merge(PROMPT_BUILDER, document, manager._shown(file), findings)
    findings.raise_problems()
    settings = PromptBuilderSettings.of_values(merged.values)
    _remember(settings, merged.origins)
    return settings


def read_team_settings(path: Path | str, workspace: Path | str) -> TeamSettings:
    """One team file as the round controller's contract has it: invalid settings are pydantic's ``ValidationError``."""
    manager = ConfigurationManager(workspace)
    file = manager._existing(path)
    findings = _Findings()
    merged = manager._merge(TEAM, manager._document(file), manager._shown(file), findings)
    findings.raise_problems()
    settings = TeamSettings.model_validate(merged.values)
    _remember(settings, merged.origins)
    return settings


def problems_within(
    settings: Settings | PromptBuilderSettings, path: KeyPath, error: ConfigurationError
) -> list[Problem]:
    """What is wrong with a part of settings, found when it was to be used: told with the place it was read from."""
    origins = _origins_at(settings, path)
    place = origins[0].place if origins else Place()
    if place.file is None:
        return list(error.problems)
    above = show_path(place.key)
    return [
        replace(problem, file=place.file, key=f"{above}.{problem.key}" if problem.key else above)
        for problem in error.problems
    ]


def warn_of_prices(run: RunSettings) -> None:
    """Warn, where a run begins, of prices of models that nobody in it names."""
    for price in _prices_of_nobody(run):
        logger.warning("%s", price)


def _prices_of_nobody(run: RunSettings) -> list[Problem]:
    """Prices of models that nobody in a run names, as happens to one that is misspelt.

    Members and metrics of the user's own may ask models that stand in no file: beside them only a likely slip is told.
    """
    has_own = bool(run.evaluator.custom_metrics) or any(one.plugin for team in run.teams for one in team.members)
    told = {
        ("prices", name): f"has a price, but nobody here names this model{f'; did you mean {near!r}?' if near else ''}"
        for name, near in run.unused_prices.items()
        if near is not None or not has_own
    }
    return [
        problem if problem.file else replace(problem, key=show_path(path))
        for path, words in told.items()
        for problem in problems_within(run.orchestrator, path, ConfigurationError(words))
    ]


def is_explicit(settings: PromptBuilderSettings, field: str = "team_user_prompt") -> bool:
    """Whether a prompt was chosen more deliberately than by the workspace's default file."""
    origins = _origins_at(settings, (field,))
    default_file = f"configs/{PROMPT_BUILDER.file}"
    return bool(origins) and not (origins[0].source == "TOML" and origins[0].place.file == default_file)


def locate_workspace(path: Path | str | Workspace | None, environ: Mapping[str, str] = os.environ) -> Workspace:
    """:meth:`Workspace.locate`, for whatever somebody may have typed."""
    try:
        return Workspace.locate(path, environ)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, WorkspaceNotFoundError):
            raise
        raise WorkspaceNotFoundError(f"{str(path)!r} is not the name of a directory") from error


# --- steps of a reading ---------------------------------------------------------------------------------------------


def _number_of(name: str | None, members: Sequence[Any], shown: str) -> int:
    """Which of a team's members is meant; one needs no name."""
    names = [_inside(member, "name") or _inside(member, "agent_name") for member in members]
    if name in names:
        return names.index(name)
    if not names:
        raise ConfigurationError(Problem("the team has no members: its leader answers alone (mixseek team)", shown))
    if name is None and len(names) == 1:
        return 0
    listed = ", ".join(map(repr, names))
    if name is None:
        raise ConfigurationError(Problem(f"has {len(names)} members: choose one with --name ({listed})", shown))
    raise ConfigurationError(Problem(f"has no member {name!r}: its members are {listed}", shown))


def _of_values(model: type[S], values: Mapping[str, Any]) -> S:
    # Made by its constructor, this one would look into the environment by itself.
    return model.of_values(values) if issubclass(model, PromptBuilderSettings) else model.model_validate(dict(values))


def _server(table: Any) -> Server:
    variable = _inside(table, "api_key_env")
    return Server(variable if isinstance(variable, str) else None)


def _notes(settings: BaseModel, values: Mapping[str, Any], place: Callable[[KeyPath], Place]) -> Iterator[Problem]:
    for path, member in _members_as_written(settings, values):
        if isinstance(member.get("instructions"), Mapping):
            yield problem_at(place((*path, "instructions")), 'older spelling: write system_instruction = "..."')


def _members_as_written(settings: BaseModel, values: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    if isinstance(settings, MemberAgentConfig):
        yield (), values
    elif isinstance(settings, TeamSettings):
        for number, member in enumerate(values.get("members", [])):
            yield ("members", number), member


def _as_written(values: Any, path: KeyPath) -> KeyPath:
    """A path in the spelling the file uses, so that a message names a key the reader can find."""
    written: list[str | int] = []
    for part in path:
        if isinstance(values, Mapping) and part not in values:
            written += _older(values, part)
        else:
            written.append(part)
        values = _inside(values, part)
    return tuple(written)


def _older(values: Mapping[str, Any], part: str | int) -> list[str | int]:
    for older, current in OLDER_SPELLINGS.items():
        if part == current and older in values:
            return [older]
    metadata = values.get("metadata")
    if part == "tool_settings" and isinstance(metadata, Mapping) and part in metadata:
        return ["metadata", part]
    return [part]


def _inside(values: Any, part: str | int) -> Any:
    if isinstance(values, Mapping):
        return values.get(part)
    if isinstance(values, list) and isinstance(part, int) and part < len(values):
        return values[part]
    return None


def _located(orchestrator: OrchestratorSettings, root: Path) -> OrchestratorSettings:
    located = orchestrator.model_copy(update={"workspace_path": root})
    given = Origin("argument", Place(key=("workspace",)), root)
    known = orchestrator._provenance
    located._provenance = Provenance({**known.origins, ("workspace_path",): (given,)}, known=True, file=known.file)
    return located


def _team_ids_used_twice(teams: Iterable[tuple[Place, TeamSettings]]) -> Iterator[Problem]:
    seen: dict[str, Place] = {}
    for place, team in teams:
        first = seen.setdefault(team.team_id, place)
        if first is not place:
            yield problem_at(place, f"team_id {team.team_id!r} is also that of {first}: give each team its own")


# --- provenance -----------------------------------------------------------------------------------------------------


def _remember(settings: BaseModel, origins: Mapping[KeyPath, tuple[Origin, ...]], file: str | None = None) -> None:
    """Keep the origins with the model and, each its own part, with the models inside it."""
    if not isinstance(settings, Settings | PromptBuilderSettings):
        return
    settings._provenance = Provenance(origins, known=True, file=file)
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        if isinstance(value, BaseModel):
            _remember(value, _part(origins, (name,), value))
        for key, item in items:
            if isinstance(item, BaseModel):
                _remember(item, _part(origins, (name, key), item))


def _part(
    origins: Mapping[KeyPath, tuple[Origin, ...]], above: KeyPath, model: BaseModel
) -> Mapping[KeyPath, tuple[Origin, ...]]:
    """The origins of a model inside another: those recorded below it, or exact ones within the leaf it is part of."""
    size = len(above)
    part = {path[size:]: found for path, found in origins.items() if path[:size] == above and len(path) > size}
    for name in model.model_fields_set:
        key = key_of(name, type(model).model_fields[name]) if name in type(model).model_fields else name
        if not any(path[0] == key for path in part):
            part[(key,)] = _climb(origins, (*above, key))
    return {path: found for path, found in part.items() if found}


def _climb(origins: Mapping[KeyPath, tuple[Origin, ...]], path: KeyPath) -> tuple[Origin, ...]:
    """The origins of a value, or of what it is part of, its place made exact."""
    for end in range(len(path), 0, -1):
        found = origins.get(path[:end])
        if found:
            return tuple(replace(one, place=one.place.inside(path[end:])) for one in found)
    return ()


_STRONGEST_FIRST: Final[tuple[Source, ...]] = ("command line", "argument", "environment", ".env", "TOML", "default")


def _gather(origins: Mapping[KeyPath, tuple[Origin, ...]], path: KeyPath) -> tuple[Origin, ...]:
    """The origins of a table, known only by those of its keys: first the ones that won a key, then those that lost.

    Among the winners the strongest comes first, or a file would be told as laid over a variable.
    """
    size = len(path)
    inside = [(below[size:], found) for below, found in origins.items() if below[:size] == path]
    won = [(rest, one) for rest, found in inside for one in found[:1]]
    lost = [(rest, one) for rest, found in inside for one in found[1:]]
    ordered = [*sorted(won, key=lambda each: _STRONGEST_FIRST.index(each[1].source)), *lost]
    return tuple(dict.fromkeys(Origin(one.source, one.place.around(rest)) for rest, one in ordered))


def _origins_at(settings: BaseModel, path: KeyPath) -> tuple[Origin, ...]:
    if not isinstance(settings, Settings | PromptBuilderSettings):
        return ()
    if settings._provenance.known:
        origins, keys = settings._provenance.origins, _as_keys(settings, path)
        return (_climb(origins, keys) or _gather(origins, keys)) if _is_set(settings, path) else ()
    return (Origin("argument"),) if path[0] in settings.model_fields_set else ()


def _as_keys(settings: Any, path: KeyPath) -> KeyPath:
    """A path of field names as the keys of a file, where the two differ."""
    keys: list[str | int] = []
    for part in path:
        fields = type(settings).model_fields if isinstance(settings, BaseModel) else {}
        keys.append(key_of(part, fields[part]) if isinstance(part, str) and part in fields else part)
        settings = getattr(settings, str(part), None) if fields else _inside(settings, part)
    return tuple(keys)


def _is_set(settings: Any, path: KeyPath) -> bool:
    """Whether a value was given, rather than being the default of a model inside a list."""
    for part in path:
        if isinstance(settings, BaseModel):
            if isinstance(part, str) and part in type(settings).model_fields and part not in settings.model_fields_set:
                return False
            settings = getattr(settings, str(part), None)
        else:
            settings = _inside(settings, part)
    return True


def _default_at(settings: BaseModel, path: KeyPath) -> tuple[Origin, ...]:
    """The default as the weakest origin; none for a field that has to be given."""
    owner = _value_at(settings, path[:-1])
    if not isinstance(owner, BaseModel) or path[-1] not in type(owner).model_fields:
        return ()
    field_info = type(owner).model_fields[str(path[-1])]
    if field_info.default is PydanticUndefined:
        return (Origin("default"),) if field_info.default_factory else ()
    return (Origin("default", value=field_info.default),)


def _parse_path(field: str) -> KeyPath:
    parts = re.findall(r'"([^"]*)"|([^."\[\]]+)', field)
    return tuple(quoted or (int(bare) if bare.isdigit() else bare) for quoted, bare in parts)


def _value_at(settings: Any, path: KeyPath) -> Any:
    value = settings
    for part in path:
        if isinstance(value, BaseModel) and isinstance(part, str) and hasattr(value, part):
            value = getattr(value, part)
        elif _inside(value, part) is not None:
            value = _inside(value, part)
        else:
            raise AttributeError(f"{type(settings).__name__} has no field {show_path(path)!r}")
    return value


def redactor_of(environ: Mapping[str, str], providers: ProvidersSettings) -> Redactor:
    """What takes the secrets of a run out of texts: those of the environment, and the keys of its servers."""
    variables = {server.api_key_env for server in providers.providers.values() if server.api_key_env}
    return Redactor.from_environment(environ, variables=variables)
