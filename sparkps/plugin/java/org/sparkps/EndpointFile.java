package org.sparkps;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;

/**
 * Where the Python workers of an executor find the coordinator: {@code sparkps.json} in the first
 * of Spark's local directories, which they know as {@code SPARK_LOCAL_DIRS}.
 *
 * <p>It holds the secret, so it is its owner's only from its creation, and it appears whole.
 */
final class EndpointFile {
    private static final String NAME = "sparkps.json";

    private EndpointFile() {}

    static void write(File directory, String address, String secret) throws IOException {
        String text = Json.object().put("coordinator", address).put("secret", secret).toString();
        Path begun = Files.createTempFile(
                directory.toPath(), NAME, ".tmp",
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        Files.write(begun, (text + "\n").getBytes(StandardCharsets.UTF_8));
        Files.move(begun, directory.toPath().resolve(NAME), StandardCopyOption.ATOMIC_MOVE);
    }
}
