"""The embedded model itself: real weights, few tokens."""

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelRequest, ModelResponse, ModelSettings
from pydantic_ai.messages import UserPromptPart
from pydantic_ai.models import ModelRequestParameters

from mixseek.config.schema import LocalSettings, ProvidersSettings
from mixseek.embedded import FETCHABLE
from mixseek.errors import ConfigurationError, ModelRefusedError, ModelTimeoutError
from mixseek.llm import Meter, ModelHub, Scope, ask, ask_for_text, calling
from mixseek.llm.local import fetch

NAME = "local:smollm2-135m"
SHORT = ModelSettings(max_tokens=12, seed=7)
QUESTIONS = ["Name three fruits.", "Why is the sky blue?", "How do I keep bread fresh?", "Who wrote Hamlet?"]


@pytest.fixture(scope="module", autouse=True)
def weights() -> Path:
    return fetch(FETCHABLE["smollm2-135m"])


@pytest.fixture
async def hub() -> AsyncIterator[ModelHub]:
    async with ModelHub(ProvidersSettings(local=LocalSettings(n_ctx=512, max_concurrency=2))) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread for thread in threading.enumerate() if thread.name.startswith("mixseek-local")] == []


async def text_of(hub: ModelHub, question: str, settings: ModelSettings = SHORT) -> str:
    answer = (await ask_for_text(hub.model(NAME), prompt=question, settings=settings))[-1]
    assert isinstance(answer, ModelResponse)
    return answer.text or ""


async def test_the_same_seed_gives_the_same_text_alone_and_among_others(hub: ModelHub) -> None:
    alone = [await text_of(hub, question) for question in QUESTIONS]
    at_once = await asyncio.gather(*(text_of(hub, question) for question in [*QUESTIONS, *QUESTIONS]))
    assert at_once == [*alone, *alone]
    assert len(set(alone)) == len(QUESTIONS)
    other = ModelSettings(max_tokens=12, seed=8, temperature=1.0)
    assert await text_of(hub, QUESTIONS[0], other) != alone[0]


async def test_tokens_are_counted_and_the_price_is_zero(hub: ModelHub) -> None:
    meter = Meter()
    scope = Scope(execution_id="e", team_id="t", round_number=1, role="leader", agent_name="leader")
    with calling(scope, meter):
        (_, answer) = await ask_for_text(hub.model(NAME), prompt="Name three fruits.", settings=SHORT)
    assert isinstance(answer, ModelResponse)
    assert answer.finish_reason == "length"
    (line,) = meter.bill()
    assert (line.model, line.output_tokens, line.cost_usd) == (NAME, 12, 0.0)
    assert 20 < line.input_tokens < 60


async def test_an_agent_says_to_it_what_its_author_wrote_and_nothing_else(hub: ModelHub) -> None:
    brief = "Answer in one word."
    model = hub.model(NAME)
    alone = (await ask_for_text(model, prompt=QUESTIONS[0], instructions=brief, settings=SHORT))[-1]
    assert isinstance(alone, ModelResponse)
    by_an_agent = await Agent(model, instructions=brief, model_settings=SHORT).run(QUESTIONS[0])
    assert by_an_agent.usage.input_tokens == alone.usage.input_tokens


async def test_a_stop_sequence_ends_an_answer_before_it(hub: ModelHub) -> None:
    plain = await text_of(hub, "Name three fruits.")
    word = re.findall(r"\w+", plain)[3]
    stopped = await text_of(hub, "Name three fruits.", ModelSettings(**SHORT, stop_sequences=[word]))
    assert plain.startswith(stopped)
    assert word not in stopped


class Verdict(BaseModel):
    reason: str = Field(max_length=20)
    score: int = Field(ge=0, le=100)
    tags: list[str] = Field(max_length=1)
    other: "Verdict | None" = None


async def test_structured_output_has_its_form_and_nothing_is_printed(
    hub: ModelHub, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = ModelSettings(max_tokens=120, seed=3)
    verdict = await ask(hub.model(NAME), Verdict, prompt="Rate the word 'apple'.", settings=settings)
    assert len(verdict.reason) <= 20
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "")


async def test_a_tool_on_offer_is_called_in_the_users_words_and_its_result_reaches_the_answer(hub: ModelHub) -> None:
    agent = Agent(
        hub.model(NAME),
        instructions="Ask the guide, then answer.",
        model_settings=ModelSettings(max_tokens=40, seed=1, temperature=0.0),
    )
    tasks: list[str] = []

    @agent.tool_plain
    def ask_guide(task: str) -> str:
        """Knows the city."""
        tasks.append(task)
        return "Visit the Nishiki market."

    result = await agent.run("Give a visitor a tip for Kyoto.")
    assert tasks == ["Give a visitor a tip for Kyoto."]
    assert "Nishiki" in result.output
    assert "{" not in result.output


