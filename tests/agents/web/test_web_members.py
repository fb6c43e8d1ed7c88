"""Members that search and read: whole rounds on loopback servers, and the effect of each of their settings."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic_ai import ModelMessage, ModelResponse, TextPart
from pydantic_ai.capabilities import NativeOrLocalTool
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.native_tools import AbstractNativeTool, WebFetchTool, WebSearchTool
from pydantic_ai.profiles import ModelProfile

from mixseek.agents.member import BaseMemberAgent, MemberAgentFactory
from mixseek.agents.member.web_fetch import WebFetchMemberAgent
from mixseek.config.schema import MemberAgentConfig, ProvidersSettings
from mixseek.errors import ConfigurationError
from mixseek.llm import Connection, Meter, ModelHub, Scope, calling
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.plugins import Provider, providers
from mixseek.prompt_builder.tokens import count_tokens
from mixseek.records import MemberAgentResult
from mixseek.storage.journal import Journal
from mixseek.testing import Match, ModelCall, ModelServer, ToolCall, scripted, write_workspace

from .conftest import Site, slowly

RESULTS = [
    {"title": "Tides", "url": "{site}/article", "content": "About the moon"},
    {"title": "More", "url": "{site}/more", "content": "About the sea"},
    {"title": "Even more", "url": "{site}/still", "content": "About ships"},
    {"title": "no address"},
    "no row",
]


def member(kind: str, model: str = "scripted:m", tools: dict[str, Any] | None = None, **more: Any) -> BaseMemberAgent:
    fields = {"name": "m", "type": kind, "model": model, "tool_settings": tools, **more}
    return MemberAgentFactory.create_agent(MemberAgentConfig.model_validate(fields))


def search_server(site: Site) -> None:
    rows = json.loads(json.dumps(RESULTS).replace("{site}", site.url))

    async def answer(request: web.Request) -> web.Response:
        assert (request.query["q"], request.query["format"]) == ("tides", "json")
        return web.json_response({"query": "tides", "results": rows})

    site.answers["/search"] = answer


def unfenced(result: str) -> str:
    [text] = re.findall(r'<data id="\w+">\n(.*)\n</data id', result, re.DOTALL)
    return str(text)


class Told:
    """A model that makes these calls of its tool, one after the other, and keeps what it is told."""

    def __init__(self, *calls: ToolCall) -> None:
        self._calls = calls
        self.results: list[str] = []
        self.descriptions: set[str] = set()

    def __call__(self, call: ModelCall) -> ToolCall | str:
        results = [unfenced(message.text) for message in call.messages if message.role == "tool"]
        self.descriptions |= {tool.description for tool in call.tools}
        self.results = results
        return self._calls[len(results)] if len(results) < len(self._calls) else "the answer"


async def told(one: BaseMemberAgent, *calls: ToolCall) -> tuple[Told, MemberAgentResult]:
    model = Told(*calls)
    with scripted() as script:
        script.on(Match("m"), model)
        await one.initialize()
        return model, await one.execute("task")


def fetch(url: str) -> ToolCall:
    return ToolCall("web_fetch", {"url": url})


SEARCH = ToolCall("web_search", {"query": "tides"})

# --- whole rounds -----------------------------------------------------------------------------------------------------


async def what_the_leader_reads(root: Path, server: ModelServer, lines: str) -> str:
    file = write_workspace(root, teams=1, max_rounds=1, base_url=server.base_url)
    team = root / "configs" / "agents" / "team-a.toml"
    team.write_text(team.read_text() + lines)
    summary = await Orchestrator(load_orchestrator_settings(file, root), save_db=False).execute("Why are there tides?")
    assert summary.completed_teams == 1
    return str([request.body for request in server.requests if request.model == "leader-a"][-1])


async def test_a_member_reads_a_page_in_a_whole_round(tmp_path: Path, site: Site) -> None:
    async with ModelServer() as server:
        server.on("reader", Told(fetch(f"{site.url}/article")))
        server.on("reader", lambda call: f"It says {call.tool_results[-1]}", contains="moon pulls")
        leader = await what_the_leader_reads(
            tmp_path,
            server,
            f"""
[[team.members]]
name = "reader"
type = "web_fetch"
model = "loopback:reader"
tool_settings.web_fetch.allowed_private_hosts = ["{site.host}"]
""",
        )
    assert "The moon pulls the [sea]" in leader
    assert site.paths["/article"] == 1


async def test_a_member_searches_in_a_whole_round(tmp_path: Path, site: Site) -> None:
    search_server(site)
    async with ModelServer() as server:
        server.on("searcher", Told(SEARCH))
        server.on("searcher", lambda call: f"Found {call.tool_results[-1]}", contains="About the moon")
        leader = await what_the_leader_reads(
            tmp_path,
            server,
            f"""
