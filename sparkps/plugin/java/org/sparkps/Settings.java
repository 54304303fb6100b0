package org.sparkps;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import scala.Tuple2;

/**
 * The settings that Java itself needs, read from the Spark configuration.
 *
 * <p>{@code sparkps/config.py} tells what each means and checks them all; the children get every
 * {@code spark.sparkps.*} key as it is. Defaults here are the same as there.
 */
final class Settings {
    static final String PREFIX = "spark.sparkps.";
    static final String PYTHON = PREFIX + "python";
    static final String LOG_DIR = PREFIX + "log.dir";
    static final String START_TIMEOUT = PREFIX + "start.timeout";
    static final String STOP_TIMEOUT = PREFIX + "stop.timeout";
    static final String PER_EXECUTOR = PREFIX + "servers.perExecutor";
    static final String LAUNCH = PREFIX + "launch";
    static final String COORDINATOR = PREFIX + "coordinator";
    static final String SECURITY = PREFIX + "security";

    private static final Pattern TIME = Pattern.compile("\\s*([0-9]*\\.?[0-9]+)\\s*([a-zA-Z]*)\\s*");
    private static final Map<String, Double> MILLISECONDS =
            Map.of("", 1e3, "ms", 1.0, "s", 1e3, "m", 6e4, "min", 6e4, "h", 3.6e6);

    private final SparkConf conf;

    Settings(SparkConf conf) {
        this.conf = conf;
    }

    /** Whether the plugin starts anything: not where servers are the driver's or given. */
    boolean starts() {
        String launch = text(LAUNCH, "auto");
        return launch.equals("plugin") || launch.equals("auto") && text(COORDINATOR, "").isEmpty();
    }

    Duration startTimeout() {
        return time(START_TIMEOUT, "60");
    }

    Duration stopTimeout() {
        return time(STOP_TIMEOUT, "5");
    }

    int serversPerExecutor() {
        String value = text(PER_EXECUTOR, "1");
        if (!value.matches("[1-9][0-9]?") || Integer.parseInt(value) > 64) {
            throw wrong(PER_EXECUTOR, value, "must be a whole number, 1 to 64");
        }
        return Integer.parseInt(value);
    }

    /**
     * Every {@code spark.sparkps.*} key, as a JSON object. Where Spark encrypts its own network, so do
     * we, unless told otherwise.
     */
    String own() {
        Json json = Json.object();
        boolean encrypts = flag("spark.network.crypto.enabled") || flag("spark.ssl.rpc.enabled");
        if (encrypts && !contains(SECURITY)) {
            json.put(SECURITY, "encrypt");
        }
        for (Tuple2<String, String> pair : conf.getAllWithPrefix(PREFIX)) {
            json.put(PREFIX + pair._1(), pair._2());
        }
        return json.toString();
    }

    /** Those of the given keys that are set, as a JSON object. */
    String those(String... keys) {
        Json json = Json.object();
        for (String key : keys) {
            if (conf.contains(key)) {
                json.put(key, conf.get(key));
            }
        }
        return json.toString();
    }

    /** The value of a key without the spaces around it; an empty value counts as none. */
    String text(String key, String otherwise) {
        String value = conf.get(key, "").trim();
        return value.isEmpty() ? otherwise : value;
    }

    boolean contains(String key) {
        return conf.contains(key);
    }

    boolean flag(String key) {
        return conf.getBoolean(key, false);
    }

    private Duration time(String key, String otherwise) {
        String value = text(key, otherwise);
        Matcher match = TIME.matcher(value);
        Double scale =
                match.matches() ? MILLISECONDS.get(match.group(2).toLowerCase(Locale.ROOT)) : null;
        long millis = scale == null ? 0 : (long) (Double.parseDouble(match.group(1)) * scale);
        if (millis <= 0) {
            throw wrong(key, value, "must be a positive time as in 30, 30s, 500ms or 2min");
        }
        return Duration.ofMillis(millis);
    }

    /** "60 s", "1.5 s". */
    static String seconds(Duration time) {
        return BigDecimal.valueOf(time.toMillis(), 3).stripTrailingZeros().toPlainString() + " s";
    }

    private static IllegalArgumentException wrong(String key, String value, String reason) {
        return new IllegalArgumentException("setting " + key + "='" + value + "': " + reason);
    }
}
