"""A member that reads web pages."""

import asyncio
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Tool
from pydantic_ai.capabilities import AgentCapability
from pydantic_ai.native_tools import AbstractNativeTool, WebFetchTool

from mixseek.agents.member.plain import PlainMemberAgent
from mixseek.agents.member.tools import when_reused
from mixseek.agents.member.web.fetch import Page, PageReader, Unread, html_parser_is_missing
from mixseek.agents.member.web.guard import Guard
from mixseek.agents.member.web.tools import Backend, check_backend, provider_or_local
from mixseek.config.schema import MemberAgentConfig, ToolSettings, WebFetchSettings
from mixseek.errors import ToolError
from mixseek.llm import ModelHub
from mixseek.prompt_builder.tokens import first_tokens
from mixseek.providers import find_provider, split_model_id
from mixseek.records import MemberAgentResult
from mixseek.templating import JAPANESE, Texts

__all__ = ["LocalFetch", "WebFetchMemberAgent"]

_CHARACTERS_OF_A_PAGE = 50_000
# No language writes more than so many characters with one token for long.
_CHARACTERS_OF_A_TOKEN = 16
# These providers' own tool reads pages, but knows neither a limit of tokens nor citations.
_WITHOUT_EXTRAS = frozenset({"google", "google-cloud"})


@dataclass
class _Task:
    """What was read for one task."""

    uses: int = 0
    pages: list[Page] = field(default_factory=list)

    def take_over(self, tool: str, result: str | None) -> None:
        """Count a page that was read before the run was resumed."""
        if tool == LocalFetch.web_fetch.__name__:
            self.uses += 1
            self.pages += [] if result is None else [_page_of(result)]


_task: ContextVar[_Task | None] = ContextVar("task", default=None)


class WebFetchMemberAgent(PlainMemberAgent):
    """Its model reads pages with the provider's own tool, or through the guarded fetch of this machine."""

    def __init__(self, config: MemberAgentConfig) -> None:
        super().__init__(config)
        self._settings = (config.tool_settings or ToolSettings()).web_fetch or WebFetchSettings()
        self._backend = _backend(config, self._settings)
        self._provider = WebFetchTool(
            max_uses=self._settings.max_uses,
            allowed_domains=self._settings.allowed_domains or None,
            blocked_domains=self._settings.blocked_domains or None,
            enable_citations=self._settings.enable_citations,
            max_content_tokens=self._settings.max_content_tokens,
        )

    def check_model(self, hub: ModelHub) -> None:
        """Refuse a model without the fetch that was chosen for it."""
        check_backend(hub, self.config, self._backend, self._provider, html_parser_is_missing)

    def own_tools(self) -> Sequence[AgentCapability[None]]:
        """The fetch."""
        fetch = LocalFetch(self._settings, PageReader(Guard.of(self._settings)), self.texts)
        local = Tool(fetch.web_fetch, description=fetch.description)
        return (provider_or_local(self._backend, self.providers_tool, local),)

    @property
    def providers_tool(self) -> AbstractNativeTool | None:
        """The provider's, unless that of this machine was chosen."""
        return None if self._backend == "local" else self._provider

    @property
    def max_result_chars(self) -> int:
        """What a page may have, and its title and address."""
        return super().max_result_chars + _most_characters(self._settings)

    async def execute(self, task: str, context: dict[str, Any] | None = None, **kwargs: Any) -> MemberAgentResult:
        """Answer ``task``; what is read counts for this task alone."""
        current = _Task()
        before, heard_before = _task.set(current), when_reused.set(current.take_over)
        try:
            result = await super().execute(task, context, **kwargs)
        finally:
            when_reused.reset(heard_before)
            _task.reset(before)
        if not (self._settings.enable_citations and current.pages):
            return result
        return result.model_copy(update={"content": f"{result.content}\n\n{_sources(current.pages, self.texts)}"})


def _backend(config: MemberAgentConfig, settings: WebFetchSettings) -> Backend:
    """A private host can be reached from this machine only; extras need a tool that has them."""
    if settings.backend != "auto":
        return settings.backend
    extras = settings.enable_citations or settings.max_content_tokens is not None
    prefixes = (split_model_id(model)[0] for model in (config.model, *config.fallback_models))
    without = any((provider := find_provider(one)) and provider.prefix in _WITHOUT_EXTRAS for one in prefixes)
    return "local" if settings.allowed_private_hosts or (extras and without) else "auto"


def _most_characters(settings: WebFetchSettings) -> int:
    """More than a page of so many tokens has; what is over is counted and cut when it is there."""
    tokens = settings.max_content_tokens
    return _CHARACTERS_OF_A_PAGE if tokens is None else tokens * _CHARACTERS_OF_A_TOKEN


def _sources(pages: Sequence[Page], texts: Texts) -> str:
    """The pages that were read, in code: whether a list is there does not depend on the model."""
    lines = (f"[{number}] {page.title} {page.url}" for number, page in enumerate(pages, 1))
    return "\n".join([texts.sources, *(" ".join(line.split()) for line in lines)])


class LocalFetch:
    """The guarded fetch of this machine, as a tool for a model."""

    def __init__(self, settings: WebFetchSettings, reader: PageReader, texts: Texts = JAPANESE) -> None:
        self._settings = settings
        self._texts = texts
        self._reader = reader

    @property
    def description(self) -> str:
        """What the model is told of the tool."""
        return self._texts.web_fetch_citing if self._settings.enable_citations else self._texts.web_fetch

    async def web_fetch(self, url: str) -> str:
        """The text of a page, for the model; a ToolError says why there is none."""
        task, most = _task.get() or _Task(), self._settings.max_uses
        if most is not None and task.uses >= most:
            raise ToolError(f"the page was not read: the {most} pages that may be asked for in one task are used up")
        task.uses += 1
        page = await self._read(url)
        if isinstance(page, Unread):
            raise ToolError(f"the page was not read: {page.reason}")
        task.pages.append(page)
        return _as_result(page, len(task.pages) if self._settings.enable_citations else None)

    async def _read(self, url: str) -> Page | Unread:
        page = await self._reader.read(url, characters=_most_characters(self._settings))
        tokens = self._settings.max_content_tokens
        if isinstance(page, Unread) or tokens is None:
            return page
        text = await asyncio.to_thread(first_tokens, page.text, tokens)
        return Page(page.url, page.title, text, whole=page.whole and text == page.text)


def _as_result(page: Page, number: int | None) -> str:
    """What the model is given of a page."""
    mark = "" if number is None else f"[{number}] "
    rest = "" if page.whole else "\n\n(The page goes on; this is its beginning.)"
    title = f"{page.title}\n" if page.title else ""
    return f"{mark}{title}{page.url}\n\n{page.text}{rest}"


def _page_of(result: str) -> Page:
    """The page that :func:`_as_result` was given, as far as its source is told by it."""
    head, _, text = result.partition("\n\n")
    *title, url = re.sub(r"^\[\d+\] ", "", head).split("\n")
    return Page(url, " ".join(title), text)
