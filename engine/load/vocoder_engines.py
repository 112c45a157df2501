"""TensorRT engines of a model's vocoder: which there must be."""

from voicegate.engine.backends.tensorrt.vocoder.shape import GRAPH_VERSION, FilterShape
from voicegate.engine.config import EngineConfig
from voicegate.engine.load.tensorrt_engines import WantedEngines
from voicegate.engine.model.config import ModelConfig, VocoderConfig
from voicegate.engine.units import NUM_MELS
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.packing import Packer

Bucket = tuple[int, int]  # streams, frames


def vocoder_engines(
    config: EngineConfig, model: ModelConfig, cuda: VocoderCudaConfig | None = None
) -> WantedEngines[Bucket, FilterShape]:
    """`cuda`: whose buckets and precision; None: those that the engine runs with."""
    cuda = cuda or VocoderCudaConfig(config.vocoder_precision)
    return WantedEngines(
        part="vocoder",
        shapes=filter_shapes(model.vocoder, cuda),
        precision=cuda.precision,
        graph_version=GRAPH_VERSION,
        weights=config.model_dir / "vocoder.safetensors",
        described=model.vocoder,
    )


def filter_shapes(vocoder: VocoderConfig, cuda: VocoderCudaConfig) -> dict[Bucket, FilterShape]:
    """The least first."""
    channels = Packer({}, PRECISIONS[cuda.precision]).channels
    mel, spectrum = channels(NUM_MELS), channels(vocoder.stft_size + 2)
    return {
        (num_rows, num_frames): FilterShape(num_rows, num_frames, mel, spectrum)
        for num_rows in cuda.batch_buckets
        for num_frames in cuda.frame_buckets
    }
