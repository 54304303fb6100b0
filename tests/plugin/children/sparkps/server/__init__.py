"""A server that comes up and waits for the end of its leash."""
