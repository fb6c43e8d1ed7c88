"""A real browser, and pages that remember what went on in them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Dialog, Page, async_playwright

from mixseek.report.html import write_report
from mixseek.report.record import ExecutionRecord

CHROMIUM = which("chromium")
IS_HERE = CHROMIUM is not None
_QUIET = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A report in the browser, with all it asked for and complained of."""

    page: Page
    file: Path
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What the page's own policy kept it from asking for."""

    @property
    def other_requests(self) -> list[str]:
        return [url for url in self.requests if url.partition("#")[0] != self.file.as_uri()]

    def listen(self) -> "Opened":
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.refused.append(f"{request.url}: {request.failure}"))
        self.page.on("dialog", self._refuse)
        return self

    async def show(self, record: ExecutionRecord) -> "Opened":
        """Write the report of an execution and open it, and forget what was before."""
        write_report(record, self.file)
        for told in (self.requests, self.complaints, self.refused):
            told.clear()
        await self.page.goto(self.file.as_uri(), wait_until="load")
        return self

    async def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append("a dialog was opened")
        await dialog.dismiss()


OpenReport = Callable[..., Awaitable[Opened]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if not IS_HERE:
        pytest.skip("chromium is not there")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=_QUIET)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_report(browser: Browser, tmp_path: Path) -> AsyncIterator[OpenReport]:
    """Writes the report of an execution and opens it; keywords are those of a new page, and what runs before it."""
    pages: list[Page] = []

    async def open_(record: ExecutionRecord, *, before: str = "", **options: Any) -> Opened:
        pages.append(await browser.new_page(**options))
        await pages[-1].add_init_script(before)
        return await Opened(pages[-1], tmp_path / f"{len(pages)}.html").listen().show(record)

    yield open_
    for page in pages:
        await page.close()
