"""Secrets are hidden by name and by look, at any depth; what only sounds like a secret is not."""

from typing import Any

import pytest

from mixseek.config.masking import MASK, is_secret_name, mask


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "API_KEY",
        "apikey",
        "apiKey",
        "x-api-key",
        "OPENAI_API_KEY",
        "token",
        "github_token",
        "X-Auth-Token",
        "authToken",
        "password",
        "db_password",
        "secret",
        "client_secret",
        "Authorization",
        "aws_secret_access_key",
        "private_key",
        "cookie",
        "credentials",
    ],
)
def test_a_name_that_says_secret_is_one(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "max_content_tokens",
        "estimated_prompt_tokens",
        "api_key_env",
        "model",
        "name",
        "author",
        "key",
        "keyboard",
        "monkey",
        "tokenizer",
        "",
    ],
)
def test_a_name_that_only_sounds_like_a_secret_is_none(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("my key is sk-proj-abcdefgh12345678", f"my key is {MASK}"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstu", MASK),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", MASK),
        ("AKIAIOSFODNN7EXAMPLE", MASK),
        ("Bearer abcdefgh12345678", MASK),
        ("Basic dXNlcjpwYXNzd29yZA==", MASK),
        ("https://me:secret@host/path", f"https://{MASK}@host/path"),
        ("postgres://me:p@host/db", f"postgres://{MASK}@host/db"),
        ("https://host/?key=abc&x=1", f"https://host/?key={MASK}&x=1"),
        ("--api-key=abc", f"--api-key={MASK}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc", MASK),
        ("google-gla:gemini-2.5-flash", "google-gla:gemini-2.5-flash"),
        ("https://host:8000/v1", "https://host:8000/v1"),
        ("a mask-like task-force", "a mask-like task-force"),
    ],
)
def test_a_value_that_looks_like_a_secret_is_hidden(given: str, shown: str) -> None:
    assert mask(given) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"a": [{"b": {"password": "x"}}]}, {"a": [{"b": {"password": MASK}}]}),
        ({"secrets": {"anything": ["x", 3]}}, {"secrets": {"anything": [MASK, MASK]}}),
        ({"token": 1234}, {"token": MASK}),
        ({"args": ["--token", "abc", "-v"]}, {"args": ["--token", MASK, "-v"]}),
        ({"password": None, "token": "", "api_key": True}, {"password": None, "token": "", "api_key": True}),
        ({"max_tokens": 100}, {"max_tokens": 100}),
    ],
)
def test_secrets_are_hidden_at_any_depth(given: Any, shown: Any) -> None:
    assert mask(given) == shown
