"""The coordinator: who is alive, what tables there are, how far each run is. And who starts it all.

``core`` decides (pure), ``shell`` does; ``launch`` starts the coordinator and the servers as
children.
"""
