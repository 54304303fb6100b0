package org.sparkps;

import java.io.File;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BlockManagerId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * An executor's half: it has the servers of this executor.
 *
 * <p>Rules:
 *
 * <ul>
 *   <li>{@link #init} returns when each server is up or given up, so that no task comes before its
 *       servers; within less than the 120 s after which Spark counts a silent executor as lost.
 *   <li>It never throws: Spark would end the executor and a standalone master start the next one,
 *       for ever. What fails is the driver's to know.
 *   <li>{@code PluginContext.hostname()} fails on executors; the block manager knows the host, but
 *       in local mode, where it has no name yet and the driver's serves.
 *   <li>{@link #shutdown} is not certain to be called, so a hook of the JVM does the same, and the
 *       leashes depend on neither.
 * </ul>
 */
final class ExecutorSide implements ExecutorPlugin {
    private static final Logger LOG = LoggerFactory.getLogger(ExecutorSide.class);
    private static final Duration LONGEST_START = Duration.ofSeconds(90);
    private static final Duration SLACK = Duration.ofSeconds(5);
    private static final Duration STOP = Duration.ofSeconds(3);

    private final List<Slot> slots = new ArrayList<>();
    private final Thread hook = new Thread(this::end, "sparkps-servers-hook");

    @Override
    public void init(PluginContext context, Map<String, String> extra) {
        Settings settings = new Settings(context.conf());
        if (!settings.starts() || extra == null || !extra.containsKey(Link.ADDRESS)) {
            return;
        }
        Link driver = new Link(context);
        try {
            begin(context, settings, driver, extra.get(Link.ADDRESS), extra.get(Link.SECRET));
        } catch (Exception | LinkageError error) {
            LOG.error("the servers of this executor did not start", error);
            driver.failed(
                    "servers of executor " + context.executorID(), error.toString(), "", "  (no log)");
        }
    }

    private void begin(
            PluginContext context, Settings settings, Link driver, String address, String secret)
            throws IOException, InterruptedException {
        BlockManager blocks = SparkEnv.get().blockManager();
        BlockManagerId id = blocks.blockManagerId();
        String host = id == null ? settings.text("spark.driver.host", "127.0.0.1") : id.host();
        File local = blocks.diskBlockManager().localDirs()[0];
        String executor = context.executorID();
        Duration wanted = settings.startTimeout();
        Duration limit = wanted.compareTo(LONGEST_START) < 0 ? wanted : LONGEST_START;
        ServerLaunch launch = new ServerLaunch(settings, address, secret, host, executor, local);
        Pin pin = Pin.of(executor, settings);
        for (int i = 0; i < settings.serversPerExecutor(); i++) {
            slots.add(new Slot(i, launch, driver, pin, limit));
        }
        Runtime.getRuntime().addShutdownHook(hook);
        slots.forEach(Slot::start);
        await(limit.plus(SLACK));
        EndpointFile.write(local, address, secret);
    }

    private void await(Duration time) throws InterruptedException {
        CompletableFuture<?>[] all =
                slots.stream().map(Slot::settled).toArray(CompletableFuture<?>[]::new);
        try {
            CompletableFuture.allOf(all).get(time.toMillis(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException | ExecutionException error) {
            LOG.warn("servers of this executor are neither up nor given up: {}", error.toString());
        }
    }

    /** Let go of all leashes; what has not left in time is killed. */
    private void end() {
        slots.forEach(Slot::letGo);
        long deadline = System.nanoTime() + STOP.toNanos();
        slots.forEach(slot -> slot.end(deadline));
    }

    @Override
    public void shutdown() {
        end();
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException error) {
            // The JVM is ending, and the hook runs or has run.
        }
    }
}
