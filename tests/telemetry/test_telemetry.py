"""Spans as a receiver on this machine gets them: who is in whom, what is told, and what is not."""

import asyncio
import gzip
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mixseek.cli import logs, main
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.redaction import Redactor
from mixseek.telemetry import SendTo, sending
from mixseek.testing import Match, ModelServer, ToolCall, scripted, write_workspace

PROMPT = "canary-of-the-prompt"
TASK = "canary-of-a-task"
MEMBER = "canary-of-a-member"
ANSWER = "canary-of-an-answer"
COMMENT = "canary-of-a-comment"
REASONING = "canary-of-a-reasoning"
ERROR = "canary-of-an-error"
ARGUMENT = "canary-of-an-argument"
CANARIES = (PROMPT, TASK, MEMBER, ANSWER, COMMENT, REASONING, ERROR, ARGUMENT)
SECRET = "sk-proj-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"
SAFETY_SECONDS = 60
FUNCTIONS = """
async def look_up(word: str) -> str:
    '''Look a word up.'''
    if "broken" in word:
        raise RuntimeError("canary-of-an-error")
    return "nothing"
"""


@dataclass
class _Span:
    name: str
    span_id: bytes
    parent_id: bytes
    trace_id: bytes
    attributes: dict[str, Any]
    failed: bool
    status: str
    events: list[dict[str, Any]]


@dataclass
class _Receiver:
    """An OTLP receiver, which also answers what Logfire's client asks."""

    base_url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    hang: threading.Event = field(default_factory=threading.Event)
    """Set: requests are answered at once."""

    @property
    def spans(self) -> list[_Span]:
        every = [span for body in self.bodies for span in _spans(body)]
        # Logfire also tells of spans that have only begun.
        return [span for span in every if span.attributes.get("logfire.span_type") != "pending_span"]

    def named(self, name: str) -> list[_Span]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str, **attributes: Any) -> _Span:
        (found,) = [span for span in self.named(name) if attributes.items() <= span.attributes.items()]
        return found

    def path(self, span: _Span) -> list[str]:
        """The names from the outermost span to this one."""
        by_id = {other.span_id: other for other in self.spans}
        names = [span.name]
        while span.parent_id:
            span = by_id[span.parent_id]
            names.insert(0, span.name)
        return names


def _spans(body: bytes) -> Iterator[_Span]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                events = [_attributes(event.attributes) | {"name": event.name} for event in span.events]
                yield _Span(
                    span.name,
                    span.span_id,
                    span.parent_span_id,
                    span.trace_id,
                    _attributes(span.attributes),
                    span.status.code == 2,
                    span.status.message,
                    events,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@pytest.fixture
def receiver() -> Iterator[_Receiver]:
    received = _Receiver()
    received.hang.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.hang.wait(SAFETY_SECONDS)
            received.bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self._answer(b"")

        def do_GET(self) -> None:
            self._answer(json.dumps({"project_name": "p", "project_url": "http://127.0.0.1/p"}).encode())

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    received.base_url = f"http://127.0.0.1:{server.server_port}"
    yield received
    received.hang.set()
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _nothing_left_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "LOGFIRE_TOKEN", "MIXSEEK_OTEL"):
        monkeypatch.delenv(name, raising=False)
    levels = {name: logging.getLogger(name).level for name in ("root", "mixseek", "opentelemetry")}
    yield
    logs._exchange([])
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _exec(workspace: Path, *options: str) -> int | str | None:
    """A competition of a team that does well and one whose leader cannot be asked."""
    rules = "min_rounds = 1\nmax_retries_per_team = 0"
    write_workspace(workspace, teams=2, members=1, max_rounds=2, orchestrator=rules)
    (workspace / "look.py").write_text(FUNCTIONS)
    team = workspace / "configs/agents/team-a.toml"
    team.write_text(f'{team.read_text()}functions = ["look:look_up"]\n')
    with scripted() as script:
        script.on(
            Match("judgment"),
            lambda call: {"reasoning": REASONING, "should_continue": True, "confidence_score": 1},
        )
        script.on(Match("judge"), lambda call: {"evaluator_comment": COMMENT, "score": 50})
        script.on(Match("leader-a"), lambda call: ANSWER if call.tool_results else _delegating())
        script.on(Match("leader-b"), _breaks)
        script.on(Match("member-1"), lambda call: f"{MEMBER} {SECRET}" if call.tool_results else _looking_up())
        with pytest.raises(SystemExit) as ended:
            main(["exec", PROMPT, "-c", "configs/orchestrator.toml", "-w", str(workspace), "--no-log-file", *options])
    return ended.value.code


def _delegating() -> ToolCall:
    return ToolCall("delegate_to_member-1", {"task": TASK})


def _looking_up() -> ToolCall:
    return ToolCall("look_up", {"word": f"{ARGUMENT} broken"})


