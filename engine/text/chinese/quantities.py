"""Signs at a number, written as Chinese does: money, units, ranges, codes, English forms. Pure.

Rules run in order, each over the whole text, the special before the plain. They leave digits that `digits.say_numbers`
reads, but where their reading is not that of a count.
"""

import re
from decimal import Decimal
from typing import Final

from voicegate.engine.text.chinese.digits import (
    MAX_CARDINAL_DIGITS,
    say_count,
    say_digits,
    say_numbers,
    say_telephone_digits,
)
from voicegate.engine.text.chinese.measures import (
    CODE_WORDS,
    COUNTED,
    CURRENCIES,
    MAGNITUDES,
    ONLY_ATTACHED,
    UNITS,
    WRITTEN_CURRENCIES,
)
from voicegate.engine.text.chinese.signs import SIGNS
from voicegate.engine.text.cleanup import PAUSE
from voicegate.engine.text.patterns import Match, Source, any_of, apply, rules_of

_HAN: Final = "[\u3400-\u4dbf\u4e00-\u9fff]"
_NUMBER: Final = r"\d++(?:\.\d++)?+"
_START: Final = r"(?<![A-Za-z\d.])"


_CODE_NAME: Final = rf"(?P<word>(?:{CODE_WORDS})[是为]?[：:]?[ {PAUSE}]{{0,3}}[\"'(]?)"
_SIGN: Final = any_of(CURRENCIES)
_MAGNITUDE: Final = rf"(?: ?(?P<magnitude>{any_of(MAGNITUDES)})(?![A-Za-z]))?"
_WRITTEN: Final = f"(?: ?(?P<written>{WRITTEN_CURRENCIES}))?"
_SHORT_DATE: Final = r"(?P<month>1[0-2]|0?[1-9])/(?P<day>3[01]|[12]\d|0?[1-9])(?=(?P<sign>[号日])?)"
_UNIT: Final = any_of(UNITS)
_SPACED_UNIT: Final = any_of(set(UNITS) - ONLY_ATTACHED)

# At an amount: of one sign or letters, but not in the middle of a word.
_BEFORE_AMOUNT: Final = rf"(?<![A-Za-z])(?P<sign>{_SIGN}) ?(?P<amount>{_NUMBER})"
_SIDES: Final = {"N": "北纬", "S": "南纬", "E": "东经", "W": "西经"}


def _year(digits: str) -> str:
    return f"{say_digits(digits)}年"


def _date(match: Match) -> str:
    month, day = int(match["month"]), int(match["day"])
    if month > 12 >= day:
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    return f"{_year(match['year'])}{month}月{day}日"


def _short_date(match: Match) -> str:
    return f"{match['space']}{int(match['month'])}月{int(match['day'])}{'' if match['sign'] else '日'}"


def _clock(match: Match) -> str:
    half = "上午" if match["half"] in "aA" else "下午"
    minutes = match["minutes"] or ""
    return f"{half}{match['hour']}点" + (f"{minutes}分" if minutes.strip("0") else "")


def _midnight(match: Match) -> str:
    return "零点" + (f"{match['minutes']}分" if match["minutes"] != "00" else "整")


def _telephone(match: Match) -> str:
    plus = "加" if match[0].lstrip().startswith("+") else ""
    return plus + PAUSE.join(say_telephone_digits(group) for group in re.findall(r"\d+", match[0]))


def _service_line(match: Match) -> str:
    """4008208820 as it is written on walls: 400 820 8820."""
    digits = re.sub(r"\D", "", match[0])
    return PAUSE.join(map(say_telephone_digits, (digits[:3], digits[3:6], digits[6:])))


def _card(match: Match) -> str:
    return PAUSE.join(map(say_digits, match[0].split(match["gap"])))


def _dotted(match: Match) -> str:
    """An address (four parts) by its digits, a version by its numbers."""
    parts = match[0].split(".")
    is_address = len(parts) == 4
    return "点".join(say_digits(part) if is_address else say_numbers(part) for part in parts)


def _digits(match: Match) -> str:
    return say_digits(match[0])


