"""Characters that nobody can say: dropped, or folded into ones that the readers know. Pure, language-independent.

Leaves letters with their marks, ASCII digits, blanks, line feeds, PAUSE, wide punctuation, and the signs of SIGNS.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

# A break in the voice that has no mark of its own yet: a bracket, a dash. Private use, so that no text can hold it.
PAUSE: Final = "\ue000"

# Non-ASCII signs that have a reading; the readers replace them.
CURRENCY_SIGNS: Final = "€£¥₹₩₽₺₴₪₫₱₦₸₿฿₡₲₵₾֏₼₮៛₭৳₨"
SIGNS: Final = frozenset(CURRENCY_SIGNS + "°±×÷≈≤≥≠√∞§‰²³")
WIDE_PUNCTUATION: Final = "，。：；？！、"

_FRACTIONS: Final = ("1/8", "3/8", "5/8", "7/8", "1/5", "2/5", "3/5", "4/5", "1/6", "5/6")
_FOLDED: Final = {
    **dict.fromkeys("‘’‚‛´′ʼ＇", "'"),
    **dict.fromkeys("“”„‟«»″「」『』", '"'),
    **dict.fromkeys("‐‑‒–−", "-"),
    **dict.fromkeys("—―⸺⸻", PAUSE),
    **dict.fromkeys("（【〔《〈", "("),
    **dict.fromkeys("）】〕》〉", ")"),
    **dict.fromkeys("•‣▪●◦·", "*"),
    **dict.fromkeys("\r\u2028\u2029", "\n"),
    **dict.fromkeys("\t\v\f\x1c\x1d\x1e\x1f\x85", " "),
    **dict.fromkeys("™®©", ""),
    **dict.fromkeys("〜∼˜", "~"),
    **dict.fromkeys("→⇒➔➜", "->"),
    "¢": " cents",
    "…": "...",
    "｡": "。",
    "､": "、",
    "⁄": "/",
    "№": "No. ",
    "½": " 1/2",
    "¼": " 1/4",
    "¾": " 3/4",
    "⅓": " 1/3",
    "⅔": " 2/3",
    **{sign: f" {fraction}" for sign, fraction in zip("⅛⅜⅝⅞⅕⅖⅗⅘⅙⅚", _FRACTIONS, strict=True)},
    **dict.fromkeys("⁰¹⁴⁵⁶⁷⁸⁹", ""),  # rather footnotes than powers
    "㎡": "m²",  # NFKC would make it "m2"
    "㎢": "km²",
    "㎠": "cm²",
    "㎥": "m³",
    "㎤": "cm³",
    "〇": "零",  # a number letter (Nl), which is no letter to Unicode
}
_PROTECTED: Final = re.compile(f"([{WIDE_PUNCTUATION}²³]+)")  # NFKC would make ASCII of most
# Of ten, of one digit or of a letter; "²" and "³" alone are read as they are, and others are footnotes.
_POWER: Final = re.compile(r"(?<![\w.,])(10|[2-9]|[a-z])(⁻[⁰¹²³⁴-⁹]+|[⁴-⁹]|[¹²³⁴-⁹][⁰¹²³⁴-⁹]+)")
_RAISED: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
# A keycap is a digit with marks, and a letter or sign that a selector turns into a picture is one too.
PICTURES: Final = "\u2600-\u27bf\u2b00-\u2bff\U0001f300-\U0001faff"
# A picture that opens a line is its bullet.
_PICTURE_BULLET: Final = re.compile(rf"^[ \t]{{0,40}}[{PICTURES}]\ufe0f?[ \t]+(?=\S)", re.MULTILINE)
_PICTURE: Final = re.compile("[0-9#*]\ufe0f?\u20e3|[^\x00-\x7f\u200d]\ufe0f")


def clean_characters(text: str) -> str:
    if text.isascii() and text.isprintable():  # all of these stay as they are
        return text
    text = text.replace("\r\n", "\n").replace(PAUSE, " ")
    if not text.isascii():
        text = _PICTURE.sub(" ", _PICTURE_BULLET.sub("* ", text))
        text = _POWER.sub(lambda match: f"{match[1]}^{match[2].translate(_RAISED)}", text)
    text = "".join(map(_folded, text))
    if text.isascii():
        return text
    parts = _PROTECTED.split(text)
    parts[::2] = [unicodedata.normalize("NFKC", part) for part in parts[::2]]
    return without_stray_marks("".join(map(_folded, "".join(parts))))


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    if char in _FOLDED:
        return _FOLDED[char]
    if char in SIGNS or char in WIDE_PUNCTUATION or char in "\n" + PAUSE:
        return char
    category = unicodedata.category(char)
    if category in ("Cc", "Cf", "Cs", "Me"):  # control, zero-width, lone surrogate, enclosing (keycap)
        return ""
    if "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":  # variation selectors
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category[0] in "LM" or unicodedata.normalize("NFKC", char) != char:
        return char  # what NFKC changes (①, ㎞, ＋) is looked at again behind it
    return char if char.isascii() else " "


def without_stray_marks(text: str) -> str:
    """Combining marks only where there is a letter to carry them."""
    kept: list[str] = []
    can_carry = False
    for char in text:
        is_mark = not char.isascii() and unicodedata.category(char)[0] == "M"
        if is_mark and not can_carry:
            continue
        can_carry = is_mark or char.isalpha()
        kept.append(char)
    return "".join(kept)
