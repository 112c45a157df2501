"""hyperpyyaml read as data: tags, references and arithmetic; what is not known is refused with its line."""

from pathlib import Path

import pytest

from voicegate.bench.full_size.source import Sizes, yaml_text
from voicegate.engine.checkpoint.upstream_yaml import UnfitYaml, parse_upstream_yaml, read_upstream_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1),
        ("a: 1e-06", 1e-6),
        ("a: .5", 0.5),
        ("a: 2.5e3", 2500.0),
        ("a: 'null'", "null"),
        ("a: '1e-06'", "1e-06"),
        ("a: null", None),
        ("a: False", False),
        ("a: [1, [two, 3.0]]", [1, ["two", 3.0]]),
        ("a: !name:some.function", {"!name": "some.function"}),
        ("a: !new:some.Class\n    b: 2", {"!new": "some.Class", "b": 2}),
        ("a: !apply:os.system [rm -rf /]", {"!apply": "os.system", "args": ["rm -rf /"]}),
        ("a: !ref <b>\nb: !ref <c>\nc: [1, 2]", [1, 2]),
        ("a: !ref <b.c[d]>\nb:\n    c:\n        d: 7", 7),
        ("a: !ref <b> * <c>\nb: 25\nc: 2", 50),
        ("a: !ref (<b> + 1) // 2 - -<b> % 4\nb: 7", 3),
        ("a: !ref <b> / 2\nb: 7", 3.5),
        ("a: !ref <b>/model.pt\nb: some/where", "some/where/model.pt"),
        ("a: !new:C\n    d: !ref <b>\nb: 1", {"!new": "C", "d": 1}),
    ],
)
def test_values(text: str, value: object) -> None:
    parsed = parse_upstream_yaml(text)["a"]
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "outermost level is not a mapping"),
        ("a: [1", "no YAML"),
        ("b: 1\na: !include:other.yaml", "line 2: the tag !include:other.yaml is not known here"),
        ("a: !!python/object/apply:os.system ['true']", "line 1: the tag tag:yaml.org,2002:python/object"),
        ("b: 1\na: !apply:os.system true", "line 2: !apply:os.system takes a mapping or a list"),
        ("a: &x 1\nb: *x", "line 1: anchors and aliases"),
        ("a: &x [*x]", "line 1: anchors and aliases"),
        ("a: 1\na: 2", "line 2: the key a is there twice"),
        ("1: 2", "line 1: the key '1' is not a plain text"),
        ("a: 2026-01-01", "line 1: '2026-01-01' is a kind of value"),
        ("a: 0x10", "line 1: '0x10' is a kind of value"),
        ("a: !ref <b>", "line 1: !ref <b> points at nothing"),
        ("a: !ref b", "line 1: !ref b names no <key>"),
        ("a: !ref <b>\nb: !ref <a>", "leads back to itself"),
        ("a: !ref <b> ** 2\nb: 2", "line 1: .* only numbers and"),
        ("a: !ref <b> + exit()\nb: 2", "line 1: .* only numbers and"),
        ("a: !ref <b> / 0\nb: 2", "cannot be worked out: division by zero"),
        ("a: !ref <b> *\nb: 2", "cannot be worked out: invalid syntax"),
        ("a: !ref <b> + 1\nb: true", "only numbers and"),
        ("a: !ref <b> + 1\nb: [2]", "only numbers and"),
    ],
)
def test_what_is_not_known_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnfitYaml, match=message):
        parse_upstream_yaml(text)


def test_a_whole_configuration() -> None:
    parsed = parse_upstream_yaml(yaml_text(Sizes()))
    estimator = parsed["flow"]["decoder"]["estimator"]
    assert (estimator["static_chunk_size"], estimator["num_decoding_left_chunks"]) == (50, -1)
    assert parsed["flow"]["decoder"]["cfm_params"]["content"]["sigma_min"] == 1e-6
    assert parsed["hift"]["sampling_rate"] == 24_000
    assert parsed["data_pipeline"] == [parsed["feat_extractor"]]
    assert parsed["__seed_a"] == {"!apply": "random.seed", "args": [1986]}


def test_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cosyvoice3.yaml"
    with pytest.raises(UnfitYaml, match=r"cosyvoice3\.yaml cannot be read"):
        read_upstream_yaml(path)
    path.write_text("a: !what 1")
    with pytest.raises(UnfitYaml, match=r"cosyvoice3\.yaml: line 1: the tag !what"):
        read_upstream_yaml(path)
    path.write_bytes(b"\xff")
    with pytest.raises(UnfitYaml, match="cannot be read"):
        read_upstream_yaml(path)