def _code(match: Match) -> str:
    return match["word"] + say_digits(match["digits"]).replace("-", "杠")


def _model_number(match: Match) -> str:
    """RTX4090, but A100 is a count."""
    digits = match["digits"]
    is_code = len(digits) > 3 or (len(digits) == 3 and not digits.endswith("00"))
    return match["name"] + (
        say_telephone_digits(digits) if match["counter"] else say_digits(digits) if is_code else digits
    )


def _scaled(number: str, magnitude: str | None) -> str:
    """ "5", "million" -> 500万."""
    if magnitude is None:
        return number
    value = Decimal(number).scaleb(MAGNITUDES[magnitude])
    for power, name in ((8, "亿"), (4, "万")):
        if value >= 10**power:
            return f"{value.scaleb(-power).normalize():f}{name}"
    return f"{value.normalize():f}"


def _money(match: Match) -> str:
    amount = match["amount"]
    if "." in amount:
        amount = amount.rstrip("0").rstrip(".")
    name = match["written"] or CURRENCIES[match["sign"]]
    return _scaled(amount, match["magnitude"]) + (match["han"] or "") + name


def _magnitude(match: Match) -> str:
    return _scaled(match["amount"], match["magnitude"].strip())


def _measure(match: Match) -> str:
    return match["number"] + UNITS[match["unit"] or match["spaced"]]


