"""The readers of files beyond the tables of readings, and how a file that is wrong is refused."""

from pathlib import Path

import pytest

from voicegate.bench.readings import read_whole
from voicegate.engine.text import data_files
from voicegate.engine.text.data_files import LanguageError
from voicegate.engine.text.languages.definition import known_languages, load
from voicegate.engine.text.languages.reader import Reader
from voicegate.engine.text.languages.templates import Template, TemplateError

CASES = [
    ("de", "Mo.–Fr. 8–18 Uhr", "Montag bis Freitag acht bis achtzehn Uhr"),
    ("de", "Kapitel 3.2, Version 2.1.3", "Kapitel drei Punkt zwei, Version zwei Punkt eins Punkt drei"),
    ("de", "Die 90er Jahre, sein 50. Geburtstag", "Die neunziger Jahre, sein fünfzigster Geburtstag"),
    ("de", "Papst Benedikt XVI. trat zurück.", "Papst Benedikt der sechzehnte trat zurück."),
    ("de", "IBAN DE89 3704 0044", "IBAN DE acht neun, drei sieben null vier, null null vier vier"),
    ("de", "Rate: 3x 49,90 €/Monat", "Rate: drei mal neunundvierzig Euro neunzig pro Monat"),
    ("de", "Di., 6. Jan., Sa. 10-14 Uhr", "Dienstag, sechster Januar, Samstag zehn bis vierzehn Uhr"),
    ("de", "Fehler in v2.0, Hauptstr. 5, Kap. IV", "Fehler in Version zwei Punkt null, Hauptstraße fünf, Kapitel vier"),
    ("de", "Bestellnr. A1B2-9923", "Bestellnummer A eins B zwei neuntausendneunhundertdreiundzwanzig"),
    ("de", "2x täglich, 1x am Tag, seit den 90ern", "zweimal täglich, einmal am Tag, seit den neunzigern"),
    ("de", "7 €/kg, die # Taste, Fr. 5", "sieben Euro pro Kilogramm, die Raute-Taste, fünf Franken"),
    (
        "de",
        "1914 u. 1918, 19 % MwSt.",
        "neunzehnhundertvierzehn und neunzehnhundertachtzehn, neunzehn Prozent Mehrwertsteuer.",
    ),
    ("fr", "p. 12-15, du lun. au ven., 2x/jour", "page douze à quinze, du lundi au vendredi, deux fois par jour"),
    ("fr", "1 c. à café, 2 c. à s., 5 €/kg", "une cuillère à café, deux cuillère à soupe, cinq euros par kilogramme"),
    ("es", "91 123 45 67, c/8 h", "nueve uno, uno dos tres, cuatro cinco, seis siete, cada ocho horas"),
    ("es", "1 1/2 tazas en C/ Mayor", "una taza y media en calle Mayor"),
    (
        "it",
        "il dott. Rossi e la sig.ra Bianchi, 5 €/kg",
        "il dottor Rossi e la signora Bianchi, cinque euro al chilogrammo",
    ),
    ("de", "Frau U. Müller, u. a. hier u. dort", "Frau U. Müller, unter anderem hier und dort"),
    ("ru", "5 €/кг, 300 руб./кг", "пять евро за килограмм, триста рублей за килограмм"),
    ("ru", "См. гл. IV, в XIX в.", "Смотри глава четыре, в девятнадцатом веке."),
    ("ja", "18時05分、月〜金の9時", "十八時五分、月曜日から金曜日の九時"),
    ("ko", "제3장, 3장", "제 삼 장, 세 장"),
    ("de", "3.14 und 1,234.56", "drei Komma eins vier und eintausendzweihundertvierunddreißig Komma fünf sechs"),
    ("de", "1 Hund", "1 Hund"),
    ("de", "Mail an a-b@example.com", "Mail an a Minus b at example Punkt com"),
    ("de", "Karte ****4242", "Karte endet auf vier zwei vier zwei"),
    ("es", "de lunes a viernes de 8 a 18 h", "de lunes a viernes de ocho a dieciocho horas"),
    ("es", "El Sr. Pérez viene el 24/12", "El señor Pérez viene el veinticuatro de diciembre"),
    ("ja", "4/15 18:30", "四月十五日 十八時三十分"),
    ("ko", "6/15 예약", "유월 십오일 예약"),
    ("es", "51 mesas, 1 hora y 21 minutos", "cincuenta y una mesas, una hora y veintiún minutos"),
    ("es", "1/4 l de leche", "un cuarto de litro de leche"),
    ("fr", "M. et Mme Dupont, à 0 h 30", "Monsieur et Madame Dupont, à zéro heure trente"),
    ("fr", "Louis XIV et Napoléon Ier", "Louis quatorze et Napoléon premier"),
    ("fr", "J'ai 21 ans et 1 chien.", "J'ai vingt et un ans et 1 chien."),
    ("it", "1 ora e 1 minuto", "un'ora e un minuto"),
    ("it", "gli anni '90, il XXI secolo", "gli anni novanta, il ventunesimo secolo"),
    ("ru", "Около 1 500 человек", "Около одной тысячи пятисот человек"),
    ("ru", "2 книги, 2 стола, 1 яблоко", "две книги, два стола, одно яблоко"),
    ("ru", "90-е годы, в XX веке", "девяностые годы, в двадцатом веке"),
    ("ru", "Встреча в ср, 5 мая или в вт", "Встреча в среду, пятого мая или во вторник"),
    ("de", "Sa 9–13 Uhr, So 20 Leute", "Samstag neun bis dreizehn Uhr, So zwanzig Leute"),
    ("de", "Windows 10, 12/B, 30 mg/5 ml", "Windows zehn, zwölf B, dreißig Milligramm pro fünf Milliliter"),
    ("ru", "пн-пт с 8 до 18", "понедельник-пятница с восьми до восемнадцати"),
    ("ru", "от 2 до 5 лет", "от двух до пяти лет"),
    ("ru", "499 руб.", "четыреста девяносто девять рублей."),
    ("ja", "￥1,980(税込)", "千九百八十円，税込"),
    ("ja", "約1,500人、10万円", "約千五百人、十万円"),
    ("ko", "친구 2명과 3개월 동안", "친구 두 명과 삼개월 동안"),
    ("ko", "기온은 25~28도", "기온은 이십오에서 이십팔도"),
]


