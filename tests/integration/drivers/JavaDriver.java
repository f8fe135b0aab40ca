import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsResult;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;

/** Driver of Kafka's Java client of today, which has record headers, keeps its consumers, and administrates. */
final class JavaDriver extends OldJavaDriver {
    private final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    private KafkaConsumer<byte[], byte[]> followed;
    private final List<ConsumerRecord<byte[], byte[]>> polledAhead = new ArrayList<>();
    private Admin admin;

    private JavaDriver(String bootstrap) {
        super(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        new JavaDriver(arguments[0]).serve();
    }

    @Override
    JsonNode run(String operation, JsonNode arguments) throws Exception {
        switch (operation) {
            case "produce": return produce(arguments);
            case "consume": return consume(arguments);
            case "follow": return follow(arguments);
            case "next": return poll(followed, arguments.get("count").asInt(), arguments.get("seconds").asDouble());
            case "offsets_for_times": return offsetsForTimes(arguments);
            case "watermarks": return watermarks(arguments);
            case "create_topics": return createTopics(arguments);
            case "delete_topics": return deleteTopics(arguments);
            case "list_topics": return JSON.valueToTree(new TreeSet<>(admin().listTopics().names().get()));
            case "describe_topic": return describeTopic(arguments.get("topic").asText());
            case "describe_configs": return describeConfigs(arguments);
            case "create_partitions": return createPartitions(arguments);
            case "alter_configs": return alterConfigs(arguments);
            case "change_configs": return changeConfigs(arguments);
            case "log_sizes": return logSizes();
            case "cluster": return cluster();
            default: throw new IllegalArgumentException("no operation " + operation);
        }
    }

    @Override
    void addHeaders(ProducerRecord<byte[], byte[]> row, JsonNode record) {
        for (JsonNode header : record.get("headers")) {
            row.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
    }

    // Consuming

    private JsonNode consume(JsonNode arguments) {
        KafkaConsumer<byte[], byte[]> consumer = assigned(
            arguments.get("topic").asText(), arguments.get("partitions"), arguments.get("start"),
            arguments.get("settings"));
        try {
            return poll(consumer, arguments.get("count").asInt(), arguments.get("seconds").asDouble());
        } finally {
            consumer.unsubscribe();
        }
    }

    private JsonNode follow(JsonNode arguments) {
        ArrayNode partitions = JSON.createArrayNode().add(arguments.get("partition").asInt());
        String topic = arguments.get("topic").asText();
        followed = assigned(topic, partitions, JSON.valueToTree("end"), arguments.get("settings"));
        return JSON.valueToTree(followed.position(new TopicPartition(topic, partitions.get(0).asInt())));
    }

    private KafkaConsumer<byte[], byte[]> assigned(
            String topic, JsonNode partitions, JsonNode start, JsonNode settings) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(settings);
        polledAhead.clear();
        assign(consumer, partitions(topic, partitions), start);
        return consumer;
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode settings) {
        return consumers.computeIfAbsent(settings.toString(), ignored -> consumer("none", settings));
    }

    private JsonNode poll(KafkaConsumer<byte[], byte[]> consumer, int count, double seconds) {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        ArrayNode found = JSON.createArrayNode();
        while (true) {
            while (found.size() < count && !polledAhead.isEmpty()) {
                found.add(withHeaders(polledAhead.remove(0)));
            }
            if (found.size() == count) {
                return found;
            }
            long left = end - System.nanoTime();
            if (left <= 0) {
                throw new IllegalStateException("waited for " + count + " records, have " + found.size());
            }
            consumer.poll(Duration.ofNanos(left)).forEach(polledAhead::add);
        }
    }

    private static ObjectNode withHeaders(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode row = consumed(record);
        ArrayNode headers = row.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return row;
    }

    private JsonNode offsetsForTimes(JsonNode arguments) {
        TopicPartition partition = partition(arguments);
        ArrayNode found = JSON.createArrayNode();
        for (JsonNode timestamp : arguments.get("timestamps_ms")) {
            OffsetAndTimestamp answer =
                consumer(JSON.createObjectNode()).offsetsForTimes(Map.of(partition, timestamp.asLong())).get(partition);
            if (answer == null) {
                found.addNull();
            } else {
                found.addArray().add(answer.offset()).add(answer.timestamp());
            }
        }
        return found;
    }

    private JsonNode watermarks(JsonNode arguments) {
        TopicPartition partition = partition(arguments);
        KafkaConsumer<byte[], byte[]> consumer = consumer(JSON.createObjectNode());
        return JSON.createArrayNode()
            .add(consumer.beginningOffsets(List.of(partition)).get(partition))
            .add(consumer.endOffsets(List.of(partition)).get(partition));
    }

    // Administration

    private JsonNode createTopics(JsonNode arguments) {
        List<NewTopic> topics = new ArrayList<>();
        for (Iterator<Map.Entry<String, JsonNode>> rows = arguments.get("topics").fields(); rows.hasNext();) {
            Map.Entry<String, JsonNode> row = rows.next();
            NewTopic topic = new NewTopic(row.getKey(), row.getValue().get("num_partitions").asInt(),
                (short) row.getValue().get("replication_factor").asInt());
            if (row.getValue().has("configs")) {
                Map<String, String> configs = new HashMap<>();
                row.getValue().get("configs").fields().forEachRemaining(
                    config -> configs.put(config.getKey(), config.getValue().isNull() ? null : config.getValue().asText()));
                topic.configs(configs);
            }
            topics.add(topic);
        }
        CreateTopicsOptions options =
            new CreateTopicsOptions().validateOnly(arguments.get("validate_only").asBoolean());
        return codes(admin().createTopics(topics, options).values());
    }

    private JsonNode deleteTopics(JsonNode arguments) {
        List<String> names = new ArrayList<>();
        arguments.get("topics").forEach(name -> names.add(name.asText()));
        return codes(admin().deleteTopics(names).topicNameValues());
    }

    private JsonNode describeTopic(String topic) throws Exception {
        TopicDescription description = admin().describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        ObjectNode described = JSON.createObjectNode().put("code", 0);
        ArrayNode partitions = described.putArray("partitions");
        for (TopicPartitionInfo info : description.partitions()) {
            ObjectNode row = partitions.addObject().put("partition", info.partition()).put("leader", info.leader().id());
            ArrayNode replicas = row.putArray("replicas");
            info.replicas().forEach(replica -> replicas.add(replica.id()));
        }
        return described;
    }

    private JsonNode describeConfigs(JsonNode arguments) throws Exception {
        ConfigResource resource = new ConfigResource(
            ConfigResource.Type.valueOf(arguments.get("kind").asText().toUpperCase()), arguments.get("name").asText());
        Config config = admin().describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, JsonNode> described = new TreeMap<>();
        TreeSet<String> wanted = new TreeSet<>();
        arguments.get("keys").forEach(key -> wanted.add(key.asText()));
        for (ConfigEntry entry : config.entries()) {
            if (wanted.isEmpty() || wanted.contains(entry.name())) {
                ObjectNode row = JSON.createObjectNode();
                row.put("value", entry.value()).put("source", entry.source().name());
                row.put("read_only", entry.isReadOnly()).put("sensitive", entry.isSensitive());
                described.put(entry.name(), row);
            }
        }
        return JSON.valueToTree(described);
    }

    private JsonNode createPartitions(JsonNode arguments) {
        String topic = arguments.get("topic").asText();
        Map<String, NewPartitions> wanted = Map.of(topic, NewPartitions.increaseTo(arguments.get("count").asInt()));
        CreatePartitionsOptions options =
            new CreatePartitionsOptions().validateOnly(arguments.get("validate_only").asBoolean());
        return codes(admin().createPartitions(wanted, options).values()).get(topic);
    }

    /** What older clients send, by its name: it went with 4.0. */
    private JsonNode alterConfigs(JsonNode arguments) throws Exception {
        List<ConfigEntry> entries = new ArrayList<>();
        arguments.get("configs").fields().forEachRemaining(
            config -> entries.add(new ConfigEntry(config.getKey(), config.getValue().asText())));
        Object altered = Admin.class.getMethod("alterConfigs", Map.class)
            .invoke(admin(), Map.of(resource(arguments), new Config(entries)));
        ((AlterConfigsResult) altered).all().get();
        return null;
    }

    private JsonNode changeConfigs(JsonNode arguments) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        arguments.get("changes").fields().forEachRemaining(change -> {
            boolean isUnset = change.getValue().isNull();
            operations.add(new AlterConfigOp(
                new ConfigEntry(change.getKey(), isUnset ? null : change.getValue().asText()),
                isUnset ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET));
        });
        admin().incrementalAlterConfigs(Map.of(resource(arguments), operations)).all().get();
        return null;
    }

