import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Collections;

import kafka.network.RequestChannel;
import kafka.server.ClientQuotaManager;
import kafka.server.ClientQuotaManagerConfig;
import kafka.server.ClientRequestQuotaManager;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import scala.Option;

/**
 * The quota managers of Kafka on a clock that the input turns. Fields are separated by tabs; a name is - for none,
 * * for the default, = and the name.
 *
 *   new KIND DEFAULT SAMPLES SECONDS     begin a history: KIND is Produce, Fetch or Request
 *   at MS                                the time
 *   set USER CLIENT LIMIT                set a quota; a limit of - removes it
 *   use USER CLIENT VALUE                count a value, and print the throttle time
 *   back USER CLIENT VALUE               take a value back
 */
public final class QuotaHistories {
    private static long nowMs = 0;

    private static final Time CLOCK = new Time() {
        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long hiResClockMs() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new IllegalStateException("sleeps");
        }
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ClientQuotaManager manager = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "new":
                    if (manager != null) {
                        manager.throttledChannelReaper().initiateShutdown();
                    }
                    manager = managerOf(fields);
                    break;
                case "at":
                    nowMs = Long.parseLong(fields[1]);
                    break;
                case "set":
                    set(manager, fields);
                    break;
                case "use":
                    System.out.println(manager.maybeRecordAndGetThrottleTimeMs(
                        session(fields[1]), nameOf(fields[2]), Double.parseDouble(fields[3]), nowMs));
                    break;
                case "back":
                    manager.getOrCreateQuotaSensors(session(fields[1]), nameOf(fields[2])).quotaSensor()
                        .record(-Double.parseDouble(fields[3]), nowMs, false);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static ClientQuotaManager managerOf(String[] fields) {
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(
            Long.parseLong(fields[2]), Integer.parseInt(fields[3]), Integer.parseInt(fields[4]));
        Metrics metrics = new Metrics(new MetricConfig(), Collections.emptyList(), CLOCK);
        switch (fields[1]) {
            case "Request":
                return new ClientRequestQuotaManager(config, metrics, CLOCK, "", Option.empty());
            case "Fetch":
                return new ClientQuotaManager(
                    config, metrics, kafka.server.QuotaType.Fetch$.MODULE$, CLOCK, "", Option.empty());
            default:
                return new ClientQuotaManager(
                    config, metrics, kafka.server.QuotaType.Produce$.MODULE$, CLOCK, "", Option.empty());
        }
    }

    private static void set(ClientQuotaManager manager, String[] fields) {
        Option<String> user = optionOf(fields[1], true);
        Option<String> clientId = optionOf(fields[2], false);
        Option<String> sanitizedClientId = optionOf(fields[2], true);
        Option<Quota> limit = fields[3].equals("-")
            ? Option.empty() : Option.apply(new Quota(Double.parseDouble(fields[3]), true));
        manager.updateQuota(user, clientId, sanitizedClientId, limit);
    }

    private static Option<String> optionOf(String field, boolean isSanitized) {
        if (field.equals("-")) {
            return Option.empty();
        }
        if (field.equals("*")) {
            return Option.apply("<default>");
        }
        return Option.apply(isSanitized ? Sanitizer.sanitize(field.substring(1)) : field.substring(1));
    }

    private static String nameOf(String field) {
        return field.equals("-") ? null : field.substring(1);
    }

    private static RequestChannel.Session session(String field) throws Exception {
        return new RequestChannel.Session(new KafkaPrincipal("User", nameOf(field)), InetAddress.getLoopbackAddress());
    }
}
