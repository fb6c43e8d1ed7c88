"""Names of models, checked before anything is imported or paid."""

import subprocess
import sys
from importlib import import_module

import pytest

from mixseek import plugins
from mixseek.config.schema import ProviderSettings
from mixseek.errors import ConfigurationError
from mixseek.providers import check_model, find_provider, split_model_id

OWN = {
    "mine": ProviderSettings(base_url="http://localhost:8000/v1", api_key_env="MY_KEY"),
    "open": ProviderSettings(base_url="http://localhost:8000/v1"),
}


def told(model_id: str, **environ: str) -> list[str]:
    return [problem.message for problem in check_model(model_id, OWN, environ)]


def test_a_known_provider_with_its_key_is_no_problem() -> None:
    assert told("openai:gpt-5", OPENAI_API_KEY="k") == []
    assert told("anthropic:claude-haiku-4-5", ANTHROPIC_API_KEY="k") == []


@pytest.mark.parametrize(
    ("model_id", "variable"),
    [
        ("google-gla:gemini-2.5-flash", "GOOGLE_API_KEY"),
        ("google-gla:gemini-2.5-flash", "GEMINI_API_KEY"),
        ("grok:grok-4", "GROK_API_KEY"),
        ("grok-responses:grok-4", "XAI_API_KEY"),
        ("xai:grok-4", "GROK_API_KEY"),
        ("mine:llama", "MY_KEY"),
    ],
)
def test_any_of_a_providers_variables_may_hold_its_key(model_id: str, variable: str) -> None:
    assert told(model_id, **{variable: "k"}) == []
    (problem,) = told(model_id)
    assert variable in problem


@pytest.mark.parametrize("empty", ["", None])
def test_a_missing_key_is_told_with_the_variable_to_set(empty: str | None) -> None:
    environ = {} if empty is None else {"OPENAI_API_KEY": empty}
    assert told("openai:gpt-5", **environ) == [
        "no key for the models of 'openai': set OPENAI_API_KEY in the environment or in .env of the workspace"
    ]


@pytest.mark.parametrize("key", ["abcdefgh-é-12345678", "sk-0123456789\n", "sk-\x7f0123456789"])
@pytest.mark.parametrize(("model_id", "variable"), [("openai:gpt-5", "OPENAI_API_KEY"), ("mine:llama", "MY_KEY")])
def test_a_key_that_no_request_can_carry_is_told_by_its_place_alone(model_id: str, variable: str, key: str) -> None:
    assert told(model_id, **{variable: key}) == [
        f"the key for the models of {model_id.partition(':')[0]!r} holds a sign that no request can carry, like a line "
        f"break or a letter outside ASCII: {variable} is in the environment, set it anew"
    ]


@pytest.mark.parametrize("model_id", ["ollama:llama3", "google-vertex:gemini-2.5-pro", "bedrock:nova", "open:llama"])
def test_where_no_key_is_needed_none_is_asked_for(model_id: str) -> None:
    assert told(model_id) == []


def test_an_address_of_ones_own_needs_no_key() -> None:
    assert told("openai:llama", OPENAI_BASE_URL="http://localhost:8000/v1") == []


def test_an_unknown_provider_is_told_with_the_nearest_known_one() -> None:
    assert told("antropic:claude") == ["unknown model provider 'antropic'; did you mean 'anthropic'?"]
    assert told("mime:llama") == ["unknown model provider 'mime'; did you mean 'mine'?"]


@pytest.mark.parametrize("name", ["gpt-5", ":gpt-5", "openai:"])
def test_a_name_without_a_provider_or_a_model_is_none(name: str) -> None:
    with pytest.raises(ConfigurationError, match="provider:name"):
        split_model_id(name)
    assert len(told(name)) == 1


def test_every_registered_factory_is_there() -> None:
    for prefix in plugins.providers:
        module, _, function = plugins.providers.get(prefix).factory.partition(":")
        assert callable(getattr(import_module(module), function))


def test_an_alias_means_its_provider() -> None:
    found = find_provider("google-vertex")
    assert found is not None
    assert found.prefix == "google-cloud"


def test_checking_a_name_imports_no_model_code() -> None:
    code = (
        "import sys; from mixseek.providers import check_model; assert check_model('openai:gpt-5', {}, {});"
        "assert not {'openai', 'pydantic_ai', 'aiohttp'} & set(sys.modules), set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
