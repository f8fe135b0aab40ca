# The broker and its command line. `docker build -t minibroker .`, or docker-compose.yml, which starts it.
# It is pure Python; `--build-arg MINIBROKER_COMPILE=1` makes the compiled form, which takes minutes longer.
FROM python:3.11-slim-bookworm AS compile
ARG MINIBROKER_COMPILE=
# Where python is Debian's, as in the image of .ci/setup-containers, its headers are in a package.
RUN test -z "$MINIBROKER_COMPILE" || { \
    test -e "$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || headers=libpython3-dev; \
    apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev $headers && rm -rf /var/lib/apt/lists/*; }
WORKDIR /source
COPY pyproject.toml docker/requirements.py ./
RUN python requirements.py compile > requirements.txt && pip install --no-cache-dir -r requirements.txt
COPY . .
# Optimised as gcc's -O2; 0 is built sooner.
ARG MINIBROKER_COMPILE_OPT=2
RUN pip wheel --no-build-isolation --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm AS build
RUN python -m venv --without-pip /opt/minibroker
WORKDIR /source
# Dependencies change only with pyproject.toml, so later builds take this layer from the cache.
COPY pyproject.toml docker/requirements.py ./
RUN python requirements.py > requirements.txt \
    && pip --python /opt/minibroker/bin/python install --no-cache-dir --no-compile -r requirements.txt
COPY --from=compile /wheels /wheels
RUN pip --python /opt/minibroker/bin/python install --no-cache-dir --no-compile --no-deps /wheels/*.whl \
    && /opt/minibroker/bin/python -m compileall -q /opt/minibroker/lib

FROM python:3.11-slim-bookworm
RUN useradd --system --user-group --no-create-home minibroker \
    && install -d -o minibroker -g minibroker /var/lib/minibroker
COPY --from=build /opt/minibroker /opt/minibroker
COPY docker/health.py /opt/minibroker/
# Settings are KAFKA_* variables, as in the apache/kafka image; a container needs these two different from the defaults.
ENV PATH=/opt/minibroker/bin:$PATH KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 KAFKA_LOG_DIRS=/var/lib/minibroker
USER minibroker
VOLUME /var/lib/minibroker
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=2s --timeout=5s --start-period=30s --retries=5 CMD ["python", "/opt/minibroker/health.py"]
ENTRYPOINT ["minibroker"]
CMD ["serve", "--environment", "--ready-file", "/dev/shm/minibroker.ready"]
