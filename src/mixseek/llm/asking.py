"""One question, one answer of a given form: what evaluator and judgment need, without an agent around it."""

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError, create_model
from pydantic_ai import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelSettings,
    SystemPromptPart,
    ToolCallPart,
    ToolDefinition,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import Model, ModelRequestParameters

from mixseek.errors import ModelOutputError
from mixseek.llm.attached import profiles_of
from mixseek.llm.watched import DEFAULT_MAX_RETRIES

__all__ = ["ask", "ask_for_text", "described", "message", "takes_temperature"]

OutputT = TypeVar("OutputT", bound=BaseModel)

_TOOL = "final_result"
_FENCED = re.compile(r"\A\s*```(?:json)?\s*(.*?)\s*```\s*\Z", re.DOTALL)


def takes_temperature(model: Model) -> bool:
    """Whether one of the models that may be asked takes a temperature, asked for nothing else that decides it.

    Those that reason take none; of these only some that can do without take one when they do not reason.
    """
    for profile in profiles_of(model):
        known = cast("dict[str, Any]", profile)  # the keys of one provider's models, which others lack
        efforts = known.get("openai_reasoning_efforts")
        may_not_reason = known.get("openai_supports_reasoning_effort_none") if efforts is None else "none" in efforts
        if not known.get("openai_supports_reasoning") or (
            may_not_reason and not known.get("thinking_enabled_by_default")
        ):
            return True
    return False


async def ask(
    model: Model,
    output_type: type[OutputT],
    *,
    prompt: str,
    beside: Sequence[UserContent] = (),
    instructions: str | None = None,
    settings: ModelSettings | None = None,
) -> OutputT:
    """Ask for a value of ``output_type``.

    An answer that is not of this form is told what is wrong with it and asked for again, as often as the settings'
    ``max_retries`` says; then it is a :class:`~mixseek.errors.ModelOutputError`. Faults of the call itself are the
    model's business and do not count here.
    """
    parameters = _parameters(output_type, instructions)
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(message(prompt, beside))], instructions=instructions)
    ]
    retries = (settings or {}).get("max_retries", DEFAULT_MAX_RETRIES)
    wrong = ""
    for _ in range(retries + 1):
        answer = await model.request(messages, settings, parameters)
        try:
            return _read(answer, output_type)
        except _WrongFormError as error:
            wrong = str(error)
            messages += [answer, ModelRequest(parts=_told(answer, wrong), instructions=instructions)]
    raise ModelOutputError(f"no usable answer: {wrong}", model=model.model_id, attempts=retries + 1)


async def ask_for_text(
    model: Model,
    *,
    prompt: str,
    beside: Sequence[UserContent] = (),
    history: Sequence[ModelMessage] = (),
    instructions: str | None = None,
    system_prompt: str | None = None,
    settings: ModelSettings | None = None,
) -> list[ModelMessage]:
    """Ask once for a text; all that was said, the answer last, whatever it holds."""
    parts: list[ModelRequestPart] = [SystemPromptPart(system_prompt)] if system_prompt and not history else []
    request = ModelRequest(parts=[*parts, UserPromptPart(message(prompt, beside))], instructions=instructions)
    said = [*history, request]
    answer = await model.request(said, settings, _text_parameters(instructions))
    return [*said, answer]


@lru_cache(maxsize=64)
def _text_parameters(instructions: str | None) -> ModelRequestParameters:
    return ModelRequestParameters(instruction_parts=[InstructionPart(instructions)] if instructions else None)


@lru_cache(maxsize=64)
def described(output_type: type[OutputT], **fields: str) -> type[OutputT]:
    """A form like ``output_type`` whose fields are explained to the model in these words."""
    told = {name: copy(output_type.model_fields[name]) for name in fields}
    for name, field in told.items():
        field.description = fields[name]
    made: dict[str, Any] = {name: (field.annotation, field) for name, field in told.items()}
    return create_model(output_type.__name__, __base__=output_type, __doc__=output_type.__doc__, **made)


def message(prompt: str, beside: Sequence[UserContent]) -> str | list[UserContent]:
    """A prompt and what comes with it as one message."""
    return [prompt, *beside] if beside else prompt


class _WrongFormError(ValueError):
    """What is wrong with an answer, in words for the model."""


def _read(answer: ModelResponse, output_type: type[OutputT]) -> OutputT:
    text = _given(answer)
    try:
        return output_type.model_validate_json(text)
    except ValidationError as error:
        raise _WrongFormError(_faults(error)) from error


def _given(answer: ModelResponse) -> str:
    """The output as JSON: the arguments of the tool that was offered for it, or a text that is nothing but JSON."""
    calls = [part for part in answer.parts if isinstance(part, ToolCallPart)]
    for call in calls:
        if call.tool_name == _TOOL:
            # As it was sent: what is not JSON shall be told so.
            return call.args if isinstance(call.args, str) else call.args_as_json_str()
    if calls:
        raise _WrongFormError(f"there is no tool {calls[0].tool_name!r}; call {_TOOL!r}")
    text = (answer.text or "").strip()
    if not text:
        raise _WrongFormError(f"the answer was empty; call {_TOOL!r}")
    fenced = _FENCED.match(text)
    return fenced[1] if fenced else text


def _faults(error: ValidationError) -> str:
    faults = (f"{'.'.join(map(str, one['loc'])) or 'answer'}: {one['msg']}" for one in error.errors(include_url=False))
    return "; ".join(faults)


def _told(answer: ModelResponse, wrong: str) -> list[ModelRequestPart]:
    """Every tool call has to be answered, or the provider refuses the conversation."""
    words = f"This answer cannot be used: {wrong}. Answer again in the form that was asked for."
    calls = [part for part in answer.parts if isinstance(part, ToolCallPart)]
    if not calls:
        return [UserPromptPart(words)]
    return [ToolReturnPart(call.tool_name, words, tool_call_id=call.tool_call_id) for call in calls]


@lru_cache(maxsize=64)
def _parameters(output_type: type[BaseModel], instructions: str | None) -> ModelRequestParameters:
    asked = _form(output_type)
    return replace(asked, instruction_parts=[InstructionPart(instructions)]) if instructions else asked


@lru_cache(maxsize=64)
def _form(output_type: type[BaseModel]) -> ModelRequestParameters:
    schema = output_type.model_json_schema()
    description = schema.pop("description", None) or "Give the answer in this form."
    tool = ToolDefinition(name=_TOOL, description=description, parameters_json_schema=schema, kind="output")
    return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
