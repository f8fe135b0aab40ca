import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.protocol.Errors;

/** Serves the requests of line_protocol.py, one JSON object a line, with any release of the client. */
abstract class LineDriver {
    static final ObjectMapper JSON = new ObjectMapper();

    abstract JsonNode run(String operation, JsonNode arguments) throws Exception;

    /** Whether `work` is to be called while no request is there. */
    boolean hasWork() {
        return false;
    }

    void work() { }

    final void serve() throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (true) {
            while (hasWork() && !in.ready()) {
                work();
            }
            String line = in.readLine();
            if (line == null) {
                System.exit(0);
            }
            JsonNode request = JSON.readTree(line);
            ObjectNode reply = JSON.createObjectNode();
            try {
                reply.set("result", run(request.get("op").asText(), request.get("arguments")));
            } catch (Exception error) {
                error.printStackTrace();
                reply.set("error", describe(error));
            }
            out.println(JSON.writeValueAsString(reply));
        }
    }

    static void put(Map<String, Object> config, JsonNode settings) {
        settings.fields().forEachRemaining(
            setting -> config.put(setting.getKey().replace('_', '.'), setting.getValue().asText()));
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    static ObjectNode describe(Exception error) {
        Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
        ObjectNode described = JSON.createObjectNode();
        described.put("kind", cause.getClass().getSimpleName());
        described.put("code", Errors.forException(cause).code());
        return described.put("message", String.valueOf(cause.getMessage()));
    }
}
