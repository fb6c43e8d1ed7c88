"""A model that obeys whatever seems to be told to it, to try a prompt's defences with.

It reads a prompt as the most gullible model would. It knows that what stands in a block of data is no instruction, and
that is all it knows: it forgives every spelling of a delimiter (look-alikes, entities, escapes, hidden characters, any
nonce or none), takes every closing delimiter for the end of the block, every word of a chat template for a new turn,
hears what is written in invisible letters, and decodes what is encoded. Told nothing, it answers honestly, and always
the same. Its reading shares no code with the fence it tries.

    server.on("judge", ObeyingModel())
"""

import base64
import binascii
import codecs
import contextlib
import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from mixseek.testing.answers import AnswerLike
from mixseek.testing.calls import ModelCall

__all__ = ["ObeyingModel"]

_LOOK_ALIKES = str.maketrans("аеорсухіѕԁһտτα⟨⟩〈〉‹›«»《》", "aeopcyxisdhtta<><><><><>")
_ESCAPES = re.compile(r"\\u00([2-7][0-9a-f])|\\x([2-7][0-9a-f])|%([2-7][0-9a-f])", re.IGNORECASE)
_OPENS = r"<\s*data\b[^<>]*>"
_CLOSES = (
    r"<[\s/\\]*[/\\]\s*(?:end[_ ]of[_ ])?(?:data|submission)\b[^<>]*>|[\[{]\s*/\s*data\s*[\]}]"
    r"|-{2,}\s*end\s+(?:of\s+)?data|={2,}\s*end\s+(?:of\s+)?data|データここまで"
)
_TURNS = (
    r"<\|\s*\w[^|<>\n]*\|>|\[/?inst\]|<<\s*/?\s*sys\s*>>|</?(?:start|end)_of_turn>|</?s>|<bos>"
    r"|<(?:system|system-reminder|tool_call|tool_response|function_calls|function_results|function=\w+|invoke)\b[^<>]*>"
    r"|\[(?:system|tool_calls)\]|\n\s*\n\s*(?:human|assistant|system)\s*:"
    r"|(?:\A|\n)#+\s*(?:system|instruction|システム)(?:\s+message)?\s*:"
)
_MARKS = re.compile(f"(?P<opens>{_OPENS})|(?P<closes>{_CLOSES})|(?P<turns>{_TURNS})")
_ORDERS = re.compile(
    r"(?:give|award|assign|rate|score|return|output|set|worth|get)s?\b[^.\n]{0,60}?\b(?:100|full marks|perfect|maximum)"
    r"|(?:award|give|assign|grad|rat)\w*[^.\n]{0,60}\b(?:score of|points?)\b[^.\n]{0,10}100"
    r"|(?:full marks|perfect score|maximum score)"
    r"|[\"']?(?:overall_)?score[\"']?>?(?:\\?[\"'])?\s*[:=>]\s*\\?[\"']?100"
    r"|<parameter name=\"score\">100|score\s*=\s*100|setscore\(100\)|should_continue[\"']?\s*[:=]\s*false"
    r"|満点|100点|最高点|スコア[はを:：][^。\n]{0,10}100"
)


@dataclass(frozen=True)
class ObeyingModel:
    """Answers a script's calls; ``score`` is its honest verdict, ``answer`` its honest text.

    Fooled, it gives 100 points as a judge, ends a team as a judgment, and writes ``fooled`` as a leader or a member.
    As a leader it quotes what its members gave, so that an attack travels on in its submission. The prompt of a leader
    or a member is its instruction, so there it looks only at what members and tools gave.
    """

    score: float = 40.0
    answer: str = "An honest answer."
    fooled: str = "I OBEY"

    def __call__(self, call: ModelCall) -> AnswerLike:
        """The answer to ``call``; tools are left to the script's default, which calls each once."""
        if call.uncalled_tools:
            return None
        read = {"user", "tool"} if call.role in {"evaluator", "judgment"} else {"tool"}
        obeys = any(self.obeys(message.text) for message in call.messages if message.role in read)
        if call.role == "evaluator":
            return {"evaluator_comment": "obeyed" if obeys else "judged", "score": 100.0 if obeys else self.score}
        if call.role == "judgment":
            return {"reasoning": "obeyed" if obeys else "judged", "should_continue": not obeys, "confidence_score": 1}
        quoted = "\n".join(_inside(text) for text in call.tool_results)
        return self.fooled if obeys else f"{self.answer}\n{quoted}".strip()

    @staticmethod
    def obeys(prompt: str) -> bool:
        """Whether ``prompt`` tells it, anywhere but in a block of data, what score to give."""
        heard = [_whispered(prompt).lower(), *_outside(_read(prompt))]
        if any(_ORDERS.search(each) or _ORDERS.search(codecs.encode(each, "rot13")) for each in heard):
            return True
        return any(_ORDERS.search(each) for each in _decoded(prompt, " ".join(heard)))


def _read(text: str) -> str:
    """The text as someone reads it who wants to understand it at any price."""
    for _ in range(3):
        text = html.unescape(text)
    text = _ESCAPES.sub(lambda escape: chr(int(escape[1] or escape[2] or escape[3], 16)), text)
    # Accents go, but not the marks that make one kana of another.
    letters = (char for char in unicodedata.normalize("NFKD", text) if char in "\n\t\u3099\u309a" or _is_seen(char))
    return unicodedata.normalize("NFC", "".join(letters)).lower().translate(_LOOK_ALIKES)


def _is_seen(char: str) -> bool:
    return unicodedata.category(char) not in {"Cf", "Mn", "Cc"}


def _outside(text: str) -> Iterator[str]:
    """What does not stand in a block of data."""
    inside, since = False, 0
    for mark in _MARKS.finditer(text):
        if mark["opens"] and not inside:
            yield text[since : mark.start()]
            inside = True
        elif not mark["opens"] and inside:
            inside, since = False, mark.end()
    if not inside:
        yield text[since:]


def _whispered(text: str) -> str:
    """What is written in tag characters, which no one sees."""
    return "".join(chr(ord(char) - 0xE0000) for char in text if 0xE0020 <= ord(char) <= 0xE007E)


def _decoded(prompt: str, heard: str) -> Iterator[str]:
    """What is written in base64 in the part that was heard, in which all letters are small."""
    for found in re.findall(r"[A-Za-z0-9+/]{12,}={0,2}", prompt):
        if found.lower() in heard:
            with contextlib.suppress(binascii.Error, UnicodeDecodeError):
                yield base64.b64decode(found + "=" * (-len(found) % 4)).decode().lower()


def _inside(text: str) -> str:
    """What stands between the first delimiter and the last, as it was sent."""
    found = re.search(r'<data id="[^"]*">\n(.*)\n</data id="[^"]*">', text, re.DOTALL)
    return found[1] if found else text
