"""The catalogue: which tables there are.

The rules:

* A table's id is never used again. Creating one that exists with an equal spec gives it back; with
  another spec it is an error, unless it is to be replaced: then the old one is dropped first and
  the new one has a new id.
* A request for a table that is being made waits until every server has it. If a server refuses (no
  memory, a broken optimizer), the others drop it again and everyone who waited gets that error.
* A table that had a partition on a lost server is *lost*: finding, creating or saving it raises
  ServerLost until it is replaced or dropped. Tables without a partition there are as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sparkps.coordinator.commands import Outcome
from sparkps.coordinator.hub import Hub, Peer
from sparkps.coordinator.membership import Member, Membership
from sparkps.errors import InvalidArgument, PSError, ServerLost, TableExists, TableNotFound
from sparkps.routing.partitioner import group_of
from sparkps.spec import TableInfo, View, suggest
from sparkps.wire.messages import (
    AddTable,
    CreateTable,
    DropTable,
    FindTable,
    ListTables,
    RemoveTable,
    SaveTable,
    Snapshot,
)


@dataclass(slots=True)
class Entry:
    """A table, and who waits for it while it is being made."""

    info: TableInfo
    ready: bool = False
    lost: ServerLost | None = None
    waiting: list[tuple[Peer, int]] = field(default_factory=list)


class Catalog:
    """Tables by name and id."""

    def __init__(self, hub: Hub, members: Membership) -> None:
        self._hub = hub
        self._members = members
        self._next = 1
        self._by_name: dict[str, Entry] = {}

    def entries(self) -> list[Entry]:
        """All tables in order of their ids."""
        return sorted(self._by_name.values(), key=lambda entry: entry.info.id)

    @property
    def free(self) -> bool:
        """Whether there is no table with rows to lose."""
        return all(entry.lost is not None for entry in self._by_name.values())

    def create(self, peer: Peer, message: CreateTable) -> None:
        """-> TableInfo, when every server has the table."""
        message.spec.check()
        self._members.when_ready(lambda: self._guard(peer, message.id, self._create, message))

    def find(self, peer: Peer, message: FindTable) -> None:
        """-> TableInfo."""
        entry = self._by_name.get(message.name)
        if entry is None:
            known = sorted(self._by_name)
            raise TableNotFound(
                table=message.name,
                known=", ".join(known) + suggest(message.name, known) or "(none)",
            )
        self._give(peer, message.id, entry)

    def listing(self, peer: Peer, message: ListTables) -> None:
        """-> list of TableInfo, of the tables that are ready."""
        self._hub.answer(peer, message.id, [entry.info for entry in self.entries() if entry.ready])

    def drop(self, peer: Peer, message: DropTable) -> None:
        """-> None, when every server has dropped it. Dropping what is gone is no error."""
        entry = self._by_id(message.table)
        if entry is None:
            self._hub.answer(peer, message.id)
            return
        self._forget(entry)
        self._remove(entry.info.id, lambda _: self._hub.answer(peer, message.id))

    def save(self, peer: Peer, message: SaveTable) -> None:
        """-> manifest entries in order of partition."""
        entry = self._by_id(message.table)
        if entry is None:
            raise TableNotFound(
                table=f"with id {message.table}", known=", ".join(sorted(self._by_name))
            )
        if entry.lost:
            raise entry.lost
        table, path = message.table, message.path

        def saved(outcome: Outcome) -> None:
            if outcome.error:
                self._hub.deny(peer, message.id, outcome.error)
                return
            parts = [part for result in outcome.results.values() for part in result or ()]
            self._hub.answer(peer, message.id, sorted(parts, key=_partition))

        self._members.commands.send(
            lambda op: Snapshot(op, table, path),
            f"saving table {entry.info.spec.name!r}",
            saved,
            unbounded=True,
        )

    def lose(self, member: Member, view: View) -> tuple[list[str], list[int]]:
        """Mark the tables that had a partition on a lost server; return their names and ids."""
        lost = [
            entry
            for entry in self.entries()
            if entry.lost is None and _has_partition(entry.info, member.info.id, view)
        ]
        names = [entry.info.spec.name for entry in lost]
        member.tables = names
        for entry in lost:
            entry.lost = member.error()
        return names, [entry.info.id for entry in lost]

    def introduce(self, server: int) -> None:
        """Tell a server of the tables; it has no partition of them."""
        for entry in self.entries():
            if entry.lost is None:
                self._members.commands.send(
                    partial(AddTable, info=entry.info),
                    f"telling server {server} of table {entry.info.spec.name!r}",
                    strict=False,
                    servers=[server],
                )

    def status(self) -> list[dict[str, Any]]:
        """Figures for ``ps.status()``."""
        return [
            {
                "id": entry.info.id,
                "name": entry.info.spec.name,
                "width": entry.info.spec.width,
                "dim": entry.info.spec.dim,
                "dtype": entry.info.spec.dtype,
                "partitions": entry.info.spec.partitions,
                "ready": entry.ready,
                "lost": str(entry.lost) if entry.lost else "",
            }
            for entry in self.entries()
        ]

    # -- inside ------------------------------------------------------------------------------------

    def _create(self, peer: Peer, message: CreateTable) -> None:
        spec = message.spec
        entry = self._by_name.get(spec.name)
        if entry is not None and not message.replace:
            if entry.info.spec != spec:
                raise TableExists(table=spec.name, difference=entry.info.spec.difference(spec))
            self._give(peer, message.id, entry)
            return
        if self._members.look_around():
            # Those that came later get partitions, as nothing has to be carried over.
            self._members.when_published(
                lambda: self._guard(peer, message.id, self._create, message)
            )
            return
        if not self._members.where():
            lost = self._members.lost_error()
            if lost is not None:
                raise lost.because("no server is left now: if none comes, make a new context")
            raise InvalidArgument(name="servers", value=0, reason="there is no server")
        if entry is not None:
            self._forget(entry)
            self._remove(entry.info.id, lambda _: None)
        made = Entry(TableInfo(self._next, spec), waiting=[(peer, message.id)])
        self._next += 1
        self._by_name[spec.name] = made
        self._hub.log(f"table {spec.name!r} is {made.info.id}")
        self._members.commands.send(
            lambda op: AddTable(op, made.info),
            f"creating table {spec.name!r}",
            lambda outcome: self._made(made, outcome),
        )

    def _made(self, entry: Entry, outcome: Outcome) -> None:
        waiting, entry.waiting = entry.waiting, []
        error: PSError | None = outcome.error or entry.lost
        if error is None:
            entry.ready = True
            for peer, request in waiting:
                self._hub.answer(peer, request, entry.info)
            return
        if self._by_name.get(entry.info.spec.name) is entry:
            del self._by_name[entry.info.spec.name]
        self._remove(entry.info.id, lambda _: None)
        for peer, request in waiting:
            self._hub.deny(peer, request, error)

    def _give(self, peer: Peer, request: int, entry: Entry) -> None:
        if entry.lost:
            raise entry.lost
        if entry.ready:
            self._hub.answer(peer, request, entry.info)
        else:
            entry.waiting.append((peer, request))

    def _forget(self, entry: Entry) -> None:
        del self._by_name[entry.info.spec.name]
        waiting, entry.waiting = entry.waiting, []
        gone = TableNotFound(
            table=entry.info.spec.name, known="(it was dropped while it was being made)"
        )
        for peer, request in waiting:
            self._hub.deny(peer, request, gone)

    def _remove(self, table: int, then: Callable[[Outcome], None]) -> None:
        self._members.commands.send(
            lambda op: RemoveTable(op, table), f"dropping table {table}", then, strict=False
        )

    def _by_id(self, table: int) -> Entry | None:
        return next((entry for entry in self._by_name.values() if entry.info.id == table), None)

    def _guard(
        self, peer: Peer, request: int, call: Callable[[Peer, Any], None], message: Any
    ) -> None:
        """A request that waited has nobody above it who would turn its error into an answer."""
        try:
            call(peer, message)
        except PSError as error:
            self._hub.deny(peer, request, error)


def _partition(part: Any) -> int:
    return int(part["partition"])


def _has_partition(info: TableInfo, server: int, view: View) -> bool:
    if not view.owners:
        return False
    groups = group_of(info.id, info.spec.partitions)
    return any(view.owners[int(group)] == server for group in groups)
