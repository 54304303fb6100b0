package org.sparkps;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The coordinator's latest figures as gauges of the driver.
 *
 * <p>They are the driver's, since an executor's gauges are not shown over HTTP. A figure that was
 * not told yet is 0.
 */
final class Figures {
    private static final Map<String, String> GAUGES =
            Map.of(
                    "servers", "servers",
                    "partitions", "partitions",
                    "rows", "rows",
                    "bytes", "bytes",
                    "requests_per_second", "requestsPerSecond",
                    "slowest_clock", "slowestClock");

    private final Map<String, Double> latest = new ConcurrentHashMap<>();

    void register(MetricRegistry registry) {
        GAUGES.forEach((figure, gauge) ->
                registry.register(gauge, (Gauge<Double>) () -> latest.getOrDefault(figure, 0.0)));
    }

    /** Read {@code name=value name=value ...}; what is not a number is left out. */
    void read(String line) {
        for (String pair : line.trim().split("\\s+")) {
            int equals = pair.indexOf('=');
            try {
                latest.put(
                        pair.substring(0, Math.max(equals, 0)),
                        Double.valueOf(pair.substring(equals + 1)));
            } catch (NumberFormatException error) {
                // "none", say: the gauge keeps its value.
            }
        }
    }
}
