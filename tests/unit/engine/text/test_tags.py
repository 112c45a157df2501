"""Tags and notations reach a model that has them, and are mapped, spelled or dropped whole for one that has not."""

import json
from importlib import resources
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from voicegate.engine.dictionary import Dictionary
from voicegate.engine.text.normalize import SpanReader, speakable
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig, TextSpan
from voicegate.engine.text.tags import EXPRESSIVE_TAGS, NOTATION_TOKENS
from voicegate.engine.text.tokenizer import TextTokenizer

ALL_TAGS = EXPRESSIVE_TAGS | NOTATION_TOKENS


def upstream_tokens() -> list[str]:
    path = resources.files("voicegate.engine.checkpoint") / "special_tokens.json"
    tokens: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return tokens


def test_upstream_s_whole_list_is_known() -> None:
    without_sound = {"[noise]", "[accent]", "[mn]"}
    control = {token for token in upstream_tokens() if token.startswith("<|")}
    assert set(upstream_tokens()) - control - without_sound == ALL_TAGS


@pytest.mark.parametrize(
    ("text", "kept", "spelled"),
    [
        ("I [R][EH1][D] it.", "I [R][EH1][D] it.", "I red it."),
        ("a [M][IH1][N][AH0][T], ok", "a [M][IH1][N][AH0][T], ok", "a minuht, ok"),
        ("对报道[j][ǐ]予好评。", "对报道[j][ǐ]予好评。", "对报道jǐ予好评。"),
        ("[j][ǐ][y][ǔ]好评", "[j][ǐ][y][ǔ]好评", "jǐyǔ好评"),
        ("好[ài]", "好[ài]", "好ài"),
        ("[a] one, [b] two", "a, one, b, two", "a, one, b, two"),
        ("[B] and [T]", "B, and, T", "B, and, T"),
    ],
)
def test_notation_is_whole(text: str, kept: str, spelled: str) -> None:
    assert speakable(text, tags=ALL_TAGS) == kept
    assert speakable(kept, tags=ALL_TAGS) == kept
    assert speakable(text) == spelled
    # With a part of what a notation has, it is not half a notation.
    assert speakable(text, tags=ALL_TAGS - {"[R]", "[AH0]", "[j]", "[ài]"}) == spelled


def test_notation_of_a_dictionary_becomes_tokens(tmp_path: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token in upstream_tokens() if not token.startswith("<|")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = TextTokenizer.from_file(tmp_path / "tokenizer.json", end_of_prompt_id=None)
    assert loaded.tags == ALL_TAGS
    pronunciation = Pronunciation([Dictionary({"read": "[R][EH1][D]", "给予": "[j][ǐ][y][ǔ]"})])
    reader = SpanReader("en", tags=loaded.tags, pronunciation=pronunciation)
    for text, tokens in (("I read it", ["[R]", "[EH1]", "[D]"]), ("报道给予好评", ["[j]", "[ǐ]", "[y]", "[ǔ]"])):
        ids = loaded.encode_spoken(reader.read(TextSpan(text, 0, len(text))))
        assert [each for each in ids if each >= len(alphabet)] == [tokenizer.token_to_id(each) for each in tokens]


@pytest.mark.parametrize(
    ("text", "kept", "dropped"),
    [
        ("[laughs] Well.", "[laughter] Well.", "Well."),
        ("Ha [laughs softly]. Then", "Ha [laughter]. Then", "Ha. Then"),
        ("Oh (sighs) no, *chuckles* yes <gasp>", "Oh [sigh] no, [laughter] yes [quick_breath]", "Oh no, yes"),
        ("[thoughtful] Hm. [excitedly] Go. [very softly] Yes.", "Hm. Go. Yes.", "Hm. Go. Yes."),
        ("你好[laughs]世界[whispers]", "你好[laughter]世界", "你好世界"),
        ("[reply] and [family]", "reply, and, family", "reply, and, family"),
        ("the [sad](x) one, [happy]: yes", "the sad one, happy: yes", "the sad one, happy: yes"),
        ('<emotion value="happy"/>Hi. <speed ratio="1.2"/>Go.', "Hi. Go.", "Hi. Go."),
    ],
)
def test_other_vendors_tags(text: str, kept: str, dropped: str) -> None:
    assert speakable(text, tags=ALL_TAGS) == kept
    assert speakable(text) == dropped


@pytest.mark.parametrize(
    ("text", "language", "spoken"),
    [
        ("Use <spell>AB-12</spell>, ok.", "en", "Use A B dash one two, ok."),
        ("<spell>Nguyen</spell>.", "en", "N G U Y E N."),
        ("<spell>a_b@c.de</spell>", "en", "A underscore B at C dot D E"),
        ("<spell>3L 5m</spell>", "en", "three L five M"),
        ("代码<spell>AB12</spell>。", "zh", "代码A B 一 二。"),
        ("Nur <spell>AB12</spell>.", "de", "Nur A B 1 2."),
        ("x </spell> y", "en", "x y"),
    ],
)
def test_spelling(text: str, language: str, spoken: str) -> None:
    assert speakable(text, language) == spoken


def read(pieces: list[str], granularity: Granularity = Granularity.CLAUSE) -> str:
    segmenter, reader = Segmenter(SegmenterConfig(granularity=granularity)), SpanReader("en", tags=ALL_TAGS)
    parts: list[str] = []
    for span in [*(span for piece in pieces for span in segmenter.push(piece)), *segmenter.flush()]:
        parts.append(reader.read(span))
        reader.note_said(span)
    return " ".join(filter(None, parts))


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("It is <spell>AB 12 CD</spell> here.", "It is A B one two C D here."),
        ("Now [laughs softly] go", "Now [laughter] go"),
        ("Now [R][EH1][D] go", "Now [R][EH1][D] go"),
    ],
)
def test_tags_may_come_in_parts(text: str, spoken: str, size: int, granularity: Granularity) -> None:
    assert read([text[start : start + size] for start in range(0, len(text), size)], granularity) == spoken


def test_spelling_goes_on_over_a_flush() -> None:
    segmenter, reader = Segmenter(), SpanReader("en")
    parts: list[str] = []
    for piece in ("It is <spell>AB", "12</spell> for 5 km."):
        for span in [*segmenter.push(piece), *segmenter.flush()]:
            parts.append(reader.read(span))
            reader.note_said(span)
    assert parts == ["It is A B", "one two for five kilometers."]


def test_the_end_of_a_spelling_tag_alone_is_text() -> None:
    assert read(["Type spell> here. ", "It is 5 km."]) == "Type spell greater than here. It is five kilometers."


def test_what_is_said_as_it_is_written_has_no_tags() -> None:
    reader = SpanReader("en", tags={"[breath]"}, is_normalized=False)
    text = "[breath] I [R][EH1][D] <spell>AB12</spell>"
    assert reader.read(TextSpan(text, 0, len(text))) == "[breath] I red AB12"
