"""The form an answer has to have, as one JSON schema, and an answer in that form as calls of tools or as text.

llama.cpp holds a model to a schema token by token, so that even the smallest gives JSON of the form that was asked
for. It knows nothing of tools: those on offer become alternatives of one schema, beside a plain answer where that is
allowed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_ai import ModelResponsePart, TextPart, ToolCallPart, ToolDefinition
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import from_json

__all__ = ["Form", "form_of"]

# What the translation to a grammar knows. Of all else it takes no notice, or says so on standard error.
_KNOWN = frozenset(
    {
        *("$ref", "type", "enum", "const", "anyOf", "oneOf", "allOf"),
        *("properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems"),
        *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
)
_DEFINITIONS = ("$defs", "definitions")

Schema = dict[str, Any]

_LONGEST_TEXT: Final = 1500
_CHARACTERS_A_TOKEN: Final = 2


@dataclass(frozen=True)
class Form:
    """How to ask for an answer, and how to read it."""

    tools: tuple[ToolDefinition, ...] = ()
    may_answer: bool = True
    schema: Mapping[str, Any] | None = None
    """None: any text."""

    def parts(self, text: str, *, mend: bool) -> list[ModelResponsePart]:
        """An answer as pydantic-ai has it; one that was cut off is read as far as it goes.

        ``mend``: a call that was cut off counts with what there is of its arguments. Told that its JSON was cut off, a
        very small model would only write about that.
        """
        if not self.tools:
            return [TextPart(text)] if text.strip() else []
        if self.is_bare:
            return [ToolCallPart(self.tools[0].name, _mended(text) if mend else text)]
        return _chosen(text, mend=mend)

    @property
    def is_bare(self) -> bool:
        """Whether only one thing can be meant, so that the arguments alone are asked for."""
        return len(self.tools) == 1 and not self.may_answer


def form_of(parameters: ModelRequestParameters, used: Collection[str], max_tokens: int) -> Form:
    """The form of an answer to a request; tools whose names are in ``used`` are not offered again."""
    tools = tuple(tool for tool in parameters.function_tools if tool.name not in used) + tuple(parameters.output_tools)
    if not tools:
        output = parameters.output_object if parameters.output_mode == "native" else None
        return Form(schema=None if output is None else _Grammar().translate(output.json_schema))
    longest = _CHARACTERS_A_TOKEN * max_tokens
    grammar = _Grammar(longest if longest <= _LONGEST_TEXT else None)
    form = Form(tools, parameters.allow_text_output)
    return replace(form, schema=_schema(form, grammar))


def _schema(form: Form, grammar: "_Grammar") -> Mapping[str, Any]:
    if form.is_bare:
        return grammar.whole(grammar.translate(form.tools[0].parameters_json_schema))
    forms = [_call(tool, grammar) for tool in form.tools]
    if form.may_answer:
        forms.append(_object({"answer": {"type": "string"}}))
    return grammar.whole({"anyOf": forms})


def _call(tool: ToolDefinition, grammar: "_Grammar") -> Schema:
    arguments = grammar.translate(tool.parameters_json_schema, tool.name)
    return _object({"tool": {"const": tool.name}, "arguments": arguments})


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class _Grammar:
    """Makes schemas such as llama.cpp understands of any, and gathers the definitions they refer to.

    ``longest`` bounds texts: a small model does not find the end of a string by itself, and a call that is cut off in
    the middle is none.
    """

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest
        self._definitions: Schema = {}

    def whole(self, schema: Schema) -> Schema:
        """A schema with all that the ones translated so far refer to."""
        return {**schema, "$defs": self._definitions} if self._definitions else schema

    def translate(self, schema: Schema, owner: str = "") -> Schema:
        """One schema; its definitions get names that tell whose they are."""
        for word in _DEFINITIONS:
            for name, defined in schema.get(word, {}).items():
                self._definitions[f"{owner}.{name}"] = self._part(defined, owner)
        translated: Schema = self._part(schema, owner)
        return translated

    def _part(self, schema: Any, owner: str) -> Any:
        if not isinstance(schema, dict):
            return schema
        known = {word: self._value(word, value, owner) for word, value in schema.items() if word in _KNOWN}
        if self._longest is not None and known.get("type") == "string" and not known.keys() & {"enum", "const"}:
            known["maxLength"] = min(known.get("maxLength", self._longest), self._longest)
        return known

    def _value(self, word: str, value: Any, owner: str) -> Any:
        if word == "$ref":
            return f"#/$defs/{owner}.{str(value).rpartition('/')[2]}"
        if word == "properties":
            return {name: self._part(schema, owner) for name, schema in value.items()}
        if word in ("anyOf", "oneOf", "allOf", "prefixItems"):
            return [self._part(schema, owner) for schema in value]
        return self._part(value, owner) if word in ("items", "additionalProperties") else value


# --- answers ----------------------------------------------------------------------------------------------------------


def _chosen(text: str, *, mend: bool) -> list[ModelResponsePart]:
    """What the model chose; of an answer that was cut off, what there is of it."""
    value = _read(text)
    if "tool" in value:
        arguments = value.get("arguments") if mend or _is_whole(text) else text[text.find("{", 1) :]
        return [ToolCallPart(str(value["tool"]), arguments)]
    answer = value.get("answer")
    return [TextPart(answer)] if isinstance(answer, str) and answer.strip() else []


def _mended(text: str) -> str | dict[str, Any]:
    return text if _is_whole(text) else _read(text)


def _read(text: str) -> dict[str, Any]:
    """A JSON object, as far as it goes."""
    try:
        value = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_whole(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True
