package org.sparkps;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * One child process and its leash.
 *
 * <p>Rules:
 *
 * <ul>
 *   <li>Its stdin is the leash: the first line says what the child is, the end of the stream that
 *       its parent is gone. However this JVM ends, the system closes the pipe.
 *   <li>Lines of its stdout that begin with {@code sparkps } are its words, a verb and the rest;
 *       all others are noise of other people's code and go to stderr.
 *   <li>Its exit is certified once, by {@link Events#ended}, after the last of its words. It is
 *       waited for by itself, not by the end of stdout, which a child of the child may hold open.
 *   <li>Nothing here waits for the child to read: what is written to it is written by a thread of
 *       its own, in order.
 * </ul>
 */
final class Sidecar {
    /** What is told about a child, by threads of its own. */
    interface Events {
        void said(String verb, String rest);

        /** It is gone; the status is a sentence. */
        void ended(String status);
    }

    private static final String MARK = "sparkps ";
    private static final Duration LAST_WORDS = Duration.ofSeconds(2);
    private static final Map<Integer, String> SIGNALS =
            Map.ofEntries(
                    Map.entry(1, "SIGHUP"), Map.entry(2, "SIGINT"), Map.entry(3, "SIGQUIT"),
                    Map.entry(4, "SIGILL"), Map.entry(6, "SIGABRT"), Map.entry(7, "SIGBUS"),
                    Map.entry(8, "SIGFPE"), Map.entry(9, "SIGKILL"), Map.entry(11, "SIGSEGV"),
                    Map.entry(13, "SIGPIPE"), Map.entry(15, "SIGTERM"));

    private final String name;
    private final Process process;
    private final Events events;
    private final ExecutorService voice;

    private Sidecar(String name, Process process, Events events) {
        this.name = name;
        this.process = process;
        this.events = events;
        this.voice = Executors.newSingleThreadExecutor(task -> daemon(task, "stdin"));
    }

    /** Start a child; {@code name} is for threads and noise. */
    static Sidecar start(String name, ProcessBuilder command, String firstLine, Events events)
            throws IOException {
        Sidecar sidecar = new Sidecar(name, command.start(), events);
        sidecar.say(firstLine);
        Thread reader = sidecar.daemon(sidecar::read, "stdout");
        reader.start();
        sidecar.daemon(() -> sidecar.await(reader), "exit").start();
        return sidecar;
    }

    /** Write a line to it. */
    void say(String line) {
        speak(() -> {
            OutputStream stdin = process.getOutputStream();
            stdin.write((line + "\n").getBytes(StandardCharsets.UTF_8));
            stdin.flush();
        });
    }

    /** Let go of the leash. */
    void letGo() {
        speak(() -> process.getOutputStream().close());
    }

    /** Whether it has ended within a time. */
    boolean endsWithin(Duration time) {
        try {
            return process.waitFor(time.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    void kill() {
        process.destroyForcibly();
    }

    private interface Writing {
        void run() throws IOException;
    }

    private void speak(Writing writing) {
        try {
            voice.execute(() -> {
                try {
                    writing.run();
                } catch (IOException error) {
                    // It has left; its exit tells the rest.
                }
            });
        } catch (RejectedExecutionException error) {
            // Likewise.
        }
    }

    private void read() {
        try (BufferedReader lines = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith(MARK)) {
                    String[] parts = line.substring(MARK.length()).split(" ", 2);
                    events.said(parts[0], parts.length > 1 ? parts[1] : "");
                } else {
                    System.err.println("[" + name + "] " + line);
                }
            }
        } catch (IOException error) {
            // The stream was closed under us: the child has ended.
        }
    }

    private void await(Thread reader) {
        try {
            int code = process.waitFor();
            reader.join(LAST_WORDS.toMillis());
            voice.shutdown();
            events.ended(status(code));
        } catch (InterruptedException error) {
            // Nobody interrupts these threads; without a certificate the lease tells.
        }
    }

    private Thread daemon(Runnable task, String part) {
        Thread thread = new Thread(task, "sparkps-" + name.replace(' ', '-') + "-" + part);
        thread.setDaemon(true);
        return thread;
    }

    /** Java gives 128 and the number of the signal for a killed process. */
    static String status(int code) {
        if (code <= 128) {
            return "exit status " + code;
        }
        int signal = code - 128;
        String called = SIGNALS.get(signal);
        return "killed by signal " + signal + (called == null ? "" : ", " + called);
    }
}
