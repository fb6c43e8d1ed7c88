"""Texts that would take over a terminal: whatever shows them, only what can be read arrives there.

The bytes are looked at, not only the screen: with the display's own few codes taken out, nothing may be left that a
terminal acts on or that nobody sees.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from mixseek.cli import main
from mixseek.hidden import hidden_places
from mixseek.testing import ModelServer, write_workspace
from soak import forked
from tests.terminals import Terminal

ATTACKS = {
    "magenta": "\x1b[35mowned",
    "blink and 256 colours": "\x1b[5;48;5;201mowned",
    "reset": "\x1bcowned",
    "clear": "\x1b[2J\x1b[3J\x1b[Howned",
    "cursor up": "\x1b[99Aowned",
    "cursor home": "\x1b[1;1fowned",
    "hide cursor": "\x1b[?25lowned",
    "other screen": "\x1b[?1049howned",
    "report position": "\x1b[6nowned",
    "report device": "\x1b[>0cowned",
    "scroll region": "\x1b[5;10rowned",
    "delete lines": "\x1b[50Mowned",
    "bracketed paste": "\x1b[?2004h\x1b[200~rm -rf ~\n\x1b[201~",
    "title by OSC": "\x1b]0;owned\x07",
    "title by OSC and ST": "\x1b]2;owned\x1b\\",
    "link by OSC 8": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clipboard by OSC 52": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "iTerm file by OSC 1337": "\x1b]1337;File=name=eA==:AAAA\x07",
    "palette by OSC 4": "\x1b]4;1;rgb:00/00/00\x1b\\",
    "an OSC without an end": "\x1b]0;swallow",
    "DCS": '\x1bP$q"p\x1b\\owned',
    "sixel": "\x1bPq#0;2;0;0;0#0~~\x1b\\",
    "APC": "\x1b_Gf=100;AAAA\x1b\\",
    "PM": "\x1b^secret\x1b\\",
    "SOS": "\x1bXsecret\x1b\\",
    "C1 CSI": "\x9b35mowned",
    "C1 OSC": "\x9d0;owned\x9c",
    "C1 DCS": "\x90q\x9c",
    "other letters": "\x1b(0lqqk\x0e\x0f",
    "bell": "ding\x07\x07",
    "backspaces": "harmless\b\b\b\b\b\b\b\bowned",
    "carriage return": "score 10\rscore 99",
    "vertical tab and form feed": "a\x0bb\x0cc",
    "delete": "a\x7fb",
    "line separator": "one\u2028two\u2029three\x85four",
    "right to left override": "\u202egpj.exe",
    "isolates": "\u2066\u2067\u2068owned\u2069",
    "embedding": "\u202a\u202bowned\u202c",
    "marks of direction": "a\u200eb\u200fc\u061cd",
    "letters of no width": "pass\u200bword\u2060\ufeff",
    "joiners out of place": "ad\u200cmin\u200d",
    "tags": "hello\U000e0001\U000e0069\U000e0067\U000e006e\U000e007f",
    "variation selectors": "a\ufe0f\ufe01\U000e0150\U000e0151",
    "soft hyphen and fillers": "a\xad\u115f\u3164\uffa0b",
    "interlinear": "\ufff9a\ufffab\ufffb",
    "half a character": "\udc9b35m\ud83d",
}
MARKUP = "[red]not red[/red] [link=http://evil.example]no link[/link] [bold]:smile:"
WHOLE = "👨‍👩‍👧 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇯🇵 葛󠄀飾区　東京が" + "é"
# Half a character cannot be sent by any model or stand in any file.
ALL = "\n".join(text for name, text in ATTACKS.items() if name != "half a character")
ONE_LINE = ALL.replace("\n", " ")

OWN_CODES = re.compile(r"\x1b\[(?P<style>[0-9;]*)m|\x1b\[(?P<up>\d+)A\r\x1b\[J|\r\x1b\[J|\r?\n")
OWN_STYLES = {"0", "1", "2", "31", "32", "33", "36"}

LOUD = f"""
import logging, sys
from mixseek.agents.member.base import BaseMemberAgent

ALL = {ALL!a}

