"""Which partition a key is in, and which server a partition is on."""
