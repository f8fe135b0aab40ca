import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** See recorded.py: BOOTSTRAP TOPIC HISTORY. */
final class JavaRecorded extends LineDriver {
    private static final int PARTITIONS = 3;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long BETWEEN_SENDS_MS = 2;

    private final String bootstrap;
    private final String topic;
    private final FileOutputStream history;
    private final AtomicLong ids = new AtomicLong();
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong committed = new AtomicLong();
    private final AtomicLong polled = new AtomicLong();
    private final List<Thread> threads =
        List.of(new Thread(this::send), new Thread(this::transact), new Thread(this::consume));
    private volatile boolean isOver;
    private volatile Throwable failure;

    private JavaRecorded(String bootstrap, String topic, String history) throws IOException {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.history = new FileOutputStream(history, true);
        for (Thread thread : threads) {
            thread.setDaemon(true);
            thread.setUncaughtExceptionHandler((of, error) -> failure = error);
            thread.start();
        }
    }

    public static void main(String[] arguments) throws Exception {
        new JavaRecorded(arguments[0], arguments[1], arguments[2]).serve();
    }

    @Override
    JsonNode run(String operation, JsonNode arguments) throws Exception {
        if (operation.equals("finish")) {
            isOver = true;
            for (Thread thread : threads) {
                thread.join();
            }
        }
        if (failure != null) {
            throw new Exception(failure);
        }
        return JSON.createObjectNode()
            .put("sent", sent.get()).put("committed", committed.get()).put("polled", polled.get());
    }

    private ObjectNode line(String process, String event, String operation) {
        return JSON.createObjectNode().put("process", process).put("event", event).put("operation", operation);
    }

    private void note(ObjectNode line) {
        try {
            history.write((line + "\n").getBytes());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private Map<String, Object> settings(Map<String, Object> own) {
        Map<String, Object> all = new HashMap<>(own);
        all.put("bootstrap.servers", bootstrap);
        all.put("retry.backoff.ms", 50);
        return all;
    }

    private void send(KafkaProducer<String, String> producer, String process, String value, int partition) {
        long id = ids.incrementAndGet();
        note(line(process, "invoke", "send")
            .put("id", id).put("topic", topic).put("partition", partition).put("value", value));
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> note(
            error == null
                ? line(process, "ok", "send").put("id", id).put("offset", metadata.offset())
                : line(process, "info", "send").put("id", id).put("error", error.toString())));
    }

    private void send() {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                settings(Map.of("enable.idempotence", true)), new StringSerializer(), new StringSerializer())) {
            while (!isOver) {
                long number = sent.getAndIncrement();
                send(producer, "p", "p " + number, (int) (number % PARTITIONS));
                Thread.sleep(BETWEEN_SENDS_MS);
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private void transact() {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                settings(Map.of("transactional.id", topic)), new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            while (!isOver) {
                producer.beginTransaction();
                note(line("x0", "ok", "begin"));
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    send(producer, "x0", "x0 " + committed.get() + " " + partition, partition);
                }
                producer.flush();
                note(line("x0", "invoke", "commit"));
                producer.commitTransaction();
                note(line("x0", "ok", "commit"));
                committed.incrementAndGet();
            }
        }
    }

    private void consume() {
        Map<String, Object> settings = settings(Map.of(
            "group.id", topic, "auto.offset.reset", "earliest", "isolation.level", "read_committed"));
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) { }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> added) {
                    ObjectNode line = line("c", "ok", "assign");
                    ArrayNode partitions = line.putArray("partitions");
                    consumer.assignment().forEach(each -> partitions.addArray().add(each.topic()).add(each.partition()));
                    note(line);
                }
            });
            ObjectNode subscribed = line("c", "ok", "subscribe");
            subscribed.putArray("topics").add(topic);
            note(subscribed);
            while (!isOver) {
                note(line("c", "invoke", "poll"));
                ObjectNode line = line("c", "ok", "poll").put("isolation", "read_committed");
                ArrayNode records = line.putArray("records");
                for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                    records.addArray().add(each.topic()).add(each.partition()).add(each.offset()).add(each.value());
                }
                note(line);
                polled.addAndGet(records.size());
            }
        }
    }
}
