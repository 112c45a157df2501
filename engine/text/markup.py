"""Markdown, HTML tags and model tags -> the words in them. Pure, language-independent.

Every pattern is bounded or stops at the next opening character, so that no input takes more than linear time.
"""

import html
import re
from typing import Final

from voicegate.engine.text.cleanup import PAUSE
from voicegate.engine.text.patterns import roman_value

_ENTITY: Final = re.compile(r"&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});")
_COMMENT: Final = re.compile(r"<!--[^<>]{0,400}-->")
_MODEL_TAG: Final = re.compile(r"<\|[^<>|]{0,60}\|>")
_TAG: Final = re.compile(
    r"<(?P<slash>/?)(?!https?:)(?P<name>[A-Za-z][\w:.-]{0,40})(?P<rest>(?![\w:.-])(?:[^<>@\n]|(?<=[\"' ])@){0,200})>"
)
# HTML's, and those of speech (SSML). Others are rather what a reader is to put something in place of: <your-api-key>.
_ELEMENT: Final = re.compile(
    "a|abbr|address|article|aside|audio|b|bdi|bdo|big|blockquote|body|br|button|canvas|caption|center|cite"
    "|code|col|colgroup|dd|del|details|dfn|dialog|div|dl|dt|em|embed|fieldset|figcaption|figure|font|footer"
    "|form|g|h1|h2|h3|h4|h5|h6|head|header|hr|html|i|iframe|img|input|ins|kbd|label|legend|li|link|main|mark"
    "|menu|meta|nav|ol|option|p|path|picture|pre|q|s|samp|script|section|select|small|source|span|strike"
    "|strong|style|sub|summary|sup|svg|table|tbody|td|textarea|tfoot|th|thead|time|title|tr|tt|u|ul|var|video"
    "|wbr|speak|break|emphasis|prosody|say-as|phoneme|voice|lang|desc|w|lexicon",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(
    "branch|tag_?name|commit|repo|remote|user|username|password|email|name|file|filename|path|directory|folder|host|hostname"
    "|port|url|domain|token|key|value|id|command|package|version|message|number|date|amount|city|state|country|company"
    "|project|server|service|container|image_?name|namespace|region|bucket|database|table_?name|column"
    # and keys
    "|enter|return|esc|escape|tab|ctrl|alt|shift|space|backspace|delete|f\\d{1,2}",
    re.IGNORECASE,
)
_TAG_IN_CODE: Final = re.compile(r"`</?([A-Za-z][\w-]{0,40})[^`<>\n]{0,100}>`")
# Rest of a tag that the segmenter cut: its start at the end, and attributes.
_TORN_TAG: Final = re.compile(
    r"</?(?:a|img|div|span|p|font|table|t[dhr]|video|audio|iframe|details)[ \t]*\Z", re.IGNORECASE
)
_ATTRIBUTE: Final = r"[A-Za-z][A-Za-z-]{0,20}=\"[^\"<>\n]{0,200}\""
# ... which begin what comes behind it, or its end follows: 'the class="x" attribute' is of a sentence.
_TORN_ATTRIBUTES: Final = re.compile(
    rf"\A\s{{0,9}}(?:{_ATTRIBUTE}[ \t]{{0,3}}){{1,9}}(?:/?>|\Z)|(?<![\w`-]){_ATTRIBUTE}[ \t]{{0,3}}/?>"
)
_AUTOLINK: Final = re.compile(r"<(https?://[^<>\s]{1,2000}|[^<>\s@]{1,64}@[^<>\s@]{1,255})>")
_TARGET: Final = r"(?:[^()\s]|\([^()\s]{0,200}\)){0,2000}"
_LINK: Final = re.compile(
    rf"!?\[(?!\^|\d{{1,3}}\])([^\[\]\n]{{0,300}})\](?:\({_TARGET}(?: \"[^\"\n]{{0,200}}\")?\)|\[[^\[\]\n]{{0,60}}\])"
)
_TORN_LINK: Final = re.compile(rf"\]\({_TARGET}\)?")
_LINK_TARGET: Final = re.compile(
    r"^[ ]{0,3}\[[^\[\]\n^]{1,60}\]: ?(?:<|[a-z]{2,10}:[^ ]|www\.|\.{0,2}/|#)\S{0,2000}[^\n]{0,200}$", re.MULTILINE
)
_FOOTNOTE: Final = re.compile(
    r"\[\^[^\[\]\s]{1,30}\]:?"
    # No source is counted from 0, nor is one what these words announce: [0, 5] is an interval, or a place in a list.
    r"|(?<=\S)(?<!range)(?<!interval)(?<!array)(?<!list)(?<!between)(?<!=)[ ]?"
    r"\[(?!0|[^\]\n]{0,40}[ ,-]0[\],])\d{1,3}(?:[,-] ?\d{1,3}){0,5}\](?:\([^()\s]{0,2000}\))?"
)
# No footnotes: "Press [1] for sales and [2] for support."
_PRESSED: Final = re.compile(r"(?<![Tt]he )(?:\b(?:[Pp]ress|[Dd]ial|[Pp]ush|[Hh]it)|按|拨) ?\[[^\[\]\n]{1,12}\]")
_KEY: Final = re.compile(r"\[(\d{1,2}|[#*]|[A-Z][A-Za-z]{1,10})\](?!\()")
# :smile: and :-)
_SHORTCODE: Final = re.compile(r"(?<![\w:]):[a-z][a-z0-9_+-]{1,30}:(?![\w:])|(?<!\S)[:;=]['-]?[()DPp/|](?!\S)")
_CHECKBOX: Final = re.compile(r"^([ \t]{0,40}(?:[-*+]|\d{1,3}[.)])[ \t])\[[ xX]\][ \t]", re.MULTILINE)
_ESCAPE: Final = re.compile(r"\\(?=[`*_{}\[\]()#+.!|~>$%&-])")
_LINE_MARKUP: Final = re.compile(r"[`*_#>~|\n+-]|[\dIVX][.)][ \t]")
_ITEM: Final = re.compile(
    r"[ \t]{0,40}(?:[-*+][ \t]|(?:> ?)+|#{1,6}[ \t]|\||(?P<number>\d{1,3})[.)][ \t]"
    r"|(?P<roman>X{0,2}(?:IX|IV|V?I{1,3}|V)|X{1,2})[.)][ \t](?=[A-Z*_]))"
)
# A line that one letter opens is an item where it is a heading: "I. Introduction", and not "V. Putin met her."
_HEADING: Final = re.compile(r"[ \t]{0,40}[IVX][.)][ \t]+\S{1,30}(?:[ \t]+\S{1,30}){0,5}[ \t]*\Z")
# Lines that are meant to be lines: a hard break or bold behind them, a label before.
_PHRASE_LINE: Final = re.compile(r"[ ]{2}\Z|\A[ ]{0,3}\*\*[^*\n]{1,100}\*\*:?[ ]?\Z")
_LABEL: Final = re.compile(r"[ ]{0,3}(?:\*\*|[A-Z][\w' -]{0,30}:(?=[ ]|\Z))")
_SENTENCE_ENDS: Final = (".", "?", "!", "。", "？", "！")
_RULE: Final = re.compile(r"[-*_=|: \t]{3,}")
# Emphasis, not a product: "2 * 3" and "2*3" keep theirs.
_STAR: Final = re.compile(r"\*{2,}|(?<!\d)(?<!\d )\*|\*(?! ?\d)")


def unescape_entities(text: str) -> str:
    """HTML's `&amp;` -> `&`. Before anything is looked at: they may hide any character."""
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text


def strip_model_tags(text: str) -> str:
    """Nothing stays of <|...|>."""
    return _MODEL_TAG.sub(" ", text) if "<" in text else text


def strip_tags_and_links(text: str) -> str:
    """A link's text stays, its address does not; nothing stays of tags, footnotes, checkboxes and emoji names."""
    if "<" in text:
        text = _TAG_IN_CODE.sub(r"`\1`", strip_model_tags(_AUTOLINK.sub(r" \1 ", _COMMENT.sub(" ", text))))
        text = _TAG.sub(_tag, text)
        text = _TORN_TAG.sub(" ", text)
    if '="' in text:
        text = _TORN_ATTRIBUTES.sub(" ", text)
    if "[" in text and _KEY.search(text) and _PRESSED.search(text):
        text = _KEY.sub(r"\1", text)
    if "]" in text:
        text = _CHECKBOX.sub(r"\1", _LINK_TARGET.sub("", text))
        text = _TORN_LINK.sub(" ", _FOOTNOTE.sub("", _LINK.sub(r"\1", text)))
    if ":" in text:
        text = _SHORTCODE.sub(" ", text)
    return text


def _tag(match: re.Match[str]) -> str:
    """Nothing of a tag; the words of what only looks like one."""
    name, rest = match["name"], match["rest"].strip().removesuffix("/").strip()
    is_glued = match.start() > 0 and match.string[match.start() - 1].isalnum()
    has_attributes = "=" in rest
    if _ELEMENT.fullmatch(name):
        return match[0] if is_glued and rest and not has_attributes else " "  # "a<b and c>d" compares
    is_name = bool(rest) or is_glued or "-" in name  # of what stands there: your key, String, your-key
    is_name = is_name or (_PLACEHOLDER.fullmatch(name) is not None and f"</{name}>" not in match.string)
    if match["slash"] or has_attributes or not is_name:
        return " "
    return f" {name.replace('-', ' ')} {rest} "


def unescape(text: str) -> str:
    """Markdown's `\\*` -> `*`. Formulas must be read already."""
    return _ESCAPE.sub("", text) if "\\" in text else text


def without_emphasis(text: str) -> str:
    """For looking at words only: a product loses its star too."""
    return text.replace("~~", "").replace("`", "").replace("*", "")


def strip_line_markup(text: str, *, are_lines_phrases: bool = False, has_roman_items: bool = False) -> str:
    """One line without emphasis, code marks, headings and bullets. Addresses must be read already: `_` is dropped.

    `are_lines_phrases`: whoever writes so breaks no line within a phrase. `has_roman_items`: a line that begins with
    "II." is one; only for a reader that leaves no "II".
    """
    if not _LINE_MARKUP.search(text):
        return text
    text = _joined_lines(text, are_lines_phrases=are_lines_phrases, has_roman_items=has_roman_items)
    return _STAR.sub("", text.replace("~~", "").replace("`", "").replace("_", " "))


def _item(line: str, *, is_last: bool, may_be_roman: bool) -> re.Match[str] | None:
    """The marker that opens the line. Of the last one it is not known what else will stand in it."""
    marker = _ITEM.match(line)
    if marker is None or not marker["roman"]:
        return marker
    if len(marker["roman"]) > 1 or not may_be_roman:
        return marker if may_be_roman else None
    is_heading = not is_last and _HEADING.match(line) is not None and not line.rstrip().endswith(_SENTENCE_ENDS)
    return marker if is_heading else None


def _joined_lines(text: str, *, are_lines_phrases: bool, has_roman_items: bool) -> str:
    """One line: a blank line, a heading and a list item end a sentence; other line ends are pauses, or blanks."""
    parts: list[str] = []
    is_item = False
    lines = text.split("\n")
    for index, line in enumerate(lines):
        marker = _item(line, is_last=index == len(lines) - 1, may_be_roman=has_roman_items)
        is_blank = not line.strip() or _RULE.fullmatch(line) is not None
        if parts:
            is_end = (is_item or is_blank or marker) and not parts[-1].rstrip().endswith(_SENTENCE_ENDS)
            is_pause = are_lines_phrases or _PHRASE_LINE.search(parts[-1]) or _LABEL.match(line)
            parts.append(". " if is_end else f"{PAUSE} " if is_pause else " ")
        if is_blank:
            is_item = False
            continue
        is_item = marker is not None
        if marker is None:
            parts.append(line)
            continue
        number = marker["number"] or roman_value(marker["roman"] or "")
        rest = line[marker.end() :]
        parts.append(
            (f"{number}. " if number else "") + (rest.replace("|", PAUSE) if marker[0].endswith("|") else rest)
        )
    return "".join(parts)
