# The gateway with the tiny model on a CPU. Not built in CI (no container engine there): see docs/operations.md.
# libopus is all that wheels do not bring: soundfile's have libsndfile in them.
FROM python:3.12-slim

RUN apt-get update && apt-get install -y --no-install-recommends libopus0 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/voicegate
COPY pyproject.toml constraints.txt README.md ./
COPY protocol protocol
COPY engine engine
COPY gateway gateway
COPY clients clients
COPY bench bench
RUN pip install --no-cache-dir -c constraints.txt -e '.[server]'
COPY models/tiny models/tiny

RUN useradd --system voicegate
USER voicegate
ENV VOICEGATE_HOST=0.0.0.0
EXPOSE 8080
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz')"]
ENTRYPOINT ["voicegate"]
CMD ["serve"]
