package minibroker;

import java.io.Serializable;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.PartitionCoalescer;
import org.apache.spark.rdd.PartitionGroup;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The sending of a replay, in Spark's executors: in order, at their times, each record once.
 *
 * <p>The rule: a lane is what is in order, most often a partition. Each lane has a producer with a transactional id of
 * its own, and each transaction commits, with its records, how far the lane is, as an offset of a consumer group. A
 * task that starts again fences the one before it, and goes on from there.
 *
 * <p>sending.py has it compiled and brought to the executors. Janino, which Spark compiles its own code with, knows no
 * type parameters: hence the casts.
 */
public final class Sending implements FlatMapFunction, Serializable {
    // The columns of a row. A survey reads the first five.
    static final int TOPIC = 0, LANE = 1, POSITION = 2, TO_PARTITION = 3, TIMESTAMP_MS = 4;
    static final int KEY = 5, VALUE = 6, HEADERS = 7;
    static final Duration TIMEOUT = Duration.ofSeconds(60);
    static final int CHECK_EVERY_RECORDS = 1000;
    static final long CHECK_EVERY_MS = 250;

    final HashMap settings;
    final String group;
    final String source; // what is sent, noted beside each offset
    final boolean isTransactional;
    final double times; // 0 for as fast as goes
    final long startsAtMs; // of the clock: when the record of firstMs is due
    final long firstMs;
    final int commitEveryRecords;
    final long commitEveryMs;

    /** Send with producers of these settings; all values travel to the executors. */
    public Sending(
            Map settings, String group, String source, boolean isTransactional, double times, long startsAtMs, long firstMs,
            int commitEveryRecords, long commitEveryMs) {
        this.settings = new HashMap(settings);
        this.group = group;
        this.source = source;
        this.isTransactional = isTransactional;
        this.times = times;
        this.startsAtMs = startsAtMs;
        this.firstMs = firstMs;
        this.commitEveryRecords = commitEveryRecords;
        this.commitEveryMs = commitEveryMs;
    }

    /** Send the rows of a task; return each commit of its lanes. */
    public Iterator call(Object given) throws Exception {
        Iterator rows = (Iterator) given;
        LinkedHashMap lanes = new LinkedHashMap();
        ArrayList sent = new ArrayList();
        Lane lane = null;
        try {
            while (rows.hasNext()) {
                InternalRow row = (InternalRow) rows.next();
                int number = row.getInt(LANE);
                if (lane == null || lane.number != number || !row.getUTF8String(TOPIC).equals(lane.topicAsRead)) {
                    if (times == 0 && lane != null) {
                        // Then one lane comes after the other.
                        lane.finish(sent);
                        lanes.clear();
                    }
                    String topic = row.getUTF8String(TOPIC).toString();
                    String name = topic + "-" + number;
                    lane = (Lane) lanes.get(name);
                    if (lane == null) {
                        lane = new Lane(this, topic, number);
                        lanes.put(name, lane);
                    }
                }
                if (row.getLong(POSITION) < lane.start) {
                    lane.skipped++;
                    continue;
                }
                if (row.getLong(POSITION) < lane.next) {
                    throw new IllegalStateException(
                            "two rows are to be number " + row.getLong(POSITION) + " of " + lane.topic + "-" + number);
                }
                if (times != 0 && !row.isNullAt(TIMESTAMP_MS)) {
                    await(lane, row.getLong(TIMESTAMP_MS), lanes);
                }
                lane.send(row);
            }
            for (Iterator each = lanes.values().iterator(); each.hasNext();) {
                ((Lane) each.next()).finish(sent);
            }
        } finally {
            for (Iterator each = lanes.values().iterator(); each.hasNext();) {
                ((Lane) each.next()).close();
            }
        }
        return sent.iterator();
    }

    /** Wait until a record is due; all lanes commit meanwhile. */
    private void await(Lane lane, long timestampMs, Map lanes) throws Exception {
        lane.elapsedMs = Math.max(lane.elapsedMs, timestampMs - firstMs);
        double due = startsAtMs + lane.elapsedMs / times;
        long left;
        while ((left = (long) due - System.currentTimeMillis()) > 0) {
            Thread.sleep(Math.min(left, CHECK_EVERY_MS));
            endIfKilled();
            for (Iterator each = lanes.values().iterator(); each.hasNext();) {
                ((Lane) each.next()).commitIfDue();
            }
        }
        lane.lateMs = Math.max(lane.lateMs, -left);
    }

