"""Where a process finds the application's key.

A key is in no closure, no handle and no table: closures land on disk. The driver has it from the
launcher; a task finds it on its own host:

1. where it needs none: the coordinator is reached by a local socket and the application has no tcp
   ports, or no security;
2. what this process was given (:func:`remember`), as the driver is by its launcher;
3. the file that the Spark plugin writes into the executor's private directory, which Spark names in
   a task's environment;
4. the file that the setting ``key.file`` names;
5. nowhere, where the coordinator is reached by its local socket: servers on this host need no key
   either, and if there are others the client says so (:meth:`.links.Links.link`).
"""

from __future__ import annotations

import os
import stat

import msgspec

from sparkps.config import Settings, executor_directory
from sparkps.errors import InvalidSetting, KeyMissing
from sparkps.net.endpoint import nearest, parse
from sparkps.plugin import ENDPOINT_FILE
from sparkps.wire.auth import Secret

_remembered: dict[str, Secret] = {}


class _Endpoint(msgspec.Struct):
    coordinator: str
    secret: str


def remember(coordinator: str, secret: Secret) -> None:
    """Keep the key of a coordinator (of these addresses) in this process."""
    _remembered[coordinator] = secret


def forget(coordinator: str) -> None:
    """Keep it no more."""
    _remembered.pop(coordinator, None)


def key_of(coordinator: str, settings: Settings) -> Secret | None:
    """Find the key of the application whose coordinator listens at these addresses.

    Raises
    ------
    KeyMissing
        It is needed and not here.
    InvalidSetting
        The file of ``key.file`` is of no use.
    """
    if settings.security == "none":
        return None
    addresses = coordinator.split(",")
    if all(parse(address).scheme == "ipc" for address in addresses):
        return None
    known = _remembered.get(coordinator)
    if known is not None:
        return known
    directory = executor_directory()
    if directory:
        path = os.path.join(directory, ENDPOINT_FILE)
        try:
            with open(path, "rb") as file:
                found = msgspec.json.decode(file.read(), type=_Endpoint)
        except (OSError, msgspec.MsgspecError):
            pass
        else:
            if found.coordinator == coordinator:
                return Secret(found.secret)
    if settings.key_file:
        return read_key(settings.key_file)
    if parse(nearest(coordinator)).scheme == "ipc":
        return None
    looked = "no plugin wrote one for this executor" if directory else "this is no Spark task"
    raise KeyMissing(coordinator=addresses[-1], looked=f"{looked}, and key.file is not set")


def read_key(path: str) -> Secret:
    """Read a key from a file that nobody else may read.

    Raises
    ------
    InvalidSetting
        It is not there, others may read it, or it holds something else.
    """
    try:
        with open(path, encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidSetting(name="key.file", value=path, reason=reason) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidSetting(
            name="key.file", value=path, reason=f"others may read it; chmod 600 {path}"
        )
    try:
        return Secret(text)
    except ValueError:
        raise InvalidSetting(name="key.file", value=path, reason="it holds no key") from None
