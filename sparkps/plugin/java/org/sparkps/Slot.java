package org.sparkps;

import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * One place for a server on an executor: the server in it is started again when it dies.
 *
 * <p>Rules:
 *
 * <ul>
 *   <li>A server that does not come up is reported as failed, once, and its slot stays empty: what
 *       ails it (no Python, no package) would ail the next one too.
 *   <li>A server that ends after it was up is reported with its status, and another one with a fresh
 *       number takes its place; but not a fourth time without having been up for ten minutes.
 *   <li>Nothing is reported once the executor stops, nor of a server that says it is leaving: it was
 *       told to.
 *   <li>The end waits for a start that is under way, and none begins after it: where the whole
 *       application is killed, servers end, and would start again, while their executors end.
 * </ul>
 */
final class Slot implements Sidecar.Events {
    private static final int RESTARTS = 3;
    private static final Duration KILLED = Duration.ofSeconds(1);
    /** One that was up for so long has its restarts anew. */
    private static final long LONG = TimeUnit.MINUTES.toNanos(10);

    private final int index;
    private final ServerLaunch launch;
    private final Link driver;
    private final Pin pin;
    private final Duration limit;
    private final CompletableFuture<Void> settled = new CompletableFuture<>();
    /** Held from the look at {@link #stopping} until the process is there, or all of it is gone. */
    private final ReentrantLock making = new ReentrantLock();

    private int restarts;
    private int server = Link.NONE;
    private boolean up;
    private long since;
    private boolean leaving;
    private String failure;
    private String overdue;
    private LogFile log;
    private PrivateDirectory directory;
    private volatile Sidecar process;
    private volatile boolean stopping;

    Slot(int index, ServerLaunch launch, Link driver, Pin pin, Duration limit) {
        this.index = index;
        this.launch = launch;
        this.driver = driver;
        this.pin = pin;
        this.limit = limit;
    }

    /** Done once a server is up here for the first time, or given up. */
    CompletableFuture<Void> settled() {
        return settled;
    }

    synchronized void start() {
        up = false;
        leaving = false;
        failure = null;
        overdue = null;
        log = null;
        server = Link.NONE;
        try {
            server = driver.freshServer();
        } catch (IOException | RuntimeException error) {
            giveUp("it got no number: " + error.getMessage());
            return;
        }
        if (server == Link.NONE) {
            System.err.println("the coordinator is gone: no server takes the empty place");
            settled.complete(null);
            return;
        }
        making.lock();
        try {
            if (stopping) {
                settled.complete(null);
            } else {
                make();
            }
        } catch (IOException | RuntimeException error) {
            giveUp("it could not be run: " + error.getMessage());
        } finally {
            making.unlock();
        }
        if (stopping) {
            letGo();
        }
    }

    private void make() throws IOException {
        log = launch.log(server);
        directory = PrivateDirectory.create();
        Sidecar started = launch.start(server, log, directory, this);
        process = started;
        Executor later = CompletableFuture.delayedExecutor(limit.toMillis(), TimeUnit.MILLISECONDS);
        later.execute(() -> late(started));
    }

    private synchronized void late(Sidecar started) {
        if (started == process && !up) {
            overdue = "it was not up within " + Settings.seconds(limit) + " ("
                    + Settings.START_TIMEOUT + ")";
            started.kill();
        }
    }

    @Override
    public synchronized void said(String verb, String rest) {
        switch (verb) {
            case "up":
                up = true;
                since = System.nanoTime();
                settled.complete(null);
                break;
            case "leaving":
                leaving = true;
                break;
            case "holding":
                pin.holds(index, rest.trim().matches("[0-9]{1,9}") ? Integer.parseInt(rest.trim()) : 1);
                break;
            case "failed":
                failure = rest;
                break;
            default:
                System.err.println("[server " + server + "] unknown word: " + verb + " " + rest);
        }
    }

    @Override
    public synchronized void ended(String status) {
        directory.remove();
        process = null;
        if (stopping) {
            settled.complete(null);
            return;
        }
        pin.holds(index, 0);
        if (up && leaving) {
            settled.complete(null);
            return;
        }
        String reason = failure == null ? status : failure + " (" + status + ")";
        if (!up) {
            giveUp(overdue == null ? reason : overdue);
            return;
        }
        String tail = log.tail();
        System.err.println(
                "[server " + server + "] has ended: " + reason + ". Its log " + log + " ends:\n" + tail);
        driver.exited(server, reason, tail);
        if (System.nanoTime() - since > LONG) {
            restarts = 0;
        }
        if (restarts == RESTARTS) {
            giveUp("it ended again after " + RESTARTS + " restarts in its place: " + reason);
        } else {
            restarts++;
            start();
        }
    }

    private void giveUp(String reason) {
        if (directory != null) {
            directory.remove();
        }
        if (stopping) {
            settled.complete(null);
            return;
        }
        String name = launch.name(server == Link.NONE ? "(no number)" : Integer.toString(server));
        // What it said itself tells what to do; else, if it was run, it may be its Python.
        String told = reason;
        if (failure == null && !up && log != null) {
            told += ". It was run as: " + launch.command() + ". " + launch.advice();
        }
        String tail = log == null ? "  (no log)" : log.tail();
        System.err.println(name + " is given up: " + told + ". Its log ends:\n" + tail);
        driver.failed(name, told, log == null ? "" : log.toString(), tail);
        settled.complete(null);
    }

    /** Let go of the leash: the server leaves by itself, and nobody is told. */
    void letGo() {
        stopping = true;
        Sidecar last = process;
        if (last != null) {
            last.letGo();
        }
    }

    /** After {@link #letGo}: wait until a time of {@code System.nanoTime}, then kill. */
    void end(long deadline) {
        awaitMade(deadline);
        Sidecar last = process;
        if (last == null) {
            return;
        }
        if (!last.endsWithin(Duration.ofNanos(Math.max(0, deadline - System.nanoTime())))) {
            last.kill();
            last.endsWithin(KILLED);
        }
        // Here too: where the JVM ends, nobody waits for the thread that hears of the exit.
        directory.remove();
    }

    private void awaitMade(long deadline) {
        try {
            if (making.tryLock(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
                making.unlock();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