_SEPARATED: Final[tuple[Source, ...]] = (
    (
        r"(?<![\d,.])(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d\d)+,\d{3})(?![\d,])",
        lambda match: match[0].replace(",", ""),
        ",",
    ),
    (rf"(?<=\d) +(?={_HAN})", "", " "),
    (r"(?<=\d)：(?=\d)", ":", "："),
    (r"(?<=\d)\.0+(?=[美欧港日韩]?元)", "", ".0"),
)
_DATES_AND_TIMES: Final[tuple[Source, ...]] = (
    (r"(?<![\d-])(?P<year>\d{4})-(?P<month>\d\d?)-(?P<day>\d\d?)(?![\d-])", _date, "-"),
    (r"(?<![\d/])(?P<year>\d{4})/(?P<month>\d\d?)/(?P<day>\d\d?)(?![\d/])", _date, "/"),
    (r"(?<![\d.])(?P<year>\d{4})\.(?P<month>\d\d?)\.(?P<day>\d\d?)(?![\d.])", _date, "."),
    (r"(?<![\d/])(?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d{4})(?![\d/])", _date, "/"),
    (r"(?:(?<=[日期][:：])|(?<=[于在从至前]))(?P<space> ?)" + _SHORT_DATE + r"(?![\d/的])", _short_date, "/"),
    (
        r"(?P<space>)(?<![\d/.])"
        + _SHORT_DATE
        + r"(?= ?(?:之[前后]|[前后](?![来往面])|[上下中]午|[早晚]上|当天|可以|有空|方便|行吗|有位|开始|截止"
        r"|起|[号日]|周|星期))",
        _short_date,
        "/",
    ),
    (r"(?<=日[到至~-])(?P<space> ?)" + _SHORT_DATE + r"(?![\d/的])", _short_date, "/"),
    (r"((?:区间|范围)[是为]?[：:]? ?)[\[(](-?\d++), ?(-?\d++)[\])]", r"\1\2到\3"),
    (
        r"(?<![\d.])((?:1[0-9]|20)\d\d)年?[-~]((?:1[0-9]|20)\d\d)年?(?![\d.%-])",
        lambda match: f"{_year(match[1])}到{_year(match[2])}",
    ),
    (r"(?<!\d)(?:19|20)\d\d(?=Q[1-4])", lambda match: say_digits(match[0]), "Q"),
    (r"(?<!\d)(\d\d)年(?=\d{1,2}月)", lambda match: _year(match[1]), "年"),
    (r"(?<![\d.:/-])0(?=[1-9]月)|(?<=月)0(?=[1-9][日号])", "", "月"),
    (
        r"(?<![\d:])(?P<hour>\d\d?)(?::(?P<minutes>[0-5]\d))? ?(?P<half>[aApP])\.?[mM](?![A-Za-z])\.?",
        _clock,
    ),
    (r"(?<![\d:.])0?0:(?P<minutes>[0-5]\d)(?![\d:])", _midnight, "0:"),
)
_CODES: Final[tuple[Source, ...]] = (
    # A network card's.
    (
        r"(?<![A-Za-z0-9:])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}(?![A-Za-z0-9:])",
        lambda match: PAUSE.join(say_digits(part.upper()) for part in re.split("[:-]", match[0])),
    ),
    (
        r"(?<=转)(?P<digits>\d{1,6})(?![\d.:/%万亿元])(?=[，。；,;]|\s|\Z|号|分机)",
        lambda match: say_telephone_digits(match[0]),
        "转",
    ),
    # Letters and digits: AB12-3456.
    (
        r"(?<![A-Za-z\d-])#?(?P<word>[A-Za-z]{1,6})(?P<digits>\d+(?:-[A-Za-z]{0,6}\d+)+)(?![A-Za-z\d-]|\.\d|%)",
        _code,
    ),
    (r"#(?=[A-Za-z]{1,3}\d{3})", "", "#"),
    (r"#(\d{4,})(?!\d|\.\d)", lambda match: say_digits(match[1]), "#"),
    (r"(?<![A-Za-z\d.-])[1-9]\d{3}(?P<gap>[ -])\d{4}(?:(?P=gap)\d{4}){1,3}(?:(?P=gap)\d{1,4})?(?![\d-]|年)", _card),
    (r"(?<![A-Za-z\d+.-])\+\d{1,3}(?:[ -]?\(?\d{2,5}\)?){2,5}(?![\d-])", _telephone, "+"),
    (r"(?<![A-Za-z\d.-])1[3-9]\d[ -]?\d{4}[ -]?\d{4}(?![\d-])", _telephone, "1"),
    (r"(?<![A-Za-z\d.-])(?:0\d{2,3}|\(0\d{2,3}\))[ -]?\d{3,4}[ -]?\d{4}(?![\d-])", _telephone, "0"),
    (r"(?<![A-Za-z\d.-])[48]00-\d{3,4}-\d{3,4}(?![\d-])", _telephone, "00-"),
    (
        rf"(?<![A-Za-z\d.-])[48]00(?P<gap>[ -]?)\d{{3}}(?P=gap)\d{{4}}(?![\d-])(?! ?(?:{COUNTED}|[元万亿%]))",
        _service_line,
    ),
    (r"(?<![\d.])\d++(?:\.\d++){2,}+", _dotted, "."),
    (
        _CODE_NAME
        + r"(?P<digits>(?:[A-Za-z]{1,6}-?)?\d+(?:-[A-Za-z]{0,6}\d+){1,4}|[A-Za-z]{1,6}\d{3,}+)(?!\.\d|[%A-Za-z\d-])",
        _code,
    ),
    (_CODE_NAME + r"(?P<digits>\d{3,}+)(?!\.\d|%)", _code),
    (rf"\d{{{MAX_CARDINAL_DIGITS + 1},}}+", _digits),
    (r"(?<![\d.:/-])0\d++(?![.:/\d%-])", _digits, "0"),
    (r"(?P<word>(?:拨打|致电|热线|客服电话|银行)[：:]? ?)(?P<digits>9[56]\d{3})(?!\d)", _code),
    (r"(?<![A-Za-z\d.-])9[56]\d{3}(?=客服|热线|电话)", _digits),
    (r"(?<![A-Za-z\d.-])\d{3,4}(?=室(?![内外温]))", _digits, "室"),
    (r"(?<![A-Za-z\d.-])[1-9][1-9](?=折(?![页叠线]))", _digits, "折"),
    (r"\bNo\. ?(?=\d)|#(?=\d)", "第"),
    (r"(?<=[A-Za-z])(?<!°[CF])-(?=\d)", " ", "-"),
    (
        r"(?P<name>(?<![A-Za-z\d])[A-Za-z]{1,6} ?)(?P<digits>\d{3,12})(?![\d.:/%,]|[GTMK]B?(?![A-Za-z]))"
        r"(?=(?P<counter>次|航班)?)",
        _model_number,
    ),
)
_MEASURES: Final[tuple[Source, ...]] = (
    (rf"({_NUMBER}) ?° ?([NSEW])(?![A-Za-z])", lambda match: f"{_SIDES[match[2]]}{match[1]}度", "°"),
    (
        rf"(?<![\w.-])(?P<year>(?:19|20)\d\d)-(?P<month>0[1-9]|1[0-2])(?![\d.:/-])(?! ?(?:=|{COUNTED}|[元%]))",
        lambda match: f"{_year(match['year'])}{int(match['month'])}月",
    ),
    (r"(?<=\d)h(\d{1,2})(?:min|m)(?![A-Za-z])", r"小时\1分钟", "h"),
    (rf"(?<![\d.])({_NUMBER})[-~](?={_NUMBER}%)", r"\1%到", "%"),
    (r"(?<![\d/])24/7(?![\d/])", "全天候", "24/7"),
    (
        r"(血压[^\d\n]{0,4})(\d{2,3})/(?=\d{2,3}(?![\d/]))",
        lambda match: f"{match[1]}{say_count(match[2])}{PAUSE}",
        "血压",
    ),
    (
        rf"{_BEFORE_AMOUNT}(?P<han>[百千万亿]{{1,2}})?{_MAGNITUDE}{_WRITTEN}",
        _money,
    ),
    (
        rf"{_START}(?P<amount>{_NUMBER})(?P<han>)(?P<magnitude>)??(?P<written>)?? ?(?P<sign>{_SIGN})(?![\dA-Za-z])",
        _money,
    ),
    (rf"{_START}(?P<amount>{_NUMBER})(?P<magnitude> (?:million|billion|trillion)|[kw])(?![A-Za-z])", _magnitude),
    (
        rf"{_START}(?P<number>{_NUMBER})(?:(?P<unit>{_UNIT})| (?P<spaced>{_SPACED_UNIT}))(?![A-Za-z\d²³])",
        _measure,
    ),
    (rf"(?<=[克升尔摩位元])/({any_of(UNITS)})(?![A-Za-z\d])", lambda match: f"每{UNITS[match[1]]}", "/"),
    (rf"(?<=[克升尔摩位])/(?={_NUMBER}(?:{any_of(UNITS.values())}))", "每", "/"),
    (r"(?<=\d) +%", "%", "%"),
    (rf"({_NUMBER})‰", r"千分之\1", "‰"),
    (rf"(?<![A-Za-z\d)%°])-({_NUMBER})%", r"负百分之\1", "%"),
)
_LAST: Final[tuple[Source, ...]] = (
    (r"(?<=\d\d) +(?=\d\d)", PAUSE),
    (r"(?<![\d.第])2点(?!\d)|(?<![\d.第])2点(?=\d{1,2}分)", "两点"),
)
_DIGIT_RULES: Final = rules_of(_SEPARATED + _DATES_AND_TIMES + _CODES + _MEASURES)
_SIGN_RULES: Final = rules_of(SIGNS)
_LAST_RULES: Final = rules_of(_LAST)
_DIGIT: Final = re.compile("[0-9]")
# A telephone's, and no emphasis: 按*键.
_STAR_KEY: Final = re.compile(r"(?<=[按拨])(?P<quote>[\"'`]?)\*(?:号(?=键))?(?P=quote)(?=键(?!盘)|[，。,. ]|\Z)")
_ANY_SIGN: Final = re.compile("[-~+×*÷&²³^√±≈≤≥≠∞<>/=#xX]")


def write_quantities(text: str) -> str:
    """`text` with all that stands at its numbers in Chinese; the numbers themselves are left as digits."""
    has_digit = _DIGIT.search(text) is not None
    if has_digit:
        text = apply(_DIGIT_RULES, text)
    if _ANY_SIGN.search(text):
        text = apply(_SIGN_RULES, text)
    return apply(_LAST_RULES, text) if has_digit else text


def read_star_keys(text: str) -> str:
    """Before emphasis is dropped."""
    return _STAR_KEY.sub("星号", text) if "*" in text else text
