"""Monitors of sockets that come and go."""

from __future__ import annotations

import zmq

from sparkps.net.sockets import Context, Monitor


def test_a_monitor_may_be_made_while_libzmq_closes_the_one_before(context: Context) -> None:
    for _ in range(1000):
        socket = context.socket(zmq.DEALER)
        monitor = Monitor(socket)
        monitor.close()
        socket.close(linger=0)
