"""Models of the built-in providers. Their SDKs are imported here, when the first model of one is made."""

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from pydantic_ai.models import Model, infer_model
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers import Provider as PydanticAIProvider
from pydantic_ai.providers import infer_provider_class

from mixseek.config.schema import LocalSettings, ProviderSettings
from mixseek.keys import find_key

__all__ = ["ComputedModel", "Connection", "as_pydantic_ai_names_it", "ollama", "openai", "own_server", "xai"]

_OPENAI_ADDRESS = "https://api.openai.com/v1"
_XAI_ADDRESS = "https://api.x.ai/v1"
_OLLAMA_ADDRESS = "http://localhost:11434/v1"
# Their SDKs take an HTTP client of an older kind, or none, and bring their own.
_OWN_HTTP = frozenset({"bedrock", "cohere", "groq", "huggingface"})
# What some need besides a key, by the name of the argument.
_FROM_THE_ENVIRONMENT = {
    "azure_endpoint": "AZURE_OPENAI_ENDPOINT",
    "api_version": "OPENAI_API_VERSION",
    "project": "GOOGLE_CLOUD_PROJECT",
    "location": "GOOGLE_CLOUD_LOCATION",
    "region_name": "AWS_DEFAULT_REGION",
}


@dataclass
class Connection:
    """What a provider's factory gets to make a model with."""

    prefix: str
    """As it stands in the name of the model: the provider's prefix or one of its aliases."""
    provider: str
    """The prefix the provider is registered with."""
    api_key: str | None
    """The value of the first of the provider's key variables that is set."""
    address: str | None
    """Where the user wants the provider's server to be, if anywhere else than usual."""
    environ: Mapping[str, str]
    shared_client: httpx2.AsyncClient
    local: LocalSettings = field(default_factory=LocalSettings)
    """How models run in this process."""
    root: Path = field(default_factory=Path.cwd)
    """Where relative paths start: the workspace."""
    uses_shared_client: bool = False

    @property
    def http_client(self) -> httpx2.AsyncClient:
        """The HTTP client all models share; a model that is made without it is not held to our limits of size."""
        self.uses_shared_client = True
        return self.shared_client


class ComputedModel(Model):
    """A model whose answers are computed in this process, ``lanes`` of them at once."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """How many answers are computed at once at most."""

    @abstractmethod
    async def prepare(self) -> None:
        """Have at hand what an answer needs."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of what answers needed; the next request has it again."""


def openai(name: str, connection: Connection) -> Model:
    """OpenAI or a server in its place: the responses API by default, chat when an address of one's own is set."""
    from pydantic_ai.providers.openai import OpenAIProvider

    # A server of one's own may need no key, but the SDK insists on one. Where there is none of one's own the address is
    # given as well: the SDK would look for it in the environment of the process.
    key = connection.api_key or ("no-key" if connection.address else None)
    provider = OpenAIProvider(connection.address or _OPENAI_ADDRESS, key, http_client=connection.http_client)
    chat = connection.prefix == "openai-chat" or (connection.prefix == "openai" and connection.address is not None)
    return _chat_or_responses(name, provider, "chat" if chat else "responses")


def xai(name: str, connection: Connection) -> Model:
    """Models of xAI by its OpenAI-compatible address; ``grok-responses`` asks for the responses API."""
    api = "responses" if connection.prefix == "grok-responses" else "chat"
    return _compatible(name, "xai", _XAI_ADDRESS, connection.api_key, api, connection)


def ollama(name: str, connection: Connection) -> Model:
    """Models of Ollama, on this machine unless ``OLLAMA_BASE_URL`` says otherwise."""
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.providers.ollama import OllamaProvider

    key = connection.environ.get("OLLAMA_API_KEY") or None
    provider = OllamaProvider(connection.address or _OLLAMA_ADDRESS, key, http_client=connection.http_client)
    return OllamaModel(name, provider=provider)


def own_server(name: str, settings: ProviderSettings, connection: Connection) -> Model:
    """A model of a server in ``configs/providers.toml``."""
    key = find_key(connection.environ, settings.api_key_env) if settings.api_key_env else None
    sees = ModelProfile(
        supports_image_input="image" in settings.media,
        supports_document_input="document" in settings.media,
        supports_audio_file_input="audio" in settings.media,
    )
    return _compatible(name, connection.prefix, settings.base_url, key, settings.api, connection, sees)


def as_pydantic_ai_names_it(name: str, connection: Connection) -> Model:
    """Any other provider pydantic-ai knows, by the name it has there."""
    return infer_model(f"{connection.provider}:{name}", lambda prefix: _provider(prefix, connection))


def _provider(prefix: str, connection: Connection) -> PydanticAIProvider[Any]:
    made = infer_provider_class(prefix)
    takes = inspect.signature(made).parameters
    given: dict[str, Any] = {name: connection.environ.get(found) for name, found in _FROM_THE_ENVIRONMENT.items()}
    given |= {"api_key": connection.api_key, "base_url": connection.address}
    if "http_client" in takes and prefix not in _OWN_HTTP:
        given["http_client"] = connection.http_client
    return made(**{name: value for name, value in given.items() if value and name in takes})


def _compatible(
    name: str,
    provider_name: str,
    address: str,
    key: str | None,
    api: str,
    connection: Connection,
    profile: ModelProfile | None = None,
) -> Model:
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    provider = OpenAICompatibleProvider(
        provider_name, base_url=address, api_key=key or "no-key", http_client=connection.http_client
    )
    return _chat_or_responses(name, provider, api, profile)


def _chat_or_responses(
    name: str, provider: PydanticAIProvider[Any], api: str, profile: ModelProfile | None = None
) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

    made = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    return made(name, provider=provider, profile=profile)
