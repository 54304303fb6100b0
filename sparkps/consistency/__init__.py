"""When a worker may go on, whose clock is where, and what a ledger holds: pure rules, shared by the
programs."""
