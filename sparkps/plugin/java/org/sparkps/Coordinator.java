package org.sparkps;

import java.io.File;
import java.io.IOException;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The coordinator's process, a child of the driver.
 *
 * <p>Rules:
 *
 * <ul>
 *   <li>{@link #start} returns once it listens, or throws with all that is known: which Python, what
 *       happened, the end of the log, and what to set. Then nothing of it is left.
 *   <li>The secret of the application is made here and goes to the child by its stdin only.
 *   <li>Without {@code spark.sparkps.log.dir} its log lies in its directory, which is removed at the
 *       end, of the application or of the JVM.
 *   <li>A coordinator that ends by itself later is not started again: the runs' state was its. It is
 *       logged; its clients find out by themselves.
 * </ul>
 */
final class Coordinator implements Sidecar.Events {
    private static final Logger LOG = LoggerFactory.getLogger(Coordinator.class);
    private static final int SECRET_BYTES = 32;
    private static final Duration AFTER_LEASH = Duration.ofSeconds(1);

    final String secret = newSecret();

    private final Settings settings;
    private final Figures figures;
    private final BooleanSupplier sparkStopped;
    private final Python python;
    private final CompletableFuture<String> address = new CompletableFuture<>();
    private final Thread hook = new Thread(this::close, "sparkps-coordinator-hook");
    private PrivateDirectory directory;
    private LogFile log;
    private Sidecar process;
    private boolean closed;
    private volatile boolean stopping;
    private volatile String failure;

    private Coordinator(Settings settings, Figures figures, BooleanSupplier sparkStopped) {
        this.settings = settings;
        this.figures = figures;
        this.sparkStopped = sparkStopped;
        this.python = Python.ofDriver(settings);
    }

    /** Start it and wait until it listens; it ends when Spark has stopped, whoever tells it. */
    static Coordinator start(Settings settings, Figures figures, BooleanSupplier sparkStopped) {
        Duration limit = settings.startTimeout();
        settings.stopTimeout(); // a wrong value is told now, not at the end
        Coordinator coordinator = new Coordinator(settings, figures, sparkStopped);
        try {
            coordinator.begin();
            coordinator.address.get(limit.toMillis(), TimeUnit.MILLISECONDS);
            return coordinator;
        } catch (IOException error) {
            throw coordinator.failed("it could not be run: " + error.getMessage(), error);
        } catch (ExecutionException error) {
            throw coordinator.failed(error.getCause().getMessage(), null);
        } catch (TimeoutException error) {
            throw coordinator.failed(
                    "it did not listen within " + Settings.seconds(limit) + " ("
                            + Settings.START_TIMEOUT + ")", null);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw coordinator.failed("the driver was interrupted", null);
        }
    }

    private void begin() throws IOException {
        Runtime.getRuntime().addShutdownHook(hook);
        directory = PrivateDirectory.create();
        String logs = settings.text(Settings.LOG_DIR, "");
        // The application has no id yet.
        log = LogFile.create(
                logs.isEmpty() ? directory.file : new File(logs),
                "coordinator-" + ProcessHandle.current().pid() + "-"
                        + UUID.randomUUID().toString().substring(0, 8) + ".log");
        String firstLine = Json.object()
                .putRaw("conf", settings.own())
                .put("host", settings.text("spark.driver.host", "127.0.0.1"))
                .put("bind", settings.text("spark.driver.bindAddress", ""))
                .put("directory", directory.toString())
                .put("secret", secret)
                .put("log", log.toString())
                .put("servers", 0)
                .putRaw("figures", "true")
                .toString();
        process = Sidecar.start(
                "coordinator", python.run("sparkps.coordinator", log.file), firstLine, this);
    }

    String address() {
        return address.join();
    }

    boolean isGone() {
        return stopping || process.endsWithin(Duration.ZERO);
    }

    /** A server's exit is certified. */
    void exited(long server, String status, String tail) {
        String fields = Json.array().add(server).add(1).add(status).add(tail).toString();
        process.say(Json.object().putRaw("exited", fields).toString());
    }

    /** A server did not start, or is given up. */
    void failed(String what, String reason, String log, String tail) {
        String fields = Json.array().add(what).add(reason).add(log).add(tail).toString();
        process.say(Json.object().putRaw("failed", fields).toString());
    }

    @Override
    public void said(String verb, String rest) {
        switch (verb) {
            case "listening":
                address.complete(rest);
                break;
            case "ready":
                break;
            case "figures":
                figures.read(rest);
                if (sparkStopped.getAsBoolean() && !stopping) {
                    new Thread(this::close, "sparkps-coordinator-close").start();
                }
                break;
            case "failed":
                failure = rest;
                break;
            default:
                LOG.warn("the coordinator said {} {}, which this version does not know", verb, rest);
        }
    }

    @Override
    public void ended(String status) {
        String reason = failure == null ? status : failure + " (" + status + ")";
        boolean listened = !address.completeExceptionally(new IllegalStateException(reason));
        if (listened && !stopping) {
            LOG.error(
                    "the coordinator is lost ({}); every run has failed with it. Its log {} ends:\n{}\n"
                            + "Stop this SparkSession and make a new one",
                    reason, log, log.tail());
        }
    }

    /** Ask it to leave, then let go of the leash, then kill it; leave nothing behind. */
    synchronized void close() {
        if (closed) {
            return;
        }
        closed = true;
        stopping = true;
        if (process != null) {
            process.say(Json.object().putRaw("shutdown", "true").toString());
            if (!process.endsWithin(settings.stopTimeout())) {
                clear();
            }
        }
        forget();
    }

    private void clear() {
        process.letGo();
        if (!process.endsWithin(AFTER_LEASH)) {
            process.kill();
            process.endsWithin(AFTER_LEASH);
        }
    }

    private void forget() {
        if (directory != null) {
            directory.remove();
        }
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException error) {
            // The JVM is ending: this may be the hook itself.
        }
    }

    private IllegalStateException failed(String reason, Throwable cause) {
        stopping = true;
        closed = true;
        if (process != null) {
            process.kill();
            process.endsWithin(AFTER_LEASH);
        }
        String name = settings.text(Settings.LOG_DIR, "").isEmpty() || log == null ? "" : " " + log;
        String tail = log == null ? "  (no log)" : log.tail();
        forget();
        return new IllegalStateException(
                "sparkps: the coordinator did not start: " + reason + ". It was run as: " + python.path
                        + " -m sparkps.coordinator. Its log" + name + " ends:\n" + tail
                        + (failure != null ? "" : "\n" + python.advice() + "; "
                                + Settings.START_TIMEOUT + " says how long to wait for it"),
                cause);
    }

    private static String newSecret() {
        byte[] bytes = new byte[SECRET_BYTES];
        new SecureRandom().nextBytes(bytes);
        StringBuilder hex = new StringBuilder();
        for (byte b : bytes) {
            hex.append(String.format("%02x", b));
        }
        return hex.toString();
    }
}