    static void endIfKilled() {
        TaskContext.get().killTaskIfInterrupted();
    }

    /** A record with its time; null is the time of sending. Before 1970 it has none: Kafka's client refuses what is less. */
    static final class Timed extends ProducerRecord {
        static final long NONE = -1; // as Kafka writes it
        private final boolean isEarly;

        Timed(String topic, Integer partition, Long timestampMs, byte[] key, byte[] value, List headers) {
            super(topic, partition, isEarly(timestampMs) ? null : timestampMs, key, value, headers);
            isEarly = isEarly(timestampMs);
        }

        static boolean isEarly(Long timestampMs) {
            return timestampMs != null && timestampMs.longValue() < 0;
        }

        public Long timestamp() {
            return isEarly ? Long.valueOf(NONE) : super.timestamp();
        }
    }

    /** The records of a topic that are in order, and their producer. */
    static final class Lane implements Callback {
        final Sending sending;
        final String topic;
        final UTF8String topicAsRead;
        final int number;
        final ArrayList commits = new ArrayList();
        final KafkaProducer producer;
        final KafkaConsumer consumer;
        long start; // where this run goes on
        long next;
        long skipped;
        long elapsedMs; // of the records' own time
        long lateMs; // behind the plan
        private long total; // in this run and before
        private long uncommitted;
        private long beganMs;
        private volatile Exception failure;
        private boolean isClosed;

        Lane(Sending sending, String topic, int number) {
            this.sending = sending;
            this.topic = topic;
            this.topicAsRead = UTF8String.fromString(topic);
            this.number = number;
            HashMap consuming = new HashMap(sending.settings);
            consuming.put("group.id", sending.group);
            consuming.put("enable.auto.commit", "false");
            consuming.put("isolation.level", "read_committed");
            HashMap producing = new HashMap(sending.settings);
            if (sending.isTransactional) {
                producing.put("transactional.id", sending.group + "-" + topic + "-" + number);
            }
            producer = new KafkaProducer(producing, new ByteArraySerializer(), new ByteArraySerializer());
            consumer = new KafkaConsumer(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            try {
                if (sending.isTransactional) {
                    // Ends what an earlier producer of the lane has left open, and fences it.
                    producer.initTransactions();
                }
                TopicPartition place = new TopicPartition(topic, number);
                Map committed = consumer.committed(Collections.singleton(place), TIMEOUT);
                OffsetAndMetadata found = (OffsetAndMetadata) committed.get(place);
                start = next = found == null ? 0 : found.offset();
                String[] noted = found == null ? new String[0] : found.metadata().split(" ");
                total = noted.length > 1 ? Long.parseLong(noted[1]) : 0;
            } catch (RuntimeException error) {
                close();
                throw error;
            }
        }

        void send(InternalRow row) {
            if (uncommitted == 0) {
                beganMs = System.currentTimeMillis();
                if (sending.isTransactional) {
                    producer.beginTransaction();
                }
            }
            Integer partition = row.isNullAt(TO_PARTITION) ? null : Integer.valueOf(row.getInt(TO_PARTITION));
            producer.send(
                    new Timed(
                            topic,
                            partition,
                            row.isNullAt(TIMESTAMP_MS) ? null : Long.valueOf(row.getLong(TIMESTAMP_MS)),
                            row.isNullAt(KEY) ? null : row.getBinary(KEY),
                            row.isNullAt(VALUE) ? null : row.getBinary(VALUE),
                            row.isNullAt(HEADERS) ? null : headers(row.getArray(HEADERS))),
                    this);
            next = row.getLong(POSITION) + 1;
            if (++uncommitted % CHECK_EVERY_RECORDS == 0 || uncommitted >= sending.commitEveryRecords) {
                endIfKilled();
                commitIfDue();
            }
        }

        private static List headers(ArrayData given) {
            ArrayList found = new ArrayList(given.numElements());
            for (int at = 0; at < given.numElements(); at++) {
                InternalRow header = given.getStruct(at, 2);
                byte[] value = header.isNullAt(1) ? null : header.getBinary(1);
                found.add(new RecordHeader(header.getUTF8String(0).toString(), value));
            }
            return found;
        }

        /** Note that a record was refused. */
        public void onCompletion(RecordMetadata metadata, Exception error) {
            if (error != null && failure == null) {
                failure = error;
            }
        }

        void commitIfDue() {
            boolean isDue = System.currentTimeMillis() - beganMs >= sending.commitEveryMs;
            if (uncommitted >= sending.commitEveryRecords || (uncommitted > 0 && isDue)) {
                commit();
            }
        }

        /** Have what was sent, and how far that is, count together, or one after the other without transactions. */
        private void commit() {
            total += uncommitted;
            Map progress = Collections.singletonMap(
                    new TopicPartition(topic, number), new OffsetAndMetadata(next, elapsedMs + " " + total + " " + sending.source));
            if (sending.isTransactional) {
                producer.sendOffsetsToTransaction(progress, new ConsumerGroupMetadata(sending.group));
                producer.commitTransaction();
            } else {
                producer.flush();
                if (failure != null) {
                    throw new RuntimeException("refused by " + topic + ": " + failure.getMessage(), failure);
                }
                consumer.commitSync(progress, TIMEOUT);
            }
            long atMs = System.currentTimeMillis() - sending.startsAtMs;
            commits.add(atMs + "\t" + uncommitted + "\t0\t" + elapsedMs + "\t" + lateMs);
            uncommitted = 0;
            lateMs = 0;
        }

        /** Commit, end, and add each commit: topic, lane, when, records, skipped, elapsed and late milliseconds. */
        void finish(List sent) {
            if (uncommitted > 0) {
                commit();
            }
            close();
            String begin = topic + "\t" + number + "\t";
            sent.add(begin + "0\t0\t" + skipped + "\t0\t0");
            for (Iterator each = commits.iterator(); each.hasNext();) {
                sent.add(begin + each.next());
            }
        }

        void close() {
            if (!isClosed) {
                isClosed = true;
                consumer.close(Duration.ZERO);
                producer.close(Duration.ZERO);
            }
        }
    }

