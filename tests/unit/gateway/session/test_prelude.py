"""Text that never sounds, so that the gateway may keep it for a while: never more than the engine leaves out."""

from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text.normalize import speakable
from voicegate.gateway.session.prelude import Prelude

# Marks and blanks among others; what the prelude takes for silent must be so in any combination.
PUNCTUATION = st.text(st.characters(categories=["P", "Z"], include_characters=" \n\t", max_codepoint=0xFFFF))
MARKS = st.text(".,;:!?…'\"‘’“”()[]{}-–—·。，、；：！？「」『』（）《》〈〉【】 \n")


@given(text=PUNCTUATION | MARKS, language=st.sampled_from(["en", "zh"]))
def test_what_waits_is_never_said(text: str, language: str) -> None:
    prelude = Prelude()
    prelude.add(text)
    if not prelude.is_something_to_say:
        assert not any(char.isalnum() for char in speakable(text, language))


def test_it_does_not_grow_for_ever() -> None:
    prelude = Prelude()
    for _ in range(1024):
        prelude.add(".")
        prelude.flush("f")
        assert not prelude.is_something_to_say
    prelude.add(".")
    assert prelude.is_something_to_say
