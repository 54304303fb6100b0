package org.sparkps;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.RDDBlockId;
import org.apache.spark.storage.StorageLevel;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Keeps dynamic allocation from releasing an executor whose servers hold tables.
 *
 * <p>Rules:
 *
 * <ul>
 *   <li>Spark spares an idle executor that has cached blocks. So while a server here holds a table,
 *       one tiny block of an RDD that does not exist lies in this executor's block manager.
 *   <li>The RDD's number is one that Spark does not come to; the block's is the executor's.
 *   <li>It may go to disk: a block that was dropped for want of memory would let the executor go.
 *   <li>A user who has set {@code cachedExecutorIdleTimeout} has limited that; we only warn.
 * </ul>
 */
final class Pin {
    private static final Logger LOG = LoggerFactory.getLogger(Pin.class);
    private static final int RDD = Integer.MAX_VALUE - 7;
    private static final String ENABLED = "spark.dynamicAllocation.enabled";
    private static final String LIMIT = "spark.dynamicAllocation.cachedExecutorIdleTimeout";

    private final RDDBlockId block;
    private final Settings settings;
    private final Map<Integer, Integer> tables = new HashMap<>();
    private boolean pinned;
    private boolean warned;

    private Pin(RDDBlockId block, Settings settings) {
        this.block = block;
        this.settings = settings;
    }

    /** A pin of this executor; one that does nothing without dynamic allocation. */
    static Pin of(String executor, Settings settings) {
        boolean allocates = settings.flag(ENABLED) && executor.matches("[0-9]{1,9}");
        RDDBlockId block = allocates ? new RDDBlockId(RDD, Integer.parseInt(executor)) : null;
        return new Pin(block, settings);
    }

    /** The server in a slot holds so many tables now. */
    synchronized void holds(int slot, int number) {
        tables.put(slot, number);
        boolean wanted = tables.values().stream().anyMatch(held -> held > 0);
        if (block == null || wanted == pinned) {
            return;
        }
        try {
            turn(wanted);
            pinned = wanted;
        } catch (RuntimeException | LinkageError error) {
            LOG.warn(
                    "this executor could not be {} dynamic allocation: {}",
                    wanted ? "kept from" : "given back to", error.toString());
        }
    }

    private void turn(boolean on) {
        BlockManager blocks = SparkEnv.get().blockManager();
        if (!on) {
            blocks.removeBlock(block, true);
            return;
        }
        if (settings.contains(LIMIT) && !warned) {
            warned = true;
            LOG.warn(
                    "{}={} lets Spark release idle executors whose servers hold tables, and the tables "
                            + "are lost then; leave it unset",
                    LIMIT, settings.text(LIMIT, ""));
        }
        ClassTag<String> tag = ClassTag$.MODULE$.apply(String.class);
        if (!blocks.putSingle(block, "sparkps", StorageLevel.MEMORY_AND_DISK(), true, tag)) {
            throw new IllegalStateException("the block manager refused the block");
        }
    }
}
