package org.sparkps;

import java.io.File;
import java.io.IOException;
import java.util.UUID;

/**
 * How the servers of one executor are started: what they are told in their first line, and where
 * their logs are.
 *
 * <p>Names of logs hold the application, the executor and the server, since {@code
 * spark.sparkps.log.dir} may be shared by many of each. In local mode the application has no id
 * when servers start, and a random word stands for it.
 */
final class ServerLaunch {
    private static final String[] TOLD = {
        "spark.master", "spark.executor.memory", "spark.executor.memoryOverhead",
        "spark.executor.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor",
        "spark.executor.minMemoryOverhead"
    };

    private final Settings settings;
    private final Python python;
    private final String address;
    private final String secret;
    private final String host;
    private final String executor;
    private final File directory;
    private final String application;

    ServerLaunch(
            Settings settings, String address, String secret, String host, String executor, File local) {
        this.settings = settings;
        this.python = Python.ofExecutor(settings);
        this.address = address;
        this.secret = secret;
        this.host = host;
        this.executor = executor;
        String shared = settings.text(Settings.LOG_DIR, "");
        this.directory = shared.isEmpty() ? local : new File(shared);
        String random = "local-" + UUID.randomUUID().toString().substring(0, 8);
        this.application = settings.text("spark.app.id", random);
    }

    LogFile log(int server) throws IOException {
        return LogFile.create(
                directory, application + "-executor-" + executor + "-server-" + server + ".log");
    }

    Sidecar start(int server, LogFile log, PrivateDirectory directory, Sidecar.Events events)
            throws IOException {
        String firstLine = Json.object()
                .putRaw("conf", settings.own())
                .put("server", server)
                .put("incarnation", 1)
                .put("coordinator", address)
                .put("secret", secret)
                .put("host", host)
                .put("bind", settings.text("spark.executor.bindAddress", ""))
                .put("directory", directory.toString())
                .put("log", log.toString())
                .put("executor", executor)
                .put("per_executor", settings.serversPerExecutor())
                .putRaw("spark", settings.those(TOLD))
                .toString();
        ProcessBuilder command = python.run("sparkps.server", log.file);
        // To be removed even if we end before the first line is written.
        command.command().add(directory.toString());
        return Sidecar.start("server " + server, command, firstLine, events);
    }

    /** "server 3 on executor 1 (host)". */
    String name(String server) {
        return "server " + server + " on executor " + executor + " (" + host + ")";
    }

    String command() {
        return python.path + " -m sparkps.server";
    }

    String advice() {
        return python.advice();
    }
}
