"""Registries for the three things a stranger may add: model providers, members and metrics.

A registration is a name and either the object itself or a string ``"module:attribute"`` that is imported when it is
first used, so that registering costs nothing. Built-ins register the same way as anyone's. A package adds its own by an
entry point in the group ``mixseek`` that names a module; importing that module runs its registrations:

    [project.entry-points.mixseek]
    my_metrics = "my_package.mixseek_plugins"

Classes that a workspace names by file or module in its TOML are loaded by :meth:`Registry.load_class`.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from threading import RLock
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar, cast

from mixseek.errors import ConfigurationError, PluginError
from mixseek.strangers import in_words

__all__ = [
    "ENTRY_POINT_GROUP",
    "Provider",
    "Registry",
    "load_entry_points",
    "load_function",
    "make",
    "members",
    "metrics",
    "name_of_function",
    "providers",
]

ENTRY_POINT_GROUP = "mixseek"

T = TypeVar("T")


class Registry(Generic[T]):
    """Names and what they stand for.

    >>> shapes: Registry[type] = Registry("shape")
    >>> shapes.register("fraction", "fractions:Fraction")
    >>> shapes.get("fraction")(1, 2)
    Fraction(1, 2)
    """

    def __init__(
        self,
        kind: str,
        base: str = "builtins:object",
        method: str | None = None,
        *,
        given: Sequence[str] = (),
        on_request: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self._method = method
        # The arguments of the method, by name; those on request only if the method names them, not for a "**kwargs".
        self._given, self._on_request = given, on_request
        # Named as a string: base classes stand above this module, and asking for the list of names must not load them.
        self._base = base
        self._targets: dict[str, T | str] = {}
        self._lent: ContextVar[Mapping[str, T]] = ContextVar(f"lent_{kind}", default=MappingProxyType({}))

    def register(self, name: str, target: T | str) -> None:
        """Let ``name`` stand for ``target``, an object or the ``"module:attribute"`` to import at first use."""
        known = self._targets.get(name)
        if known is not None and known != target:
            raise PluginError(f"{self.kind} {name!r} is registered twice: rename one of {known!r} and {target!r}")
        self._targets[name] = target

    def registered(self, name: str) -> Callable[[T], T]:
        """:meth:`register` as a decorator."""

        def decorate(target: T) -> T:
            self.register(name, target)
            return target

        return decorate

    @contextmanager
    def lent(self, targets: Mapping[str, T]) -> Iterator[None]:
        """Let further names stand for something inside; whatever else runs in the process does not see them."""
        for name, target in targets.items():
            self._check(target, f"class {name!r}")
        token = self._lent.set({**self._lent.get(), **targets})
        try:
            yield
        finally:
            self._lent.reset(token)

    def get(self, name: str) -> T:
        """What ``name`` stands for, imported now if it was registered as a string."""
        if name in self._lent.get():
            return self._lent.get()[name]
        # Looked up first: what is known needs no code of others.
        if name not in self._targets:
            load_entry_points()
        if name not in self._targets:
            raise PluginError(f"unknown {self.kind} {name!r}: known are {', '.join(self) or 'none'}")
        target = self._targets[name]
        if isinstance(target, str):
            target = self._targets[name] = cast("T", _import_attribute(target))
        return target

    def load_class(self, class_name: str, *, module: str | None = None, path: Path | None = None) -> type:
        """The class a workspace names in its TOML, from a file or a module; a file is executed once per process."""
        source = path or module or ""
        loaded = _import_file(path) if path is not None else _import_module(module or "")
        found = getattr(loaded, class_name, None)
        if not isinstance(found, type):
            raise PluginError(f"{str(source)!r} has no class {class_name!r}{_near(class_name, loaded, classes=True)}")
        self._check(found, f"class {class_name!r} in {str(source)!r}")
        return found

    def _check(self, found: object, shown: str) -> None:
        base = _import_attribute(self._base)
        if not isinstance(found, type) or (isinstance(base, type) and not issubclass(found, base)):
            raise PluginError(f"{shown} must be a subclass of {getattr(base, '__name__', base)}")
        self._check_that_it_runs(found, shown)

    def _check_that_it_runs(self, found: type, shown: str) -> None:
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        if missing:
            raise PluginError(f"{shown} can never run: it has no method {' and no method '.join(map(repr, missing))}")
        method = inspect.getattr_static(found, self._method, None) if self._method else None
        if not inspect.isfunction(method):
            return  # anything but a plain function, which a decorator may have put there, is taken at its word
        if not inspect.iscoroutinefunction(inspect.unwrap(method)):
            raise PluginError(f'{shown} can never run: write "async def {self._method}", it is awaited')
        if self._given:
            self._check_that_it_can_be_called(method, self.arguments_of(found), shown)

    def arguments_of(self, found: type) -> set[str]:
        """Which of the arguments on offer the method of a class takes: without ``**kwargs`` those that it names."""
        parameters = inspect.signature(getattr(found, self._method or "")).parameters
        takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        given = {name for name in self._given if takes_all or name in parameters}
        return given | {name for name in self._on_request if name in parameters}

    def _check_that_it_can_be_called(self, method: Callable[..., Any], arguments: set[str], shown: str) -> None:
        try:
            inspect.signature(method).bind(None, **dict.fromkeys(arguments))
        except TypeError as error:
            offered = ", ".join([*self._given, *self._on_request])
            raise PluginError(f"{shown} can never run: {self._method} is given {offered} by name; {error}") from None

    def __contains__(self, name: object) -> bool:
        load_entry_points()
        return name in self._targets or name in self._lent.get()

    def __iter__(self) -> Iterator[str]:
        load_entry_points()
        return iter(sorted({*self._targets, *self._lent.get()}))


@dataclass(frozen=True)
class Provider:
    """A model provider as data: what ``config`` has to know about it before any of its code is imported."""

    prefix: str
    factory: str
    """``"module:function"`` that makes a model from the part behind the colon and a ``mixseek.llm.Connection``."""
    aliases: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    """Environment variables, one of which has to hold the key; empty: no key is needed."""
    extra: str | None = None
    """The extra of this package that installs its SDK."""
    address_variable: str | None = None
    """Environment variable with the address of a server of one's own; where it is set no key is needed."""
    required_address: str | None = None
    """Environment variable with the address of the server, where nobody knows one without it."""


