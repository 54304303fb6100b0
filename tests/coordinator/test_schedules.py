"""Whole runs in random order, with tasks that die, copies that stand by and messages that wait:
same history.
"""

from __future__ import annotations

import random

import pytest

from sparkps.wire.messages import (
    Begin,
    Continue,
    Ended,
    EpochEnded,
    Finish,
    GangComplete,
    Granted,
    Ready,
    RegisterRank,
    Released,
    Seal,
    SetToken,
    Slowest,
    Tick,
    TokenGone,
)
from tests.coordinator.stage import DRIVER, Stage


class Worker:
    """A task as simple as it gets: one number per batch, ticks, waits by the rules."""

    def __init__(self, play, rank, name):
        self.play, self.rank, self.name = play, rank, name
        self.batches = play.batches[rank]
        self.token = self.clock = self.epoch = self.slowest = 0
        self.clocks = None
        self.waits = True
        self.over = False
        play.stage.join(name)
        self.say(RegisterRank(play.session, rank, "host", 1, 0))

    def say(self, message):
        self.play.stage.say(self.name, message)

    def hear(self):
        """Take in what was told."""
        heard, self.play.stage.heard[self.name] = self.play.stage.heard[self.name], []
        for message in heard:
            match message:
                case Granted():
                    self.over = message.finished
                    self.token, self.clock = message.token, message.clock
                case GangComplete():
                    self.say(
                        Ready(
                            self.play.session, self.rank, self.token, self.batches, self.batches, 7
                        )
                    )
                case Begin():
                    assert message.clock >= self.clock
                    self.clock, self.epoch, self.clocks = (
                        message.clock,
                        message.epoch,
                        message.clocks,
                    )
                    self.waits = False
                    self.check_lead()
                case Released():
                    assert message.clock == self.clock
                    self.waits = False
                    self.check_lead()
                case Slowest():
                    self.slowest = message.clock
                case TokenGone():
                    raise AssertionError("nobody was silent")
                case Ended():
                    raise AssertionError(message)

    def check_lead(self):
        if self.play.mode == "bsp":
            assert self.clock <= self.play.acknowledged_by_all()

    def ready(self):
        """Whether it can do something."""
        self.hear()
        staleness = self.play.staleness
        if self.over or self.clocks is None:
            return False
        blocked = staleness is not None and self.clock - self.slowest > staleness
        return not self.waits and not blocked

    def act(self):
        """Train one batch, or end the epoch or the run."""
        if self.clock >= self.clocks * self.play.epochs:
            self.over = True
            self.say(Finish(self.play.session, self.rank, self.token))
            return
        epoch, n = divmod(self.clock, self.clocks)
        numbers = []
        if n < self.batches:
            numbers = [(self.clock, {"n": self.play.number(self.rank, epoch, n)})]
            self.clock += 1
        if n + 1 >= self.batches:
            self.clock = (epoch + 1) * self.clocks
        at_end = self.clock % self.clocks == 0
        self.waits = self.play.mode == "bsp" or (at_end and self.play.on_epoch)
        self.say(Tick(self.play.session, self.rank, self.token, self.clock, numbers, self.waits))


class Play:
    """One random run."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.stage = Stage(servers=self.random.randint(1, 3))
        self.consistency = self.random.choice(["bsp", "bsp", "ssp:0", "ssp:2", "asp"])
        self.mode, _, staleness = self.consistency.partition(":")
        self.staleness = int(staleness) if staleness else None
        self.size, self.epochs = self.random.randint(1, 4), self.random.randint(1, 3)
        self.batches = [self.random.randint(0, 4) for _ in range(self.size)]
        self.batches[0] = self.batches[0] or 1  # a run without any rows fails
        self.on_epoch = self.random.random() < 0.5
        self.deaths = self.random.randint(0, 6)
        self.session = self.stage.open(
            self.size,
            consistency=self.consistency,
            epochs=self.epochs,
            barrier_epochs=self.on_epoch,
        )
        self.stage.held = {Seal, SetToken}
        self.names = 0
        self.workers = []
        self.finished = set()
        self.rows = []
        for rank in range(self.size):
            self.start(rank)

    def number(self, rank, epoch, batch):
        return [1e16, 1.0, -1e16, 3.0, 0.1][(rank * 7 + epoch * 3 + batch) % 5]

    def acknowledged_by_all(self):
        run = self.stage.core._sessions._open[self.session].run
        return min((run.gate.clocks.effective(rank.number) for rank in run.ranks.all), default=0)

    def start(self, rank):
        self.names += 1
        self.workers.append(Worker(self, rank, f"w{self.names}"))

    def expected(self, epoch):
        total = -0.0
        any_number = False
        for rank in range(self.size):
            own = -0.0
            for batch in range(self.batches[rank]):
                own += self.number(rank, epoch, batch)
                any_number = True
            if self.batches[rank]:
                total += own
        return {"n": total} if any_number else {}

    def go_on(self, epoch):
        assert self.stage.ask(lambda n: Continue(n, self.session, epoch, {})) == "done"

    def step(self):
        """Let something happen."""
        stage = self.stage
        choice = self.random.random()
        if choice < 0.05 and self.deaths:
            self.deaths -= 1
            victim = self.random.choice(self.workers)
            self.workers.remove(victim)
            stage.leave(victim.name)
            if not any(w.rank == victim.rank for w in self.workers):
                self.start(victim.rank)
        elif choice < 0.08 and len(self.workers) < 2 * self.size:
            self.start(self.random.randrange(self.size))
        elif choice < 0.3 and stage.commands:
            peer, message = self.random.choice(stage.commands)
            stage.done(type(message), who=peer)
        elif choice < 0.35:
            stage.wait(0.2)
        else:
            able = [worker for worker in self.workers if worker.ready()]
            if able:
                self.random.choice(able).act()
        for message in stage.got(DRIVER, EpochEnded):
            self.rows.append(message)
            if message.wait:
                self.go_on(message.epoch)


@pytest.mark.parametrize("seed", range(80))
def test_the_history_is_the_same_in_any_order_with_any_deaths(seed):
    play = Play(seed)
    for _ in range(20_000):
        play.step()
        ended = play.stage.got(DRIVER, Ended)
        if ended:
            break
    else:
        raise AssertionError(
            f"{play.consistency} does not end: {play.stage.core._sessions.status()}"
        )
    assert ended == [Ended(play.session)]
    assert [row.epoch for row in play.rows] == list(range(play.epochs))
    for row in play.rows:
        numbers = {name: value for name, value in row.metrics.items() if name == "n"}
        assert numbers == play.expected(row.epoch)
