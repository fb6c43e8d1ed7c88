"""The pydantic-ai model over llama.cpp: text, structured output and calls of tools, for the smallest of models."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final

from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, ModelSettings, RunContext, UserPromptPart
from pydantic_ai.messages import FinishReason, ToolReturnPart
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.usage import RequestUsage

from mixseek.config.schema import LocalSettings
from mixseek.embedded import FETCHABLE, PREFIX, Weights, fault_in, file_of
from mixseek.errors import ConfigurationError, ModelError, ModelRefusedError
from mixseek.llm.factories import ComputedModel, Connection
from mixseek.llm.local.engine import Body, Completion, Engine, Options, RefusedRequest, drop, hold
from mixseek.llm.local.forms import Form, form_of
from mixseek.llm.local.prompts import chat_messages, tool_words
from mixseek.llm.local.weights import fetch

__all__ = ["LocalModel", "make_model"]

logger = logging.getLogger(__name__)

_DEFAULT_MAX_TOKENS: Final = 1024
_MOST_LANES: Final = 4
# The largest number but one of 32 bits; llama.cpp takes the largest for "any".
_SEEDS: Final = 2**32 - 1
_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}
_PROFILE = ModelProfile(
    supports_tools=True,
    supports_json_schema_output=True,
    supports_image_input=False,
    supports_document_input=False,
    supports_audio_file_input=False,
    supported_native_tools=frozenset(),
    # They are put under the one system message; otherwise pydantic-ai adds words of its own to every agent's prompts.
    supports_inline_system_prompts=True,
)


def make_model(name: str, connection: Connection) -> Model:
    """The embedded model of this name, or the one in this file; the provider's factory."""
    import xllamacpp  # noqa: F401  # missing, it is told with its extra here and not in the middle of a run

    fault = fault_in(name, connection.root)
    if fault:
        raise ConfigurationError(fault)
    return LocalModel(name, connection.local, root=connection.root, environ=connection.environ)


class LocalModel(ComputedModel):
    """A model that is computed in this process."""

    def __init__(
        self,
        name: str,
        settings: LocalSettings | None = None,
        *,
        root: Path | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(profile=_PROFILE)
        self._name = name
        self._environ = environ
        self._weights = FETCHABLE.get(name)
        file, settings = file_of(name, root or Path.cwd(), environ), settings or LocalSettings()
        self._options = _options(file, settings, is_tiny=self._weights is not None)
        self._held: Engine | None = None
        # Loops of several threads may share a model.
        self._holding = Lock()

    @property
    def model_name(self) -> str:
        """The name of the model, or its file."""
        return self._name

    @property
    def system(self) -> str:
        """Who provides it."""
        return PREFIX

    @property
    def lanes(self) -> int:
        """How many answers are computed at once at most."""
        return self._options.lanes

    async def prepare(self) -> None:
        """Have the weights, and load them."""
        await self._engine().prepare()

    async def aclose(self) -> None:
        """Let the weights go, if nobody else uses them; the next request loads them again."""
        with self._holding:
            engine, self._held = self._held, None
        if engine is not None and drop(engine):
            await asyncio.to_thread(engine.join)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Compute one answer."""
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        asked: ModelSettings = settings or {}
        used = _used(messages) if self._weights else ()
        form = form_of(parameters, used, asked.get("max_tokens") or _DEFAULT_MAX_TOKENS)
        completion = await self._complete(self._body(messages, asked, parameters, form))
        return self._response(completion, form)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Compute one answer, then play it."""
        answer = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(answer, model_request_parameters=model_request_parameters, replay_events=True)

    def _engine(self) -> Engine:
        with self._holding:
            if self._held is None:
                self._held = hold(self._options, self._make_ready)
            return self._held

    def _make_ready(self, stop: Callable[[], bool]) -> None:
        if self._weights is not None:
            fetch(self._weights, self._environ, heard=_progress_of(self._weights), stop=stop)

    async def _complete(self, body: Body) -> Completion:
        self._engine()
        engine = hold(self._options, self._make_ready)
        try:
            return await engine.complete(body)
        except RefusedRequest as error:
            raise self._refused(error) from error
        except ModelError as error:
            error.model = self.model_id
            raise
        except (ConfigurationError, ValueError) as error:
            raise ModelRefusedError(str(error), model=self.model_id) from error
        finally:
            drop(engine)

    def _refused(self, error: RefusedRequest) -> ModelRefusedError:
        if error.prompt_tokens is None:
            return ModelRefusedError(str(error), model=self.model_id)
        size = f"the prompt has {error.prompt_tokens} tokens and the context holds {self._options.n_ctx}"
        remedy = (
            "raise n_ctx of [local] in configs/providers.toml, or bound what prompts carry over from earlier rounds"
        )
        return ModelRefusedError(f"{size}: {remedy} with [prompt_builder.round_prompt]", model=self.model_id)

    def _body(
        self, messages: list[ModelMessage], settings: ModelSettings, parameters: ModelRequestParameters, form: Form
    ) -> Body:
        instructions = [part.content for part in self._get_instruction_parts(messages, parameters) or ()]
        if form.tools and not form.is_bare:
            instructions.append(tool_words(form.tools, messages, may_answer=form.may_answer))
        body: Body = {
            "messages": chat_messages(messages, "\n\n".join(instructions), calls=bool(form.tools)),
            "max_tokens": settings.get("max_tokens") or _DEFAULT_MAX_TOKENS,
            **_sampling(settings),
        }
        if form.schema is None:
            body |= _usual(self._weights, settings)
        else:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.schema}}
        return body

    def _response(self, completion: Completion, form: Form) -> ModelResponse:
        parts = form.parts(completion.text, mend=self._weights is not None)
        called = completion.finish_reason == "stop" and any(part.part_kind == "tool-call" for part in parts)
        return ModelResponse(
            parts=parts,
            usage=RequestUsage(input_tokens=completion.input_tokens, output_tokens=completion.output_tokens),
            model_name=self._name,
            provider_name=PREFIX,
            finish_reason="tool_call" if called else _REASONS.get(completion.finish_reason, "error"),
        )


