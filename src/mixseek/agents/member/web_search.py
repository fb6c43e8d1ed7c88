"""A member that searches the web."""

import asyncio
from collections.abc import Sequence
from typing import Literal

from pydantic_ai import Tool
from pydantic_ai.capabilities import AgentCapability
from pydantic_ai.native_tools import AbstractNativeTool, WebSearchTool

from mixseek.agents.member.plain import PlainMemberAgent
from mixseek.agents.member.web.fetch import Page, PageReader, Unread, html_parser_is_missing
from mixseek.agents.member.web.guard import Guard
from mixseek.agents.member.web.search import Found, SearchError, search_is_missing, search_of
from mixseek.agents.member.web.tools import Backend, check_backend, provider_or_local
from mixseek.config.schema import MemberAgentConfig, ToolSettings, WebFetchSettings, WebSearchSettings
from mixseek.errors import ToolError
from mixseek.llm import ModelHub
from mixseek.templating import JAPANESE, Texts

__all__ = ["LocalSearch", "WebSearchMemberAgent"]

# Shared by the pages of one search, however many there are.
_CHARACTERS_OF_ALL_PAGES = 60_000
_FEWEST_CHARACTERS_OF_A_PAGE = 1_000
_PAGES_AT_ONCE = 8
# Up to so many results are what providers call little or usual context.
_FEW_RESULTS = 5
_USUAL_RESULTS = 15


class WebSearchMemberAgent(PlainMemberAgent):
    """Its model searches with the provider's own search, or with one of this machine."""

    def __init__(self, config: MemberAgentConfig) -> None:
        super().__init__(config)
        tools = config.tool_settings or ToolSettings()
        self._settings = tools.web_search or WebSearchSettings()
        self._pages = tools.web_fetch or WebFetchSettings()
        # Whoever names a server wants it to be asked.
        self._backend: Backend = "local" if self._settings.endpoint is not None else self._settings.backend
        self._provider = WebSearchTool(search_context_size=_context_size(self._settings))

    def check_model(self, hub: ModelHub) -> None:
        """Refuse a model without the search that was chosen for it."""
        check_backend(hub, self.config, self._backend, self._provider, self._local_is_missing)

    def own_tools(self) -> Sequence[AgentCapability[None]]:
        """The search."""
        search = LocalSearch(self._settings, PageReader(Guard.of(self._pages)), self.texts)
        local = Tool(search.web_search, description=search.description)
        return (provider_or_local(self._backend, self.providers_tool, local),)

    @property
    def providers_tool(self) -> AbstractNativeTool | None:
        """The provider's, unless that of this machine was chosen."""
        return None if self._backend == "local" else self._provider

    @property
    def max_result_chars(self) -> int:
        """What a search may bring."""
        return super().max_result_chars + _CHARACTERS_OF_ALL_PAGES

    def _local_is_missing(self) -> str | None:
        pages_are_missing = html_parser_is_missing() if self._settings.include_raw_content else None
        return search_is_missing(self._settings) or pages_are_missing


def _context_size(settings: WebSearchSettings) -> Literal["low", "medium", "high"]:
    """How much a provider's search brings, which none of them lets be said as a number of results."""
    if settings.include_raw_content or settings.max_results > _USUAL_RESULTS:
        return "high"
    return "low" if settings.max_results <= _FEW_RESULTS else "medium"


class LocalSearch:
    """The search of this machine, as a tool for a model."""

    def __init__(self, settings: WebSearchSettings, reader: PageReader, texts: Texts = JAPANESE) -> None:
        self._settings = settings
        self._texts = texts
        self._search = search_of(settings)
        self._reader = reader

    @property
    def description(self) -> str:
        """What the model is told of the tool."""
        texts = self._texts
        return texts.web_search_with_texts if self._settings.include_raw_content else texts.web_search

    async def web_search(self, query: str) -> str:
        """What is found, as text for the model; a ToolError says why nothing could be."""
        if not query.strip():
            raise ToolError("nothing was searched: the query is empty")
        try:
            found = await self._found(query)
        except SearchError as failed:
            raise ToolError(f"the search failed: {failed}") from failed
        except TimeoutError:
            raise ToolError(f"the search failed: no answer within {self._settings.timeout} seconds") from None
        if not found:
            return f"Nothing was found for {query!r}."
        pages = await self._pages(found) if self._settings.include_raw_content else [None] * len(found)
        return "\n\n".join(_shown(number, *both) for number, both in enumerate(zip(found, pages, strict=True), 1))

    async def _found(self, query: str) -> list[Found]:
        most, seconds = self._settings.max_results, self._settings.timeout
        async with asyncio.timeout(seconds):
            return (await self._search.find(query, most=most, seconds=seconds))[:most]

    async def _pages(self, found: list[Found]) -> list[Page | Unread]:
        """The pages of the results, all of them together within the time of one search."""
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(_PAGES_AT_ONCE)
        end = loop.time() + self._settings.timeout
        characters = max(_CHARACTERS_OF_ALL_PAGES // len(found), _FEWEST_CHARACTERS_OF_A_PAGE)

        async def read(one: Found) -> Page | Unread:
            async with places:
                return await self._reader.read(one.url, characters=characters, seconds=max(end - loop.time(), 0))

        return await asyncio.gather(*map(read, found))


def _shown(number: int, found: Found, page: Page | Unread | None) -> str:
    lines = [f"{number}. {found.title or found.url}", found.url, found.snippet]
    if isinstance(page, Page):
        lines += ["", page.text, *([] if page.whole else ["(The page goes on.)"])]
    elif page is not None:
        lines.append(f"(The page was not read: {page.reason})")
    return "\n".join(lines).strip()
