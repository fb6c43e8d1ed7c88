"""Is the submission JSON that meets a schema?"""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue, ValidationInfo, field_validator

from mixseek import json_schema
from mixseek.config.answer_schema import load_answer_schema
from mixseek.config.schema import MetricOptions
from mixseek.config.shape import Words
from mixseek.errors import ConfigurationError
from mixseek.evaluator.metrics.base import CodeMetric, Measured
from mixseek.evaluator.metrics.code_blocks import code_blocks
from mixseek.workspace import Workspace

__all__ = ["JsonSchema"]


class JsonSchemaOptions(MetricOptions):
    """The schema, and where the JSON is looked for."""

    schema_: dict[str, JsonValue] | Annotated[str, Words("the path of a JSON file")] = Field(
        alias="schema", description="The schema; nothing it refers to outside itself is ever fetched."
    )
    inside_text: bool = Field(
        default=False, description="Whether other text may stand around it: the last code block of JSON counts."
    )
    partial: float = Field(default=0, ge=0, le=100, description="Score of JSON that does not meet the schema.")

    @field_validator("schema_")
    @classmethod
    def _read(cls, given: dict[str, JsonValue] | str, info: ValidationInfo) -> dict[str, JsonValue]:
        """The schema itself, so that nobody has to look for the file again."""
        workspace = (info.context or {}).get("workspace") or Workspace(Path.cwd())
        try:
            read: dict[str, JsonValue] = json.loads(load_answer_schema(given, workspace).source)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return read


class JsonSchema(CodeMetric[JsonSchemaOptions]):
    """Full score for JSON that meets the schema, none for what is no JSON."""

    Options = JsonSchemaOptions
    takes_long = True

    def __init__(self, options: JsonSchemaOptions) -> None:
        super().__init__(options)
        self._schema = load_answer_schema(options.schema_, Workspace(Path.cwd()))

    def measure(self, submission: str, reference: str | None) -> Measured:
        """Read, then check."""
        try:
            value = json_schema.read_json(self._json_of(submission))
        except ValueError as error:
            return Measured(0, f"the submission {error}")
        faults = self._schema.faults(value)
        return Measured(self.options.partial, "; ".join(faults)) if faults else Measured(100, "meets the schema")

    def _json_of(self, submission: str) -> Any:
        block = _last_block(submission) if self.options.inside_text else None
        return json_schema.bare_json(submission) if block is None else block


def _last_block(text: str) -> str | None:
    """What stands in the last code block that is closed, and says it is JSON or does not say what it is."""
    found = [block.text for block in code_blocks(text) if block.is_closed and block.kind in ("", "json")]
    return found[-1] if found else None
