"""Where sentences end in languages beside English and Chinese: by letter as well, as text comes."""

import pytest

from voicegate.engine.text.segmenter import Segmenter, SegmenterConfig


def sentences(text: str, language: str, size: int) -> list[str]:
    segmenter = Segmenter(SegmenterConfig(language=language))
    spans = [span for start in range(0, len(text), size) for span in segmenter.push(text[start : start + size])]
    return [span.text.strip() for span in (*spans, *segmenter.flush())]


WHOLE = [
    ("de", "Er kommt am 3. Mai zu uns"),
    ("de", "Der 2. Weltkrieg war lang"),
    ("de", "Am 24. 12. ist Ruhe"),
    ("de", "Das ist z. B. sehr gut"),
    ("de", "Ludwig XIV. regierte lange"),
    ("de", "Frau Dr. Müller und Prof. Schmidt"),
    ("de", "Bei ca. 5 Stück bzw. Mengen"),
    ("de", "Siehe Abb. Eins und Nr. Zwei"),
    ("es", "El Sr. Pérez llegó"),
    ("es", "La Dra. García y el Lic. Ruiz"),
    ("es", "Vivo en EE. UU. desde 2010"),
    ("es", "p. ej. este caso"),
    ("fr", "J'ai vu Mme. Roy hier"),
    ("fr", "M. Dupont est arrivé"),
    ("fr", "En 52 av. J.-C. déjà"),
    ("it", "Il Sig. Rossi è qui"),
    ("it", "La Dott.ssa Bianchi e l'Avv. Neri"),
    ("ru", "Встреча в 9 ч. утра"),
    ("ru", "А. С. Пушкин родился в 1799 г. в Москве"),
    ("ru", "на ул. Ленина и т. д. по списку"),
    ("ko", "2024. 5. 3."),
    ("en", "встреча в 9 ч. утра"),
]
PARTED = [
    ("de", ["Das kostet 5.", "Das ist gut."]),
    ("de", ["Äpfel, Birnen usw.", "Wir haben alles."]),
    ("de", ["Er ist da.", "Sie kommt später."]),
    ("es", ["Cuesta 5.", "Es barato."]),
    ("es", ["Peras, manzanas, etc.", "Luego pago."]),
    ("fr", ["Il est 5.", "Nous partons."]),
    ("fr", ["Tu viens ?", "Oui."]),
    ("it", ["Mele, pere, ecc.", "Poi pago."]),
    ("ru", ["Мне 5.", "Это мало."]),
    ("ru", ["Яблоки и т. д.", "Потом плачу."]),
    ("ja", ["値段は5円です。", "安いです。"]),
]


@pytest.mark.parametrize("size", [1, 2, 7, 100])
@pytest.mark.parametrize(("language", "text"), WHOLE)
def test_an_abbreviation_or_an_ordinal_ends_no_sentence(language: str, text: str, size: int) -> None:
    assert sentences(text, language, size) == [text]


@pytest.mark.parametrize("size", [1, 2, 7, 100])
@pytest.mark.parametrize(("language", "parts"), PARTED)
def test_a_sentence_ends_where_one_begins(language: str, parts: list[str], size: int) -> None:
    assert sentences(" ".join(parts), language, size) == parts