async def test_a_call_that_is_cut_off_counts_as_far_as_it_goes(hub: ModelHub) -> None:
    agent = Agent(hub.model(NAME), model_settings=ModelSettings(max_tokens=30, seed=1, temperature=0.0))
    tasks: list[str] = []

    @agent.tool_plain
    def ask_guide(task: str) -> str:
        """Knows the city."""
        tasks.append(task)
        return "Yes."

    question = (
        "Tell a visitor of Kyoto in the rainy season which gardens, markets and temples to see, and which to leave out."
    )
    await agent.run(question)
    assert len(tasks) == 1
    assert question.startswith(tasks[0][:10])
    assert len(tasks[0]) < len(question)


async def test_a_prompt_beyond_the_context_is_an_error_that_says_what_to_do(hub: ModelHub) -> None:
    with pytest.raises(ModelRefusedError, match=r"\d+ tokens and the context holds 512: raise n_ctx of \[local\]"):
        await text_of(hub, "word " * 600)
    assert await text_of(hub, "Name three fruits.")


async def _computed_in_half_a_second() -> float:
    before = time.process_time()
    await asyncio.sleep(0.5)
    return time.process_time() - before


async def test_a_cancelled_call_stops_computing_and_the_loop_stays_free(hub: ModelHub) -> None:
    await hub.model(NAME).request([ModelRequest([UserPromptPart("Hello")])], SHORT, _plain())
    endless = ModelSettings(max_tokens=400, seed=1, stop_sequences=["never to be seen"])
    tasks = [asyncio.create_task(text_of(hub, "Write a long story about a river.", endless)) for _ in range(2)]
    beats = 0
    for _ in range(10):
        await asyncio.sleep(0.02)
        beats += 1
    assert beats == 10
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # What is being computed of a prompt is computed to its end, which takes a moment on a busy machine.
    spent = [await _computed_in_half_a_second() for _ in range(8)]
    assert spent[-1] < 0.25, f"still computing: {spent}"


async def test_a_call_that_takes_too_long_is_a_time_out(hub: ModelHub) -> None:
    with pytest.raises(ModelTimeoutError):
        await text_of(hub, "Write a story.", ModelSettings(max_tokens=400, seed=1, timeout=0.05, max_retries=0))


async def test_a_file_of_ones_own_may_be_named_from_the_workspace(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.gguf").symlink_to(weights)
    settings = ProvidersSettings(local=LocalSettings(n_ctx=512, max_concurrency=1, threads=1))
    async with ModelHub(settings, root=tmp_path) as hub, ModelHub(settings) as other:
        mine = (await ask_for_text(hub.model("local:models/mine.gguf"), prompt="Hello", settings=SHORT))[-1]
        # Two models at once, each its own weights.
        assert await text_of(other, "Name three fruits.")
    assert isinstance(mine, ModelResponse)
    assert mine.text


@pytest.fixture
def half(tmp_path: Path, weights: Path) -> Path:
    with weights.open("rb") as whole:
        (tmp_path / "half.gguf").write_bytes(whole.read(1_000_000))
    return tmp_path


async def test_weights_that_are_cut_off_are_told_by_name(half: Path) -> None:
    async with ModelHub(root=half) as hub:
        with pytest.raises(ModelRefusedError, match=r"llama.cpp cannot load .*half.gguf"):
            await ask_for_text(hub.model("local:half.gguf"), prompt="Hello", settings=SHORT)


def test_a_file_that_is_no_gguf_file_is_refused_before_a_call(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ConfigurationError, match="no gguf file"):
        ModelHub(root=tmp_path).model("local:text.gguf")


CHILD = """
import asyncio, os, sys
from mixseek.config.schema import LocalSettings, ProvidersSettings
from mixseek.llm import ModelHub, ask_for_text

def hub():
    return ModelHub(ProvidersSettings(local=LocalSettings(n_ctx=512, max_concurrency=1, threads=2)))

async def text(made):
    model, settings = made.model("local:smollm2-135m"), {"max_tokens": 5, "seed": 7}
    return (await ask_for_text(model, prompt="Name three fruits.", settings=settings))[-1].text

made = hub()
first = asyncio.run(text(made))
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(text(hub())) == first else 3)
assert os.waitpid(child, 0)[1] == 0, "the forked process got another text or none"
print(first)
"""


def test_a_process_ends_cleanly_and_quietly_and_so_does_one_it_forked() -> None:
    # Two threads that wait for each other take turns rather than spin: the machine may be busy.
    environ = {**os.environ, "GOMP_SPINCOUNT": "0"}
    # From 3.12 on Python itself warns of each fork of a process with threads, which llama.cpp has.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", CHILD]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def _plain() -> ModelRequestParameters:
    return ModelRequestParameters()