providers: Registry[Provider] = Registry("model provider")
members: Registry[type] = Registry("member type", "mixseek.agents.member.base:BaseMemberAgent", method="execute")
metrics: Registry[type] = Registry(
    "metric",
    "mixseek.evaluator.metrics.base:BaseMetric",
    method="evaluate",
    given=("user_query", "submission", "execution_id", "team_id", "round_number"),
    on_request=("reference",),
)


_entry_points_loaded = False
_loading = RLock()


def load_entry_points() -> None:
    """Import the modules other packages announce in the group ``mixseek``, once per process."""
    global _entry_points_loaded
    with _loading:
        if _entry_points_loaded:
            return
        # Set first: a plugin that looks something up while it registers must not start the round again.
        _entry_points_loaded = True
        for point in entry_points(group=ENTRY_POINT_GROUP):
            _import_module(point.value)


def load_function(target: str, *, root: Path | None = None) -> Callable[..., Any]:
    """The function that ``"module:function"`` names; a module that is a file below ``root`` comes before all others."""
    module, _, name = target.partition(":")
    file = None if root is None else _file_of_module(module, root)
    loaded = _import_module(module) if file is None else _import_file(file)
    found = getattr(loaded, name, None)
    if not callable(found) or isinstance(found, type):
        raise PluginError(f"{module!r} has no function {name!r}{_near(name, loaded)}")
    return cast("Callable[..., Any]", found)


def name_of_function(target: str) -> str:
    """What the tool is called that is made of ``"module:function"``."""
    return target.partition(":")[2]


def make(found: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """What a class makes of its settings; whatever a stranger's constructor raises is told in its own words."""
    try:
        return found(*arguments, **options)
    except (ConfigurationError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a constructor must not end the program, whatever it is made of
        raise PluginError(f"class {found.__name__!r} cannot be made: {in_words(error)}") from error


def _near(name: str, module: ModuleType, *, classes: bool = False) -> str:
    """The function of a module, or its class, whose name is most like this one, in words."""
    others = [other for other, found in vars(module).items() if callable(found) and isinstance(found, type) is classes]
    near = get_close_matches(name, others, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _file_of_module(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_name(f"{path.name}.py"), path / "__init__.py") if file.is_file()), None)


def _import_attribute(target: str) -> object:
    module, _, attribute = target.partition(":")
    loaded = _import_module(module)
    if not hasattr(loaded, attribute):
        raise PluginError(f"module {module!r} has no {attribute!r}")
    return getattr(loaded, attribute)


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a stranger's module may raise anything; its words are passed on
        raise PluginError(f"module {name!r} cannot be imported: {in_words(error)}") from error


def _import_file(path: Path) -> ModuleType:
    resolved = path.resolve()
    name = f"mixseek_plugin_{sha256(str(resolved).encode()).hexdigest()[:16]}"
    with _loading:
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, resolved)
        if spec is None or spec.loader is None or not resolved.is_file():
            raise PluginError(f"{str(path)!r} is not a Python file")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # as above
            del sys.modules[name]
            raise PluginError(f"{str(path)!r} cannot be imported: {in_words(error)}") from error
        except BaseException:
            # One that ends the program is half loaded, and must not pass for whole when it is asked for again.
            del sys.modules[name]
            raise
        return module
