"""What may be set: one model per thing, frozen, checked when it is made.

Types are strict, so that ``max_rounds = "5"`` in a file is a mistake and not a five; what comes from the environment
is text and is read as the field's type before it gets here. ``None`` stands for "not set".
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeGuard, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mixseek.config.environment import Variables, environment_layer
from mixseek.config.hosts import domain, host_and_port
from mixseek.config.layers import KeyPath, Provenance
from mixseek.config.masking import mask
from mixseek.config.references import references
from mixseek.config.shape import SET_BY_THE_LOADER, Words
from mixseek.errors import ConfigurationError
from mixseek.records import AgentType
from mixseek.surrogates import HALF, halves_in, whole_text
from mixseek.templating import (
    DEFAULT_EVALUATOR_USER_PROMPT,
    DEFAULT_JUDGMENT_USER_PROMPT,
    DEFAULT_TEAM_USER_PROMPT,
    TEXTS,
    Language,
)

__all__ = [
    "OLDER_SPELLINGS",
    "PROMPTS",
    "BudgetSettings",
    "CodeExecutionSettings",
    "CustomMetricSettings",
    "EvaluatorSettings",
    "FunctionSettings",
    "JudgmentSettings",
    "LLMDefaultSettings",
    "LeaderSettings",
    "McpServerSettings",
    "MemberAgentConfig",
    "MemberSettings",
    "MetricOptions",
    "MetricSettings",
    "ModelParams",
    "OrchestratorSettings",
    "PluginSettings",
    "PriceSettings",
    "PromptBuilderSettings",
    "ProviderSettings",
    "ProvidersSettings",
    "RoundPromptConfig",
    "Settings",
    "StorageSettings",
    "TeamReference",
    "TeamSettings",
    "ToolSettings",
    "WebFetchSettings",
    "WebSearchSettings",
    "default_tool_name",
    "server_tool_name",
]

PROMPTS = ("team_user_prompt", "evaluator_user_prompt", "judgment_user_prompt")

_WEIGHTS_SUM_TOLERANCE = 0.001
_TOOL_NAME_LENGTH = 64
_TOOL_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_TOOL_PREFIX = "delegate_to_"

# --- kinds of values ------------------------------------------------------------------------------------------------


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("cannot be empty")
    return text


def _model_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*:\S+", name):
        raise ValueError(f'{name!r} does not name a model: write "provider:name", as in "openai:gpt-5-mini"')
    return name


def _model_name_or_none(name: str) -> str:
    return name if name == "none" else _model_name(name)


def _function_name(name: str) -> str:
    module, _, function = name.partition(":")
    if not re.fullmatch(r"[A-Za-z_][\w.]*", module) or not function.isidentifier():
        raise ValueError(f'{name!r} does not name a function: write "module:function"')
    if not re.fullmatch(r"[A-Za-z0-9_]{1,64}", function):
        raise ValueError(f"{function!r} cannot be the name of a tool: rename it, to at most 64 of A-Z, a-z, 0-9 and _")
    return name


def _variable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("give the name of the environment variable that holds the key, never the key itself")
    return name


def _web_address(address: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+\S*", address):
        raise ValueError(f'{address!r} is not a web address: it starts with "http://" or "https://"')
    return address


def _web_address_without_credentials(address: str) -> str:
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise ValueError("keys and passwords do not belong in a file: take them out of the address")
    return _web_address(address)


def _base_address(address: str) -> str:
    if re.search(r"[?#]", address):
        raise ValueError("cannot have a query or a fragment: paths of calls are added to its end")
    return _web_address_without_credentials(address)


def _private_host(text: str) -> str:
    host_and_port(text)
    return text


def _table_or_path(value: Any) -> Any:
    if not isinstance(value, str | Mapping):
        raise ValueError("must be a table, or the path of a JSON file")  # pydantic tells ValueErrors
    return value


def _tool_name(name: str) -> str:
    if not re.fullmatch(_TOOL_NAME, name):
        raise ValueError(f"{name!r} is no tool name: letters, digits, _ and -, at most 64, a letter or _ first")
    return name


Text = Annotated[str, AfterValidator(_not_blank)]
ModelName = Annotated[str, AfterValidator(_model_name), Words('a model, as "provider:name"')]
FunctionName = Annotated[str, AfterValidator(_function_name), Words('a function, as "module:function"')]
VariableName = Annotated[str, AfterValidator(_variable_name), Words("the name of a variable")]
WebAddress = Annotated[str, AfterValidator(_web_address), Words("a web address")]
WebAddressWithoutCredentials = Annotated[str, AfterValidator(_web_address_without_credentials), Words("a web address")]
BaseAddress = Annotated[str, AfterValidator(_base_address), Words("a web address")]
Domain = Annotated[str, AfterValidator(domain), Words("a domain")]
PrivateHost = Annotated[str, AfterValidator(_private_host), Words('"host" or "host:port"')]
ToolName = Annotated[str, AfterValidator(_tool_name), Words("letters, digits, _ and -, at most 64")]
FilePath = Annotated[str, AfterValidator(_not_blank), Words("a path")]
AnswerSchema = Annotated[str | dict[str, JsonValue], BeforeValidator(_table_or_path)]
# Sums of larger ones would leave the numbers that JSON and the stores can keep.
Amount = Annotated[float, Field(gt=0, le=1_000_000_000, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
# From there on a float, as which amounts are shown and compared, is no longer exact.
LargeCount = Annotated[int, Field(ge=1, le=2**53)]


def default_tool_name(name: str) -> str:
    """The tool a leader calls a member by.

    >>> default_tool_name("researcher")
    'delegate_to_researcher'
    >>> default_tool_name("調査 A")
    'delegate_to_A_95b697de'
    """
    plain = _TOOL_PREFIX + name
    if re.fullmatch(r"[A-Za-z0-9_-]+", name) and len(plain) <= _TOOL_NAME_LENGTH:
        return plain
    # Two names may have the same slug; the hash of the whole name keeps their tools apart.
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    room = _TOOL_NAME_LENGTH - len(_TOOL_PREFIX) - len(digest) - 1
    slug = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:room]
    return _TOOL_PREFIX + "_".join(part for part in (slug, digest) if part)


def server_tool_name(server: str, tool: str) -> str:
    """The name that a tool of an MCP server has for a model.

    >>> server_tool_name("github", "search_code")
    'github_search_code'
    >>> server_tool_name("検索", "web.search")
    'mcp_web_search_a43a57a1'
    """
    plain = f"{server}_{tool}"
    if re.fullmatch(_TOOL_NAME, plain):
        return plain
    digest = sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    slug = re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("_")[: _TOOL_NAME_LENGTH - len("mcp__") - len(digest)]
    return f"mcp_{slug}_{digest}"


# --- the base of all ------------------------------------------------------------------------------------------------


Fault = tuple[KeyPath, str]


class Settings(BaseModel):
    """Frozen, closed and strict; remembers where its values came from when a file was read."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)

    _provenance: Provenance = PrivateAttr(default_factory=Provenance)

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:  # noqa: ARG003
        """Breaches of the rules between fields. ``data`` is as it was given: any value may be of a wrong type."""
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _tell_everything(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Faults of fields and between fields at once; pydantic alone looks between fields only if each is right."""
        faults = list(cls._faults(data)) if isinstance(data, Mapping) else []
        details = [InitErrorDetails(type=_fault(text), loc=path, input=None) for path, text in faults]
        try:
            made = handler(data)
        except ValidationError as error:
            raise ValidationError.from_exception_data(cls.__name__, [*_details(error), *details]) from None
        details += _halves(made)
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return made


def _halves(made: BaseModel) -> list[InitErrorDetails]:
    """Texts of Python and of the environment that can neither be sent nor kept; no file has any."""
    return [InitErrorDetails(type=_fault(HALF), loc=path, input=None) for path in halves_in(made.__dict__)]


def _fault(text: str) -> PydanticCustomError:
    # Given as a variable: braces in the text itself would be taken for a place to fill.
    return PydanticCustomError("rule", "{text}", {"text": text})


def _details(error: ValidationError) -> list[InitErrorDetails]:
    """The same errors once more, without those that only follow from another."""
    return [
        InitErrorDetails(type=_error_type(one), loc=one["loc"], input=one["input"], ctx=one.get("ctx", {}))
        for one in error.errors(include_url=False)
        if one["type"] != "default_factory_not_called"
    ]


def _error_type(error: ErrorDetails) -> str | PydanticCustomError:
    if error["type"] in _PYDANTIC_ERRORS:
        return error["type"]
    return PydanticCustomError(error["type"], "{text}", {"text": error["msg"]})


_PYDANTIC_ERRORS = frozenset(get_args(ErrorType))


class ModelParams(Settings):
    """How a model is asked; the same block wherever a model is named."""

    temperature: float | None = Field(default=None, ge=0, le=2, description="Randomness of the answers.")
    max_tokens: int | None = Field(default=None, ge=1, description="Longest answer, in tokens.")
    timeout_seconds: int | None = Field(default=None, ge=1, description="Longest wait for one answer.")
    max_retries: int | None = Field(default=None, ge=0, description="Further tries after a failed call.")
    stop_sequences: list[str] | None = Field(default=None, description="Texts that end an answer.")
    top_p: float | None = Field(default=None, ge=0, le=1, description="Share of the probability mass to draw from.")
    seed: int | None = Field(default=None, description="Makes answers repeatable where the provider can.")


# --- prompt builder file --------------------------------------------------------------------------------------------


class RoundPromptConfig(Settings):
    """Limits of what a prompt carries over from earlier rounds; without this table there are none."""

    max_submission_history_items: int = Field(default=5, ge=1, le=1000, description="Newest rounds kept.")
    max_leaderboard_display_teams: int = Field(default=10, ge=1, le=1000, description="Teams shown of the ranking.")
    submission_preview_chars: int = Field(default=200, ge=2, le=1_000_000, description="Characters of a submission.")
    enable_trend_analysis: bool = Field(default=True, description="Whether the scores are also shown as a trend.")
    estimated_prompt_tokens: int = Field(default=3000, ge=1, le=10_000_000, description="Budget of a whole prompt.")


class _VariablesSource(PydanticBaseSettingsSource):
    """The environment as our own rules read it: pydantic-settings would take the bare ``TEAM_USER_PROMPT`` too."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        variables = PromptBuilderSettings.variables
        layer = environment_layer(PromptBuilderSettings, variables, os.environ, "environment")
        if layer.problems:
            raise ConfigurationError(layer.problems)
        return dict(layer.values)


class PromptBuilderSettings(BaseSettings):
    """The three prompt templates and the limits of what they carry; made alone it reads the environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", strict=True)

    variables: ClassVar[Variables] = Variables(
        prefix="MIXSEEK_PROMPT_BUILDER__",
        aliases={f"MIXSEEK_{name.upper()}": name for name in PROMPTS},
    )

    language: Language = Field(
        default="ja",
        description="Language of what models are told: of templates that are not set, and of all built-in texts.",
    )
    team_user_prompt: str = Field(
        default=DEFAULT_TEAM_USER_PROMPT, description="Jinja2 template of what a team is told."
    )
    evaluator_user_prompt: str = Field(
        default=DEFAULT_EVALUATOR_USER_PROMPT, description="Jinja2 template of what the evaluator is told."
    )
    judgment_user_prompt: str = Field(
        default=DEFAULT_JUDGMENT_USER_PROMPT, description="Jinja2 template of what the judgment is told."
    )
    round_prompt: RoundPromptConfig | None = Field(
        default=None, description="Limits of what a prompt carries over from earlier rounds; absent: no limits."
    )

    _provenance: Provenance = PrivateAttr(default_factory=Provenance)

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Self:
        """Settings of these values alone, without a look at the environment."""
        made = cls.__new__(cls)
        BaseModel.__init__(made, **values)
        return made

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then our variables; files are the manager's."""
        return init_settings, _VariablesSource(settings_cls)

    @model_validator(mode="before")
    @classmethod
    def _templates_of_the_language(cls, data: Any) -> Any:
        language = data.get("language") if isinstance(data, Mapping) else None
        if not isinstance(language, str) or language not in TEXTS:
            return data
        return {name: getattr(TEXTS[language], name) for name in PROMPTS} | dict(data)

    @field_validator(*PROMPTS)
    @classmethod
    def _has_text(cls, template: str, info: Any) -> str:
        if not template.strip():
            raise ValueError(f"{info.field_name} cannot be empty")
        if whole_text(template) is not template:
            raise ValueError(HALF)
        return template


# --- member file and members of a team ------------------------------------------------------------------------------


class PluginSettings(Settings):
    """Where the class of a custom member is: a module or a file, and the class in it."""

    agent_module: Text | None = Field(default=None, description="Module to import.")
    path: FilePath | None = Field(default=None, description="Python file to load, instead of a module.")
    agent_class: Text = Field(description="Class in it, a subclass of BaseMemberAgent.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if "agent_module" not in data and "path" not in data:
            yield (), 'says neither "agent_module" nor "path": name the module or the file of the class'


class WebSearchSettings(Settings):
    """How a member searches the web."""

    max_results: int = Field(default=10, ge=1, le=50, description="Results taken of one search.")
    timeout: int = Field(default=30, ge=1, description="Longest wait for one search, in seconds.")
    include_raw_content: bool | None = Field(
        default=None, description="Whether results come with the text of their pages."
    )
    backend: Literal["auto", "provider", "local"] = Field(
        default="auto", description="Who searches: the model's provider, this machine, or the first that can."
    )
    endpoint: WebAddressWithoutCredentials | None = Field(
        default=None, description="A SearXNG server that searches, instead of public search engines."
    )

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if data.get("endpoint") is not None and data.get("backend") == "provider":
            yield ("endpoint",), 'is not asked with backend = "provider": keep one of them'


class WebFetchSettings(Settings):
    """How a member reads web pages."""

    max_uses: int | None = Field(default=None, ge=1, description="Pages asked for in one task.")
    allowed_domains: list[Domain] | None = Field(
        default=None, description="Only these domains and their subdomains; none named: any."
    )
    blocked_domains: list[Domain] | None = Field(default=None, description="Never these domains and their subdomains.")
    enable_citations: bool = Field(default=False, description="Whether the answer cites what it read.")
    max_content_tokens: int | None = Field(default=None, ge=1, description="Tokens taken of one page.")
    backend: Literal["auto", "provider", "local"] = Field(
        default="auto", description="Who reads: the model's provider, this machine, or the first that can."
    )
    allowed_private_hosts: list[PrivateHost] = Field(
        default=[], description='Hosts of a private network that may be read, as "host" or "host:port".'
    )

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if data.get("allowed_domains") and data.get("blocked_domains"):
            yield (), 'has both "allowed_domains" and "blocked_domains": keep one of them'


class CodeExecutionSettings(Settings):
    """How a member runs code; further keys are kept for agents that read their own."""

    model_config = ConfigDict(extra="allow")

    backend: Literal["auto", "provider", "monty", "bubblewrap"] = Field(
        default="auto", description="Where code runs; auto: the provider's own tool where it has one, otherwise Monty."
    )
    timeout_seconds: int = Field(default=30, ge=1, le=600, description="Longest run in a sandbox of ours, in seconds.")
    memory_mb: int = Field(
        default=256, ge=64, le=65536, description="Most memory of a run in a sandbox of ours, in MiB."
    )
    output_chars: int = Field(
        default=20_000, ge=100, le=1_000_000, description="Characters kept of what a run in a sandbox of ours prints."
    )


class FunctionSettings(Settings):
    """How a member's functions are called."""

    timeout_seconds: int = Field(default=60, ge=1, description="Longest wait for one call of a function.")


class ToolSettings(Settings):
    """Settings of a member's tools; any further table is kept for custom agents that read their own."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, dict[str, JsonValue]]

    web_search: WebSearchSettings | None = Field(default=None, description="Searching the web.")
    web_fetch: WebFetchSettings | None = Field(default=None, description="Reading web pages.")
    code_execution: CodeExecutionSettings | None = Field(default=None, description="Running code.")
    functions: FunctionSettings | None = Field(default=None, description="Calling the functions of `functions`.")

    def get(self, name: str, default: Any = None) -> Any:
        """A table by its name, as of the dictionary that custom agents take this for."""
        return self.model_dump(exclude_none=True).get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.model_dump(exclude_none=True)[name]


class McpServerSettings(Settings):
    """A server of tools: a command to start, or an address to call."""

    command: Text | None = Field(default=None, description="Program to start; it speaks on standard input and output.")
    args: list[str] = Field(default=[], description="Arguments of the program.")
    env: dict[str, str] = Field(
        default={}, description="Variables of the program; it gets no other but PATH, HOME and the like."
    )
    url: WebAddress | None = Field(default=None, description="Address to call, instead of a command.")
    headers: dict[str, str] = Field(default={}, description="HTTP headers of a call.")
    timeout_seconds: int = Field(default=30, ge=1, description="Longest wait for the server, each time.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if "command" in data and "url" in data:
            yield (), 'has both "command" and "url": keep the one by which the server is reached'
        elif "command" not in data and "url" not in data:
            yield (), 'needs either "command" or "url"'
        for path in _keys_written_down({name: data.get(name) for name in ("args", "env", "headers", "url")}):
            yield path, 'keys do not belong in a file: write "${NAME}" and set the variable NAME'


def _keys_written_down(values: Mapping[str, Any]) -> Iterable[KeyPath]:
    """Where a value can only be a key; short words and numbers under the name of one are none."""
    for (path, text), (_, shown) in zip(_texts(values), _texts(mask(values)), strict=True):
        if text != shown and not (references(text) or _is_plain(text)):
            yield path


def _texts(values: Mapping[Any, Any] | list[Any], above: KeyPath = ()) -> Iterable[tuple[KeyPath, str]]:
    for key, value in values.items() if isinstance(values, Mapping) else enumerate(values):
        if isinstance(value, Mapping | list):
            yield from _texts(value, (*above, key))
        elif isinstance(value, str):
            yield (*above, key), value


def _is_plain(text: str) -> bool:
    return len(text) < 8 or text.isdecimal()


class MemberAgentConfig(ModelParams):
    """A member of a team, inline in the team file or in a file of its own."""

    name: Text = Field(description='Name in the team; also read as "agent_name".')
    type: Text = Field(description='Kind of member; also read as "agent_type".')
    model: ModelName = Field(description="Model that works, as provider:name.")
    description: str = Field(default="", description="What the member is good for.")
    tool_name: ToolName = Field(
        default_factory=lambda data: default_tool_name(data["name"]),
        description="Tool the leader calls it by; absent: delegate_to_<name>.",
    )
    tool_description: str = Field(
        default_factory=lambda data: str(data["description"]),
        description="What the leader is told of the tool; absent: the description.",
    )
    max_retries: int = Field(default=3, ge=0, description="Further tries after a failed call.")
    system_instruction: str | None = Field(default=None, description="What the member is told it is.")
    system_prompt: str | None = Field(default=None, description="A system prompt beside the instruction.")
    plugin: PluginSettings | None = Field(default=None, description='The class of a member of type "custom".')
    tool_settings: ToolSettings | None = Field(default=None, description="Settings of its tools.")
    metadata: dict[str, Any] = Field(default={}, description="Anything; kept for custom agents.")
    capabilities: Any = Field(default=None, description="Accepted in existing files; has no effect.")
    mcp_servers: dict[str, McpServerSettings] = Field(default={}, description="Servers of tools, by name.")
    functions: list[FunctionName] = Field(default=[], description='Python functions as tools, "module:function".')
    fallback_models: list[ModelName] = Field(default=[], description="Models asked in turn when the first fails.")

    @model_validator(mode="before")
    @classmethod
    def _read_older_spellings(cls, data: Any) -> Any:
        return _with_current_spellings(data) if isinstance(data, Mapping) else data

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if _one_of(data, "type", "agent_type") == AgentType.CUSTOM and data.get("plugin") is None:
            yield ("plugin",), 'is required for type "custom": write {agent_module or path, agent_class}'
        for older, current in OLDER_SPELLINGS.items():
            if older in data and current in data:
                yield (older,), f'says the same as "{current}": keep one of them'


MemberSettings = MemberAgentConfig

OLDER_SPELLINGS: Mapping[str, str] = {"agent_name": "name", "agent_type": "type"}
"""Keys of a member that existing files use, and the field they stand for."""


def _with_current_spellings(member: Mapping[str, Any]) -> dict[str, Any]:
    data = dict(member)
    for older, current in OLDER_SPELLINGS.items():
        if older in data:
            data.setdefault(current, data.pop(older))
    data |= _system_instruction(data)
    settings = _tool_settings(data)
    return {**data, "tool_settings": settings} if settings is not None else data


def _system_instruction(data: dict[str, Any]) -> dict[str, Any]:
    table = data.get("instructions")
    if "system_instruction" not in data and _is_text_table(table):
        data["system_instruction"] = data.pop("instructions")
    given = data.get("system_instruction")
    return {"system_instruction": given["text"]} if _is_text_table(given) else {}


def _is_text_table(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and set(value) == {"text"}


def _tool_settings(data: Mapping[str, Any]) -> Any:
    """A member's own table and the one some files keep under ``metadata``; the first is stronger."""
    own, metadata = data.get("tool_settings"), data.get("metadata")
    kept = metadata.get("tool_settings") if isinstance(metadata, Mapping) else None
    if not isinstance(kept, Mapping):
        return own
    return {**kept, **own} if isinstance(own, Mapping) else kept if own is None else own


# --- team file ------------------------------------------------------------------------------------------------------


class BudgetSettings(Settings):
    """What may be spent; a limit that is not set does not hold."""

    max_cost_usd: Amount | None = Field(default=None, description="Money, in US dollars.")
    max_tokens: LargeCount | None = Field(default=None, description="Tokens, in and out together.")
    max_requests: LargeCount | None = Field(default=None, description="Model calls.")
    max_seconds: Amount | None = Field(default=None, description="Time on the clock.")
    max_output_tokens: LargeCount | None = Field(
        default=None,
        description="Longest answer of a model whose own max_tokens is not set, which a budget of money or tokens has"
        " to know beforehand; absent: 8192, in a team that of the run.",
    )


class LeaderSettings(ModelParams):
    """The leader of a team."""

    model: ModelName = Field(default="google-gla:gemini-2.5-flash-lite", description="Model that leads.")
    system_instruction: str | None = Field(
        default=None, description='What the leader is told it is; absent: the default text, "": nothing.'
    )
    system_prompt: str | None = Field(default=None, description="A system prompt beside the instruction.")
    timeout_seconds: int = Field(default=300, ge=1, description="Longest wait for one answer.")
    max_retries: int = Field(default=3, ge=0, description="Further tries after a failed call.")
    fallback_models: list[ModelName] = Field(default=[], description="Models asked in turn when the first fails.")


class TeamSettings(Settings):
    """A team: its leader and its members."""

    variables: ClassVar[Variables] = Variables(prefix="MIXSEEK_TEAM__")

    team_id: Text = Field(description="Identifies the team; unique in a run.")
    team_name: Text = Field(description="Name shown on the leader board.")
    max_concurrent_members: int = Field(
        default=15, ge=1, le=50, description="Most members of the team, and most of their calls at once."
    )
    leader: LeaderSettings = Field(default=LeaderSettings(), description="The leader.")
    members: list[MemberAgentConfig] = Field(
        default=[], description='The members, each inline or config = "path" of a member file.'
    )
    answer_schema: AnswerSchema | None = Field(
        default=None, description="JSON schema every submission has to meet: a table, or the path of a JSON file."
    )
    budget: BudgetSettings | None = Field(default=None, description="What this team may spend.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        members = data.get("members")
        if not isinstance(members, list):
            return
        most = data.get("max_concurrent_members", 15)
        if _is_number(most, 1, 50) and len(members) > most:
            remedy = "take some out or raise it (at most 50)"
            yield ("members",), f"there are {len(members)}, but max_concurrent_members is {most}: {remedy}"
        yield from _duplicates(("members",), "member name", [_one_of(m, "name", "agent_name") for m in members])
        named = {repr(_one_of(member, "name", "agent_name")): member for member in members}
        yield from _duplicates(("members",), "tool name", [_tool_of(member) for member in named.values()])


def _one_of(data: Any, *names: str) -> Any:
    """The first of some fields that a table, or a model that is made already, has."""
    for name in names:
        value = data.get(name) if isinstance(data, Mapping) else getattr(data, name, None)
        if value is not None:
            return value
    return None


def _tool_of(member: Any) -> Any:
    given, name = _one_of(member, "tool_name"), _one_of(member, "name", "agent_name")
    return default_tool_name(name) if given is None and isinstance(name, str) else given


def _duplicates(path: KeyPath, what: str, names: list[Any]) -> Iterable[Fault]:
    counts = Counter(name for name in names if isinstance(name, str))
    for name, count in counts.items():
        if count > 1:
            yield path, f"{what} {name!r} is used {count} times: give each its own"


# --- orchestrator file ----------------------------------------------------------------------------------------------


class TeamReference(Settings):
    """A team that takes part."""

    config: FilePath = Field(description="Path of its team file.")


class StorageSettings(Settings):
    """How results are stored."""

    lock_wait_seconds: float = Field(
        default=60, ge=0, le=86_400, description="Longest wait for another process that holds the database."
    )


class PriceSettings(Settings):
    """What a model costs, where the built-in price list is silent or wrong."""

    input_usd_per_million: Price = Field(description="US dollars for a million tokens in.")
    output_usd_per_million: Price = Field(description="US dollars for a million tokens out.")


class OrchestratorSettings(Settings):
    """A competition: its teams and the limits they play under."""

    variables: ClassVar[Variables] = Variables(
        prefix="MIXSEEK_",
        foreign=(
            "MIXSEEK_TEAM__",
            "MIXSEEK_EVALUATOR__",
            "MIXSEEK_JUDGMENT__",
            "MIXSEEK_PROMPT_BUILDER__",
            *PromptBuilderSettings.variables.aliases,
        ),
        strict=False,
    )

    workspace_path: Annotated[Path | None, SET_BY_THE_LOADER] = Field(
        default=None, strict=False, description="Set by the loader."
    )
    timeout_per_team_seconds: int = Field(default=300, ge=10, le=3600, description="Time for all rounds of a team.")
    max_concurrent_teams: int = Field(default=4, ge=1, le=1000, description="Teams that play at once.")
    max_retries_per_team: int = Field(
        default=2, ge=0, le=10, description="Further tries of a failed team, from its first unfinished round."
    )
    teams: list[TeamReference] = Field(min_length=1, description="The teams that take part.")
    evaluator_config: FilePath | None = Field(
        default=None, description="Path of the evaluator file; absent: configs/evaluator.toml if it exists."
    )
    judgment_config: FilePath | None = Field(
        default=None, description="Path of the judgment file; absent: configs/judgment.toml if it exists."
    )
    prompt_builder_config: FilePath | None = Field(
        default=None, description="Path of the prompt builder file; absent: configs/prompt_builder.toml if it exists."
    )
    max_rounds: int = Field(default=5, ge=1, le=10, description="Most rounds of a team.")
    min_rounds: int = Field(
        default_factory=lambda data: min(2, int(data["max_rounds"])),
        ge=1,
        le=10,
        description="Rounds before a judgment may stop a team, at most max_rounds; absent: 2, or max_rounds if less.",
    )
    submission_timeout_seconds: int = Field(
        default=300, ge=1, description="Time for one submission; a round that takes longer has failed."
    )
    judgment_timeout_seconds: int = Field(default=60, ge=1, description="Time for one judgment.")
    answer_schema: AnswerSchema | None = Field(
        default=None, description="JSON schema every submission has to meet: a table, or the path of a JSON file."
    )
    reference: Text | None = Field(
        default=None, description="Reference answer for metrics and judges: a text, or the path of a file."
    )
    budget: BudgetSettings | None = Field(default=None, description="What the whole run may spend.")
    prices: dict[str, PriceSettings] = Field(default={}, description="Prices by model name.")
    storage: StorageSettings = Field(default=StorageSettings(), description="How results are stored.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        least, most = data.get("min_rounds"), data.get("max_rounds", 5)
        if _is_number(least, 1, 10) and _is_number(most, 1, 10) and least > most:
            yield ("min_rounds",), f"min_rounds ({least}) must be <= max_rounds ({most})"
        yield from _not_models(data.get("prices"))


def _is_number(value: Any, low: float, high: float) -> TypeGuard[float]:
    """Whether a value is right by itself, so that a rule about it tells something new."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _not_models(prices: Any) -> Iterable[Fault]:
    for name in prices if isinstance(prices, Mapping) else ():
        try:
            _model_name(name)
        except ValueError as error:
            yield ("prices", name), str(error)


# --- evaluator file -------------------------------------------------------------------------------------------------


class LLMDefaultSettings(ModelParams):
    """Parameters of every metric that does not set its own; they win over the top level of the file."""

    model: ModelName | None = Field(default=None, description="Model that scores.")


class MetricSettings(LLMDefaultSettings):
    """One metric of the score."""

    name: Text = Field(description="Name in the results.")
    type: Text = Field(
        default_factory=lambda data: str(data["name"]),
        description="The metric's class: built in, registered or custom; absent: the name.",
    )
    weight: float | None = Field(default=None, ge=0, le=1, description="Share of the overall score; all or none.")
    system_instruction: str | None = Field(default=None, description="What the judge is told to look for.")
    use_reference: bool = Field(default=False, description="Whether the judge is shown the task's reference answer.")
    options: dict[str, JsonValue] = Field(default={}, description="Anything the metric's class takes.")


class MetricOptions(Settings):
    """What one class of metrics may be told under ``options``; a metric offers a subclass of this as its ``Options``.

    Checked when the file is read, like every other setting. A validator finds the workspace, if there is one, as
    ``info.context["workspace"]``.
    """

    @property
    def needs_reference(self) -> bool:
        """Whether the metric cannot score without the task's reference answer."""
        return False

    def reference_fault(self, reference: str) -> str | None:
        """Why the metric cannot use this reference answer, in words; None if it can."""
        return None


class CustomMetricSettings(Settings):
    """Where the class of a custom metric is."""

    module: Text | None = Field(default=None, description="Module to import.")
    path: FilePath | None = Field(default=None, description="Python file to load, instead of a module.")
    class_name: Text = Field(alias="class", description="Class in it, a subclass of BaseMetric.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if ("module" in data) == ("path" in data):
            yield (), 'needs either "module" or "path"'


def _default_metrics() -> list[MetricSettings]:
    weights = {"ClarityCoherence": 0.334, "Coverage": 0.333, "Relevance": 0.333}
    return [MetricSettings(name=name, weight=weight) for name, weight in weights.items()]


class EvaluatorSettings(Settings):
    """How submissions are scored."""

    variables: ClassVar[Variables] = Variables(prefix="MIXSEEK_EVALUATOR__")

    default_model: ModelName = Field(default="google-gla:gemini-2.5-flash", description="Model that scores.")
    max_retries: int = Field(default=3, ge=0, description="Further tries after a failed call.")
    timeout_seconds: int = Field(default=300, ge=1, description="Longest wait for one answer.")
    llm_default: LLMDefaultSettings = Field(
        default=LLMDefaultSettings(), description="Model parameters of all metrics; win over the top level."
    )
    metrics: list[MetricSettings] = Field(
        default_factory=_default_metrics,
        min_length=1,
        description="The metrics; absent: ClarityCoherence .334, Coverage .333, Relevance .333.",
    )
    custom_metrics: dict[str, CustomMetricSettings] = Field(default={}, description="Classes of custom metrics.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        metrics = data.get("metrics")
        if isinstance(metrics, list):
            yield from _duplicates(("metrics",), "metric name", [_one_of(metric, "name") for metric in metrics])
            yield from _wrong_weights([_one_of(metric, "weight") for metric in metrics])


def _wrong_weights(weights: list[Any]) -> Iterable[Fault]:
    given = [weight for weight in weights if _is_number(weight, 0, 1)]
    if given and None in weights:
        yield ("metrics",), f"{len(given)} of {len(weights)} metrics have a weight: give all of them one, or none"
    elif given and len(given) == len(weights) and abs(sum(given) - 1) > _WEIGHTS_SUM_TOLERANCE + 1e-9:
        yield ("metrics",), f"the weights sum to {sum(given):.4g}, but must sum to 1 (within {_WEIGHTS_SUM_TOLERANCE})"


# --- judgment file --------------------------------------------------------------------------------------------------


class JudgmentSettings(ModelParams):
    """How it is decided whether another round is worth its money."""

    variables: ClassVar[Variables] = Variables(prefix="MIXSEEK_JUDGMENT__")

    model: Annotated[str, AfterValidator(_model_name_or_none), Words('a model, as "provider:name", or "none"')] = Field(
        default="google-gla:gemini-2.5-flash", description='Model that judges; "none": rules only.'
    )
    temperature: float | None = Field(default=0.0, ge=0, le=2, description="Randomness of the answers.")
    max_retries: int = Field(default=3, ge=0, description="Further tries after a failed call.")
    timeout_seconds: int = Field(default=60, ge=1, description="Longest wait for one answer.")
    system_instruction: str | None = Field(default=None, description="What the judge is told it is.")
    judge_on_final_round: bool = Field(
        default=True, description="Whether it is asked after the last round too; that never changes the outcome."
    )
    target_score: float | None = Field(
        default=None, ge=0, le=100, description="Stop when a round has reached this score, from min_rounds on."
    )
    plateau_rounds: int | None = Field(
        default=None, ge=1, le=10, description="Stop after so many rounds without a gain."
    )
    plateau_min_gain: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="A gain is more than this; absent: more than 0. Only with plateau_rounds.",
    )

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if data.get("plateau_min_gain") is not None and data.get("plateau_rounds") is None:
            yield ("plateau_min_gain",), "has no meaning without plateau_rounds: set both"


# --- providers file -------------------------------------------------------------------------------------------------


class ProviderSettings(Settings):
    """A server that speaks the OpenAI protocol; its name becomes a model prefix."""

    base_url: BaseAddress = Field(description="Address of the server.")
    api_key_env: VariableName | None = Field(
        default=None, description="Environment variable that holds the key; absent: no key is sent."
    )
    max_concurrency: Count | None = Field(default=None, description="Most calls at once.")
    requests_per_minute: Count | None = Field(
        default=None, description="Most calls in a minute, evenly spaced; absent: as many as the server takes."
    )
    api: Literal["chat", "responses"] = Field(default="chat", description="Which of the two protocols.")
    media: list[Literal["image", "document", "audio"]] = Field(
        default=[], description="What its models can see of attachments beside text."
    )


class LocalSettings(Settings):
    """How models run in this process (``local:...``)."""

    n_ctx: int = Field(
        default=4096,
        ge=256,
        le=1_048_576,
        description="Tokens of a prompt and its answer together; memory grows with it.",
    )
    max_concurrency: Count | None = Field(
        default=None, description="Most answers computed at once; absent: one for each core, at most 4."
    )
    threads: Count | None = Field(
        default=None,
        description="Threads for one answer; absent: 1 for the embedded model, else an equal share of the cores.",
    )


class ProvidersSettings(Settings):
    """Servers of models that are not built in, and how models run in this process."""

    providers: dict[str, ProviderSettings] = Field(default={}, description="Servers by the prefix of their models.")
    local: LocalSettings = Field(default_factory=LocalSettings, description="Models that run in this process.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        named = data.get("providers")
        for name in named if isinstance(named, Mapping) else ():
            if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
                yield ("providers", name), "cannot be a model prefix: letters, digits, _, . and -, a letter first"
