# Apache Kafka 2.0.1 and its ZooKeeper, from the jars that the tests run: for a cluster of both kinds of broker.
FROM python:3.11-slim-bookworm AS jars
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless maven \
    && rm -rf /var/lib/apt/lists/*
COPY benchmarks/kafka_jars.py ./
RUN python kafka_jars.py /opt/kafka && rm /opt/kafka/pom.xml

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --user-group --no-create-home kafka \
    && install -d -o kafka -g kafka /var/lib/kafka /var/lib/zookeeper
COPY --from=jars /opt/kafka /opt/kafka
# The first jars replace those of the same name; the logging is Kafka's own, to standard output.
ENV CLASSPATH=/opt/kafka/zookeeper-3.5.10.jar:/opt/kafka/zookeeper-jute-3.5.10.jar:/opt/kafka/*
RUN printf '%s\n' 'log4j.rootLogger=WARN, out' 'log4j.appender.out=org.apache.log4j.ConsoleAppender' \
    'log4j.appender.out.layout=org.apache.log4j.PatternLayout' \
    'log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n' > /etc/log4j.properties \
    && printf 'log.dirs=/var/lib/kafka\n' > /etc/kafka.properties
ENV JAVA_TOOL_OPTIONS="-Dlog4j.configuration=file:/etc/log4j.properties -Dzookeeper.admin.enableServer=false"
USER kafka
VOLUME /var/lib/kafka /var/lib/zookeeper
ENTRYPOINT ["java"]
CMD ["-Xmx512m", "kafka.Kafka", "/etc/kafka.properties"]
