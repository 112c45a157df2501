# The gateway: --target cpu (the default: small, the tiny model), gpu (our runner on CUDA), tensorrt-llm (NVIDIA's, for
# --llm-backend tensorrt-llm). Not built in CI (no container engine there): see docs/operations/deploying.md, "Container".
# Layers that change seldom stand below those that change often: an edit of our code installs our wheels again, and nothing else.
# For builds that can be repeated give digests: --build-arg PYTHON_IMAGE=python:3.12-slim@sha256:...
ARG PYTHON_IMAGE=python:3.12-slim
# NVIDIA's image of TensorRT-LLM's release 1.2.1, under the name that its catalogue or your registry gives it.
ARG TENSORRT_LLM_IMAGE=tensorrt-llm-release:1.2.1


FROM ${PYTHON_IMAGE} AS requirements

WORKDIR /src
COPY pyproject.toml constraints.txt deploy/requirements.py deploy/gpu-versions.txt ./
RUN python requirements.py pyproject.toml server > cpu.txt \
    && python requirements.py pyproject.toml server gpu > gpu.txt \
    && grep -v '^torch[><=]' cpu.txt > tensorrt-llm.txt \
    && sed 's/==.*/==/; s/^/^/' gpu-versions.txt > other.txt \
    && grep -v -f other.txt -e '^cuda-' -e '^nvidia-' constraints.txt > gpu-constraints.txt && cat gpu-versions.txt >> gpu-constraints.txt \
    && grep -v -e '^triton==' -e '^cuda-' -e '^nvidia-' constraints.txt > cpu-constraints.txt


FROM ${PYTHON_IMAGE} AS wheels

# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# Where this runs on a CPU there is no compiler: the wheel has what decode.c becomes (docs/adr/0018).
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m voicegate.engine.llm.cpu.library engine/llm/cpu && pip wheel --no-deps --wheel-dir /wheels . ./models


# Settings of all three, and their health check.
FROM ${PYTHON_IMAGE} AS server

# libopus is all that wheels do not bring: soundfile's have libsndfile in them, PyAV's FFmpeg.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libopus0 && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 voicegate && install -d -o 10001 /voices /cache

# Its operator gives it a key (VOICEGATE_API_KEY) or says that it needs none (VOICEGATE_REQUIRE_KEY=false).
# Docker kills what has not stopped after 10 s: whoever gives it longer raises the drain time, too.
ENV VOICEGATE_HOST=0.0.0.0 VOICEGATE_METRICS_HOST=0.0.0.0 VOICEGATE_REQUIRE_KEY=true VOICEGATE_DRAIN_S=8
EXPOSE 8080
# Not /readyz: a server that is full, or drains, is well. Without the proxy that Docker may give all containers.
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s CMD ["python", "-c", "import os, urllib.request as r; \
    r.build_opener(r.ProxyHandler({})).open(f\"http://127.0.0.1:{os.environ.get('VOICEGATE_PORT', 8080)}/healthz\", timeout=4)"]
ENTRYPOINT ["voicegate"]
CMD ["serve"]


FROM ${TENSORRT_LLM_IMAGE} AS tensorrt-llm

# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libopus0 && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 voicegate && install -d -o 10001 /voices /cache

# NVIDIA's parts stay as they are, its torch and Triton above all; missing ones are added.
COPY --from=requirements /src/tensorrt-llm.txt /opt/voicegate/requirements.txt
RUN --mount=type=cache,target=/root/.cache/pip \
    pip freeze --exclude-editable > /opt/voicegate/all.txt \
    && grep '==' /opt/voicegate/all.txt > /opt/voicegate/image.txt \
    && pip install --break-system-packages -c /opt/voicegate/image.txt -r /opt/voicegate/requirements.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --break-system-packages --no-cache-dir --no-deps --no-index /wheels/*.whl

USER 10001
ENV VOICEGATE_HOST=0.0.0.0 VOICEGATE_METRICS_HOST=0.0.0.0 VOICEGATE_REQUIRE_KEY=true VOICEGATE_DRAIN_S=8 \
    VOICEGATE_DEVICE=cuda VOICEGATE_LLM_BACKEND=tensorrt-llm TRITON_CACHE_DIR=/cache/triton
EXPOSE 8080
HEALTHCHECK --start-period=300s --interval=10s --timeout=5s CMD ["python3", "-c", "import os, urllib.request as r; \
    r.build_opener(r.ProxyHandler({})).open(f\"http://127.0.0.1:{os.environ.get('VOICEGATE_PORT', 8080)}/healthz\", timeout=4)"]
ENTRYPOINT ["voicegate"]
CMD ["serve"]


FROM server AS gpu

# Triton compiles its launchers at every start that finds its cache empty, and needs a C compiler for that: the one
# build tool here, which it is of use to at run time.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY --from=requirements /src/gpu.txt /opt/voicegate/requirements.txt
COPY --from=requirements /src/gpu-constraints.txt /opt/voicegate/constraints.txt
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -c /opt/voicegate/constraints.txt -r /opt/voicegate/requirements.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --no-index /wheels/*.whl && pip check

USER 10001
# Without a GPU it stops, and does not fall back to a CPU. Mount /cache: kernels compiled once are ready after a restart.
ENV VOICEGATE_DEVICE=cuda TRITON_CACHE_DIR=/cache/triton NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility


FROM server AS cpu

# Give PyTorch's own index of builds for CPUs (--build-arg TORCH_INDEX_URL=..., its installation page names it): the
# default index has for x86-64 only what brings some GB of CUDA's libraries, and a Triton of its own choice.
ARG TORCH_INDEX_URL
COPY --from=requirements /src/cpu-constraints.txt /opt/voicegate/constraints.txt
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -c /opt/voicegate/constraints.txt ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch
COPY --from=requirements /src/cpu.txt /opt/voicegate/requirements.txt
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -c /opt/voicegate/constraints.txt -r /opt/voicegate/requirements.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --no-index /wheels/*.whl && pip check

USER 10001
