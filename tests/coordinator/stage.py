"""A coordinator's core on fake time, with servers that obey, a driver and tasks: what they say,
what they hear.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any, TypeVar

from sparkps.config import Settings
from sparkps.coordinator.core import TICK, CoordinatorCore
from sparkps.spec import ServerInfo, SessionSpec, TableSpec
from sparkps.testing.time import FakeTime
from sparkps.wire.effects import Effect, Tell
from sparkps.wire.frames import decode_control, encode_control
from sparkps.wire.messages import (
    VERSION,
    Answer,
    Beat,
    CreateTable,
    Denied,
    Done,
    Failed,
    Finish,
    Granted,
    Join,
    Message,
    OpenSession,
    Ready,
    RegisterRank,
    ServerExited,
    ServerUp,
    Tick,
)

M = TypeVar("M", bound=Message)
DRIVER = "driver"


class Stage:
    """Plays everybody's part. Commands to servers are done at once, but for kinds that are in
    ``held``.
    """

    def __init__(self, servers: int = 2, **settings: Any) -> None:
        self.time = FakeTime(100.0)
        self.core = CoordinatorCore(
            Settings.load(None, **settings), servers=servers, random=Random(7)
        )
        self.heard: dict[Any, list[Message]] = defaultdict(list)
        self.effects: list[Effect] = []
        self.held: set[type[Message]] = set()
        self.results: dict[type[Message], Any] = {}
        self.silent: set[Any] = set()
        self.commands: list[tuple[Any, Any]] = []
        self.token: dict[Any, int] = {}
        self.session = 0
        self._requests = 0
        self.people: set[Any] = set()
        self.join(DRIVER, "driver")
        for server in range(servers):
            self.server_up(server)

    # -- saying ------------------------------------------------------------------------------------

    def say(self, who: Any, message: Message) -> None:
        self.carry_out(self.core.received(who, message, self.time()))

    def ask(self, make: Any, who: Any = DRIVER) -> Any:
        """Send a request; return its result, or the Denied, or None while there is no answer."""
        number = self.request(make, who)
        return self.answer(number, who)

    def request(self, make: Any, who: Any = DRIVER) -> int:
        self._requests += 1
        self.say(who, make(self._requests))
        return self._requests

    def answer(self, number: int, who: Any = DRIVER) -> Any:
        for message in self.heard[who]:
            if isinstance(message, Answer) and message.id == number:
                return "done" if message.result is None else message.result
            if isinstance(message, Denied) and message.id == number:
                return message
        return None

    def join(self, who: Any, role: str = "worker") -> None:
        self.people.add(who)
        self.say(who, Join(VERSION, role, "host", 1))

    def server_up(self, server: int) -> None:
        self.people.add(f"s{server}")
        self.say(
            f"s{server}",
            ServerUp(VERSION, ServerInfo(server, 1, f"ipc:///s{server}", log=f"/log{server}")),
        )

    def leave(self, who: Any) -> None:
        self.people.discard(who)
        self.carry_out(self.core.disconnected(who, self.time()))

    def exited(
        self, server: int, status: str = "killed by signal 9, SIGKILL", tail: str = "  last line"
    ) -> None:
        self.carry_out(self.core.exited(ServerExited(server, 1, status, tail), self.time()))

    def wait(self, seconds: float) -> None:
        """Let time pass, with heartbeats of everyone who is not silent."""
        until = self.time() + seconds
        while self.time() < until - 1e-9:
            self.time.advance(min(TICK * 5, until - self.time()))
            for who in sorted(self.people - self.silent, key=str):
                self.say(who, Beat())
            self.carry_out(self.core.tick(self.time()))

    def done(
        self, kind: type[Message], error: tuple[str, dict[str, Any]] | None = None, who: Any = None
    ) -> None:
        """Servers do (or refuse) the held commands of a kind."""
        held = [
            (peer, m) for peer, m in self.commands if isinstance(m, kind) and who in (None, peer)
        ]
        for peer, message in held:
            self.commands.remove((peer, message))
            code, fields = error or ("", {})
            self.say(peer, Done(message.op, None, code, fields))

    # -- hearing -----------------------------------------------------------------------------------

    def carry_out(self, effects: list[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            if not isinstance(effect, Tell):
                continue
            message = decode_control(encode_control(effect.message))
            if not str(effect.peer).startswith("s") or not hasattr(message, "op"):
                self.heard[effect.peer].append(message)
            elif type(message) in self.held:
                self.commands.append((effect.peer, message))
            else:
                self.heard[effect.peer].append(message)
                self.say(effect.peer, Done(message.op, self.results.get(type(message))))

    def got(self, who: Any, kind: type[M]) -> list[M]:
        """Take the messages of a kind that somebody has heard."""
        taken = [message for message in self.heard[who] if isinstance(message, kind)]
        self.heard[who] = [message for message in self.heard[who] if not isinstance(message, kind)]
        return taken

    # -- runs --------------------------------------------------------------------------------------

    def table(self, name: str = "t", replace: bool = False, **spec: Any) -> Any:
        return self.ask(lambda n: CreateTable(n, TableSpec(name, **spec), replace))

    def open(self, size: int, **spec: Any) -> int:
        session, token = self.ask(lambda n: OpenSession(n, SessionSpec(0, size, **spec)))
        self.session, self.token[DRIVER] = session, token
        return session

    def register(self, rank: int, who: Any = None, task: int = 0, first: bool = False) -> Any:
        """A task comes for a rank; return its Granted, if any."""
        who = f"w{rank}" if who is None else who
        if who not in self.people:
            self.join(who)
        self.say(who, RegisterRank(self.session, rank, "host", 10 + rank, task, first))
        return self.granted(who)

    def granted(self, who: Any) -> Any:
        got = self.got(who, Granted)
        if got:
            self.token[who] = got[-1].token
        return got[-1] if got else None

    def ready(
        self, rank: int, batches: int, rows: int | None = None, mark: int = 0, who: Any = None
    ) -> None:
        who = who or f"w{rank}"
        rows = batches * 10 if rows is None else rows
        self.say(who, Ready(self.session, rank, self.token[who], batches, rows, mark))

    def start(self, batches: list[int], **spec: Any) -> None:
        """Open a run and bring its ranks to clock 0."""
        self.open(len(batches), **spec)
        for rank in range(len(batches)):
            self.register(rank)
        for rank, count in enumerate(batches):
            self.ready(rank, count)

    def tick(
        self,
        rank: int,
        clock: int,
        waiting: bool = True,
        who: Any = None,
        end: bool = False,
        state: bytes = b"",
        **numbers: Any,
    ) -> None:
        who = who or f"w{rank}"
        reports = [(clock - 1, numbers)] if numbers else []
        self.say(
            who, Tick(self.session, rank, self.token[who], clock, reports, waiting, end, state)
        )

    def finish(self, rank: int, result: bytes = b"", who: Any = None) -> None:
        who = who or f"w{rank}"
        self.say(who, Finish(self.session, rank, self.token[who], result))

    def fail(self, rank: int, text: str, fatal: bool = False, who: Any = None) -> None:
        who = who or f"w{rank}"
        self.say(
            who,
            Failed(self.session, rank, self.token[who], b"pickle:" + text.encode(), text, fatal),
        )