    private static ConfigResource resource(JsonNode arguments) {
        return new ConfigResource(
            ConfigResource.Type.valueOf(arguments.get("kind").asText().toUpperCase()), arguments.get("name").asText());
    }

    private JsonNode logSizes() throws Exception {
        ObjectNode sizes = JSON.createObjectNode();
        List<Integer> brokers = new ArrayList<>();
        admin().describeCluster().nodes().get().forEach(node -> brokers.add(node.id()));
        admin().describeLogDirs(brokers).allDescriptions().get().values().forEach(directories ->
            directories.values().forEach(directory -> directory.replicaInfos().forEach(
                (partition, replica) -> sizes.put(partition.toString(), replica.size()))));
        return sizes;
    }

    private JsonNode cluster() throws Exception {
        ObjectNode described = JSON.createObjectNode();
        ArrayNode nodes = described.putArray("nodes");
        for (Node node : admin().describeCluster().nodes().get()) {
            nodes.addArray().add(node.id()).add(node.host()).add(node.port());
        }
        return described.put("controller", admin().describeCluster().controller().get().id());
    }

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", 20_000));
        }
        return admin;
    }

    private static JsonNode codes(Map<String, KafkaFuture<Void>> answers) {
        ObjectNode codes = JSON.createObjectNode();
        answers.forEach((name, answer) -> codes.put(name, codeOf(answer)));
        return codes;
    }

    private static int codeOf(KafkaFuture<Void> answer) {
        try {
            answer.get(30, TimeUnit.SECONDS);
            return 0;
        } catch (ExecutionException error) {
            return Errors.forException(error.getCause()).code();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static TopicPartition partition(JsonNode arguments) {
        return new TopicPartition(arguments.get("topic").asText(), arguments.get("partition").asInt());
    }
}
