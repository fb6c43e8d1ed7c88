"""From ``answer_schema`` in a file to a schema that can be used: a table, or the path of a JSON file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mixseek.config.problems import no_such_file
from mixseek.config.reading import read_text, referred_file
from mixseek.errors import ConfigurationError
from mixseek.workspace import Workspace

if TYPE_CHECKING:
    from mixseek.json_schema import JsonSchema

__all__ = ["load_answer_schema"]


def load_answer_schema(given: str | Mapping[str, Any], workspace: Workspace) -> "JsonSchema":
    """The schema, or a :class:`~mixseek.errors.ConfigurationError` that tells what is wrong with it."""
    # Costs some megabytes, and few teams have a schema.
    from mixseek.json_schema import JsonSchema, SchemaError

    try:
        return JsonSchema(given if isinstance(given, Mapping) else _read(given, workspace))
    except SchemaError as error:
        shown = "" if isinstance(given, Mapping) else f"file {given!r} "
        raise ConfigurationError(f"{shown}{error}") from error


def _read(name: str, workspace: Workspace) -> dict[str, Any]:
    from mixseek.json_schema import read_json

    file = referred_file(workspace, name)
    if file is None:
        raise ConfigurationError(no_such_file(name))
    try:
        schema = read_json(read_text(file, name))
    except ConfigurationError as error:
        raise ConfigurationError(f"file {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"file {name!r} {error}") from error
    if not isinstance(schema, dict):
        raise ConfigurationError(f"file {name!r} holds no JSON object, which a schema is")
    return schema
