import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Driver of members of share groups, and of their administrator, as sharer.py is: BOOTSTRAP. */
final class JavaSharer extends LineDriver {
    private static final Duration CLOSE = Duration.ofSeconds(30);

    private final String bootstrap;
    private final Admin admin;
    private final Map<String, KafkaShareConsumer<String, String>> members = new HashMap<>();
    private final Map<String, ArrayNode> told = new HashMap<>();

    private JavaSharer(String bootstrap) {
        this.bootstrap = bootstrap;
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        new JavaSharer(arguments[0]).serve();
    }

    @Override
    JsonNode run(String operation, JsonNode given) throws Exception {
        String group = given.path("group").asText();
        if (operation.equals("open")) {
            open(given.get("member").asText(), group, given);
            return JSON.nullNode();
        }
        if (!given.has("member")) {
            return administer(operation, group, given);
        }
        String member = given.get("member").asText();
        KafkaShareConsumer<String, String> consumer = members.get(member);
        switch (operation) {
            case "subscribe": consumer.subscribe(names(given.get("topics"))); return JSON.nullNode();
            case "subscription": return JSON.valueToTree(new TreeSet<>(consumer.subscription()));
            case "poll": return poll(consumer, given.get("ms").asLong());
            case "acknowledge":
                consumer.acknowledge(new ConsumerRecord<>(given.get("topic").asText(), given.get("partition").asInt(),
                    given.get("offset").asLong(), "", ""), AcknowledgeType.valueOf(given.get("kind").asText().toUpperCase()));
                return JSON.nullNode();
            case "commit": return commit(consumer);
            case "commit_async": consumer.commitAsync(); return JSON.nullNode();
            case "told": return told.get(member);
            case "wake": consumer.wakeup(); return JSON.nullNode();
            case "lock_ms": return JSON.valueToTree(consumer.acquisitionLockTimeoutMs().orElse(null));
            case "close": members.remove(member).close(CLOSE); return JSON.nullNode();
            default: throw new IllegalArgumentException("no operation " + operation);
        }
    }

    private void open(String member, String group, JsonNode given) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("share.acknowledgement.mode", given.get("mode").asText());
        config.put("share.acquire.mode", given.get("acquires").asText());
        config.put("max.poll.records", given.get("most").asText());
        config.put("metadata.max.age.ms", 100);
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        ArrayNode heard = JSON.createArrayNode();
        consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((partition, found) -> {
            ArrayNode row = heard.addArray().add(partition.topicPartition().toString());
            row.add(JSON.<JsonNode>valueToTree(new TreeSet<>(found)));
            row.add(code(error));
        }));
        told.put(member, heard);
        members.put(member, consumer);
        if (!given.get("topics").isEmpty()) {
            consumer.subscribe(names(given.get("topics")));
        }
    }

    private static JsonNode poll(KafkaShareConsumer<String, String> consumer, long ms) {
        ArrayNode found = JSON.createArrayNode();
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(ms))) {
            ArrayNode row = found.addArray().add(record.topic()).add(record.partition()).add(record.offset());
            row.add(record.value()).add(record.deliveryCount().orElse(null));
        }
        return found;
    }

    private static JsonNode commit(KafkaShareConsumer<String, String> consumer) {
        ObjectNode outcomes = JSON.createObjectNode();
        consumer.commitSync().forEach(
            (partition, error) -> outcomes.set(partition.topicPartition().toString(), code(error.orElse(null))));
        return outcomes;
    }

    private JsonNode administer(String operation, String group, JsonNode given) throws Exception {
        switch (operation) {
            case "list":
                ArrayNode rows = JSON.createArrayNode();
                for (GroupListing each : admin.listGroups().all().get()) {
                    if (each.groupId().equals(group)) {
                        rows.add(each.type().get().toString()).add(each.groupState().get().toString());
                    }
                }
                return rows;
            case "describe":
                return described(admin.describeShareGroups(Set.of(group)).describedGroups().get(group).get());
            case "offsets":
                ObjectNode starts = JSON.createObjectNode();
                admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(group).get().forEach((partition, found) -> starts.putArray(
                        partition.toString()).add(found.startOffset()).add(found.lag().orElse(-1L)));
                return starts;
            case "alter":
                Map<TopicPartition, Long> offsets = new HashMap<>();
                given.get("offsets").fields().forEachRemaining(each -> offsets.put(
                    new TopicPartition(given.get("topic").asText(), Integer.parseInt(each.getKey())),
                    each.getValue().asLong()));
                admin.alterShareGroupOffsets(group, offsets).all().get();
                return JSON.nullNode();
            case "forget":
                admin.deleteShareGroupOffsets(group, Set.of(given.get("topic").asText())).all().get();
                return JSON.nullNode();
            case "delete":
                admin.deleteShareGroups(Set.of(group)).all().get();
                return JSON.nullNode();
            default: throw new IllegalArgumentException("no operation " + operation);
        }
    }

    private static JsonNode described(ShareGroupDescription group) {
        ObjectNode found = JSON.createObjectNode().put("state", group.groupState().toString());
        ArrayNode assigned = found.putArray("assigned");
        for (ShareMemberDescription member : group.members()) {
            TreeSet<String> partitions = new TreeSet<>();
            member.assignment().topicPartitions().forEach(each -> partitions.add(each.toString()));
            assigned.add(JSON.<JsonNode>valueToTree(partitions));
        }
        return found;
    }

    private static List<String> names(JsonNode topics) {
        List<String> names = new ArrayList<>();
        topics.forEach(each -> names.add(each.asText()));
        return names;
    }

    private static JsonNode code(Exception error) {
        return error == null ? JSON.nullNode() : JSON.valueToTree(Errors.forException(error).code());
    }
}
