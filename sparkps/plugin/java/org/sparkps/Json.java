package org.sparkps;

import java.nio.charset.StandardCharsets;

/**
 * Writes one JSON object, or array, on one line. There is no reader: Java takes no JSON apart.
 *
 * <p>What is written is ASCII, so that no encoding on the way can change it.
 */
final class Json {
    private final StringBuilder text = new StringBuilder();
    private final char end;

    private Json(char begin, char end) {
        text.append(begin);
        this.end = end;
    }

    static Json object() {
        return new Json('{', '}');
    }

    static Json array() {
        return new Json('[', ']');
    }

    Json put(String key, String value) {
        return putRaw(key, quote(value));
    }

    Json put(String key, long value) {
        return putRaw(key, Long.toString(value));
    }

    /** Add a value that is JSON already. */
    Json putRaw(String key, String json) {
        return addRaw(quote(key) + ":" + json);
    }

    Json add(String value) {
        return addRaw(quote(value));
    }

    Json add(long value) {
        return addRaw(Long.toString(value));
    }

    private Json addRaw(String json) {
        if (text.length() > 1) {
            text.append(',');
        }
        text.append(json);
        return this;
    }

    @Override
    public String toString() {
        return text.toString() + end;
    }

    static String quote(String value) {
        // Halves of surrogate pairs, which JSON's readers refuse, become question marks.
        String clean = new String(value.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < clean.length(); i++) {
            char c = clean.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
