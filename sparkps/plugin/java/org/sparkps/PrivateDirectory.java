package org.sparkps;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;

/**
 * A child's directory for its sockets: for its owner only, and with a short name.
 *
 * <p>It is removed here when the child has ended, however it ended; a child whose parent is gone
 * removes it itself. Names of sockets have at most 107 bytes, and a container's temporary directory
 * may have more alone: then it is made in {@code /tmp}.
 */
final class PrivateDirectory {
    private static final int LONGEST = 60;
    private static final FileAttribute<?> OWNER_ONLY =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));

    final File file;

    private PrivateDirectory(Path path) {
        this.file = path.toFile();
    }

    static PrivateDirectory create() throws IOException {
        Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
        String name = "sparkps-";
        if (temporary.toString().length() <= LONGEST) {
            return new PrivateDirectory(Files.createTempDirectory(temporary, name, OWNER_ONLY));
        }
        return new PrivateDirectory(Files.createTempDirectory(Path.of("/tmp"), name, OWNER_ONLY));
    }

    void remove() {
        remove(file);
    }

    private static void remove(File each) {
        File[] inside = Files.isSymbolicLink(each.toPath()) ? null : each.listFiles();
        for (File below : inside == null ? new File[0] : inside) {
            remove(below);
        }
        each.delete();
    }

    @Override
    public String toString() {
        return file.getPath();
    }
}
