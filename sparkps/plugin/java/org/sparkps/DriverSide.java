package org.sparkps;

import java.util.Collections;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The driver's half: it has the coordinator, numbers the servers, and passes on what executors
 * report.
 *
 * <p>Rules:
 *
 * <ul>
 *   <li>{@link #init} throws when there is no coordinator: the SparkContext fails with the sentence.
 *   <li>The address and the secret go to the executors as Spark's own configuration of this plugin;
 *       the secret's key has "secret" in it, so that the UI and the event log hide it.
 *   <li>A server gets a fresh number at each start: a server that is started again is another one.
 *   <li>Only classes of the JDK cross the plugin's RPC: an executor's RPC cannot load ours where the
 *       jar came with {@code --jars}.
 *   <li>{@link #receive} never waits: one thread serves all executors.
 * </ul>
 */
final class DriverSide implements DriverPlugin {
    private static final Logger LOG = LoggerFactory.getLogger(DriverSide.class);

    private final AtomicInteger servers = new AtomicInteger();
    private final Figures figures = new Figures();
    private Coordinator coordinator;

    @Override
    public Map<String, String> init(SparkContext spark, PluginContext context) {
        Settings settings = new Settings(context.conf());
        if (!settings.starts()) {
            return Collections.emptyMap();
        }
        settings.serversPerExecutor(); // a wrong value is told here, where it can be
        // Spark does not tell a plugin that the context has failed after it.
        coordinator = Coordinator.start(settings, figures, spark::isStopped);
        return Map.of(
                Link.ADDRESS, coordinator.address(),
                Link.SECRET, coordinator.secret);
    }

    @Override
    public void registerMetrics(String application, PluginContext context) {
        if (coordinator != null) {
            figures.register(context.metricRegistry());
        }
    }

    @Override
    public Object receive(Object message) {
        Map<?, ?> fields = (Map<?, ?>) message;
        String operation = text(fields, Link.OPERATION);
        switch (operation) {
            case Link.ID:
                return Integer.toString(
                        coordinator.isGone() ? Link.NONE : servers.getAndIncrement());
            case Link.EXITED:
                LOG.warn(
                        "server {} has ended: {}. Its log ends:\n{}",
                        text(fields, Link.SERVER), text(fields, Link.STATUS), text(fields, Link.TAIL));
                coordinator.exited(
                        Long.parseLong(text(fields, Link.SERVER)),
                        text(fields, Link.STATUS), text(fields, Link.TAIL));
                return null;
            case Link.FAILED:
                LOG.error(
                        "{} is given up: {}. Its log {} ends:\n{}",
                        text(fields, Link.WHAT), text(fields, Link.REASON),
                        text(fields, Link.LOG), text(fields, Link.TAIL));
                coordinator.failed(
                        text(fields, Link.WHAT), text(fields, Link.REASON),
                        text(fields, Link.LOG), text(fields, Link.TAIL));
                return null;
            default:
                throw new IllegalArgumentException(
                        "an executor asks for '" + operation + "', which this driver does not know; "
                                + "give both the same sparkps jar");
        }
    }

    private static String text(Map<?, ?> fields, String key) {
        Object value = fields.get(key);
        return value == null ? "" : value.toString();
    }

    @Override
    public void shutdown() {
        if (coordinator != null) {
            coordinator.close();
        }
    }
}
