package org.sparkps;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What an executor says to the driver, and the words of it.
 *
 * <p>A message is a {@code HashMap} of strings; only {@link #freshServer} has an answer. A report
 * that cannot be sent is logged here: the driver is gone then, and the executor follows.
 */
final class Link {
    /** No number: nothing is left that a server could join. */
    static final int NONE = -1;

    static final String ADDRESS = "address";
    static final String SECRET = "secret";

    static final String OPERATION = "op";
    static final String ID = "id";
    static final String EXITED = "exited";
    static final String FAILED = "failed";
    static final String SERVER = "server";
    static final String STATUS = "status";
    static final String TAIL = "tail";
    static final String WHAT = "what";
    static final String REASON = "reason";
    static final String LOG = "log";

    private static final Logger LOGGER = LoggerFactory.getLogger(Link.class);

    private final PluginContext context;

    Link(PluginContext context) {
        this.context = context;
    }

    /** Ask for the number of a server to be started; {@link #NONE} if its coordinator is gone. */
    int freshServer() throws IOException {
        try {
            return Integer.parseInt((String) context.ask(message(ID)));
        } catch (IOException | RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IOException("the driver gave no number for a server: " + error, error);
        }
    }

    void exited(int server, String status, String tail) {
        HashMap<String, String> message = message(EXITED);
        message.put(SERVER, Integer.toString(server));
        message.put(STATUS, status);
        message.put(TAIL, tail);
        send(message);
    }

    void failed(String what, String reason, String log, String tail) {
        HashMap<String, String> message = message(FAILED);
        message.put(WHAT, what);
        message.put(REASON, reason);
        message.put(LOG, log);
        message.put(TAIL, tail);
        send(message);
    }

    private static HashMap<String, String> message(String operation) {
        return new HashMap<>(Map.of(OPERATION, operation));
    }

    private void send(HashMap<String, String> message) {
        try {
            context.send(message);
        } catch (IOException | RuntimeException error) {
            LOGGER.warn("the driver could not be told {}: {}", message, error.toString());
        }
    }
}
