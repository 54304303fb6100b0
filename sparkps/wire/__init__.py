"""The wire format: headers, buffers, one place that unpickles. ``PROTOCOL.md`` is the spec."""
