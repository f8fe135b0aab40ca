import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KStream;

/** Kafka Streams, exactly once: BOOTSTRAP STATE-FOLDER. Counts words of `lines`, and names its keys by `names`. */
public final class StreamsCounts {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("application.id", "counts");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("statestore.cache.max.bytes", 0); // each change of a count is a record
        settings.put("num.standby.replicas", 1);
        settings.put("consumer.session.timeout.ms", 6000);
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("producer.transaction.timeout.ms", 5000);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("lines");
        lines.flatMapValues(line -> Arrays.asList(line.split(" "))).groupBy((key, word) -> word).count()
            .toStream().mapValues(count -> Long.toString(count)).to("counts");
        GlobalKTable<String, String> names = builder.globalTable("names");
        lines.join(names, (key, line) -> key, (line, name) -> name).to("named");
        new KafkaStreams(builder.build(), settings).start();
    }
}
