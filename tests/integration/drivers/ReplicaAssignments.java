import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;

import kafka.admin.AdminUtils;
import kafka.admin.BrokerMetadata;
import kafka.zk.AdminZkClient;
import org.apache.kafka.common.protocol.Errors;
import scala.Option;
import scala.collection.JavaConverters;
import scala.collection.Map;
import scala.collection.Seq;

/**
 * Assigns replicas with the classes of Kafka; a line of fields with tabs for each case. `new`: brokers, partitions,
 * factor, start. `more`: brokers, the assignment there is, the count of partitions. Brokers are `1=rack,2`.
 */
public final class ReplicaAssignments {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(outcome(line.split("\t")));
        }
    }

    private static String outcome(String[] fields) {
        try {
            return fields[0].equals("new") ? made(fields) : grown(fields);
        } catch (RuntimeException error) {
            return Errors.forException(error) + " " + error.getMessage();
        }
    }

    private static String made(String[] fields) {
        int start = Integer.parseInt(fields[4]);
        return text(AdminUtils.assignReplicasToBrokers(
            brokers(fields[1]), Integer.parseInt(fields[2]), Integer.parseInt(fields[3]), start, -1), 0);
    }

    private static String grown(String[] fields) {
        TreeMap<Object, Seq<Object>> existing = new TreeMap<>();
        for (String replicas : fields[2].split(";")) {
            List<Object> ids = new ArrayList<>();
            Arrays.stream(replicas.split(",")).map(Integer::valueOf).forEach(ids::add);
            existing.put(existing.size(), JavaConverters.asScalaBufferConverter(ids).asScala());
        }
        return text(new AdminZkClient(null).addPartitions(
            "t", JavaConverters.mapAsScalaMapConverter(existing).asScala(), brokers(fields[1]),
            Integer.parseInt(fields[3]), Option.empty(), true), existing.size());
    }

    private static Seq<BrokerMetadata> brokers(String field) {
        List<BrokerMetadata> found = new ArrayList<>();
        for (String each : field.split(",")) {
            String[] parts = each.split("=");
            found.add(new BrokerMetadata(Integer.parseInt(parts[0]), Option.apply(parts.length > 1 ? parts[1] : null)));
        }
        return JavaConverters.asScalaBufferConverter(found).asScala();
    }

    private static String text(Map<Object, Seq<Object>> assignment, int first) {
        List<String> rows = new ArrayList<>();
        for (int number = first; number < assignment.size(); number++) {
            rows.add(assignment.apply(number).mkString(","));
        }
        return String.join(";", rows);
    }
}
