"""Numbers with what they count: money, units, millions, fractions -> words. Pure."""

import re
from decimal import Decimal
from typing import Final

from voicegate.engine.text.languages.converters import Converters
from voicegate.engine.text.languages.definition import LanguageEntry
from voicegate.engine.text.languages.rules import NO_WORD_BEHIND, Rule, Said, first
from voicegate.engine.text.patterns import any_of

_MILLION: Final = Decimal(1_000_000)


class Amounts:
    def __init__(self, entry: LanguageEntry, converters: Converters, cases: tuple[Rule, ...]) -> None:
        """`cases`: where a unit has another form than its own."""
        self._entry = entry
        self._converters = converters
        self._measures = measures = converters.measures
        self._cases = cases
        # A unit is none where more of a word follows; where words have no blanks between them, more of a Latin one.
        end = NO_WORD_BEHIND if entry.blanks == "around" else "(?![A-Za-z])"
        number, currency, unit = converters.written.number, any_of(measures.currencies), any_of(measures.units)
        magnitude = any_of(entry.magnitudes) if entry.magnitudes else "(?!)"
        self._money_behind = re.compile(
            rf"(?P<number>{number})(?: ?(?P<magnitude>{magnitude}))? ?(?P<sign>{currency}){end}"
        )
        self._money_before = re.compile(
            rf"(?P<sign>{currency}) ?(?P<number>{number})(?: ?(?P<magnitude>{magnitude}){end})?{end}"
        )
        self._magnitude = re.compile(rf"(?P<number>{number}) ?(?P<magnitude>{magnitude}){end}")
        self._unit = re.compile(rf"(?P<number>{number}) ?(?P<unit>{unit}){end}")
        # A word may be one only where blanks end it: 49 €/Monat.
        word = "|(?P<word>[^\\W\\d_]{2,})" if entry.blanks == "around" else ""
        self._rate = re.compile(rf"/ ?(?:(?:(?P<number>{number}) ?)?(?P<unit>{unit}){word}){end}")
        self._fraction = re.compile(rf"(?P<top>\d{{1,3}})/(?P<bottom>\d{{1,3}})(?![\d/])(?: ?(?P<unit>{unit}){end})?")

    def behind_number(self, text: str, place: int) -> Said | None:
        """Words after a number that stands at `place`: its unit, its currency or its magnitude."""
        for pattern, say in (
            (self._money_behind, self._money),
            (self._magnitude, self._of_magnitude),
            (self._unit, self._of_unit),
        ):
            if (match := pattern.match(text, place)) is not None and (words := say(match)) is not None:
                return self.with_rate(text, Said(words, match.end()), is_money=pattern is self._money_behind)
        return None

    def with_rate(self, text: str, said: Said, *, is_money: bool = True) -> Said:
        """`said`, with what stands behind a slash: 5 €/kg, 6,5 l/100 km. CLDR's words are of measures: на килограмм."""
        while (match := self._rate.match(text, said.end)) is not None:  # 10 mg/kg/h
            words = self._rate_words(match, said.words, is_money=is_money)
            said = Said(self._converters.glued(words), match.end())
        return said

    def _rate_words(self, match: re.Match[str], amount: str, *, is_money: bool) -> str:
        unit = match["unit"]
        name = self._converters.unit_name(unit, "one") if unit else match[0].lstrip("/ ")
        per = "" if is_money or unit is None else self._measures.units[unit].per
        if match["number"]:
            one, name = name, self._converters.of_unit(match["number"], unit) or name
            per = per.replace(one, name) if one in per else ""
        return per.format(amount) if per else self._entry.per.format(amount=amount, unit=name)

    def before_number(self, text: str, place: int) -> Said | None:
        """Words of a currency that stands at `place`, before its amount."""
        match = self._money_before.match(text, place)
        words = None if match is None else self._money(match)
        return None if match is None or words is None else self.with_rate(text, Said(words, match.end()))

    def fraction(self, text: str, place: int) -> Said | None:
        match = self._fraction.match(text, place)
        if match is None:
            return None
        said = self._converters.fraction(match["top"], match["bottom"])
        if match["unit"] is not None:
            unit = self._converters.unit_name(match["unit"])
            said = self._converters.glued(self._entry.units.of_fraction.format(fraction=said, unit=unit))
        return Said(said, match.end())

    def _of_unit(self, match: re.Match[str]) -> str | None:
        case = first(self._cases, match.string, match)
        if case is None:
            return self._converters.of_unit(match["number"], match["unit"])
        if case.form is None:
            return None
        return self._converters.of_unit(match["number"], match["unit"], case.form, case.plural)

    def _of_magnitude(self, match: re.Match[str]) -> str | None:
        words = self._with_magnitude(match)
        return None if words is None else self._converters.glued(" ".join(words))

    def _with_magnitude(self, match: re.Match[str]) -> tuple[str, str] | None:
        magnitude = self._entry.magnitudes[match["magnitude"]]
        words = self._converters.number(match["number"], magnitude.form)
        name = self._measures.plural(self._converters.value(match["number"]), magnitude.names)
        return None if words is None else (words, name)

    def _money(self, match: re.Match[str]) -> str | None:
        currency, money = self._measures.currencies[match["sign"]], self._entry.money
        if match["magnitude"]:
            if (parts := self._with_magnitude(match)) is None:
                return None
            units = self._measures.plural(_MILLION, currency.names)
            return self._converters.glued(money.magnitude.format(number=parts[0], magnitude=parts[1], currency=units))
        whole, fraction = self._converters.written.digits(match["number"])
        if not fraction.strip("0"):
            fraction = ""
        if len(fraction) == 2 and currency.cents and money.with_cents:
            return self._with_cents(whole, fraction, match["sign"])
        words = self._converters.say(whole, fraction, currency.form)
        value = Decimal(f"{whole}.{fraction}") if fraction else Decimal(whole)
        return self._converters.glued(f"{words} {self._measures.plural(value, currency.names)}")

    def _with_cents(self, whole: str, fraction: str, sign: str) -> str:
        currency, money = self._measures.currencies[sign], self._entry.money
        cents = {
            "minor": self._converters.say(str(int(fraction)), "", money.forms.get("cents", "")),
            "cents": self._measures.plural(Decimal(fraction), currency.cents),
        }
        if not whole.strip("0") and money.cents_alone:
            return money.cents_alone.format(**cents)
        name = self._measures.plural(Decimal(whole), currency.names)
        return money.with_cents.format(major=f"{self._converters.say(whole, '', currency.form)} {name}", **cents)