[[team.members]]
name = "searcher"
type = "web_search"
model = "loopback:searcher"
tool_settings.web_search.endpoint = "{site.url}"
""",
        )
    assert "About the moon" in leader
    assert site.paths["/search"] == 1


# --- searching here ---------------------------------------------------------------------------------------------------


def searcher(site: Site, **settings: Any) -> BaseMemberAgent:
    search_server(site)
    tools = {"web_search": {"endpoint": site.url, **settings}, "web_fetch": {"allowed_private_hosts": [site.host]}}
    return member("web_search", tools=tools)


async def test_results_come_with_title_address_and_excerpt(site: Site) -> None:
    model, result = await told(searcher(site), SEARCH)
    assert model.results == [
        f"1. Tides\n{site.url}/article\nAbout the moon\n\n2. More\n{site.url}/more\nAbout the sea\n\n"
        f"3. Even more\n{site.url}/still\nAbout ships"
    ]
    assert (result.content, result.agent_type) == ("the answer", "web_search")
    assert dict(site.paths) == {"/search": 1}


async def test_max_results_is_the_most_that_is_taken_of_a_search(site: Site) -> None:
    model, _ = await told(searcher(site, max_results=2), SEARCH)
    assert "2. More" in model.results[0]
    assert "3." not in model.results[0]


async def test_a_search_ends_with_its_time_and_says_so(site: Site) -> None:
    one = searcher(site, timeout=1)
    site.answers["/search"] = slowly
    model, result = await told(one, SEARCH)
    assert model.results == ["the search failed: no answer within 1 seconds"]
    assert result.content == "the answer"


async def test_include_raw_content_brings_the_texts_of_the_pages(site: Site) -> None:
    one = searcher(site, include_raw_content=True)
    site.answers["/more"] = web.Response(status=404)
    model, _ = await told(one, SEARCH)
    first, second, third = model.results[0].split("\n\n2. ")[0], *model.results[0].split("\n\n2. ")[1].split("\n\n3. ")
    assert "# Tides\n\nThe moon pulls the" in first
    assert second.endswith("(The page was not read: the server answered HTTP 404)")
    assert third.endswith("secret credentials")
    assert "本文" in model.descriptions.pop()


async def test_the_texts_of_result_pages_are_read_past_the_guard(site: Site) -> None:
    search_server(site)
    one = member("web_search", tools={"web_search": {"endpoint": site.url, "include_raw_content": True}})
    model, _ = await told(one, SEARCH)
    assert model.results[0].count("leads to a loopback address, which is not read") == 3
    assert dict(site.paths) == {"/search": 1}


async def test_public_engines_are_asked_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def text(self: Any, query: str, **options: Any) -> list[dict[str, str]]:
        asked.append((query, options, self._timeout))
        return [{"title": "T", "href": "https://example.com/", "body": "B"}] * 9

    monkeypatch.setattr("ddgs.ddgs.DDGS.text", text)
    monkeypatch.delenv("MIXSEEK_ONLY_LOOPBACK")
    model, _ = await told(member("web_search", tools={"web_search": {"max_results": 2, "timeout": 7}}), SEARCH)
    assert model.results == ["1. T\nhttps://example.com/\nB\n\n2. T\nhttps://example.com/\nB"]
    assert asked == [("tides", {"max_results": 2}, 7)]


async def test_public_engines_are_not_asked_while_only_this_machine_may_be_spoken_to() -> None:
    model, _ = await told(member("web_search"), SEARCH)
    assert model.results[0].startswith("the search failed: public search engines are not this machine")


def test_a_package_that_is_missing_is_told_before_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("ddgs", "lxml"):
        monkeypatch.setitem(sys.modules, package, None)
    for kind in ("web_search", "web_fetch"):
        with pytest.raises(ConfigurationError, match=r'pip install "mixseek\[web\]"'):
            member(kind).check_model(ModelHub())


# --- reading here -----------------------------------------------------------------------------------------------------


def reader(site: Site, **settings: Any) -> BaseMemberAgent:
    return member("web_fetch", tools={"web_fetch": {"allowed_private_hosts": [site.host], **settings}})


async def test_a_page_comes_with_its_title_and_address(site: Site) -> None:
    model, result = await told(reader(site), fetch(f"{site.url}/article"))
    assert model.results == [f"Tides\n{site.url}/article\n\n# Tides\n\nThe moon pulls the [sea]({site.url}/sea)."]
    assert result.content == "the answer"


async def test_a_page_that_is_refused_is_told_in_words(site: Site) -> None:
    model, result = await told(member("web_fetch"), fetch(f"{site.url}/article"))
    assert model.results == ["the page was not read: '127.0.0.1' leads to a loopback address, which is not read"]
    assert (result.status, site.paths.total()) == ("success", 0)


async def test_max_uses_counts_for_each_task_anew(site: Site) -> None:
    one, article = reader(site, max_uses=2), f"{site.url}/article"
    for _ in range(2):
        model, _ = await told(one, fetch(article), fetch(article), fetch(article))
        assert [result.startswith("Tides") for result in model.results] == [True, True, False]
        assert "the 2 pages that may be asked for in one task are used up" in model.results[2]
    assert site.paths["/article"] == 4


async def test_max_uses_counts_calls_at_once(site: Site) -> None:
    one = reader(site, max_uses=1)
    with scripted() as script:
        script.on(Match("m"), [[fetch(f"{site.url}/article"), fetch(f"{site.url}/article")], "done"])
        await one.initialize()
        await one.execute("task")
    assert site.paths["/article"] == 1


async def test_tasks_at_once_each_have_their_own_count(site: Site) -> None:
    one = reader(site, max_uses=1)
    with scripted() as script:
        script.on(Match("m"), Told(fetch(f"{site.url}/article")))
        await one.initialize()
        await asyncio.gather(one.execute("task"), one.execute("task"))
    assert site.paths["/article"] == 2


async def test_only_allowed_domains_are_read(site: Site) -> None:
    model, _ = await told(reader(site, allowed_domains=["example.com"]), fetch(f"{site.url}/article"))
    assert model.results == ["the page was not read: '127.0.0.1' is not among the allowed domains"]


async def test_blocked_domains_are_not_read(site: Site) -> None:
    model, _ = await told(reader(site, blocked_domains=["127.0.0.1"]), fetch(f"{site.url}/article"))
    assert model.results == ["the page was not read: '127.0.0.1' is a blocked domain"]


async def test_with_citations_pages_have_numbers_and_the_answer_its_sources(site: Site) -> None:
    one, article = reader(site, enable_citations=True), f"{site.url}/article"
    model, result = await told(one, fetch(article), fetch(f"{site.url}/plain"))
    assert [text.splitlines()[0] for text in model.results] == ["[1] Tides", f"[2] {site.url}/plain"]
    assert "引用してください" in model.descriptions.pop()
    assert result.content == f"the answer\n\n出典:\n[1] Tides {article}\n[2] {site.url}/plain"


async def test_pages_that_were_read_before_a_resume_count_and_are_among_the_sources(site: Site, tmp_path: Path) -> None:
    scope = Scope(execution_id="e", team_id="a", round_number=1, role="member", agent_name="m")
    pages = [fetch(f"{site.url}/article"), fetch(f"{site.url}/plain"), fetch(f"{site.url}/article")]
    answers = []
    async with Journal(tmp_path / "journal.db") as journal:
        for reuses in (False, True):
            with calling(scope, Meter(journal=journal, reuse_answers=reuses)):
                # Of the second process no answer is asked for: it is the tools whose results are taken over.
                _, result = await told(reader(site, enable_citations=True, max_uses=2), *pages)
            answers.append(result.content)
    assert answers[0] == answers[1]
    assert answers[1].endswith(f"出典:\n[1] Tides {site.url}/article\n[2] {site.url}/plain")
    assert site.paths.total() == 2


async def test_without_citations_nothing_is_added(site: Site) -> None:
    model, result = await told(reader(site), fetch(f"{site.url}/article"))
    assert "引用" not in model.descriptions.pop()
    assert result.content == "the answer"


async def test_max_content_tokens_is_the_most_that_is_taken_of_a_page(site: Site) -> None:
    site.html("/long", "<p>" + "潮の満ち引きは月の引力による。" * 500 + "</p>")
    model, _ = await told(reader(site, max_content_tokens=50), fetch(f"{site.url}/long"))
    _, text, rest = model.results[0].split("\n\n")
    assert count_tokens(text) == 50
    assert rest == "(The page goes on; this is its beginning.)"


async def test_a_short_page_is_whole_whatever_the_limit(site: Site) -> None:
    model, _ = await told(reader(site, max_content_tokens=1000), fetch(f"{site.url}/article"))
    assert "goes on" not in model.results[0]


# --- the provider's own tools -----------------------------------------------------------------------------------------


class Captured:
    """The tools that reach models of a provider which has a search and a fetch of its own."""

    def __init__(self) -> None:
        self.native: list[AbstractNativeTool] = []
        self.local: list[str] = []

    def make(self, name: str, connection: Connection) -> Model:
        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            self.native = list(info.model_request_parameters.native_tools)
            self.local = [tool.name for tool in info.function_tools]
            return ModelResponse(parts=[TextPart("the answer")])

        tools: frozenset[type[AbstractNativeTool]] = frozenset([WebSearchTool, WebFetchTool] * (name == "able"))
        return FunctionModel(answer, model_name=name, profile=ModelProfile(supported_native_tools=tools))


captured = Captured()


def make_captured(name: str, connection: Connection) -> Model:
    return captured.make(name, connection)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Captured:
    monkeypatch.setitem(sys.modules, "captured_provider", sys.modules[__name__])
    # For this test alone: others look at every provider there is.
    monkeypatch.setattr(providers, "_targets", dict(providers._targets))
    providers.register("own", Provider("own", "captured_provider:make_captured"))
    captured.native, captured.local = [], []
    return captured


async def asked(one: BaseMemberAgent) -> None:
    async with ModelHub() as hub:
        one.check_model(hub)
        await one.initialize()
        await one.execute("task")


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, "medium"),
        ({"max_results": 5}, "low"),
        ({"max_results": 6}, "medium"),
        ({"max_results": 16}, "high"),
        ({"max_results": 1, "include_raw_content": True}, "high"),
    ],
)
async def test_the_providers_search_is_given_the_settings(settings: dict[str, Any], size: str, own: Captured) -> None:
    await asked(member("web_search", "own:able", {"web_search": settings}))
    assert own.native == [WebSearchTool(search_context_size=size)]  # type: ignore[arg-type]
    assert own.local == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_uses": 3},
        {"allowed_domains": ["example.com"]},
        {"blocked_domains": ["example.com"]},
        {"enable_citations": True},
        {"max_content_tokens": 500},
    ],
)
async def test_the_providers_fetch_is_given_the_settings(settings: dict[str, Any], own: Captured) -> None:
    await asked(member("web_fetch", "own:able", {"web_fetch": settings}))
    assert own.native == [WebFetchTool(**settings)]
    assert own.local == []


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("web_search", {"backend": "local"}),
        ("web_search", {"endpoint": "http://127.0.0.1:1"}),
        ("web_fetch", {"backend": "local"}),
        ("web_fetch", {"allowed_private_hosts": ["127.0.0.1"]}),
    ],
)
async def test_the_tool_of_this_machine_is_used_if_the_settings_ask_for_it(
    kind: str, settings: dict[str, Any], own: Captured
) -> None:
    await asked(member(kind, "own:able", {kind: settings}))
    assert (own.native, own.local) == ([], [kind])


@pytest.mark.parametrize(
    ("settings", "is_local"),
    [({}, False), ({"max_uses": 2}, False), ({"enable_citations": True}, True), ({"max_content_tokens": 9}, True)],
)
def test_a_providers_fetch_that_knows_no_citations_or_tokens_is_not_used_for_them(
    settings: dict[str, Any], is_local: bool
) -> None:
    for models in ({"model": "google-gla:g"}, {"model": "anthropic:c", "fallback_models": ["google-vertex:g"]}):
        one = member("web_fetch", tools={"web_fetch": settings}, **models)
        assert isinstance(one, WebFetchMemberAgent)
        [tool] = one.own_tools()
        assert isinstance(tool, NativeOrLocalTool)
        assert (tool.native is False) == is_local


@pytest.mark.parametrize("kind", ["web_search", "web_fetch"])
async def test_a_model_without_a_tool_of_its_own_gets_the_one_of_this_machine(kind: str, own: Captured) -> None:
    await asked(member(kind, "own:unable"))
    assert (own.native, own.local) == ([], [kind])


@pytest.mark.parametrize("kind", ["web_search", "web_fetch"])
async def test_a_model_without_the_providers_tool_that_was_asked_for_is_told_at_once(kind: str, own: Captured) -> None:
    await asked(member(kind, "own:able", {kind: {"backend": "provider"}}))
    assert own.local == []
    with pytest.raises(ConfigurationError, match=f"tool_settings.{kind}.backend: 'own:unable' has no tool of its own"):
        await asked(member(kind, "own:unable", {kind: {"backend": "provider"}}))


async def test_each_model_of_a_chain_has_the_tool_that_is_right_for_it(own: Captured) -> None:
    async with ModelServer() as server:
        server.fault(400, model="down")
        hub = ModelHub(ProvidersSettings.model_validate({"providers": {"served": {"base_url": server.base_url}}}))
        async with hub:
            one = member("web_search", "served:down", fallback_models=["own:able"])
            await one.initialize()
            assert (await one.execute("task")).content == "the answer"
        [request] = server.requests
        assert [tool["function"]["name"] for tool in request.body["tools"]] == ["web_search"]
    assert [type(tool) for tool in own.native] == [WebSearchTool]
    assert own.local == []


async def test_the_responses_api_gets_its_own_search_over_the_wire() -> None:
    async with ModelServer() as server:
        served = {"base_url": server.base_url, "api": "responses"}
        async with ModelHub(ProvidersSettings.model_validate({"providers": {"served": served}})):
            one = member("web_search", "served:gpt-5", {"web_search": {"max_results": 3}})
            await one.initialize()
            await one.execute("task")
        [request] = server.requests
        assert request.body["tools"] == [{"type": "web_search", "search_context_size": "low"}]
