import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Driver of Kafka's Java client as it was in 0.10.2 and 0.11: the operations of line_protocol.py, one JSON object a
 * line. Record headers are left out. What not every release has is called by its name: transactions came with 0.11, and
 * `poll(long)` went with 4.0.
 */
class OldJavaDriver extends LineDriver {
    final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    OldJavaDriver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        new OldJavaDriver(arguments[0]).serve();
    }

    @Override
    JsonNode run(String operation, JsonNode arguments) throws Exception {
        switch (operation) {
            case "produce": return produce(arguments);
            case "transact": return transact(arguments);
            case "consume": return consume(arguments);
            case "consume_in_group": return consumeInGroup(arguments);
            default: throw new IllegalArgumentException("no operation " + operation);
        }
    }

    // Producing

    final JsonNode produce(JsonNode arguments) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(arguments);
        List<Future<RecordMetadata>> sent = send(producer, arguments);
        producer.flush();
        return acked(sent);
    }

    /** Write all records in one transaction, and end it by the method that `end` names. */
    private JsonNode transact(JsonNode arguments) throws Exception {
        boolean isNew = !producers.containsKey(producerKey(arguments));
        KafkaProducer<byte[], byte[]> producer = producer(arguments);
        if (isNew) {
            call(producer, "initTransactions");
        }
        call(producer, "beginTransaction");
        List<Future<RecordMetadata>> sent = send(producer, arguments);
        producer.flush();
        call(producer, arguments.get("end").asText());
        return acked(sent);
    }

    private static void call(KafkaProducer<byte[], byte[]> producer, String method) throws Exception {
        KafkaProducer.class.getMethod(method).invoke(producer);
    }

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs)
            throws Exception {
        return (ConsumerRecords<byte[], byte[]>)
            KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, timeoutMs);
    }

    private List<Future<RecordMetadata>> send(KafkaProducer<byte[], byte[]> producer, JsonNode arguments) {
        Integer partition = arguments.get("partition").isNull() ? null : arguments.get("partition").asInt();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : arguments.get("records")) {
            Long timestamp = record.get("timestamp_ms").isNull() ? null : record.get("timestamp_ms").asLong();
            ProducerRecord<byte[], byte[]> row = new ProducerRecord<>(
                arguments.get("topic").asText(), partition, timestamp, bytes(record.get("key")),
                bytes(record.get("value")));
            addHeaders(row, record);
            sent.add(producer.send(row));
        }
        return sent;
    }

    /** Leave them out: the client has none. */
    void addHeaders(ProducerRecord<byte[], byte[]> row, JsonNode record) { }

    private static JsonNode acked(List<Future<RecordMetadata>> sent) throws Exception {
        ArrayNode acked = JSON.createArrayNode();
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = future.get(30, TimeUnit.SECONDS);
            acked.addArray().add(metadata.partition()).add(metadata.offset()).add(metadata.timestamp());
        }
        return acked;
    }

    private static String producerKey(JsonNode arguments) {
        return arguments.get("codec").asText() + arguments.get("settings");
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode arguments) {
        return producers.computeIfAbsent(producerKey(arguments), ignored -> {
            Map<String, Object> config = new HashMap<>();
            config.put("bootstrap.servers", bootstrap);
            config.put("compression.type", arguments.get("codec").asText());
            config.put("linger.ms", 5);
            config.put("delivery.timeout.ms", 25_000); // since 2.1
            config.put("request.timeout.ms", 20_000);
            put(config, arguments.get("settings"));
            return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        });
    }

    // Consuming

    private JsonNode consume(JsonNode arguments) throws Exception {
        List<TopicPartition> assignment = partitions(arguments.get("topic").asText(), arguments.get("partitions"));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("none", arguments.get("settings"))) {
            assign(consumer, assignment, arguments.get("start"));
            return poll(consumer, arguments);
        }
    }

    static List<TopicPartition> partitions(String topic, JsonNode numbers) {
        List<TopicPartition> found = new ArrayList<>();
        numbers.forEach(number -> found.add(new TopicPartition(topic, number.asInt())));
        return found;
    }

    /** `start` is an offset, "beginning" or "end". */
    static void assign(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> assignment, JsonNode start) {
        consumer.assign(assignment);
        if (start.isNumber()) {
            assignment.forEach(partition -> consumer.seek(partition, start.asLong()));
        } else if (start.asText().equals("beginning")) {
            consumer.seekToBeginning(assignment);
        } else {
            consumer.seekToEnd(assignment);
        }
    }

    /** Read on from where the group is, or from the beginning, and commit what was read. */
    private JsonNode consumeInGroup(JsonNode arguments) throws Exception {
        ObjectNode settings = ((ObjectNode) arguments.get("settings")).put("group_id", arguments.get("group").asText());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("earliest", settings)) {
            consumer.subscribe(Collections.singletonList(arguments.get("topic").asText()));
            JsonNode found = poll(consumer, arguments);
            consumer.commitSync();
            return found;
        }
    }

    final KafkaConsumer<byte[], byte[]> consumer(String whereNothingIsCommitted, JsonNode settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("auto.offset.reset", whereNothingIsCommitted);
        config.put("enable.auto.commit", false);
        config.put("request.timeout.ms", 40_000);
        put(config, settings);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static JsonNode poll(KafkaConsumer<byte[], byte[]> consumer, JsonNode arguments) throws Exception {
        int count = arguments.get("count").asInt();
        long end = System.nanoTime() + (long) (arguments.get("seconds").asDouble() * 1e9);
        ArrayNode found = JSON.createArrayNode();
        while (found.size() < count) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                throw new IllegalStateException("waited for " + count + " records, have " + found.size());
            }
            for (ConsumerRecord<byte[], byte[]> record : poll(consumer, left / 1_000_000)) {
                found.add(consumed(record));
            }
        }
        return found;
    }

    static ObjectNode consumed(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode row = JSON.createObjectNode();
        row.put("partition", record.partition());
        row.put("offset", record.offset());
        row.put("timestamp_ms", record.timestamp());
        row.put("key", text(record.key()));
        row.put("value", text(record.value()));
        row.putArray("headers");
        return row;
    }
}
