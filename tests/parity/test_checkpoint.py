"""An upstream directory, converted and loaded, gives what upstream's modules gave with the same weights."""

import numpy as np
import pytest
import torch

from tests.support.flow import PARITY_ATOL
from tests.support.golden import golden_state_dict, load_arrays
from tests.support.upstream_source import GOLDEN, RecordedProgress, make_source
from tests.support.vocoder import golden_excitation
from voicegate.engine import units
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import load_prompt
from voicegate.engine.flow.torch.offline import render_offline
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.torch.offline import OfflineVocoder

CPU = torch.device("cpu")
# Ten times what two correct float32 implementations differ by (golden README).
HIDDEN_TOLERANCE = 3e-5
SAMPLE_TOLERANCE = 2e-4

State = dict[str, torch.Tensor]


class Converted:
    def __init__(self, directory: pytest.TempPathFactory) -> None:
        source = make_source(directory.mktemp("golden"), GOLDEN)
        self.path = directory.mktemp("converted") / "model"
        options = ConvertOptions(llm_dtype="fp32", flow_dtype="fp32", vocoder_dtype="fp32")
        convert(source, self.path, options, RecordedProgress())
        self.model: ModelConfig = load_model_config(self.path)

    def state(self, part: str) -> State:
        return load_state_dict(self.path / f"{part}.safetensors")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return Converted(tmp_path_factory)


@pytest.mark.parametrize(("part", "upstream"), [("llm", "llm"), ("flow", "flow"), ("vocoder", "hift")])
def test_tensors_are_upstreams(converted: Converted, part: str, upstream: str) -> None:
    state = converted.state(part)
    expected = golden_state_dict(upstream)
    assert set(expected) <= set(state)
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


def test_llm(converted: Converted) -> None:
    golden = load_arrays("llm.npz")
    network = LlmModel(converted.model.llm, converted.state("llm"))
    first_rows = torch.tensor([0, network.first_speech_row])
    rows = torch.from_numpy(golden["uni.fed_ids"]) + first_rows[torch.from_numpy(golden["uni.fed_kind"]).long()]
    cache = KvCache(converted.model.llm, num_slots=1, max_positions=len(rows), device=CPU, dtype=torch.float32)
    attention = RaggedAttention(cache, [Span(0, 0, len(rows))])
    with torch.inference_mode():
        hidden = network.forward(network.embed(rows), attention)
    np.testing.assert_allclose(hidden, golden["uni.hidden_all"], atol=HIDDEN_TOLERANCE, rtol=0)


def test_flow(converted: Converted) -> None:
    arrays = load_arrays("flow.npz")
    names = ("prompt_token", "prompt_feat", "embedding", "token", "mel_full_stream")
    golden = {name: torch.from_numpy(arrays[name]) for name in names}
    noise = load_state_dict(converted.path / "flow_noise.safetensors")["noise"]
    model = FlowModel(converted.model.flow, converted.state("flow"), device=CPU, dtype=torch.float32, noise=noise)
    prompt = FlowPrompt(golden["prompt_token"][0], golden["prompt_feat"][0], golden["embedding"][0])
    tokens = golden["token"][0].tolist()
    mel = render_offline(model, load_prompt(model, prompt), tokens, streaming=True, is_final=True)
    torch.testing.assert_close(mel, golden["mel_full_stream"][0], rtol=0, atol=PARITY_ATOL)


def test_vocoder(converted: Converted) -> None:
    golden = load_arrays("hift.npz")
    mel = torch.from_numpy(golden["mel"][0])
    num_samples = mel.shape[1] * units.SAMPLES_PER_FRAME
    model = VocoderModel(
        converted.model.vocoder,
        converted.state("vocoder"),
        max_samples=num_samples,
        device=CPU,
        excitation=golden_excitation(num_samples),
    )
    speech = OfflineVocoder(model).render(mel, is_final=True)
    np.testing.assert_allclose(speech, golden["speech_final"][0], atol=SAMPLE_TOLERANCE, rtol=0)


def test_tokenizer(converted: Converted) -> None:
    path = converted.path / "tokenizer.json"
    tokenizer = TextTokenizer.from_file(path, end_of_prompt_id=converted.model.llm.end_of_prompt_id)
    assert tokenizer.encode_prompt("<|endofprompt|>[laughter]") == (151_646, 151_651)
