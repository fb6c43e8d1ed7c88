import base64
import io
import json
import logging
import string
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from mixseek.redaction import MARK, RedactingFilter, Redactor, register_secret

SECRET = 'Tr0ub4dor&3/"qu/oted"+é'
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq\nq83+/zzz==\n-----END RSA PRIVATE KEY-----"

SHAPED = [
    "sk-abcdefghijklmnop1234567890",
    "sk-proj-Ab1_Cd2-Ef3Gh4Ij5Kl6Mn7Op8",
    "sk-ant-api03-AbCdEf0123456789_-xyz",
    "sk-or-v1-0123456789abcdef0123456789abcdef",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_11AAAAAAA0123456789_abcdefghij",
    "xai-0123456789abcdefghijklmnop",
    "gsk_0123456789abcdefghijABCDEFGHIJ",
    "hf_abcdefghijABCDEFGHIJ0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghij",
    JWT,
    PEM,
]

ORDINARY = [
    "sk-learn and sk-learn-contrib-compatible-estimators are not keys",
    "a risk-averse, task-oriented, disk-bound portfolio of 1234567890 parts",
    "the bearer of responsibilities; Bearer authentication-mechanisms; basic understanding",
    "https://example.com:8080/path?key=products&sort=1 and mail me@example.com at 10:30",
    "ratio 3:1 @ noon, http://localhost:3000, git@github.com:me/repo.git, postgres://localhost/db",
    "Authorization: required. The hf_ and gsk_ prefixes, AIza, eyJ, ghp_ and xai- mean keys.",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkq\n-----END PUBLIC KEY-----",
    "改善案：リスク回避型（risk-averse）の戦略を採用します。",
]


@pytest.mark.parametrize("secret", SHAPED)
def test_a_secret_is_known_by_its_shape(secret: str) -> None:
    assert Redactor().text(f"key={secret}, and on") == f"key={MARK}, and on"


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Redactor(["some-other-secret"]).text(text) == text


def test_of_a_url_only_the_password_is_taken() -> None:
    assert Redactor().text("postgres://me:hunter2@db/x") == f"postgres://me:{MARK}@db/x"


def test_of_a_header_only_the_token_is_taken() -> None:
    assert Redactor().text("Authorization: Bearer abc123.def456-ghi789") == f"Authorization: Bearer {MARK}"
    assert Redactor().text("{'authorization': 'Basic dXNlcjpwYXNz'}") == f"{{'authorization': 'Basic {MARK}'}}"


def test_a_private_key_that_breaks_off_is_taken_as_far_as_it_goes() -> None:
    cut = PEM[:60]
    assert Redactor().text(f"found {cut}") == f"found {MARK}"


@pytest.mark.parametrize(
    "spelt",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%C3%A9", "%c3%a9"),
        quote(SECRET),
        quote(SECRET, safe="/+"),
    ],
)
def test_a_known_secret_is_found_however_it_is_spelt(spelt: str) -> None:
    assert Redactor([SECRET]).text(f"<{spelt}>") == f"<{MARK}>"


_KEYS = st.text(st.sampled_from(string.ascii_letters + string.digits + string.punctuation + " é鍵"), min_size=12)


@settings(deadline=None)
@given(_KEYS.filter(lambda key: key == key.strip()), st.sets(st.sampled_from(string.punctuation + " ")), st.booleans())
def test_a_known_secret_is_found_in_a_url_whichever_signs_of_it_are_encoded(
    key: str, left: set[str], in_json: bool
) -> None:
    encoded = quote(f"secret{key}", safe="".join(left - {"%"}))
    redactor = Redactor([f"secret{key}"])
    url = f"https://example.com/x?key={encoded}&n=1"
    told = redactor.json({"url": url}).decode() if in_json else redactor.text(url)
    assert MARK in told
    assert encoded not in told


