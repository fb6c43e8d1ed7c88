"""Where models come from: built once for each name, over shared connections, each in its wrapper."""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Self, cast

import httpx2
from pydantic_ai import ModelMessage, ModelResponse, ModelSettings, RunContext
from pydantic_ai.exceptions import FallbackExceptionGroup, UserError
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel

from mixseek.config.schema import PriceSettings, ProvidersSettings
from mixseek.errors import AuthenticationError, ConfigurationError, MixSeekError, ModelError, PluginError
from mixseek.llm.backoff import Backoff
from mixseek.llm.calls import current_meter
from mixseek.llm.factories import ComputedModel, Connection, own_server
from mixseek.llm.faults import is_remote
from mixseek.llm.limits import Account, Gate, gate_of
from mixseek.llm.openai_bodies import send_as_given
from mixseek.llm.per_loop import PerLoop
from mixseek.llm.prices import PriceList
from mixseek.llm.tracing import traced_model
from mixseek.llm.transport import MAX_ANSWER_BYTES, AiohttpTransport
from mixseek.llm.watched import WatchedModel
from mixseek.plugins import Provider
from mixseek.providers import check_model, find_provider, key_fault, key_of, split_model_id

__all__ = ["ModelHub", "create_authenticated_model", "current_hub"]

# Attempts have a total deadline of their own; these bound a connection that nothing watches.
_HTTP_TIMEOUT = httpx2.Timeout(600, connect=10)