    /** What the partitions of rows hold: of each the lanes, how many records, and whether they are in order. */
    public static final class Survey implements FlatMapFunction, Serializable {
        public Iterator call(Object given) {
            Iterator rows = (Iterator) given;
            LinkedHashMap lanes = new LinkedHashMap();
            while (rows.hasNext()) {
                InternalRow row = (InternalRow) rows.next();
                if (row.isNullAt(TOPIC) || row.isNullAt(LANE) || row.isNullAt(POSITION)) {
                    throw new IllegalArgumentException("a row has no topic, or no partition or offset as others have");
                }
                String name = row.getUTF8String(TOPIC) + "\t" + row.getInt(LANE) + "\t"
                        + (row.isNullAt(TO_PARTITION) ? -1 : row.getInt(TO_PARTITION));
                long position = row.getLong(POSITION);
                long timestampMs = row.isNullAt(TIMESTAMP_MS) ? Long.MAX_VALUE : row.getLong(TIMESTAMP_MS);
                // Records, first position, last position, in order, first time, before 1970.
                long[] found = (long[]) lanes.get(name);
                if (found == null) {
                    found = new long[] {0, position, position - 1, 1, timestampMs, 0};
                    lanes.put(name, found);
                }
                found[0]++;
                found[3] = position > found[2] ? found[3] : 0;
                found[1] = Math.min(found[1], position);
                found[2] = Math.max(found[2], position);
                found[4] = Math.min(found[4], timestampMs);
                found[5] += timestampMs < Timed.NONE ? 1 : 0;
            }
            ArrayList lines = new ArrayList();
            for (Iterator each = lanes.entrySet().iterator(); each.hasNext();) {
                Map.Entry entry = (Map.Entry) each.next();
                long[] found = (long[]) entry.getValue();
                StringBuilder line = new StringBuilder(TaskContext.getPartitionId() + "\t" + entry.getKey());
                for (int at = 0; at < found.length; at++) {
                    line.append("\t").append(found[at]);
                }
                lines.add(line.toString());
            }
            return lines.iterator();
        }
    }

    /** Which partitions of rows a task reads one after the other, such as `0,3 2,1`. */
    public static final class Turns implements PartitionCoalescer, Serializable {
        final String turns;

        public Turns(String turns) {
            this.turns = turns;
        }

        public PartitionGroup[] coalesce(int count, RDD rows) {
            String[] tasks = turns.split(" ");
            PartitionGroup[] groups = new PartitionGroup[tasks.length];
            for (int task = 0; task < tasks.length; task++) {
                groups[task] = new PartitionGroup(scala.Option.empty());
                String[] numbers = tasks[task].split(",");
                for (int at = 0; at < numbers.length; at++) {
                    groups[task].partitions().addOne(rows.partitions()[Integer.parseInt(numbers[at])]);
                }
            }
            return groups;
        }
    }
}