@pytest.mark.parametrize("before", [b"", b"u", b"us", b"use", b"user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_secret_is_found_in_base64_wherever_it_begins(before: bytes, encode: Callable[[bytes], bytes]) -> None:
    secret = "key>with?odd~bytes>and?more"
    encoded = encode(before + secret.encode() + b"\n").decode()
    redacted = Redactor([secret]).text(encoded)
    assert MARK in redacted
    left = redacted.replace(MARK, "")
    assert len(left) <= len(encode(before + b"\n")) + 4


def test_a_known_secret_that_a_preview_cut_off_is_found() -> None:
    redactor = Redactor(["a-rather-long-secret-value"])
    assert redactor.text("it was a-rather-long-secr") == f"it was {MARK}"
    assert redactor.text("it was a-rather-long-secr... and so on") == f"it was {MARK}... and so on"
    assert redactor.text("a-rather-long-secretary") == "a-rather-long-secretary"


def test_overlapping_secrets_leave_nothing_of_each_other() -> None:
    redactor = Redactor(["abcdefghij", "abcdefghijklmnop", "ijklmnopqrst"])
    assert redactor.text("<abcdefghijklmnopqrst>") == f"<{MARK}>"


def test_secrets_are_taken_at_any_depth_from_names_and_values() -> None:
    redactor = Redactor(["first-secret", "other-secret"])
    value: JsonValue = {"a": [{"first-secret": 1, "other-secret": 2, "n": None}, "x first-secret"], "b": 1.5}
    assert redactor.value(value) == {"a": [{MARK: 1, MARK + MARK: 2, "n": None}, f"x {MARK}"], "b": 1.5}


@pytest.mark.parametrize(
    "secret", [SECRET, "multi\nline\tsecret", "\\back\\slashed\\", "日本語の秘密の合言葉です", *SHAPED]
)
def test_json_text_says_the_same_as_redacting_each_string(secret: str) -> None:
    redactor = Redactor([secret])
    value: JsonValue = {"line\nbefore": f"a\n{secret}\n", "json in json": json.dumps({"key": f"\n{secret} "})}
    assert json.loads(redactor.json_text(value)) == redactor.value(value)
    assert MARK in redactor.json_text(value)


@given(st.text(st.characters(), min_size=8, max_size=40))
def test_a_secret_of_any_characters_is_found(secret: str) -> None:
    redactor = Redactor([secret])
    told = f"<日本 {secret}>"
    assert secret not in redactor.text(told) or secret in MARK
    assert redactor.value([told]) == json.loads(redactor.json([told]).decode("utf-8", "surrogatepass"))


def test_each_of_a_thousand_secrets_is_found() -> None:
    secrets = [f"pass-phrase {number:04d} of many" for number in range(1000)]
    redactor = Redactor(secrets)
    assert {redactor.text(f"it is {secret}.") for secret in secrets} == {f"it is {MARK}."}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_a_value_without_secrets_stays_as_it_is(value: JsonValue) -> None:
    redactor = Redactor(["never-in-there-1"])
    assert redactor.value(value) == value
    assert json.loads(redactor.json_text(value)) == value


@given(st.lists(st.sampled_from([*SHAPED, *ORDINARY, SECRET, "Bearer ", "://u:p@", " ", "sk-", MARK, "x"])))
def test_redacting_twice_is_redacting_once(parts: list[str]) -> None:
    redactor = Redactor([SECRET, "redacted"])
    once = redactor.text("".join(parts))
    assert redactor.text(once) == once
    assert SECRET not in once


def test_json_text_refuses_what_json_cannot_hold() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Redactor().json_text({"score": float("nan")})


def test_variables_whose_names_sound_secret_are_known(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text("MY_SERVICE_PASSWORD='from the file'\nDEBUG=very-verbose\n")
    environ = {
        "OPENAI_API_KEY": "value-one-1",
        "AWS_BEARER_TOKEN_BEDROCK": "value-two-2",
        "OPENAIKEY": "value-three",
        "PWD": "/ordinary/place",
        "SSH_AUTH_SOCK": "/run/agent.sock",
        "GOOGLE_APPLICATION_CREDENTIALS": str(env_file),
        "MAX_TOKENS": "value-four-4",
        "RETRY_TOKEN": "1234567890",
        "LOCAL_API_KEY": "not-needed",
        "SHORT_KEY": "abc",
        "PLUGIN_PASS": "value-five-5",
    }
    redactor = Redactor.from_environment(environ, env_file, variables={"PLUGIN_PASS"})
    shown = [name for name, value in environ.items() if redactor.text(value) == value]
    assert shown == [
        "PWD",
        "SSH_AUTH_SOCK",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "MAX_TOKENS",
        "RETRY_TOKEN",
        "LOCAL_API_KEY",
        "SHORT_KEY",
    ]
    assert redactor.text("from the file, very-verbose") == f"{MARK}, very-verbose"


def test_a_missing_env_file_holds_no_secrets(tmp_path: Path) -> None:
    assert Redactor.from_environment({}, tmp_path / ".env").text("plain") == "plain"


def test_a_registered_secret_is_known_to_redactors_made_before() -> None:
    # In a process of its own: what is registered stays registered.
    script = (
        "from mixseek.redaction import Redactor, register_secret\n"
        "r = Redactor(['another-one'])\n"
        "before = r.text('told-later')\n"
        "register_secret('told-later')\n"
        "print(before, r.text('told-later'), Redactor().json_text(['told-later']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == f'told-later {MARK} ["{MARK}"]'


def test_a_secret_too_short_to_be_told_from_text_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 8"):
        register_secret("short")


def test_log_records_lose_their_secrets_in_message_arguments_traceback_and_extras() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RedactingFilter(Redactor(["the-secret-value"])))
    handler.setFormatter(logging.Formatter("%(message)s %(extra)s"))
    logger = logging.Logger("mixseek.test")
    logger.addHandler(handler)
    try:
        raise RuntimeError("refused the-secret-value")
    except RuntimeError:
        logger.exception("sent %s", ["the-secret-value"], extra={"extra": {"key": "the-secret-value"}}, stack_info=True)
    logger.info("%d%% done", 50, extra={"extra": "x"})
    assert "the-secret-value" not in stream.getvalue()
    assert f"sent ['{MARK}'] {{'key': '{MARK}'}}" in stream.getvalue()
    assert f"RuntimeError: refused {MARK}" in stream.getvalue()
    assert "50% done x" in stream.getvalue()


def test_a_megabyte_is_searched_without_a_noticeable_wait() -> None:
    redactor = Redactor([f"secret-number-{number:04}" for number in range(10)])
    text = " ".join(ORDINARY) * 2000
    assert len(text) > 1_000_000
    started = time.perf_counter()
    assert redactor.text(text) == text
    assert time.perf_counter() - started < 5
