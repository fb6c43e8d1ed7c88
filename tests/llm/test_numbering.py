"""Requests that are made later than they are announced, and their numbers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mixseek.llm.numbering import Numbering
from mixseek.redaction import RedactedJson
from mixseek.storage.journal_records import Request


def asked(key: str, made: list[str] | None = None) -> Callable[[], Request]:
    def make() -> Request:
        if made is not None:
            made.append(key)
        return Request(RedactedJson(key.encode()), key)

    return make


def test_a_request_is_made_when_somebody_wants_it_and_only_once() -> None:
    made: list[str] = []
    announced = Numbering().announce(asked("a", made))
    assert made == []
    assert (announced.request.key, announced.occurrence, announced.request.text) == ("a", 0, b"a")
    assert made == ["a"]


def test_identical_requests_are_numbered_as_they_were_announced_whichever_is_wanted_first() -> None:
    numbering = Numbering()
    first, other, second, third = (numbering.announce(asked(key)) for key in ("a", "b", "a", "a"))
    assert second.occurrence == 1
    assert (third.occurrence, first.occurrence, other.occurrence) == (2, 0, 0)


def test_what_comes_after_a_wanted_request_is_not_made_yet() -> None:
    made: list[str] = []
    numbering = Numbering()
    first, _ = (numbering.announce(asked(key, made)) for key in ("a", "b"))
    assert first.occurrence == 0
    assert made == ["a"]


def test_a_request_that_is_foreseen_comes_after_all_that_were_announced_and_does_not_count() -> None:
    numbering = Numbering()
    numbering.announce(asked("a"))
    assert [numbering.foresee(asked("a")()).occurrence for _ in range(2)] == [1, 1]
    assert numbering.announce(asked("a")).occurrence == 1


def test_a_request_that_cannot_be_made_fails_those_alone_who_want_it() -> None:
    def broken() -> Request:
        raise ValueError("no JSON")

    numbering = Numbering()
    bad, good = numbering.announce(broken), numbering.announce(asked("a"))
    assert good.occurrence == 0
    for _ in range(2):
        with pytest.raises(ValueError, match="no JSON"):
            _ = bad.request


def test_threads_that_want_requests_at_once_agree_on_their_numbers() -> None:
    numbering = Numbering()
    announced = [numbering.announce(asked("a")) for _ in range(200)]
    together = threading.Barrier(4)

    def look() -> list[int]:
        together.wait()
        return [one.occurrence for one in reversed(announced)]

    with ThreadPoolExecutor(4) as pool:
        seen = [one.result() for one in [pool.submit(look) for _ in range(4)]]
    assert seen == [list(reversed(range(200)))] * 4
