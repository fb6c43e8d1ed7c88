"""Readability: both formulas with their sums written out, from counts that can be checked by eye."""

import pytest

from mixseek.evaluator.metrics.readability import Readability, ReadabilityOptions, english_ease, japanese_ease

SIMPLE = "This is a simple sentence."
SYSTEM = "データベース管理システム"


@pytest.mark.parametrize(
    ("text", "ease"),
    [
        # 6 words, 1 sentence, 6 syllables
        ("The cat sat on the mat.", 206.835 - 1.015 * 6 - 84.6 * 1),
        # 5 words, 1 sentence, this-is-a-sim.ple-sen.tence: 7 syllables
        (SIMPLE, 206.835 - 1.015 * 5 - 84.6 * 7 / 5),
        # 7 words, 2 sentences; read.a.bil.i.ty 5, for.mu.las 3, es.ti.mate 3, dif.fi.cul.ty 4, they 1, count 1,
        # syl.la.bles 3: 20 syllables
        (
            "Readability formulas estimate difficulty. They count syllables.",
            206.835 - 1.015 * 7 / 2 - 84.6 * 20 / 7,
        ),
        # Pi is to.day / It is fun: 6 words, 2 sentences, 7 syllables; a number is no word and its point no end
        ("Pi is 3.14 today. It is fun.", 206.835 - 1.015 * 3 - 84.6 * 7 / 6),
        # We walked home / and slept: the end of a line is not the end of a sentence; 5 words, 5 syllables
        ("We walked home\nand slept!", 206.835 - 1.015 * 5 - 84.6),
        # Stop / Go: 2 words, 2 sentences, 2 syllables; the quote belongs to the sentence before it
        ('"Stop!" Go.', 206.835 - 1.015 - 84.6),
        # It's a well-known fact: 4 words, it's 1, a 1, well-known 2, fact 1: 5 syllables
        ("It's a well-known fact", 206.835 - 1.015 * 4 - 84.6 * 5 / 4),
        # Na.ïve café talk: the accents do not matter; n-ai-ve has one group and a silent e less is still one; ca.fe
        # has its e after a consonant and counts 1: 3 words, 3 syllables
        ("Naïve café talk.", 206.835 - 1.015 * 3 - 84.6),
        # They used boxes: they 1, used 1, box.es 2: 3 words, 4 syllables
        ("They used boxes.", 206.835 - 1.015 * 3 - 84.6 * 4 / 3),
        # e.g. does not end a sentence before a small letter: See e g for more: 5 words, e and g 1 each: 5 syllables
        ("See e.g. for more.", 206.835 - 1.015 * 5 - 84.6),
    ],
)
def test_english_ease_agrees_with_the_sum_written_out(text: str, ease: float) -> None:
    assert english_ease([text]) == pytest.approx(ease, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "ease"),
    [
        # 8 characters; hiragana は れです: 4/2; kanji 今日 晴: 3/2
        ("今日は晴れです。", 115.79 - 0.12 * 8 + 7.4 * 2 - 23.18 * 1.5),
        # 15 characters in 2 sentences; は が きだ も きだ: 7/5; 私 猫 好 犬 好: 1; one comma
        ("私は、猫が好きだ。犬も好きだ。", 115.79 - 0.12 * 7.5 + 7.4 * 1.4 - 23.18 * 1 - 4.67 * 0.5),
        # 12 characters; kanji 管理: 2; katakana データベース システム: 10/2
        (SYSTEM, 115.79 - 0.12 * 12 - 23.18 * 2 - 5.4 * 5),
        # 7 characters; Latin API: 3; を う: 1; 使: 1
        ("APIを使う。", 115.79 - 0.12 * 7 - 1.37 * 3 + 7.4 * 1 - 23.18 * 1),
        # 14 kanji in one run
        ("独立行政法人情報処理推進機構", 115.79 - 0.12 * 14 - 23.18 * 14),
        # 4 characters, all hiragana
        ("さくら。", 115.79 - 0.12 * 4 + 7.4 * 3),
        # 「雨だ!」と言う。: two sentences, the mark inside the quote ends the first; 9 characters;
        # だ と う: 1; 雨 言: 1
        ("「雨だ！」と言う。", 115.79 - 0.12 * 9 / 2 + 7.4 - 23.18),
        # 人々 is one run of kanji: 2; は: 1; 3 characters
        ("人々は", 115.79 - 0.12 * 3 + 7.4 - 23.18 * 2),
        # Spaces and line ends do not count: 4 characters; 東京 大阪 are two runs
        ("東京\n大阪", 115.79 - 0.12 * 4 - 23.18 * 2),
        # 6 characters, 2 commas; あ い う: 1
        ("あ、い、う。", 115.79 - 0.12 * 6 + 7.4 - 4.67 * 2),
    ],
)
def test_japanese_ease_agrees_with_the_sum_written_out(text: str, ease: float) -> None:
    assert japanese_ease([text]) == pytest.approx(ease, abs=1e-9)


@pytest.mark.parametrize(
    ("submission", "options", "score"),
    [
        # 206.835 - 5.075 - 118.44 = 83.32, above 60
        (SIMPLE, {}, 100),
        (SIMPLE, {"target": 100.0}, 83.32),
        (SIMPLE, {"target": 90.0}, 83.32 / 0.9),
        # 115.79 - 1.44 - 46.36 - 27 = 40.99, of 50
        (SYSTEM, {}, 81.98),
        (SYSTEM, {"target": 80.0}, 51.2375),
        ("独立行政法人情報処理推進機構", {}, 0),
        ("", {}, 0),
        ("# Only a heading\n", {}, 0),
        # As English there is not a word in it.
        (SYSTEM, {"language": "en"}, 0),
        # 3 of 9 letters are Japanese: 115.79 - 0.12 * 9 - 1.37 * 6 + 7.4 * 1 - 23.18 * 1 = 90.71; で and く are runs
        ("Python で書く", {"target": 100.0}, 90.71),
        # 1 of 18 letters is: 2 words, py.thon 2, pro.gram.ming 3: 206.835 - 2.03 - 211.5 is below 0
        ("Python programming で", {}, 0),
        # Code, the heading and the marks of the list are left out: The cat sat / It ran, 5 words, 2 sentences
        ("# Title\n\n- The **cat** sat.\n- It ran.\n\n```\nincomprehensibilities\n```\n", {"target": 100.0}, 100),
    ],
)
def test_readability_agrees_with_the_score_computed_by_hand(
    submission: str, options: dict[str, float], score: float
) -> None:
    measured = Readability(ReadabilityOptions.model_validate(options)).measure(submission, None)
    assert measured.score == pytest.approx(score, abs=1e-9)


def test_readability_says_what_to_do() -> None:
    told = Readability().measure(SYSTEM, None).comment
    assert told.startswith("reading ease 41.0, wanted 50: write shorter sentences, with shorter runs of kanji")
    assert Readability().measure(SIMPLE, None).comment == "reading ease 83.3, wanted 60: easy enough"
