# The gateway with the tiny model on a CPU. Not built in CI (no container engine there): see docs/operations.md.
# What changes seldom stands below what changes often: an edit of our code installs our wheels again, and nothing else.
FROM python:3.12-slim AS requirements

WORKDIR /src
COPY pyproject.toml deploy/requirements.py ./
RUN python requirements.py pyproject.toml > requirements.txt


FROM python:3.12-slim AS wheels

WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip pip wheel --no-deps --wheel-dir /wheels . ./models


FROM python:3.12-slim

# libopus is all that wheels do not bring: soundfile's have libsndfile in them, PyAV's FFmpeg.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libopus0 && rm -rf /var/lib/apt/lists/*

# Give PyTorch's own index of builds for CPUs (--build-arg TORCH_INDEX_URL=..., its installation page names it): the
# default index has for x86-64 only what brings some GB of CUDA's libraries.
ARG TORCH_INDEX_URL
COPY constraints.txt /opt/voicegate/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -c /opt/voicegate/constraints.txt ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch

COPY --from=requirements /src/requirements.txt /opt/voicegate/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -c /opt/voicegate/constraints.txt -r /opt/voicegate/requirements.txt

RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --no-index /wheels/*.whl && pip check

RUN useradd --system --uid 10001 voicegate && install -d -o 10001 /voices
USER 10001

# Who runs it gives it a key (VOICEGATE_API_KEY) or says that it needs none (VOICEGATE_REQUIRE_KEY=false).
# Docker kills what has not stopped after 10 s: whoever gives it longer raises the drain time, too.
ENV VOICEGATE_HOST=0.0.0.0 VOICEGATE_METRICS_HOST=0.0.0.0 VOICEGATE_REQUIRE_KEY=true VOICEGATE_DRAIN_S=8
EXPOSE 8080
# Not /readyz: a server that is full, or drains, is well.
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s CMD ["python", "-c", \
    "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('VOICEGATE_PORT', 8080)}/healthz\", timeout=4)"]
ENTRYPOINT ["voicegate"]
CMD ["serve"]
