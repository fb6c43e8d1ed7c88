"""The report as a browser shows it."""

import pytest

from tests.report.conftest import IS_HERE, Opened, OpenReport
from tests.report.execution_records import large_record, long_record, make_record, make_team, markdown

pytestmark = pytest.mark.asyncio(loop_scope="session")

THREE_TEAMS = make_record(
    make_team("a", [71.5, 79.0, 84.25], submission=markdown(3000)),
    make_team("b", [76.0, 83.5, 82.0]),
    make_team("c", [38.0, None, 74.0]),
)
DRAWN = """
() => [...document.querySelectorAll('.chart svg')].filter(svg => svg.getBoundingClientRect().height > 30).map(svg => ({
    lines: [...svg.querySelectorAll('.line')].filter(line => line.getBoundingClientRect().width > 50).length,
    gaps: svg.querySelectorAll('.gap').length,
    bars: [...svg.querySelectorAll('.bar rect')].filter(bar => bar.getBoundingClientRect().width > 20).length,
    texts: [...svg.querySelectorAll('text')].map(text => text.textContent),
    name: svg.querySelector('title').textContent,
}))
"""
WAITING = "document.querySelectorAll('noscript').length"
NEVER_IDLE = "self.requestIdleCallback = () => {}"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def test_the_browser_is_here_so_that_its_tests_are_not_skipped() -> None:
    assert IS_HERE, "apt-get install chromium, or make chromium as root"


async def test_a_report_asks_for_nothing_and_complains_of_nothing(open_report: OpenReport) -> None:
    opened = await open_report(THREE_TEAMS)
    assert (opened.other_requests, opened.complaints) == ([], [])
    assert await opened.page.evaluate("document.scripts.length") == 0
    assert await opened.page.evaluate("getComputedStyle(document.querySelector('.figures')).display") == "grid"


async def test_the_chart_has_a_line_for_each_team_and_a_dashed_one_across_an_unscored_round(
    open_report: OpenReport,
) -> None:
    opened = await open_report(THREE_TEAMS)
    [chart] = await opened.page.evaluate(DRAWN)
    assert (chart["lines"], chart["gaps"], chart["name"]) == (3, 1, "Score by round")
    assert {"Team a 84.25", "Team b best 83.50", "Team c 74.00", "unscored", "×"} <= set(chart["texts"])


async def test_a_competition_of_one_round_is_drawn_as_bars(open_report: OpenReport) -> None:
    record = make_record(make_team("a", [80.0]), make_team("b", [60.0]), make_team("c", [None]))
    [chart] = await (await open_report(record)).page.evaluate(DRAWN)
    assert (chart["lines"], chart["bars"]) == (0, 2)
    assert {"Team a", "80.00", "Team b", "60.00"} <= set(chart["texts"])


async def test_without_a_score_there_is_no_chart_and_the_page_says_so(open_report: OpenReport) -> None:
    opened = await open_report(make_record(make_team("a", [None, None])))
    assert await opened.page.evaluate(DRAWN) == []
    assert "No round has a score." in await opened.page.inner_text("main")
    assert opened.complaints == []


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
async def test_no_width_makes_the_page_scroll_sideways(open_report: OpenReport, width: int) -> None:
    opened = await open_report(THREE_TEAMS, viewport={"width": width, "height": 800})
    assert await opened.page.evaluate(SIDEWAYS) == 0
    await opened.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert await opened.page.evaluate(SIDEWAYS) == 0
    assert len(await opened.page.evaluate(DRAWN)) == 1


@pytest.mark.parametrize("width", [320, 600, 1000, 1280])
async def test_no_figure_is_wider_than_its_tile(open_report: OpenReport, width: int) -> None:
    usage = THREE_TEAMS.usage.model_copy(update={"input_tokens": 123_456_789})
    record = THREE_TEAMS.model_copy(update={"seconds": 4000.0, "cost_usd": 1234.5, "usage": usage})
    opened = await open_report(record, viewport={"width": width, "height": 800})
    wider = "[...document.querySelectorAll('.figures dd')].filter(each => each.scrollWidth > each.clientWidth).length"
    assert await opened.page.evaluate(wider) == 0