def _breaks(call: object) -> str:
    raise ValueError(ERROR)


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------


def test_spans_of_a_competition_are_in_each_other_and_hold_numbers_but_no_word_that_was_said(
    tmp_path: Path, receiver: _Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
    assert _exec(tmp_path, "--otel") == 1

    run = receiver.one("mixseek run")
    assert run.attributes["mixseek.best_score"] == 50
    assert run.attributes["mixseek.failed_teams"] == 1
    assert not run.failed
    assert len({span.trace_id for span in receiver.spans}) == 1
    assert {span.attributes.get("mixseek.execution_id") for span in receiver.named("round 1")} == {
        run.attributes["mixseek.execution_id"]
    }
    second = receiver.one("round 2", **{"mixseek.team_id": "a"})
    assert receiver.path(second) == ["mixseek run", "team a", "round 2"]
    assert second.attributes["mixseek.score"] == 50
    in_second = {"mixseek.round_number": 2, "mixseek.team_id": "a"}
    around = ["mixseek run", "team a", "round 2"]
    leader = [span for span in receiver.named("chat leader-a") if in_second.items() <= span.attributes.items()]
    assert [receiver.path(span) for span in leader] == [[*around, "chat leader-a"]] * 2
    assert leader[0].attributes["gen_ai.usage.output_tokens"] > 0
    assert leader[0].attributes["mixseek.role"] == "leader"
    for name in ("chat member-1", "execute_tool look_up"):
        calls = [span for span in receiver.named(name) if in_second.items() <= span.attributes.items()]
        assert receiver.path(calls[0]) == [*around, "invoke_agent member-1", name]
    judges = [span for span in receiver.named("chat judge") if in_second.items() <= span.attributes.items()]
    assert [receiver.path(span) for span in judges] == [[*around, "evaluation", "chat judge"]] * 3
    judgment = receiver.one("chat judgment", **in_second)
    assert receiver.path(judgment) == [*around, "judgment", "chat judgment"]
    (scored, *_) = receiver.one("evaluation", **in_second).events
    assert scored["gen_ai.evaluation.score.value"] == 50

    assert receiver.one("execute_tool look_up", **in_second).failed
    failed = receiver.one("team b")
    assert failed.failed
    assert receiver.one("round 1", **{"mixseek.team_id": "b"}).failed
    assert receiver.named("chat leader-b")[0].failed

    everything = b"".join(receiver.bodies)
    assert not [canary for canary in (*CANARIES, SECRET) if canary.encode() in everything]


def test_content_is_sent_when_the_standard_variable_asks_for_it_and_secrets_never(
    tmp_path: Path, receiver: _Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    monkeypatch.setenv("MIXSEEK_OTEL", "1")
    assert _exec(tmp_path) == 1
    everything = b"".join(receiver.bodies)
    assert not [canary for canary in CANARIES if canary.encode() not in everything]
    assert SECRET.encode() not in everything
    call = receiver.named("chat leader-a")[0]
    assert PROMPT in call.attributes["gen_ai.input.messages"]
    assert TASK in call.attributes["gen_ai.output.messages"]


def test_the_variables_of_the_workspace_hold_too(tmp_path: Path, receiver: _Receiver) -> None:
    (tmp_path / ".env").write_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={receiver.base_url}\nOTEL_SERVICE_NAME=ours\n")
    _exec(tmp_path, "--otel")
    assert len(receiver.named("mixseek run")) == 1
    assert b"ours" in receiver.bodies[0]


async def test_a_run_that_is_cancelled_ends_its_spans(
    tmp_path: Path, receiver: _Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
    write_workspace(tmp_path, teams=1)
    asked = asyncio.Event()

    async def hang(call: object) -> str:
        asked.set()
        await asyncio.sleep(SAFETY_SECONDS)
        return ""

    with scripted() as script, sending(SendTo("otel"), {}, Redactor()) as send:
        script.on(Match("leader-a"), hang)
        settings = load_orchestrator_settings("configs/orchestrator.toml", tmp_path)
        run = asyncio.create_task(Orchestrator(settings, save_db=False, listeners=[send]).execute("task"))
        await asyncio.wait_for(asked.wait(), SAFETY_SECONDS)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    call = receiver.one("chat leader-a")
    assert call.attributes["error.type"] == "cancelled"
    assert receiver.path(call) == ["mixseek run", "team a", "round 1", "chat leader-a"]
    assert [receiver.one(name).attributes["error.type"] for name in receiver.path(call)[:3]] == ["interrupted"] * 3


def test_a_receiver_that_is_down_is_told_once_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    assert _exec(tmp_path, "--otel") == 1
    assert time.monotonic() - began < SAFETY_SECONDS / 2
    told = capsys.readouterr()
    assert ANSWER in told.out
    assert len([line for line in told.err.splitlines() if "spans" in line]) == 1


def test_a_receiver_that_hangs_does_not_hold_the_command(
    tmp_path: Path, receiver: _Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
    receiver.hang.clear()
    began = time.monotonic()
    assert _exec(tmp_path, "--otel") == 1
    assert time.monotonic() - began < SAFETY_SECONDS / 2
    assert "not all spans could be sent within 5 s" in capsys.readouterr().err


def test_calls_outside_of_a_run_are_told_as_well(
    tmp_path: Path, receiver: _Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
    write_workspace(tmp_path, teams=1)
    with scripted(), pytest.raises(SystemExit) as ended:
        main(["attack", "-c", "configs/evaluator.toml", "-w", str(tmp_path), "--limit", "1", "--no-log-file", "--otel"])
    assert ended.value.code == 0
    assert receiver.named("chat judge")[0].attributes["gen_ai.usage.output_tokens"] > 0


def test_a_protocol_we_do_not_speak_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert _exec(tmp_path, "--otel") == 2
    assert "http/protobuf alone" in capsys.readouterr().err


# --- Logfire ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def logfire(receiver: _Receiver, monkeypatch: pytest.MonkeyPatch) -> _Receiver:
    monkeypatch.setenv("LOGFIRE_TOKEN", "pylf_v1_local_0123456789abcdef")
    monkeypatch.setenv("LOGFIRE_BASE_URL", receiver.base_url)
    return receiver


def test_logfire_gets_all_content(tmp_path: Path, logfire: _Receiver) -> None:
    assert _exec(tmp_path, "--logfire") == 1
    everything = b"".join(logfire.bodies)
    assert not [canary for canary in CANARIES if canary.encode() not in everything]
    assert SECRET.encode() not in everything
    leader = [span for span in logfire.named("chat leader-a") if span.attributes["mixseek.round_number"] == 2]
    assert logfire.path(leader[0]) == ["mixseek run", "team a", "round 2", "chat leader-a"]


def test_logfire_gets_no_content_in_metadata_mode(tmp_path: Path, logfire: _Receiver) -> None:
    assert _exec(tmp_path, "--logfire", "--logfire-metadata") == 1
    assert len(logfire.named("mixseek run")) == 1
    everything = b"".join(logfire.bodies)
    assert not [canary for canary in (*CANARIES, SECRET) if canary.encode() in everything]


def test_requests_are_spans_inside_of_their_calls(tmp_path: Path, logfire: _Receiver) -> None:
    with ModelServer() as server:
        write_workspace(tmp_path, teams=1, max_rounds=1, base_url=server.base_url)
        arguments = ["-c", "configs/orchestrator.toml", "-w", str(tmp_path), "--logfire-http", "--no-log-file"]
        with pytest.raises(SystemExit):
            main(["exec", PROMPT, *arguments])
    (request, *_) = [span for span in logfire.named("POST") if logfire.path(span)[-2] == "chat leader-a"]
    assert logfire.path(request) == ["mixseek run", "team a", "round 1", "chat leader-a", "POST"]
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["url.full"].startswith(server.base_url)


def test_no_token_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _exec(tmp_path, "--logfire") == 2
    assert "mixseek: no token for Logfire: set LOGFIRE_TOKEN" in capsys.readouterr().err


# --- without ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "package", "extra"),
    [
        ("--logfire", "logfire", "mixseek[logfire]"),
        ("--otel", "opentelemetry.exporter.otlp.proto.http.trace_exporter", "mixseek[otel]"),
    ],
)
def test_a_missing_package_is_told_with_its_extra(
    option: str,
    package: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "mixseek.telemetry.pipelines", raising=False)
    assert _exec(tmp_path, option) == 2
    assert f'needs a package that is not installed: pip install "{extra}"' in capsys.readouterr().err


def test_both_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exec(tmp_path, "--otel", "--logfire") == 2
    assert "--otel and --logfire exclude each other" in capsys.readouterr().err


def test_nothing_of_it_is_loaded_when_it_is_off(tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, max_rounds=1)
    code = """
import sys, threading
from mixseek.cli import main
from mixseek.testing import scripted
try:
    with scripted():
        main(["exec", "task", "-c", "configs/orchestrator.toml", "-w", sys.argv[1]])
except SystemExit as ended:
    assert ended.code == 0
# pydantic-ai itself loads Logfire where it is installed, but nothing of it runs.
print("mixseek.telemetry" in sys.modules, [thread.name for thread in threading.enumerate() if "Otel" in thread.name])
"""
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=True)
    assert ran.stdout.splitlines()[-1] == "False []"


def test_a_command_that_calls_no_model_does_not_load_logfire(tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, base_url="http://127.0.0.1:9")
    code = """
import sys
from mixseek.cli import main
try:
    main(["config", "validate", "-w", sys.argv[1]])
except SystemExit as ended:
    assert ended.code == 0
print("logfire" in sys.modules)
"""
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=True)
    assert ran.stdout.splitlines()[-1] == "False"
