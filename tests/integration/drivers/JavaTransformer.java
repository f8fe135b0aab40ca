import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** See transformer.py: BOOTSTRAP GROUP SOURCE TARGET TRANSACTIONAL-ID SETTINGS-AS-JSON. */
public final class JavaTransformer implements ConsumerRebalanceListener {
    private static final Duration IDLE = Duration.ofMillis(200);
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;
    private final String target;
    private boolean hasRebalanced;

    private JavaTransformer(
            String bootstrap, String group, String source, String target, String transactionalId, int most) {
        this.target = target;
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "transactional.id", transactionalId,
                "transaction.timeout.ms", 10_000, "delivery.timeout.ms", 30_000, "request.timeout.ms", 10_000),
            new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        Map<String, Object> reading = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "enable.auto.commit", false,
            "auto.offset.reset", "earliest", "isolation.level", "read_committed", "max.poll.records", most,
            "session.timeout.ms", 3000, "heartbeat.interval.ms", 200));
        reading.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(source), this);
    }

    public static void main(String[] arguments) throws Exception {
        int most = new ObjectMapper().readTree(arguments[5]).get("records_per_transaction").asInt();
        JavaTransformer transformer = new JavaTransformer(
            arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], most);
        try {
            while (true) {
                transformer.transform(most);
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private void transform(int most) {
        ConsumerGroupMetadata membership = consumer.groupMetadata();
        List<ConsumerRecord<byte[], byte[]>> records = gather(most);
        if (records.isEmpty()) {
            return;
        }
        try {
            transact(records, membership);
        } catch (ProducerFencedException | OutOfOrderSequenceException error) {
            throw error;
        } catch (KafkaException error) {
            System.err.println("aborting: " + error);
            producer.abortTransaction();
            rewind();
        }
    }

    private List<ConsumerRecord<byte[], byte[]>> gather(int most) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        while (records.size() < most) {
            int before = records.size();
            consumer.poll(IDLE).forEach(records::add);
            if (hasRebalanced) {
                hasRebalanced = false;
                rewind();
                return List.of();
            }
            if (records.size() == before) {
                break;
            }
        }
        return records;
    }

    private void transact(List<ConsumerRecord<byte[], byte[]>> records, ConsumerGroupMetadata membership) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
            offsets.put(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, membership);
        producer.commitTransaction();
    }

    private void rewind() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata found = committed.get(partition);
            consumer.seek(partition, found == null ? 0 : found.offset());
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        hasRebalanced = true;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
        hasRebalanced = true;
    }
}
