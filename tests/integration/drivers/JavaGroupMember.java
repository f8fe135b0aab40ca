import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Driver of one member of a group, as group_member.py is: BOOTSTRAP GROUP TOPIC SETTINGS-AS-JSON. */
final class JavaGroupMember extends LineDriver implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    private static final Duration POLL = Duration.ofMillis(50);

    private final String topic;
    private final KafkaConsumer<String, String> consumer;
    private final ArrayNode read = JSON.createArrayNode();
    private final List<Integer> lost = new ArrayList<>();
    private JsonNode failure = JSON.nullNode();
    private boolean isClosed;

    private JavaGroupMember(String bootstrap, String group, String topic, JsonNode settings) {
        this.topic = topic;
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("session.timeout.ms", 3000);
        config.put("heartbeat.interval.ms", 200);
        config.put("enable.auto.commit", false);
        put(config, settings);
        if ("consumer".equals(config.get("group.protocol"))) { // the broker has these
            config.keySet().removeAll(Set.of("session.timeout.ms", "heartbeat.interval.ms"));
        }
        config.computeIfPresent("partition.assignment.strategy", (key, name) -> ASSIGNORS.get(name));
        consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        if (topic.startsWith("^")) {
            consumer.subscribe(Pattern.compile(topic), this);
        } else {
            consumer.subscribe(List.of(topic), this);
        }
    }

    public static void main(String[] arguments) throws Exception {
        new JavaGroupMember(arguments[0], arguments[1], arguments[2], JSON.readTree(arguments[3])).serve();
    }

    @Override
    JsonNode run(String operation, JsonNode arguments) {
        switch (operation) {
            case "assignment": return hasWork() ? partitions(consumer.assignment()) : JSON.createArrayNode();
            case "lost": return JSON.valueToTree(lost);
            case "failure": return failure;
            case "records": return read;
            case "commit": consumer.commitSync(); return JSON.nullNode();
            case "committed": return committed(new TopicPartition(topic, arguments.get("partition").asInt()));
            case "close": consumer.close(); isClosed = true; return JSON.nullNode();
            default: throw new IllegalArgumentException("no operation " + operation);
        }
    }

    @Override
    boolean hasWork() {
        return !isClosed && failure.isNull();
    }

    @Override
    void work() {
        try {
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                read.addArray().add(record.partition()).add(record.offset()).add(record.value());
            }
        } catch (Exception error) {
            failure = describe(error);
        }
    }

    private JsonNode committed(TopicPartition partition) {
        OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
        return found == null ? JSON.nullNode() : JSON.valueToTree(found.offset());
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        partitions(revoked).forEach(partition -> lost.add(partition.asInt()));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> assigned) { }

    private static ArrayNode partitions(Collection<TopicPartition> partitions) {
        TreeSet<Integer> numbers = new TreeSet<>();
        partitions.forEach(partition -> numbers.add(partition.partition()));
        return JSON.valueToTree(numbers);
    }
}
