"""From names to models: which adapter, which address, built once, shared, and asked in turn."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from mixseek import plugins
from mixseek.config.schema import ProvidersSettings
from mixseek.core.auth import AuthenticationError, create_authenticated_model
from mixseek.errors import ConfigurationError, ModelError, ModelRefusedError, ModelUnavailableError, PluginError
from mixseek.llm import Connection, ModelHub, current_hub
from mixseek.testing import ModelServer


def made(hub: ModelHub, model_id: str) -> Model:
    model: Model = hub.model(model_id).wrapped  # type: ignore[attr-defined]
    return model


async def say(model: Model, text: str = "hello", **settings: Any) -> str | None:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(text)])]
    return (await model.request(messages, settings, ModelRequestParameters())).text  # type: ignore[arg-type]


KEYS = {"OPENAI_API_KEY": "k", "GROK_API_KEY": "g", "ANTHROPIC_API_KEY": "a", "GOOGLE_API_KEY": "b"}


@pytest.mark.parametrize(
    ("model_id", "environ", "kind", "address"),
    [
        ("openai:gpt-5", {}, OpenAIResponsesModel, "https://api.openai.com/v1/"),
        ("openai-responses:gpt-5", {}, OpenAIResponsesModel, "https://api.openai.com/v1/"),
        ("openai-chat:gpt-5", {}, OpenAIChatModel, "https://api.openai.com/v1/"),
        ("openai:x", {"OPENAI_BASE_URL": "http://localhost:9/v1"}, OpenAIChatModel, "http://localhost:9/v1/"),
        (
            "openai-responses:x",
            {"OPENAI_BASE_URL": "http://localhost:9/v1"},
            OpenAIResponsesModel,
            "http://localhost:9/v1/",
        ),
        ("grok:grok-4", {}, OpenAIChatModel, "https://api.x.ai/v1/"),
        ("xai:grok-4", {}, OpenAIChatModel, "https://api.x.ai/v1/"),
        ("grok-responses:grok-4", {}, OpenAIResponsesModel, "https://api.x.ai/v1/"),
        ("ollama:llama3.2:3b", {}, OpenAIChatModel, "http://localhost:11434/v1/"),
        ("deepseek:deepseek-chat", {"DEEPSEEK_API_KEY": "d"}, OpenAIChatModel, "https://api.deepseek.com"),
        ("openrouter:a/b", {"OPENROUTER_API_KEY": "o"}, OpenAIChatModel, "https://openrouter.ai/api/v1"),
    ],
)
def test_a_prefix_means_an_adapter_and_an_address(
    model_id: str, environ: dict[str, str], kind: type[Model], address: str
) -> None:
    model = made(ModelHub(environ={**KEYS, **environ}), model_id)
    assert isinstance(model, kind)
    assert model.base_url is not None
    assert model.base_url.rstrip("/") == address.rstrip("/")
    assert model.client.max_retries == 0  # type: ignore[attr-defined]
    assert model.model_name == model_id.partition(":")[2]


def test_the_key_is_the_one_of_the_given_environment() -> None:
    model = made(ModelHub(environ={"XAI_API_KEY": "x"}), "grok:grok-4")
    assert model.client.api_key == "x"  # type: ignore[attr-defined]


async def test_an_own_server_is_asked_by_its_protocol_with_its_key(server: ModelServer) -> None:
    settings = {"base_url": server.base_url, "api_key_env": "MY_KEY"}
    providers = ProvidersSettings.model_validate(
        {"providers": {"mine": settings, "other": {**settings, "api": "responses"}}}
    )
    async with ModelHub(providers, environ={"MY_KEY": "secret"}) as hub:
        assert made(hub, "mine:m").client.api_key == "secret"  # type: ignore[attr-defined]
        await say(hub.model("mine:m"))
        await say(hub.model("other:m"))
    assert [request.api for request in server.requests] == ["chat", "responses"]


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(AuthenticationError, match="ANTHROPIC_API_KEY"):
        ModelHub(environ={}).model("anthropic:claude-haiku-4-5")


def test_a_missing_sdk_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    monkeypatch.delitem(sys.modules, "pydantic_ai.providers.anthropic", raising=False)
    with pytest.raises(ConfigurationError, match=r'pip install "mixseek\[anthropic\]"'):
        ModelHub(environ=KEYS).model("anthropic:claude-haiku-4-5")


def test_an_unknown_provider_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'openai'"):
        ModelHub(environ=KEYS).model("opneai:gpt-5")


@pytest.mark.parametrize(
    ("model", "environ", "told"),
    [
        (
            "vllm:qwen3",
            {},
            "no address for the models of 'vllm': set VLLM_BASE_URL in the environment or in .env of the workspace, "
            "or give [providers.vllm] a base_url in configs/providers.toml",
        ),
        (
            "azure:gpt-5",
            {"AZURE_OPENAI_API_KEY": "k"},
            "no address for the models of 'azure': "
            "set AZURE_OPENAI_ENDPOINT in the environment or in .env of the workspace",
        ),
        (
            "azure-responses:gpt-5",
            {"AZURE_OPENAI_API_KEY": "k"},
            "no address for the models of 'azure-responses': "
            "set AZURE_OPENAI_ENDPOINT in the environment or in .env of the workspace",
        ),
    ],
)
def test_an_address_that_a_provider_needs_and_that_is_missing_is_told_in_our_words(
    model: str, environ: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ModelHub(environ=environ).model(model)
    assert str(refused.value) == told


@pytest.mark.parametrize("model", ["vllm:qwen3", "azure:gpt-5"])
def test_a_provider_with_the_address_it_needs_makes_its_model(model: str) -> None:
    address = "http://127.0.0.1:9/openai/v1"
    environ = {"VLLM_BASE_URL": address, "AZURE_OPENAI_ENDPOINT": address, "AZURE_OPENAI_API_KEY": "k"}
    assert isinstance(ModelHub(environ=environ).model(model), Model)


def test_a_server_of_ones_own_in_the_place_of_a_provider_has_its_address() -> None:
    own = ProvidersSettings.model_validate({"providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}}})
    assert isinstance(ModelHub(own, environ={}).model("vllm:qwen3"), Model)


def test_what_else_a_provider_lacks_is_told_in_its_own_words() -> None:
    environ = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com"}
    with pytest.raises(ConfigurationError, match="OPENAI_API_VERSION"):
        ModelHub(environ=environ).model("azure:gpt-5")


def test_a_model_is_built_once() -> None:
    hub = ModelHub(environ=KEYS)
    assert hub.model("openai:gpt-5") is hub.model("openai:gpt-5")
    assert hub.model("openai:gpt-5") is not hub.model("openai:gpt-5-mini")


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins.providers, "_targets", dict(plugins.providers._targets))


def parrot(name: str, connection: Connection) -> Model:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f"{name} with {connection.api_key} as {connection.prefix}")])

    return FunctionModel(answer)


def no_model(name: str, connection: Connection) -> str:
    return name


@pytest.mark.usefixtures("_own_registry")
async def test_a_strangers_provider_is_one_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "strange_models", sys.modules[__name__])
    provider = plugins.Provider("zoo", "strange_models:parrot", aliases=("aviary",), key_variables=("ZOO_KEY",))
    plugins.providers.register("zoo", provider)
    hub = ModelHub(environ={"ZOO_KEY": "seeds"})
    assert await say(hub.model("aviary:polly")) == "polly with seeds as aviary"


@pytest.mark.usefixtures("_own_registry")
def test_a_factory_that_cannot_be_used_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "strange_models", sys.modules[__name__])
    plugins.providers.register("gone", plugins.Provider("gone", "no_such_module:make"))
    plugins.providers.register("text", plugins.Provider("text", "strange_models:no_model"))
    with pytest.raises(PluginError, match="no_such_module"):
        ModelHub().model("gone:x")
    with pytest.raises(PluginError, match="gave no pydantic-ai model"):
        ModelHub().model("text:x")


# --- fallbacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [503, 400, "empty_object", "spend_limit"])
async def test_the_next_model_is_asked_when_one_fails(kind: Any, hub: ModelHub, server: ModelServer) -> None:
    server.fault(kind, model="first")
    server.on("second", ["from the second"])
    model = hub.model("chat:first", fallback_models=["responses:second"])
    assert await say(model, max_retries=1) == "from the second"
    assert (await Agent(model).run("hello")).output
    async with Agent(model).run_stream("hello") as run:
        assert await run.get_output()


async def test_when_all_models_fail_the_last_error_tells_of_the_others(hub: ModelHub, server: ModelServer) -> None:
    server.fault(400, model="first")
    server.fault(503, model="second")
    with pytest.raises(ModelUnavailableError) as raised:
        await say(hub.model("chat:first", fallback_models=["chat:second"]), max_retries=0)
    assert raised.value.model == "chat:second"
    assert any("chat:first: HTTP 400" in note for note in raised.value.__notes__)


async def test_an_agent_raises_our_errors(hub: ModelHub, server: ModelServer) -> None:
    server.fault(401)
    with pytest.raises(ModelRefusedError, match=r"chat:m: HTTP 401"):
        await Agent(hub.model("chat:m")).run("hello")


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_the_limit_of_a_provider_holds_for_all_its_models(hub: ModelHub, server: ModelServer) -> None:
    server.set_latency(0.01)
    waiting: list[int] = []

    async def watch() -> None:
        while True:
            waiting.append(server.bill.total.waiting)
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(say(hub.model(f"narrow:m{number % 3}")) for number in range(9)))
    watching.cancel()
    assert max(waiting) == 2


async def test_a_cancelled_call_gives_its_place_back(hub: ModelHub, server: ModelServer, arrived: Any) -> None:
    server.fault("hang_before_headers", count=2)
    stuck = [asyncio.create_task(say(hub.model("narrow:m"))) for _ in range(2)]
    await arrived(2)
    for task in stuck:
        task.cancel()
    assert await say(hub.model("narrow:m"))


# --- loops, processes, weight -----------------------------------------------------------------------------------------


def test_one_hub_serves_loops_that_come_and_go() -> None:
    with ModelServer() as server:
        providers = ProvidersSettings.model_validate({"providers": {"chat": {"base_url": server.base_url}}})
        hub = ModelHub(providers)

        async def twice() -> list[str | None]:
            return [await say(hub.model("chat:m")), await say(hub.model("chat:m"))]

        assert asyncio.run(twice()) == asyncio.run(twice())


async def test_a_hub_can_be_used_again_after_it_was_closed(hub: ModelHub) -> None:
    await say(hub.model("chat:m"))
    await hub.aclose()
    assert await say(hub.model("chat:m"))


async def test_runs_that_share_a_hub_may_end_in_any_order(providers: ProvidersSettings) -> None:
    hub, first_is_in, second_is_in, first_is_out = ModelHub(providers), *(asyncio.Event() for _ in range(3))

    async def first() -> None:
        async with hub:
            await say(hub.model("chat:m"))
            first_is_in.set()
            await second_is_in.wait()
        first_is_out.set()

    async def second() -> None:
        await first_is_in.wait()
        async with hub:
            second_is_in.set()
            await first_is_out.wait()
            assert current_hub() is hub
            assert hub._transport._sessions.get()._session is not None
            await say(hub.model("chat:m"))

    await asyncio.gather(first(), second())


UNCLOSED = """
import asyncio, os
from pydantic_ai import Agent
from mixseek.core.auth import create_authenticated_model
from mixseek.testing import ModelServer