def _options(file: Path, settings: LocalSettings, *, is_tiny: bool) -> Options:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    lanes = settings.max_concurrency or min(_MOST_LANES, cores)
    # What is computed in no time gains nothing from threads that wait for each other.
    threads = 1 if is_tiny else max(1, cores // lanes)
    return Options(file, settings.n_ctx, lanes, settings.threads or threads)


def _usual(weights: Weights | None, settings: ModelSettings) -> Body:
    """What suits the weights in plain text; in JSON a penalty on what was there before would fall on its quotes."""
    if weights is None:
        return {}
    penalty = {"repeat_penalty": weights.repeat_penalty}
    return penalty if settings.get("temperature") is not None else {"temperature": weights.temperature, **penalty}


def _sampling(settings: ModelSettings) -> Body:
    seed = settings.get("seed")
    given = {
        "temperature": settings.get("temperature"),
        "top_p": settings.get("top_p"),
        "stop": settings.get("stop_sequences") or None,
        "seed": None if seed is None else seed % _SEEDS,
    }
    return {name: value for name, value in given.items() if value is not None}


def _used(messages: list[ModelMessage]) -> set[str]:
    """The tools that gave something since the user last spoke.

    The smallest models do not know when they have asked enough; they may ask each tool once.
    """
    used: set[str] = set()
    for message in messages:
        if isinstance(message, ModelRequest):
            if any(isinstance(part, UserPromptPart) for part in message.parts):
                used.clear()
            used |= {part.tool_name for part in message.parts if isinstance(part, ToolReturnPart)}
    return used


def _progress_of(weights: Weights) -> Callable[[int], None]:
    """Tells of every tenth that has come of some weights."""
    told = 0

    def heard(size: int) -> None:
        nonlocal told
        tenths = min(9, 10 * size // weights.size)
        if tenths > told:
            told = tenths
            logger.info("%d %% of %d MB", 10 * tenths, weights.megabytes, extra={"is_progress": True})

    return heard