async def test_a_dark_screen_gets_light_letters(open_report: OpenReport) -> None:
    def brightness(colour: str) -> int:
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))

    colours = "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    for scheme, is_dark in (("dark", True), ("light", False)):
        opened = await open_report(THREE_TEAMS, color_scheme=scheme)
        letters, paper = await opened.page.evaluate(colours)
        assert (brightness(letters) > brightness(paper)) is is_dark


async def test_in_print_every_round_is_open(open_report: OpenReport) -> None:
    opened = await open_report(THREE_TEAMS)
    heights = "[...document.querySelectorAll('.round .prose')].map(each => each.getBoundingClientRect().height > 10)"
    visible = "[...document.querySelectorAll('.round .prose')].map(each => each.checkVisibility())"
    assert not any(await opened.page.evaluate(visible))
    await opened.page.emulate_media(media="print")
    assert await opened.page.evaluate(visible) == [True] * 18
    assert await opened.page.evaluate(heights) == [True] * 18


async def test_the_leader_board_leads_to_the_rounds_of_a_team(open_report: OpenReport) -> None:
    opened = await open_report(THREE_TEAMS)
    await opened.page.click(".board a >> text=Team b")
    assert await opened.page.evaluate("[...document.querySelectorAll('.team')].map(team => team.open)") == [
        False,
        True,
        False,
    ]


async def test_fifty_teams_with_ten_rounds_of_20_kb_open_quickly_and_the_best_stand_out(
    open_report: OpenReport,
) -> None:
    record = large_record()
    opened = await open_report(record)
    # Processor time, since other tests run beside this one; it is all the time it takes on a machine at rest.
    assert min([await seconds_to_open(opened) for _ in range(3)]) < 1
    text = sum(len((each.submission or "").encode()) for team in record.teams for each in team.rounds)
    assert text > 10_000_000
    assert opened.file.stat().st_size - text < 5_000_000
    assert (opened.other_requests, opened.complaints) == ([], [])
    [chart] = await opened.page.evaluate(DRAWN)
    assert chart["lines"] == 50
    assert len([words for words in chart["texts"] if words.startswith("Team")]) == 5


async def test_a_round_of_a_large_report_is_there_as_soon_as_it_is_opened(open_report: OpenReport) -> None:
    opened = await open_report(long_record(), before=NEVER_IDLE)
    assert await opened.page.evaluate(WAITING) == 6
    await opened.page.click(".board a >> text=Team b")
    await opened.page.click(".team[open] .round:last-of-type > summary")
    await opened.page.wait_for_selector(".team[open] .round[open] .prose")
    assert "A line of a long answer" in await opened.page.inner_text(".team[open] .round[open] .prose >> nth=0")
    assert await opened.page.evaluate(WAITING) == 5


async def test_a_large_report_is_printed_whole_however_early(open_report: OpenReport) -> None:
    opened = await open_report(long_record(), before=NEVER_IDLE)
    assert await opened.page.evaluate(WAITING) == 6
    await opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")  # as the browser does; pages take it long
    assert await opened.page.evaluate(WAITING) == 0
    await opened.page.emulate_media(media="print")
    visible = "[...document.querySelectorAll('.round .prose')].map(each => each.checkVisibility())"
    assert await opened.page.evaluate(visible) == [True] * 12


async def test_a_large_report_makes_itself_whole_so_that_a_search_finds_everything(open_report: OpenReport) -> None:
    opened = await open_report(long_record())
    await opened.page.wait_for_selector("noscript", state="detached")
    assert await opened.page.evaluate("document.querySelectorAll('.round > .prose').length") == 6
    assert (opened.other_requests, opened.complaints) == ([], [])


async def test_a_large_report_is_whole_where_scripts_are_forbidden(open_report: OpenReport) -> None:
    opened = await open_report(long_record(), java_script_enabled=False)
    await opened.page.click(".board a >> text=Team b")
    await opened.page.click(".team[open] .round:last-of-type > summary")
    assert "A line of a long answer" in await opened.page.inner_text(".team[open] .round[open] .prose >> nth=0")


async def seconds_to_open(opened: Opened) -> float:
    """What the browser works until the page is there."""
    watching = await opened.page.context.new_cdp_session(opened.page)
    await watching.send("Performance.enable", {"timeDomain": "threadTicks"})
    await opened.page.reload(wait_until="load")
    told = await watching.send("Performance.getMetrics")
    return sum(float(each["value"]) for each in told["metrics"] if each["name"] == "TaskDuration")