class Loud(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        print(ALL)
        print(ALL, file=sys.stderr)
        logging.getLogger("somebody").error("logged %s", ALL)
        raise RuntimeError(ALL)
"""
LOUD_MEMBER = """
[[team.members]]
name = "loud"
type = "custom"
model = "loopback:member"
description = "Loud."
[team.members.plugin]
path = "loud.py"
agent_class = "Loud"
"""


def _toml(text: str) -> str:
    return '"' + "".join(f"\\U{ord(letter):08X}" for letter in text) + '"'


def _environment(**variables: str) -> dict[str, str]:
    dropped = ("MIXSEEK_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "MIXSEEK_ONLY_LOOPBACK": "1", **variables}


def _hostile(server: ModelServer, workspace: Path) -> list[str]:
    """A competition in which everything that has a name or says a word attacks; the command that plays it."""
    write_workspace(workspace, teams=3, max_rounds=1, base_url=server.base_url, orchestrator="min_rounds = 1")
    names = {"a": f"{MARKUP} {WHOLE}", "b": f"東京 {ONE_LINE}", "c": f"Failing {ONE_LINE}"}
    for team, name in names.items():
        file = workspace / "configs" / "agents" / f"team-{team}.toml"
        text = re.sub(r"team_name = .*", lambda _, name=name: f"team_name = {_toml(name)}", file.read_text())  # type: ignore[misc]
        file.write_text(text.replace(f'leader-{team}"', f'leader-{team}\\u001b[35m\\u202e"') + LOUD_MEMBER)
    (workspace / "loud.py").write_text(LOUD, encoding="utf-8")
    server.on("leader-*", lambda call: f"{WHOLE}\n{MARKUP}\n{ALL}" if call.tool_results else None)
    server.on("judge", lambda call: {"reason": ALL, "score": 50, "evaluator_comment": f"{WHOLE} {ALL}"})
    server.fault(400, model="leader-c*", after=1)
    config = str(workspace / "configs" / "orchestrator.toml")
    task = ONE_LINE.replace("\x00", "")
    return [sys.executable, "-m", "mixseek", "exec", task, "-c", config, "-w", str(workspace), "-v"]


def _checked(raw: bytes, rows: int, *, colour: bool = True) -> str:
    """The text that reached a terminal without the display's own codes, of which none is unexpected."""
    text = raw.decode()
    for code in OWN_CODES.finditer(text):
        assert set((code["style"] or "0").split(";")) <= (OWN_STYLES if colour else {"0", "1", "2"})
        assert int(code["up"] or 0) < rows
    left = OWN_CODES.sub("\n", text)
    steering = {f"{left[max(0, at - 30) : at + 10]!r}" for at in hidden_places(left)}
    assert not steering
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", left)
    return left


def test_a_competition_of_attackers_leaves_only_text_in_the_terminal(tmp_path: Path) -> None:
    with (
        ModelServer() as server,
        Terminal(_hostile(server, tmp_path), env=_environment(), columns=120, rows=30) as terminal,
    ):
        assert terminal.wait() == 1, terminal.text()
    text = _checked(terminal.raw, rows=30)
    assert "\\x1b[35mowned" in text
    assert MARKUP in text
    assert WHOLE in text
    assert "\x1b[32m" in terminal.raw.decode()
    assert "Leader board" in text


def test_without_colour_the_display_has_none_and_json_keeps_every_letter_by_its_escape(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with (
        ModelServer() as server,
        Terminal(
            [*_hostile(server, workspace), "-f", "json"],
            env=_environment(NO_COLOR="1"),
            columns=60,
            rows=20,
            stdout=out,
        ) as terminal,
    ):
        assert terminal.wait() == 1, terminal.text()
    _checked(terminal.raw, rows=20, colour=False)
    printed = out.read_text(encoding="utf-8")
    assert not list(hidden_places(printed))
    summary = json.loads(printed)
    assert summary["team_results"][0]["submission_content"] == f"{WHOLE}\n{MARKUP}\n{ALL}"
    assert {entry["team_name"] for entry in summary["team_results"]} >= {f"{MARKUP} {WHOLE}"}


def test_without_a_terminal_nothing_that_is_printed_steers_the_one_that_shows_it_later(tmp_path: Path) -> None:
    with ModelServer() as server:
        ran = forked.run(_hostile(server, tmp_path), env=_environment(), capture_output=True, timeout=120, check=False)
        assert ran.returncode == 1, ran.stderr
        for stream in (ran.stdout, ran.stderr):
            _checked(stream, rows=1)
        assert ran.stderr.count(b"\\x1b[35mowned") >= 6, "printed by a member of each team, on both streams"
        for command in (["history"], ["board"], ["board", "last"], ["show", "--rounds"], ["export", "-f", "md"]):
            shown = [sys.executable, "-m", "mixseek", *command, "-w", str(tmp_path)]
            with Terminal(shown, env=_environment(), columns=120, rows=30) as terminal:
                assert terminal.wait() == 0, terminal.text()
            assert "\\x1b" in _checked(terminal.raw, rows=30), command


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize(
    "arguments", [["{}"], ["exec", "x", "--{}"], ["exec", "x", "-f", "{}"], ["exec", "x", "-w", "{}"]]
)
def test_what_is_wrong_with_an_argument_is_told_without_its_codes(
    arguments: list[str], attack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _refused([argument.replace("{}", attack) for argument in arguments], capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["exec", "x", "-c", "{}"],
        ["exec", "x", "--file", "{}"],
        ["exec", "--prompt-file", "{}"],
        ["exec", "x", "--output", "{}/x"],
        ["exec", "x", "--report-file", "{}/x"],
        ["exec", "x", "--reference", "{}/x.md"],
        ["team", "x", "-c", "{}"],
        ["member", "x", "-c", "{}"],
        ["evaluate", "x", "--submission-file", "{}"],
        ["attack", "-c", "{}"],
        ["config", "validate", "{}"],
        ["show", "{}"],
        ["export", "-o", "{}"],
        ["models", "pull", "{}"],
    ],
    ids=" ".join,
)
def test_what_is_wrong_with_a_file_is_told_without_the_codes_in_its_name(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXSEEK_WORKSPACE", str(tmp_path))
    for name in ("magenta", "title by OSC", "C1 CSI", "carriage return", "right to left override", "half a character"):
        _refused([argument.replace("{}", ATTACKS[name]) for argument in arguments], capsys)


def _refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr()
    for stream in printed:
        assert not list(hidden_places(stream))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", stream)
    assert printed.err
