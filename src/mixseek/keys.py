"""Keys of model providers: from the environment, else from the workspace's ``.env``, else from a keyring.

A keyring is asked only for a key that a configured model needs and that stands nowhere else, and only where the package
``keyring`` is installed. It is asked in a thread of its own with a limit of time: one that is locked and waits for
somebody, or has no service behind it, holds nothing up. What went wrong is told once and not tried again.
"""

import threading
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, Literal

from mixseek.redaction import MIN_SECRET_LENGTH, register_secret

__all__ = ["NO_KEYRING", "SERVICE", "Environment", "KeySource", "find_key", "keyring_fault", "source_of_key"]

SERVICE: Final = "mixseek"
"""The name under which keys stand in a keyring; the user is the name of the variable."""
NO_KEYRING: Final = "there is none on this machine that it could use"
_PATIENCE_SECONDS: Final = 5.0

KeySource = Literal["environment", ".env", "keyring"]


class Environment(dict[str, str]):
    """The variables of a process over those of a workspace's ``.env``, and for keys the keyring behind both.

    ``dotenv`` is None where there is no workspace, and so no such file.
    """

    def __init__(self, process: Mapping[str, str], dotenv: Mapping[str, str] | None) -> None:
        super().__init__({**(dotenv or {}), **process})
        self._process = process
        self.has_dotenv = dotenv is not None

    def source(self, name: str) -> KeySource:
        """Where the value of a variable comes from."""
        return "environment" if name in self._process else ".env"


def find_key(environ: Mapping[str, str], name: str) -> str | None:
    """The key that is held under the name of a variable; the keyring is asked behind an :class:`Environment` alone."""
    found = environ.get(name)
    return found or (_keyring.find(name) if isinstance(environ, Environment) else None)


def source_of_key(environ: Mapping[str, str], name: str) -> KeySource | None:
    """Where a key comes from; None if there is none."""
    if environ.get(name):
        return environ.source(name) if isinstance(environ, Environment) else "environment"
    return "keyring" if find_key(environ, name) else None


def keyring_fault() -> str | None:
    """Why the keyring gave nothing although it was asked; None if it was not, or had an answer."""
    return _keyring.fault


class _Keyring:
    """The keyring of this machine, asked for each name once."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self._known: dict[str, str | None] = {}
        self._asking = threading.Lock()

    def find(self, name: str) -> str | None:
        with self._asking:
            if name not in self._known and self.fault is None and find_spec("keyring") is not None:
                self._known[name] = self._asked(name)
            return self._known.get(name)

    def _asked(self, name: str) -> str | None:
        answer = _Answer(name)
        # A daemon: one that waits for ever for somebody's password must not keep the process from ending.
        threading.Thread(target=answer.fetch, name="mixseek-keyring", daemon=True).start()
        if not answer.is_there.wait(_PATIENCE_SECONDS):
            self.fault = f"it did not answer within {_PATIENCE_SECONDS:g} s; it may be locked"
            return None
        self.fault = answer.fault
        if answer.key is not None and len(answer.key) >= MIN_SECRET_LENGTH:
            register_secret(answer.key)
        return answer.key or None


class _Answer:
    """What the keyring says to one question."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.key: str | None = None
        self.fault: str | None = None
        self.is_there = threading.Event()

    def fetch(self) -> None:
        try:
            import keyring
            from keyring.errors import KeyringLocked, NoKeyringError

            try:
                self.key = keyring.get_password(SERVICE, self._name)
            except NoKeyringError:
                self.fault = NO_KEYRING
            except KeyringLocked:
                self.fault = "it is locked"
        except Exception as error:  # noqa: BLE001  # backends of others may raise anything
            self.fault = f"it failed: {type(error).__name__}"
        finally:
            self.is_there.set()


_keyring = _Keyring()
