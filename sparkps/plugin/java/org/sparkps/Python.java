package org.sparkps;

import java.io.File;
import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.SparkFiles;

/**
 * Which Python runs the children, and in which environment.
 *
 * <p>Rules:
 *
 * <ul>
 *   <li>The first of several places that names a Python; Spark itself goes by the same ones but for
 *       our own key. A relative path counts from the working directory, as for Spark's own workers
 *       ({@code ./environment/bin/python} of {@code --archives}).
 *   <li>The environment is this JVM's without Spark's secrets: any child of a child could read them.
 *   <li>{@code --py-files} are not on the path of an executor's children unless one puts them there.
 *   <li>One thread for each library that would start its own: servers are single-threaded.
 * </ul>
 */
final class Python {
    private static final Pattern SECRET = Pattern.compile("^_?SPARK.*SECRET|^PYSPARK_GATEWAY");
    private static final String PY_FILES = "spark.submit.pyFiles";

    final String path;

    /** Who named it, for messages. */
    final String source;

    private final Settings settings;

    private Python(String path, String source, Settings settings) {
        this.path = path;
        this.source = source;
        this.settings = settings;
    }

    static Python ofDriver(Settings settings) {
        return first(
                settings,
                settings.text(Settings.PYTHON, ""), Settings.PYTHON,
                program(settings.text("spark.pyspark.driver.python", "")), "spark.pyspark.driver.python",
                settings.text("spark.pyspark.python", ""), "spark.pyspark.python",
                program(environment("PYSPARK_DRIVER_PYTHON")), "PYSPARK_DRIVER_PYTHON",
                environment("PYSPARK_PYTHON"), "PYSPARK_PYTHON");
    }

    static Python ofExecutor(Settings settings) {
        return first(
                settings,
                settings.text(Settings.PYTHON, ""), Settings.PYTHON,
                settings.text("spark.pyspark.python", ""), "spark.pyspark.python",
                environment("PYSPARK_PYTHON"), "PYSPARK_PYTHON");
    }

    private static Python first(Settings settings, String... valuesAndSources) {
        for (int i = 0; i < valuesAndSources.length; i += 2) {
            if (!valuesAndSources[i].isEmpty()) {
                return new Python(valuesAndSources[i], valuesAndSources[i + 1], settings);
            }
        }
        return new Python("python3", "nobody named one", settings);
    }

    private static String environment(String name) {
        String value = System.getenv(name);
        return value == null ? "" : value.trim();
    }

    /** The driver's Python may be a notebook, which runs no module. */
    private static String program(String python) {
        String name = new File(python).getName();
        return name.startsWith("jupyter") || name.startsWith("ipython") ? "" : python;
    }

    /** {@code python -m module}, with its stderr at the end of a log file. */
    ProcessBuilder run(String module, File log) {
        ProcessBuilder builder = new ProcessBuilder(path, "-m", module);
        builder.redirectError(ProcessBuilder.Redirect.appendTo(log));
        Map<String, String> environment = builder.environment();
        environment.keySet().removeIf(name -> SECRET.matcher(name).find());
        for (String library : List.of("OMP", "OPENBLAS", "MKL", "NUMEXPR", "ARROW")) {
            environment.put(library + "_NUM_THREADS", "1");
        }
        environment.put("PYTHONUNBUFFERED", "1");
        // -m shall not look for modules in the working directory first (since Python 3.11).
        environment.put("PYTHONSAFEPATH", "1");
        environment.put("PYTHONPATH", searchPath(environment.get("PYTHONPATH")));
        return builder;
    }

    private String searchPath(String inherited) {
        String root = new File(SparkFiles.getRootDirectory()).getAbsolutePath();
        Set<String> entries = new LinkedHashSet<>();
        entries.add(root);
        List<String> files = new ArrayList<>();
        for (String entry : settings.text(PY_FILES, "").split(",")) {
            if (!entry.trim().isEmpty()) {
                files.add(entry.trim());
            }
        }
        for (String file : files) {
            entries.add(new File(root, new File(file).getName()).getPath());
        }
        for (String file : files) {
            // On the driver nothing is in the root yet, but the files themselves may be at hand.
            File local = local(file);
            if (local != null && !file.endsWith(".py") && local.exists()) {
                entries.add(local.getAbsolutePath());
            }
        }
        if (inherited != null && !inherited.isEmpty()) {
            entries.add(inherited);
        }
        return String.join(File.pathSeparator, entries);
    }

    private static File local(String file) {
        if (!file.contains(":")) {
            return new File(file);
        }
        try {
            URI uri = new URI(file);
            return "file".equals(uri.getScheme()) ? new File(uri.getPath()) : null;
        } catch (java.net.URISyntaxException error) {
            return null;
        }
    }

    /** What to do when it does not run; the end of a message. */
    String advice() {
        return "Set " + Settings.PYTHON + " to a Python that has sparkps installed (" + path
                + " comes from: " + source + ")";
    }
}
