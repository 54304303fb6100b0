"""Sockets: addresses, both sides of a connection, the link to the coordinator, and fakes.

The only floor that imports zmq. It moves frames and knows nothing of what they mean, but for the
few control messages that keep a link alive.
"""