with ModelServer() as server:
    os.environ |= server.environment
    async def main():
        agent = Agent(create_authenticated_model("openai:m"))
        return (await agent.run("hello")).output
    print(asyncio.run(main()) == asyncio.run(main()))
"""


def test_connections_nobody_closes_are_closed_with_their_loop() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", UNCLOSED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    assert "Unclosed" not in done.stderr
    assert "never" not in done.stderr


async def test_a_custom_agent_gets_its_model_from_the_hub_of_the_run(hub: ModelHub) -> None:
    assert create_authenticated_model("chat:m") is hub.model("chat:m")
    async with ModelHub() as inner:
        assert current_hub() is inner
    assert current_hub() is hub


def test_importing_the_package_loads_no_sdk() -> None:
    code = "import sys, mixseek.llm; assert not {'openai', 'anthropic', 'duckdb', 'sqlite3'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- no real calls ----------------------------------------------------------------------------------------------------


async def test_while_only_this_machine_is_allowed_no_other_is_reached() -> None:
    hub = ModelHub(environ=KEYS)
    with pytest.raises(ModelRefusedError, match="MIXSEEK_ONLY_LOOPBACK"):
        await say(hub.model("openai:gpt-5"))


async def test_other_requests_stay_refused_while_ours_are_under_way(
    hub: ModelHub, server: ModelServer, arrived: Any
) -> None:
    server.fault("hang_before_headers", count=1)
    ours = asyncio.create_task(say(hub.model("chat:m")))
    await arrived(1)
    with pytest.raises(RuntimeError, match="not allowed"):
        await say(made(hub, "chat:m"))
    ours.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ours


async def test_an_sdk_with_connections_of_its_own_is_refused(hub: ModelHub, server: ModelServer) -> None:
    bare = made(hub, "chat:m")
    with pytest.raises(ModelError, match="is not held to it"):
        await say(hub.watch(bare, "chat:m"))
