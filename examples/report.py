"""The report of a competition without an API key: four teams, three rounds, on a scripted model server.

The answers and scores are made up; the competition, the stores and the report are real. ``--pictures DIR`` also takes
the pictures that the documents show, with the browser ``chromium``.

    python examples/report.py report.html
"""

import argparse
import asyncio
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from shutil import which

from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.report.html import write_report
from mixseek.report.reading import load_execution
from mixseek.testing import ModelCall, ModelServer, write_workspace
from mixseek.workspace import Workspace

TASK = "Name the first three steps for a company of 20 people that wants to use generative AI, with costs and measures."
TEAMS = {"a": "Pilot first", "b": "Rules first", "c": "Ask around", "d": "生成AI推進室"}
PRICE = '\n[prices."{0}"]\ninput_usd_per_million = 0.4\noutput_usd_per_million = 1.6\n'

PILOT = """\
Start with one task that hurts, not with a tool.

| step | when | cost | measured by |
| --- | --- | ---: | --- |
| 1. Take stock of the work | week 1 | 2 days | hours spent on each task |
| 2. Try it on one task | weeks 2–5 | $600 | minutes saved for each document |
| 3. Widen or stop | week 6 | 1 day | the figures of step 2 |

1. **Take stock.** Everyone notes for a week what takes longer than it should. In companies of this size
   *minutes of meetings* and *answers to customers* lead the list.
2. **Try it.** Five volunteers, one task, four weeks, $30 a seat. Nothing confidential goes in: `names → placeholders`.
3. **Decide by the figures.** Less than 20 minutes saved a day: stop. More: two more tasks and an hour of training.

> The trial costs less than one lost working day of the whole company.
"""
RULES = "1. **House rules** on a single page\n2. **Training** for everyone, two hours\n3. **Start** with {detail}"
JAPANESE = """\
## 最初の3つの手順

1. **業務の棚卸し**: 1週間、時間のかかる仕事を全員で記録する。
2. **小さく試す**: {detail}
3. **数字で判断する**: 1日20分以上の短縮で全社に広げる。
"""

# For each team and round: what its leader answers once its members have reported, and the score the judges give it.
SCRIPT = {
    "a": [
        ("Take stock of the work, try something small, then widen it.", 68),
        ("1. Take stock: one week\n2. Try it on meeting minutes: four weeks\n3. Widen it", 79),
        (PILOT, 91),
    ],
    "b": [
        (RULES.format(detail="what is easy."), 74),
        (RULES.format(detail="a figure to watch: hours saved a week."), 83),
        (RULES.format(detail="a figure."), 80),
    ],
    "c": [
        ("Ask an expert.", 35),
        ("Ask three experts, compare their offers, sign one.", 52),
        ("Pick one problem, try a free tool on it, buy only if it helps.", 66),
    ],
    "d": [
        (JAPANESE.format(detail="議事録で試す。"), 71),
        (JAPANESE.format(detail="議事録で4週間、5人で試す。費用は月3万円。"), 77),
        (JAPANESE.format(detail="議事録と問い合わせへの返信で4週間、5人で試す。費用は月3万円。効果は時間で測る。"), 86),
    ],
}
COMMENTS = ("Clear, in a good order.", "Costs and a measure are named.", "Stays with the question.")
FINDINGS = (
    "- Minutes of meetings: about 4 hours a week for each team lead\n- Answers to customers: 6 hours a week",
    "A seat costs $20 to $30 a month; a trial month is free with most vendors.",
)


def script(server: ModelServer) -> None:
    """Tell the server what leaders, members and judges say; whatever is not said here, it makes up."""
    for team, rounds in SCRIPT.items():
        server.on(f"leader-{team}", leader([answer for answer, _ in rounds]))
    for number, finding in enumerate(FINDINGS, 1):
        server.on(f"member-{number}", always(finding))
    scores = {answer.strip(): score for rounds in SCRIPT.values() for answer, score in rounds}

    def judge(call: ModelCall) -> dict[str, object]:
        # The longest answer that fits is the right one: a short one may be part of another.
        answer = max((answer for answer in scores if answer in call.prompt), key=len)
        view = sum(map(ord, call.system)) % 3
        return {"evaluator_comment": COMMENTS[view], "score": scores[answer] + (view - 1) * 3}

    server.on("judge", judge)
    server.on(
        "judgment",
        lambda _: {"reasoning": "The last round gained points.", "should_continue": True, "confidence_score": 0.8},
    )


def leader(answers: list[str]) -> Callable[[ModelCall], str | None]:
    """Asks its members first, which is the server's own idea and left to it, and then gives the next answer."""
    return lambda call: answers.pop(0) if call.tool_results else None


def always(answer: str) -> Callable[[ModelCall], str]:
    """The same every time it is asked."""
    return lambda _: answer


async def play(file: Path) -> Path:
    """Play in a workspace that is gone afterwards, and write the report."""
    with tempfile.TemporaryDirectory() as directory:
        async with ModelServer(latency=0.2) as server:
            script(server)
            orchestrator = write_workspace(
                Path(directory), teams=len(TEAMS), members=len(FINDINGS), max_rounds=3, base_url=server.base_url
            )
            name_teams(Path(directory))
            set_prices(orchestrator)
            summary = await Orchestrator(load_orchestrator_settings(orchestrator, directory)).execute(TASK)
        return write_report(await load_execution(Workspace(Path(directory)), summary.execution_id), file)


def name_teams(workspace: Path) -> None:
    """Give the teams names that tell what they think."""
    for team, name in TEAMS.items():
        file = workspace / "configs" / "agents" / f"team-{team}.toml"
        file.write_text(file.read_text(encoding="utf-8").replace(f"Team {team.upper()}", name), encoding="utf-8")


def set_prices(orchestrator: Path) -> None:
    """Let every model of the workspace cost something, so that there is a bill."""
    texts = [file.read_text(encoding="utf-8") for file in orchestrator.parent.rglob("*.toml")]
    models = sorted({model for text in texts for model in re.findall('"(loopback:.+?)"', text)})
    orchestrator.write_text(orchestrator.read_text(encoding="utf-8") + "".join(map(PRICE.format, models)), "utf-8")


def take_pictures(file: Path, directory: Path) -> None:
    """The report on a desk, and on a phone in the dark."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        desk = browser.new_page(viewport={"width": 1040, "height": 1480})
        desk.goto(file.absolute().as_uri())
        desk.screenshot(path=directory / "report.png")
        phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        phone.goto(file.absolute().as_uri())
        phone.evaluate("document.querySelector('.board').closest('section').scrollIntoView()")
        phone.screenshot(path=directory / "report-phone.png")
        browser.close()


def main() -> None:
    """Write the report, and take its pictures where they are wanted."""
    arguments = argparse.ArgumentParser(description="Play a made-up competition and write its report.")
    arguments.add_argument("file", type=Path, nargs="?", default=Path("report.html"))
    arguments.add_argument("--pictures", type=Path, metavar="DIR", help="also take pictures of it")
    given = arguments.parse_args()
    print(f"the report is in {asyncio.run(play(given.file))}")
    if given.pictures:
        take_pictures(given.file, given.pictures)


if __name__ == "__main__":
    main()
