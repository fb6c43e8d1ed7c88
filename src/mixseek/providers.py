"""Which model providers there are, as data: enough to check the name of a model before any SDK is imported.

``"provider:name"`` names a model. The built-in providers register in ``mixseek.plugins.providers`` as anyone's do, and
``configs/providers.toml`` adds servers of one's own that speak the OpenAI protocol; a name given there wins.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Protocol

from mixseek.embedded import PREFIX
from mixseek.errors import ConfigurationError, Problem
from mixseek.keys import NO_KEYRING, Environment, find_key, keyring_fault, source_of_key
from mixseek.plugins import Provider, providers

__all__ = [
    "OwnServer",
    "check_model",
    "find_provider",
    "key_fault",
    "key_of",
    "missing_address",
    "missing_package",
    "split_model_id",
    "where_key_is",
]

_IN_WORDS = {"environment": "the environment", ".env": ".env", "keyring": "the keyring"}


class OwnServer(Protocol):
    """What has to be known here of a server in ``configs/providers.toml``."""

    @property
    def api_key_env(self) -> str | None:
        """The environment variable that holds its key, if it needs one."""
        ...


def split_model_id(model_id: str) -> tuple[str, str]:
    """The two parts of a model's name.

    >>> split_model_id("ollama:llama3.2:3b")
    ('ollama', 'llama3.2:3b')
    """
    prefix, colon, name = model_id.partition(":")
    if not (prefix and colon and name):
        raise ConfigurationError(f'{model_id!r} does not name a model: write "provider:name", as in "openai:gpt-5"')
    return prefix, name


def find_provider(prefix: str) -> Provider | None:
    """The registered provider with this prefix or alias."""
    if prefix in providers:
        return providers.get(prefix)
    return next((provider for provider in map(providers.get, providers) if prefix in provider.aliases), None)


def key_of(provider: Provider, environ: Mapping[str, str]) -> str | None:
    """The provider's key, from the first of its variables that is set, else from the keyring."""
    there = (environ.get(name) for name in provider.key_variables)
    behind = (find_key(environ, name) for name in provider.key_variables)
    return next((key for keys in (there, behind) for key in keys if key), None)


def where_key_is(prefix: str, servers: Mapping[str, OwnServer], environ: Mapping[str, str]) -> str | None:
    """Where the key of a provider comes from, in words that never tell the key; None if it has or needs none."""
    provider = None if prefix in servers else find_provider(prefix)
    own = servers[prefix].api_key_env if prefix in servers else None
    names = (own,) if own else provider.key_variables if provider else ()
    set_ones = [name for name in names if environ.get(name)]
    found = next(((name, source) for name in set_ones or names if (source := source_of_key(environ, name))), None)
    return None if found is None else f"{found[0]} is in {_IN_WORDS[found[1]]}"


def key_fault(prefix: str, servers: Mapping[str, OwnServer], environ: Mapping[str, str]) -> str | None:
    """What to do about the key of a provider, in words; None if it has one that can be sent, or needs none."""
    if prefix in servers:
        variable = servers[prefix].api_key_env
        if variable is None:
            return None
        key = find_key(environ, variable)
        return _fault_of(key, prefix, servers, environ) if key else _set_one(prefix, (variable,), environ)
    provider = find_provider(prefix)
    if provider is None or not provider.key_variables:
        return None
    if key := key_of(provider, environ):
        return _fault_of(key, prefix, servers, environ)
    own_server = provider.address_variable and environ.get(provider.address_variable)
    return None if own_server else _set_one(prefix, provider.key_variables, environ)


def missing_address(prefix: str, servers: Mapping[str, OwnServer], environ: Mapping[str, str]) -> str | None:
    """What to do about the address of a provider's server, in words; None if it has one or needs none."""
    provider = None if prefix in servers else find_provider(prefix)
    variable = provider.required_address if provider else None
    if provider is None or variable is None or environ.get(variable):
        return None
    own = provider.address_variable == variable and _has_files(environ)
    instead = f", or give [providers.{prefix}] a base_url in configs/providers.toml" if own else ""
    return f"no address for the models of {prefix!r}: set {variable} {_where(environ)}{instead}"


def missing_package(prefix: str, servers: Mapping[str, OwnServer]) -> str | None:
    """What to install for the models of a provider, in words; None if it is there, or not known to be needed."""
    provider = None if prefix in servers else find_provider(prefix)
    extra = "openai" if prefix in servers else provider.extra if provider else None
    package = _PACKAGES.get(extra or "")
    if package is None or _is_there(package):
        return None
    return f'models of {prefix!r} need a package: pip install "mixseek[{extra}]"'


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of what it is part of
        return False


def check_model(model_id: str, servers: Mapping[str, OwnServer], environ: Mapping[str, str]) -> list[Problem]:
    """What is wrong with the name of a model, before it is called: the provider, its key or its address."""
    try:
        prefix, _ = split_model_id(model_id)
    except ConfigurationError as error:
        return list(error.problems)
    if prefix not in servers and find_provider(prefix) is None:
        return [Problem(_unknown(prefix, servers))]
    missing = key_fault(prefix, servers, environ), missing_address(prefix, servers, environ)
    return [Problem(words) for words in missing if words]


