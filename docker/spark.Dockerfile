# The flights' replay, the Spark job and the check of its result: a JDK, pyspark and its Kafka connector, 1.3 GB.
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --user-group --create-home spark \
    && install -d -o spark -g spark /opt/minibroker /opt/connector /var/lib/delays
USER spark
RUN python -m venv /opt/minibroker
ENV PATH=/opt/minibroker/bin:$PATH MINIBROKER_DEPS=/opt/connector
WORKDIR /source
# Each layer stays in the cache until its files change, so a change of the job builds in seconds.
COPY pyproject.toml docker/requirements.py ./
RUN python requirements.py demo > /tmp/requirements.txt \
    && pip install --no-cache-dir -r /tmp/requirements.txt
COPY spark_jobs/session.py ./
RUN python session.py && rm -r /opt/connector/ivy/cache
COPY --chown=spark:spark . .
RUN pip install --no-cache-dir --no-deps .
WORKDIR /tmp
VOLUME /var/lib/delays
CMD ["python", "-m", "minibroker.spark_jobs.flight_delays", "--help"]
