package org.sparkps;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;

/**
 * A child's log: a file for its owner only, and how its end reads in a message.
 *
 * <p>The tail is at most twenty lines, each indented, as in {@code sparkps/_log.py}.
 */
final class LogFile {
    private static final int LINES = 20;
    private static final int BYTES = 16_384;

    final File file;

    private LogFile(File file) {
        this.file = file;
    }

    /** Make the file, and the directory above it where it is missing. */
    static LogFile create(File directory, String name) throws IOException {
        Files.createDirectories(directory.toPath());
        Path path = new File(directory, name).getAbsoluteFile().toPath();
        try {
            Files.createFile(
                    path,
                    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        } catch (FileAlreadyExistsException error) {
            // Of an earlier application that was the same in all that makes the name: append.
        }
        return new LogFile(path.toFile());
    }

    String tail() {
        byte[] end;
        boolean cut;
        try (RandomAccessFile in = new RandomAccessFile(file, "r")) {
            long size = in.length();
            cut = size > BYTES;
            end = new byte[(int) Math.min(size, BYTES)];
            in.seek(size - end.length);
            in.readFully(end);
        } catch (IOException error) {
            return "  (no log: " + error.getMessage() + ")";
        }
        String[] lines = new String(end, StandardCharsets.UTF_8).split("\r?\n");
        int from = Math.max(cut ? 1 : 0, lines.length - LINES);
        StringBuilder out = new StringBuilder();
        for (int i = from; i < lines.length; i++) {
            out.append(out.length() == 0 ? "  " : "\n  ").append(lines[i]);
        }
        return end.length == 0 ? "  (the log is empty)" : out.toString();
    }

    @Override
    public String toString() {
        return file.getPath();
    }
}