@pytest.mark.parametrize(("language", "text", "spoken"), CASES)
def test_readings(language: str, text: str, spoken: str) -> None:
    assert read_whole(text, language) == spoken


@pytest.mark.parametrize("language", sorted(known_languages()))
def test_a_long_number_and_many_of_them_are_read_in_linear_time(language: str) -> None:
    reader = Reader(language)
    for unit in ("9", "1,", "1.", "1 ", "1-", "1/", "€", "X", "5 km ", "0 ", "+1 ", "1. a ", "7d"):
        text = unit * (5_000 // len(unit))
        assert len(reader.read(text)) <= 40 * len(text)


def test_words_that_open_sentences_and_common_words_are_there() -> None:
    for language in known_languages():
        entry = load(language)
        assert set("%°+=×÷&@#²/:") <= set(entry.signs), language
        assert {"#tag"} <= set(entry.signs), language


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("numbers: [", "xx.yaml: "),
        ("signs: {}", "xx.yaml: Object missing required field `numbers`"),
        ("numbers: {decimal: point, digits: [zero, one]}", r"length >= 10.*digits"),
        ("framez: []", "unknown field `framez`"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, named: str
) -> None:
    monkeypatch.setattr(data_files, "DATA_DIR", tmp_path)
    (tmp_path / "languages").mkdir()
    (tmp_path / "languages" / "xx.yaml").write_text(content)
    with pytest.raises(LanguageError, match=named):
        load.__wrapped__("xx")


@pytest.mark.parametrize(
    ("text", "named"), [("{day:count}", "'day'; there are hour"), ("{hour:hourly}", "'hourly'; there are count")]
)
def test_a_template_that_names_what_is_not_there_is_refused(text: str, named: str) -> None:
    with pytest.raises(TemplateError, match=named):
        Template(text, ["hour"], {"count": lambda text, form: text})