def _set_one(prefix: str, variables: tuple[str, ...], environ: Mapping[str, str]) -> str:
    fault = keyring_fault()
    asked = "" if fault is None or fault == NO_KEYRING else f"; the keyring was asked, but {fault}"
    return f"no key for the models of {prefix!r}: set {' or '.join(variables)} {_where(environ)}{asked}"


def _fault_of(key: str, prefix: str, servers: Mapping[str, OwnServer], environ: Mapping[str, str]) -> str | None:
    """Of a key that is there: why no header of a request can hold it."""
    if key.isascii() and key.isprintable():
        return None
    return (
        f"the key for the models of {prefix!r} holds a sign that no request can carry, like a line break or a letter "
        f"outside ASCII: {where_key_is(prefix, servers, environ)}, set it anew"
    )


def _where(environ: Mapping[str, str]) -> str:
    return "in the environment or in .env of the workspace" if _has_files(environ) else "in the environment"


def _has_files(environ: Mapping[str, str]) -> bool:
    """Whether there is a workspace whose files are read."""
    return not isinstance(environ, Environment) or environ.has_dotenv


def _unknown(prefix: str, servers: Mapping[str, OwnServer]) -> str:
    known = sorted({*servers, *_prefixes()})
    near = get_close_matches(prefix, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"unknown model provider {prefix!r}; {hint}"


def _prefixes() -> Iterator[str]:
    for name in providers:
        yield name
        yield from providers.get(name).aliases


# What an extra installs, by the name it is imported under.
_PACKAGES = {
    "anthropic": "anthropic",
    "bedrock": "boto3",
    "cohere": "cohere",
    "google": "google.genai",
    "groq": "groq",
    "huggingface": "huggingface_hub",
    "local": "xllamacpp",
    "mistral": "mistralai",
    "openai": "openai",
}

# --- the built-in providers -----------------------------------------------------------------------------------------

_OPENAI = "mixseek.llm.factories:openai"
_XAI = "mixseek.llm.factories:xai"
_OLLAMA = "mixseek.llm.factories:ollama"
_LOCAL = "mixseek.llm.local:make_model"
_ANY = "mixseek.llm.factories:as_pydantic_ai_names_it"


def _register(
    prefix: str,
    extra: str,
    *key_variables: str,
    factory: str = _ANY,
    aliases: tuple[str, ...] = (),
    address: str | None = None,
    required_address: str | None = None,
) -> None:
    provider = Provider(prefix, factory, aliases, key_variables, extra, address, required_address)
    providers.register(prefix, provider)


_register(PREFIX, "local", factory=_LOCAL)
for _prefix in ("openai", "openai-chat", "openai-responses"):
    _register(_prefix, "openai", "OPENAI_API_KEY", factory=_OPENAI, address="OPENAI_BASE_URL")
_register("xai", "openai", "GROK_API_KEY", "XAI_API_KEY", factory=_XAI, aliases=("grok", "grok-responses"))
_register("ollama", "openai", factory=_OLLAMA, address="OLLAMA_BASE_URL")
_register("vllm", "openai", address="VLLM_BASE_URL", required_address="VLLM_BASE_URL")
_register("openrouter", "openai", "OPENROUTER_API_KEY")
for _prefix in ("azure", "azure-responses"):
    _register(_prefix, "openai", "AZURE_OPENAI_API_KEY", required_address="AZURE_OPENAI_ENDPOINT")
_register("deepseek", "openai", "DEEPSEEK_API_KEY")
_register("alibaba", "openai", "ALIBABA_API_KEY", "DASHSCOPE_API_KEY")
_register("cerebras", "openai", "CEREBRAS_API_KEY")
_register("crusoe", "openai", "CRUSOE_API_KEY")
_register("fireworks", "openai", "FIREWORKS_API_KEY")
_register("heroku", "openai", "HEROKU_INFERENCE_KEY")
_register("meta", "openai", "META_API_KEY")
_register("moonshotai", "openai", "MOONSHOTAI_API_KEY")
_register("nebius", "openai", "NEBIUS_API_KEY")
_register("ovhcloud", "openai", "OVHCLOUD_API_KEY")
_register("sambanova", "openai", "SAMBANOVA_API_KEY")
_register("together", "openai", "TOGETHER_API_KEY")
_register("vercel", "openai", "VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")
_register("zai", "openai", "ZAI_API_KEY")
_register("google", "google", "GOOGLE_API_KEY", "GEMINI_API_KEY", aliases=("google-gla",))
# Google Cloud and Bedrock find their credentials in several places of their own, so no variable can be asked for.
_register("google-cloud", "google", aliases=("google-vertex",))
_register("bedrock", "bedrock")
_register("anthropic", "anthropic", "ANTHROPIC_API_KEY")
_register("groq", "groq", "GROQ_API_KEY")
_register("mistral", "mistral", "MISTRAL_API_KEY")
_register("cohere", "cohere", "CO_API_KEY")
_register("huggingface", "huggingface", "HF_TOKEN")
