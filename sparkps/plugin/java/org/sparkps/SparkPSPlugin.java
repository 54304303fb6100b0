package org.sparkps;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * What {@code spark.plugins} names: the coordinator as a child of the driver, servers as children
 * of the executors.
 *
 * <p>Java starts processes, holds their leashes and certifies their exits. It decides nothing about
 * tables and reads no message: addresses and sentences pass through as text. The same classes run
 * on Spark 3.5 (Scala 2.12) and 4.x (Scala 2.13), since they call no method with a Scala collection
 * in it.
 */
public final class SparkPSPlugin implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
        return new DriverSide();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new ExecutorSide();
    }
}
