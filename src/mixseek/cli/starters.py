"""The workspaces that ``mixseek init`` writes: files below ``templates/``, in two languages, and how to go on."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable

from mixseek.cli.extras import has_extra
from mixseek.templating import Language

__all__ = ["Lang", "Starter", "Template"]


class Template(StrEnum):
    """What a workspace is for."""

    DEMO = "demo"
    RESEARCH = "research"
    CODING = "coding"
    COMPARE_MODELS = "compare-models"
    JUDGE_ONLY = "judge-only"


class Lang(StrEnum):
    """The language of prompts and comments."""

    EN = "en"
    JA = "ja"


@dataclass(frozen=True)
class _About:
    """What a template needs, and a task to try it with."""

    task: dict[Language, str]
    keys: tuple[str, ...] = ()
    extras: tuple[str, ...] = ("openai",)
    also: str | None = None


_ABOUT = {
    Template.DEMO: _About(
        {"en": "Explain why the sky is blue.", "ja": "空が青い理由を説明してください。"}, extras=("local",)
    ),
    Template.RESEARCH: _About(
        {
            "en": "How far has solid-state battery production come, and what still stands in its way?",
            "ja": "全固体電池の量産はどこまで進んでいますか。残る課題は何ですか。",
        },
        keys=("OPENAI_API_KEY",),
        extras=("openai", "web"),
    ),
    Template.CODING: _About(
        {
            "en": "Write a Python program that reads text from standard input and prints each word of it once, in "
            "lower case, with a space and its count, one a line: most frequent first, ties in alphabetical order.",
            "ja": "標準入力からテキストを読み、各単語(小文字にしたもの)とその出現回数を空白で区切って1行に1つずつ"
            "出力するPythonのプログラムを書いてください。回数の多い順、同数ならアルファベット順です。",
        },
        keys=("OPENAI_API_KEY",),
        extras=("openai", "code"),
        also="programs are scored in bubblewrap (Linux; apt-get install bubblewrap)",
    ),
    Template.COMPARE_MODELS: _About(
        {
            "en": "Explain to a new colleague when to use a queue between two services, and when not.",
            "ja": "2つのサービスの間にキューを置くべき場合とそうでない場合を、新しい同僚に説明してください。",
        },
        keys=("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"),
        extras=("openai", "anthropic", "google"),
    ),
    Template.JUDGE_ONLY: _About(
        {
            "en": "When does the library open on Saturdays?",
            "ja": "土曜日の図書館の開館時間を教えてください。",
        },
        keys=("OPENAI_API_KEY",),
    ),
}
_ANSWER: dict[Language, str] = {
    "en": "On Saturdays we open at 10:00 and close at 17:00. See https://library.example/hours.",
    "ja": "土曜日は10時から17時まで開館しています。詳しくは https://library.example/hours をご覧ください。",
}
_ENV_HEAD: dict[Language, str] = {
    "en": "# Copy this file to .env, which stays out of git, and fill in the keys. The environment is stronger.\n",
    "ja": "# このファイルを.envにコピーし、キーを記入してください。.envはgitに入りません。環境変数が優先されます。\n",
}
_ENV_NO_KEY: dict[Language, str] = {
    "en": "# No key is needed as it stands. To let all leaders play on a real model, copy this file to .env with:\n",
    "ja": "# このままならキーは不要です。全リーダーを実際のモデルで動かすには、.envにコピーして#を外してください。\n",
}
_ENV_SERVER: dict[Language, str] = {
    "en": "# Any other server that speaks the OpenAI protocol:\n",
    "ja": "# OpenAI互換の別のサーバを使う場合:\n",
}


@dataclass(frozen=True)
class Starter:
    """One template in one language."""

    template: Template
    language: Language

    @property
    def task(self) -> str:
        """A task to try it with."""
        return self._about.task[self.language]

    @property
    def keys(self) -> tuple[str, ...]:
        """The variables that have to hold keys."""
        return self._about.keys

    @property
    def needs(self) -> list[str]:
        """What has to be installed beside what is here."""
        missing = ",".join(extra for extra in self._about.extras if not has_extra(extra))
        extras = [f'pip install "mixseek[{missing}]"'] if missing else []
        return [*extras, *([self._about.also] if self._about.also else [])]

    @property
    def files(self) -> dict[str, str]:
        """The texts of its files by their place in the workspace."""
        place = files("mixseek.cli").joinpath("templates", self.template.replace("-", "_"), self.language)
        return {**dict(_texts(place)), ".env.example": self._env_example}

    @property
    def commands(self) -> list[str]:
        """What to run, the cheapest first."""
        if self.template is Template.JUDGE_ONLY:
            answer = _ANSWER[self.language]
            evaluate = f"mixseek evaluate {shlex.quote(self.task)} {shlex.quote(answer)}"
            return ["mixseek config validate", evaluate, "mixseek attack -c configs/evaluator.toml --limit 10"]
        play = f"mixseek exec {shlex.quote(self.task)}"
        return [f"{play} --dry-run", play]

    @property
    def _about(self) -> _About:
        return _ABOUT[self.template]

    @property
    def _env_example(self) -> str:
        lang = self.language
        if not self.keys:
            return f"{_ENV_NO_KEY[lang]}# MIXSEEK_TEAM__LEADER__MODEL=openai:gpt-5-mini\n# OPENAI_API_KEY=\n"
        keys = "".join(f"{name}=\n" for name in self.keys)
        return f"{_ENV_HEAD[lang]}{keys}\n{_ENV_SERVER[lang]}# OPENAI_BASE_URL=http://localhost:8000/v1\n"


def _texts(place: Traversable, above: str = "") -> Iterator[tuple[str, str]]:
    for entry in sorted(place.iterdir(), key=lambda each: each.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _texts(entry, f"{above}{entry.name}/")
        elif entry.is_file():
            yield above + entry.name, entry.read_text(encoding="utf-8")