class ModelHub:
    """Owns the connections, the models built so far, the limits and the prices.

    One serves any number of runs and event loops. As an asynchronous context manager it is the hub
    :func:`current_hub` gives inside, and closes the connections of the running loop when the last one leaves:

        async with ModelHub(providers, prices) as hub:
            agent = Agent(hub.model("openai:gpt-5-mini", fallback_models=["anthropic:claude-haiku-4-5"]))
    """

    def __init__(
        self,
        providers: ProvidersSettings | None = None,
        prices: Mapping[str, PriceSettings] | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        root: Path | None = None,
        backoff: Backoff | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        providers = providers or ProvidersSettings()
        self._servers, self._local = providers.providers, providers.local
        self._root = root or Path.cwd()
        self._prices = PriceList(prices)
        self._environ = environ
        self._backoff = backoff or Backoff()
        self._transport = AiohttpTransport(max_answer_bytes=max_answer_bytes)
        self._client = httpx2.AsyncClient(transport=self._transport, timeout=_HTTP_TIMEOUT, trust_env=False)
        self._models: dict[str, WatchedModel] = {}
        self._building = RLock()
        self._users: PerLoop[list[object]] = PerLoop(list)

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that hold the keys of the run, those of the workspace's ``.env`` among them."""
        return self._environ

    def model(self, model_id: str, *, fallback_models: Sequence[str] = ()) -> Model:
        """The model of this name; with fallbacks, each is asked in turn when the ones before it failed."""
        *others, last = model_id, *fallback_models
        watched = [*(self._one(name).with_alternative() for name in others), self._one(last)]
        models = [traced_model(model, name) for model, name in zip(watched, (*others, last), strict=True)]
        return _Chain(watched, models) if others else models[0]

    @property
    def prices(self) -> PriceList:
        """What models cost."""
        return self._prices

    def is_priced(self, model_id: str) -> bool:
        """Whether it is known beforehand what a call of this model costs."""
        try:
            made = self._one(model_id).wrapped
        except ConfigurationError:
            # Without its key, for example. That is told where it is to be asked; its name alone has a price, too.
            return self._prices.knows(model_id)
        return self._prices.most(model_id, made, 1, 1) is not None

    def watch(self, model: Model, model_id: str) -> Model:
        """A model that was built elsewhere, with all that every model gets here."""
        return traced_model(self._watched(model, model_id, _key_in(model), over_our_transport=False), model_id)

    def _one(self, model_id: str) -> WatchedModel:
        with self._building:
            if model_id not in self._models:
                self._models[model_id] = self._build(model_id)
            return self._models[model_id]

    def _build(self, model_id: str) -> WatchedModel:
        prefix, name = split_model_id(model_id)
        missing = key_fault(prefix, self._servers, self._environ)
        if missing:
            raise AuthenticationError(missing)
        problems = check_model(model_id, self._servers, self._environ)
        if problems:
            raise ConfigurationError(problems)
        provider = None if prefix in self._servers else find_provider(prefix)
        connection = self._connection(prefix, provider)
        made = self._make(name, provider, connection)
        _one_attempt_only(made)
        send_as_given(made)
        key = connection.api_key or _key_in(made)
        return self._watched(made, model_id, key, over_our_transport=connection.uses_shared_client)

    def _connection(self, prefix: str, provider: Provider | None) -> Connection:
        if provider is None:
            return Connection(prefix, prefix, None, None, self._environ, self._client, self._local, self._root)
        address = self._environ.get(provider.address_variable or "") or None
        key = key_of(provider, self._environ)
        given = (self._environ, self._client, self._local, self._root)
        return Connection(prefix, provider.prefix, key, address, *given)

    def _make(self, name: str, provider: Provider | None, connection: Connection) -> Model:
        extra = provider.extra if provider else "openai"
        try:
            if provider is None:
                return own_server(name, self._servers[connection.prefix], connection)
            made = _factory(provider)(name, connection)
        except ImportError as error:
            install = f'pip install "mixseek[{extra}]"' if extra else str(error)
            raise ConfigurationError(f"models of {connection.prefix!r} need a package: {install}") from error
        except MixSeekError:
            raise
        except Exception as error:  # SDKs have exceptions of their own for credentials and addresses they miss
            raise ConfigurationError(f"models of {connection.prefix!r} cannot be made: {error}") from error
        if not isinstance(made, Model):
            raise PluginError(f"{provider.factory!r} gave no pydantic-ai model but {made!r}")
        return made

    def _watched(self, made: Model, model_id: str, key: str | None, *, over_our_transport: bool) -> WatchedModel:
        return WatchedModel(
            made,
            model_id,
            prices=self._prices,
            gate=self._gate(made, model_id.partition(":")[0], key),
            backoff=self._backoff,
            over_our_transport=over_our_transport,
        )

    def _gate(self, made: Model, prefix: str, key: str | None) -> Gate | None:
        """The gate of the account; None for what is computed in this process and knows no limit."""
        server = self._servers.get(prefix)
        if isinstance(made, ComputedModel):
            # Who waits here waits fairly, and without time running out.
            gate = gate_of(Account.of(made.model_id, None), self._backoff.clock)
            gate.hold_to(made.lanes, None)
            return gate
        if not is_remote(made):
            return None
        account = Account.of(_address(made, prefix), key, prefix if server else "")
        gate = gate_of(account, self._backoff.clock)
        if server is not None:
            per_minute = server.requests_per_minute
            gate.hold_to(server.max_concurrency, None if per_minute is None else per_minute / 60)
        return gate

    async def prepare(self) -> None:
        """Have everything at hand that the models built so far need in this process, before anyone's time runs."""
        for model in self._in_this_process():
            await model.prepare()

    def _in_this_process(self) -> list[ComputedModel]:
        return [each.wrapped for each in self._models.values() if isinstance(each.wrapped, ComputedModel)]

    async def aclose(self) -> None:
        """Close the connections of the running loop and let models of this process go; a later call has new ones."""
        await self._transport.aclose()
        for model in self._in_this_process():
            await model.aclose()

    async def __aenter__(self) -> Self:
        self._users.get().append(self)
        _hubs.set((*_hubs.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _hubs.set(tuple(hub for hub in _hubs.get() if hub is not self))
        users = self._users.get()
        users.pop()
        # Runs side by side may share a hub, and end one after the other.
        if not users:
            await self.aclose()


class _Chain(FallbackModel):
    """Models asked in turn; when all fail, the last one's error tells of the others.

    One whose answer the journal has is asked first when a run is resumed: those before it had failed, and might answer
    by now, which would be paid for.
    """

    def __init__(self, watched: Sequence[WatchedModel], models: Sequence[Model]) -> None:
        super().__init__(*models, fallback_on=(ModelError,))
        self._watched = watched

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        answered = await self._answered_before(messages, model_settings, model_request_parameters)
        if answered is not None:
            prepared = answered.prepare_messages(messages, model_request_parameters)
            return await answered.request(prepared, model_settings, model_request_parameters)
        try:
            return await super().request(messages, model_settings, model_request_parameters)
        except FallbackExceptionGroup as failed:
            raise _last_of(failed) from failed

    async def _answered_before(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> Model | None:
        meter = current_meter()
        if meter is None or not meter.reuse_answers:
            return None
        for number, model in enumerate(self.models):
            prepared = model.prepare_messages(messages, parameters)
            if await self._watched[number].was_answered(prepared, settings, parameters):
                for passed, each in zip(self._watched[:number], self.models, strict=False):
                    passed.pass_over(each.prepare_messages(messages, parameters), settings, parameters)
                return model
        return None

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        answered = await self._answered_before(messages, model_settings, model_request_parameters)
        if answered is not None:
            prepared = answered.prepare_messages(messages, model_request_parameters)
            async with answered.request_stream(
                prepared, model_settings, model_request_parameters, run_context
            ) as stream:
                yield stream
            return
        try:
            streaming = super().request_stream(messages, model_settings, model_request_parameters, run_context)
            async with streaming as stream:
                yield stream
        except FallbackExceptionGroup as failed:
            raise _last_of(failed) from failed


def _last_of(failed: FallbackExceptionGroup) -> ModelError:
    *others, last = cast("Sequence[ModelError]", failed.exceptions)
    for other in others:
        last.add_note(f"before: {other}")
    return last


def _factory(provider: Provider) -> Any:
    module, _, function = provider.factory.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"the factory of model provider {provider.prefix!r} cannot be loaded: {error}") from error


def _one_attempt_only(model: Model) -> None:
    """Retries are made in one place, ours; SDKs that would make their own are told not to."""
    client = getattr(model, "client", None)
    if isinstance(getattr(client, "max_retries", None), int):
        cast("Any", client).max_retries = 0


def _key_in(model: Model) -> str | None:
    """The key a model was made with, where its SDK keeps it."""
    key = getattr(getattr(model, "client", None), "api_key", None)
    return key if isinstance(key, str) else None


def _address(model: Model, prefix: str) -> str:
    try:
        return model.base_url or prefix
    except (AttributeError, UserError):
        return prefix


_hubs: ContextVar[tuple[ModelHub, ...]] = ContextVar("hubs", default=())
_for_the_process: list[ModelHub] = []


def current_hub() -> ModelHub:
    """The hub of the run this is part of; outside of any, one for the whole process."""
    if _hubs.get():
        return _hubs.get()[-1]
    if not _for_the_process:
        _for_the_process.append(ModelHub())
    return _for_the_process[0]


def create_authenticated_model(model_id: str) -> Model:
    """A model for an agent that builds its own, with the keys and limits of the run it takes part in."""
    return current_hub().model(model_id)
