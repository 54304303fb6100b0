"""The wire format: headers, buffers, and the one place that unpickles. ``PROTOCOL.md`` is the spec."""
