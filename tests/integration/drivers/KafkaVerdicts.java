import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import kafka.metrics.KafkaMetricsReporter;
import kafka.server.KafkaConfig;
import kafka.server.KafkaServer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import scala.Option;
import scala.collection.Seq;
import scala.collection.Seq$;

/** Starts a broker of Kafka with each *.properties file of a folder, and prints `name<tab>error`, or `started`. */
public final class KafkaVerdicts {
    private static final int SECONDS = 30;
    private static final ExecutorService STARTER = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    public static void main(String[] arguments) throws Exception {
        Exit.setHaltProcedure((status, message) -> {
            throw new IllegalStateException("halts");
        });
        Exit.setExitProcedure((status, message) -> {
            throw new IllegalStateException("exits");
        });
        List<Path> files;
        try (Stream<Path> found = Files.list(Paths.get(arguments[0]))) {
            files = found.filter(each -> each.toString().endsWith(".properties")).sorted().collect(Collectors.toList());
        }
        for (Path file : files) {
            String name = file.getFileName().toString();
            System.out.println(name + "\t" + verdict(file).replaceAll("[\\r\\n\\t]+", " "));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String verdict(Path file) throws Exception {
        Properties properties = new Properties();
        try (InputStream stream = new FileInputStream(file.toFile())) {
            properties.load(stream);
        }
        KafkaServer[] server = new KafkaServer[1];
        String outcome = within(() -> {
            KafkaConfig config = KafkaConfig.fromProps(properties, false);
            @SuppressWarnings("unchecked")
            Seq<KafkaMetricsReporter> none = (Seq<KafkaMetricsReporter>) (Seq<?>) Seq$.MODULE$.empty();
            server[0] = new KafkaServer(config, Time.SYSTEM, Option.empty(), none);
            server[0].startup();
        });
        if (server[0] != null) {
            within(server[0]::shutdown);
        }
        return outcome;
    }

    private interface Action {
        void run() throws Throwable;
    }

    private static String within(Action action) throws Exception {
        Future<String> outcome = STARTER.submit(() -> {
            try {
                action.run();
                return "started";
            } catch (Throwable error) {
                return error.getClass().getSimpleName() + ": " + error.getMessage();
            }
        });
        try {
            return outcome.get(SECONDS, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            return "still starting after " + SECONDS + " s";
        }
    }
}
