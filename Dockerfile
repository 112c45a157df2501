# The gateway with the tiny model on a CPU. Not built in CI (no container engine there): see docs/operations.md.
FROM python:3.12-slim AS wheels

WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . ./models


FROM python:3.12-slim

# libopus is all that wheels do not bring: soundfile's have libsndfile in them, PyAV's FFmpeg.
RUN apt-get update && apt-get install -y --no-install-recommends libopus0 && rm -rf /var/lib/apt/lists/*

# Torch in a layer of its own, below our code: an edit of ours does not install it again. Without an index of CPU builds
# (--build-arg TORCH_INDEX_URL=...) CUDA's libraries come along, some GB that a CPU does not need.
ARG TORCH_INDEX_URL
COPY constraints.txt /opt/voicegate/
RUN pip install --no-cache-dir -c /opt/voicegate/constraints.txt ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch

RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels --mount=type=cache,target=/root/.cache/pip \
    pip install -c /opt/voicegate/constraints.txt \
    /wheels/voicegate_tiny_model-*.whl "$(ls /wheels/voicegate-*.whl)[server]"

RUN useradd --system voicegate
USER voicegate
# Who runs it gives it a key (VOICEGATE_API_KEY) or says that it needs none (VOICEGATE_REQUIRE_KEY=false).
ENV VOICEGATE_HOST=0.0.0.0 VOICEGATE_REQUIRE_KEY=true
EXPOSE 8080
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz')"]
ENTRYPOINT ["voicegate"]
CMD ["serve"]
