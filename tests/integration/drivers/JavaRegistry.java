import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Avro records by Flink's serializers, over the client of Confluent's registry that they bring.
 *
 * <p>Arguments: bootstrap servers, the registry's URL, a topic, a schema; then the names to write, each in a record with
 * this field. Without any, all records are read by the schema and printed.
 */
public final class JavaRegistry {
    private static final Duration POLL = Duration.ofSeconds(1);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> servers = new HashMap<>(Map.of("bootstrap.servers", arguments[0]));
        String url = arguments[1], topic = arguments[2];
        Schema schema = new Schema.Parser().parse(arguments[3]);
        if (arguments.length > 4) {
            write(servers, url, topic, schema, List.of(arguments).subList(4, arguments.length));
        } else {
            read(servers, url, topic, schema);
        }
    }

    private static void write(Map<String, Object> servers, String url, String topic, Schema schema, List<String> names)
            throws Exception {
        var serializer = ConfluentRegistryAvroSerializationSchema.forGeneric(topic + "-value", schema, url);
        try (var producer = new KafkaProducer<>(servers, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String name : names) {
                GenericRecord record = new GenericData.Record(schema);
                record.put("name", name);
                producer.send(new ProducerRecord<>(topic, serializer.serialize(record))).get();
            }
        }
    }

    private static void read(Map<String, Object> servers, String url, String topic, Schema schema) throws Exception {
        var deserializer = ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, url);
        var partition = new TopicPartition(topic, 0);
        try (var consumer = new KafkaConsumer<>(servers, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    System.out.println(deserializer.deserialize(record.value()));
                }
            }
        }
    }
}
