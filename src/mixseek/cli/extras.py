"""The extras of the package: which of them are installed here, found out without loading one."""

from importlib.util import find_spec

__all__ = ["EXTRAS", "has_extra"]

EXTRAS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google.genai",
    "groq": "groq",
    "mistral": "mistralai",
    "cohere": "cohere",
    "bedrock": "boto3",
    "huggingface": "huggingface_hub",
    "web": "ddgs",
    "mcp": "fastmcp",
    "code": "pydantic_monty",
    "local": "xllamacpp",
    "keyring": "keyring",
    "logfire": "logfire",
    "otel": "opentelemetry.exporter.otlp.proto.http",
}
"""What each brings, by a module of it."""


def has_extra(extra: str) -> bool:
    """Whether what an extra brings is installed."""
    try:
        return find_spec(EXTRAS.get(extra, extra)) is not None
    except ImportError:  # a package that it is part of is missing
        return False
