"""The registries: names that cost nothing until they are used, and classes a workspace brings along."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mixseek import plugins
from mixseek.errors import PluginError
from mixseek.evaluator.metrics import BaseMetric
from mixseek.plugins import Registry

METRIC = """
from mixseek.evaluator.metrics import BaseMetric
from mixseek.models.evaluation_result import MetricScore

class Brevity(BaseMetric):
    async def evaluate(self, user_query, submission, **context):
        return MetricScore(metric_name="Brevity", score=100 - len(submission))

class Unrelated:
    pass
"""


def test_a_registered_string_is_imported_at_first_use() -> None:
    registry: Registry[type] = Registry("shape")
    registry.register("fraction", "fractions:Fraction")
    assert "fraction" in registry
    assert registry.get("fraction").__name__ == "Fraction"


def test_a_decorator_registers_and_gives_the_class_back() -> None:
    registry: Registry[type] = Registry("shape")

    @registry.registered("square")
    class Square:
        pass

    assert registry.get("square") is Square


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    registry: Registry[type] = Registry("shape")
    registry.register("circle", int)
    registry.register("arc", int)
    with pytest.raises(PluginError, match="unknown shape 'sqare': known are arc, circle"):
        registry.get("sqare")


def test_two_things_under_one_name_are_refused() -> None:
    registry: Registry[type] = Registry("shape")
    registry.register("circle", int)
    registry.register("circle", int)
    with pytest.raises(PluginError, match="shape 'circle' is registered twice"):
        registry.register("circle", str)


@pytest.mark.parametrize("target", ["no_such_module:Thing", "fractions:NoSuchThing"])
def test_a_registration_that_cannot_be_imported_says_why(target: str) -> None:
    registry: Registry[type] = Registry("shape")
    registry.register("ghost", target)
    with pytest.raises(PluginError, match=r"No module named 'no_such_module'|has no 'NoSuchThing'"):
        registry.get("ghost")


async def test_a_workspaces_metric_is_loaded_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "my metrics.py"
    path.write_text(METRIC)
    loaded = plugins.metrics.load_class("Brevity", path=path)
    assert issubclass(loaded, BaseMetric)
    assert (await loaded().evaluate("問い", "答え")).score == 98


def test_a_file_is_executed_once(tmp_path: Path) -> None:
    path = tmp_path / "counting.py"
    path.write_text(f"with open({str(tmp_path / 'ran')!r}, 'a') as ran:\n    ran.write('x')\n{METRIC}")
    first = plugins.metrics.load_class("Brevity", path=path)
    assert plugins.metrics.load_class("Brevity", path=tmp_path / "." / "counting.py") is first
    assert (tmp_path / "ran").read_text() == "x"


def test_a_class_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.py"
    path.write_text(METRIC)
    with pytest.raises(PluginError, match=r"class 'Unrelated' in '.*metrics.py' must be a subclass of BaseMetric"):
        plugins.metrics.load_class("Unrelated", path=path)


def test_a_class_that_is_not_there_is_told_with_the_one_of_a_like_name(tmp_path: Path) -> None:
    path = tmp_path / "metrics.py"
    path.write_text(f"{METRIC}\ndef brevityy():\n    pass\n")
    with pytest.raises(PluginError) as refused:
        plugins.metrics.load_class("Brevityy", path=path)
    assert str(refused.value) == f"{str(path)!r} has no class 'Brevityy'; did you mean 'Brevity'?"
    with pytest.raises(PluginError) as unlike:
        plugins.metrics.load_class("Loudness", path=path)
    assert str(unlike.value) == f"{str(path)!r} has no class 'Loudness'"


@pytest.mark.parametrize(
    ("source", "words"),
    [("def broken(:\n", "SyntaxError"), ("raise RuntimeError('no licence')", "RuntimeError: no licence")],
)
def test_a_file_that_fails_says_so_and_may_be_mended(tmp_path: Path, source: str, words: str) -> None:
    path = tmp_path / "metrics.py"
    path.write_text(source)
    with pytest.raises(PluginError, match=words):
        plugins.metrics.load_class("Brevity", path=path)
    path.write_text(METRIC)
    assert plugins.metrics.load_class("Brevity", path=path).__name__ == "Brevity"


def test_a_file_that_ends_the_program_ends_it_each_time_and_may_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "metrics.py"
    path.write_text("import sys\nsys.exit('no licence')\n")
    for _ in range(2):
        with pytest.raises(SystemExit, match="no licence"):
            plugins.metrics.load_class("Brevity", path=path)
    path.write_text(METRIC)
    assert plugins.metrics.load_class("Brevity", path=path).__name__ == "Brevity"


def test_a_missing_file_or_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"'.*nowhere.py' is not a Python file"):
        plugins.members.load_class("Member", path=tmp_path / "nowhere.py")
    with pytest.raises(PluginError, match=r"module 'no.such.module' cannot be imported"):
        plugins.members.load_class("Member", module="no.such.module")


def test_an_installed_package_adds_its_own_by_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "their_plugin.py").write_text(
        "from mixseek import plugins\nplugins.metrics.register('Theirs', 'their_metrics:Theirs')\n"
    )
    info = tmp_path / "their_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mixseek]\ntheirs = their_plugin\n")
    script = (
        "import sys; from mixseek import plugins; print('Theirs' in plugins.metrics, 'their_metrics' in sys.modules)"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environ = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environ)
    assert ran.stdout.split() == ["True", "False"]
