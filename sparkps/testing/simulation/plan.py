"""What a seed decides: the cluster, the run, every write of every step, and how much goes wrong.

A plan is fixed before the first event, so that what *must* be in the tables can be computed from it
without looking at what happened. Two tables are written:

* ``counts``, int64, hashed: each write adds 1 to some keys that no other write names (its
  *markers*) and amounts to a few keys that all share. A read of markers tells exactly which writes
  it saw, and how often.
* ``weights``, float32, under bsp only: pushes whose gradients depend on what was pulled, assigns
  and functions. Its bits are compared with a sequential reference.

Not here: when things go wrong (the simulation draws that as it goes), and the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, Literal, NamedTuple

from sparkps.consistency.clocks import EpochPlan, make_plan, own_clocks
from sparkps.optim import SGD, AdaGrad, Adam
from sparkps.spec import InitSpec, SessionSpec, TableSpec

Way = Literal["plain", "vocabulary", "keyset"]

#: Keys of ``counts`` that all writes share; markers are not negative.
SHARED: Final = (-1, -2, -3)
#: Keys of ``weights``.
FEATURES: Final = 16
#: Memory that no run uses up.
PLENTY: Final = 1 << 30
#: Room for clocks, for writes of one clock and for markers of one write, in a marker's number.
_CLOCKS, _WRITES, _MARKERS = 64, 64, 16


class Write(NamedTuple):
    """A push to ``counts``: markers with 1 each, shared keys with amounts; keys may repeat."""

    rank: int
    clock: int
    number: int
    way: Way
    keys: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def markers(self) -> tuple[int, ...]:
        """The keys that no other write names."""
        return tuple(key for key in self.keys if key >= 0)


class Change(NamedTuple):
    """A write to ``weights``: for ``push``, a gradient is a noise plus a part of what was
    pulled."""

    kind: Literal["push", "assign", "scale"]
    keys: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()


class Step(NamedTuple):
    """What one batch does: after its reads, these writes in turn."""

    counts: tuple[Write, ...]
    weights: tuple[Change, ...]


@dataclass(frozen=True)
class Plan:
    """A run and its faults; see the module. :meth:`draw` makes one from a seed.

    Attributes
    ----------
    consistency
        ``"bsp"``, ``"ssp:2"``, ``"asp"``.
    batches
        Of each rank.
    slice_rows, message_rows
        Rows of a slice and of a message: small, so that a write has many of both.
    window
        Bytes in flight per client and server: four full messages at least.
    memory, keysets
        Bytes that a server may use, and for its vocabularies and keysets.
    cut, drop, double, slow
        Probability of each of what may happen to a data message (:mod:`.faults`).
    refuse
        Probability that a server does not serve one slice of a write, or a read, for the moment.
    troubles
        How many processes are killed, doubled, paused or cut off from the coordinator.
    latecomers
        How many servers join while the run goes on, and maybe leave again; they have no partition.
    server_dies, driver_leaves, driver_dies
        Whether in the end a server dies, the driver closes the run, or vanishes.
    writes, markers, shared, changes
        The most writes of a step to ``counts``, keys of each that are its own, keys of each that
        all share, and writes to ``weights``.
    """

    seed: int
    consistency: str
    servers: int = 2
    batches: tuple[int, ...] = (3, 2)
    epochs: int = 2
    clock_every: Literal["batch", "epoch"] = "batch"
    barrier_epochs: bool = False
    partitions: int = 4
    slice_rows: int = 2
    message_rows: int = 4
    window: int = 256
    memory: int = PLENTY
    keysets: int = 1 << 20
    cut: float = 0.0
    drop: float = 0.0
    double: float = 0.0
    slow: float = 0.0
    refuse: float = 0.0
    troubles: int = 0
    latecomers: int = 0
    server_dies: bool = False
    driver_leaves: bool = False
    driver_dies: bool = False
    optimizer: str = "adagrad"
    pace: tuple[float, ...] = ()
    writes: int = 3
    markers: int = 6
    shared: int = 3
    changes: int = 2
    steps: dict[tuple[int, int, int], Step] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def draw(cls, seed: int, consistency: str, **fixed: Any) -> Plan:
        """Draw a plan; ``fixed`` are attributes that the seed does not decide."""
        random = Random(f"plan {seed} {consistency}")
        size = random.choice((2, 2, 3, 4))
        batches = [random.randint(1, 3) for _ in range(size)]
        if random.random() < 0.3:
            batches[random.randrange(size)] = 0
        message_rows = random.choice((2, 4, 8))
        plan = cls(
            seed,
            consistency,
            servers=random.randint(1, 3),
            batches=tuple(batches) if any(batches) else (1, *batches[1:]),
            epochs=random.choice((1, 2, 2, 3)),
            clock_every=random.choice(("batch", "batch", "batch", "epoch")),
            barrier_epochs=random.random() < 0.4,
            partitions=random.choice((2, 4, 7)),
            slice_rows=random.choice((1, 2, 3)),
            message_rows=message_rows,
            window=16 * message_rows * random.choice((4, 6, 30)),
            keysets=random.choice((1 << 20, 600)),
            cut=random.choice((0.0, 0.002, 0.01, 0.03)),
            drop=random.choice((0.0, 0.0, 0.005, 0.02)),
            double=random.choice((0.0, 0.0, 0.01, 0.1)),
            slow=random.choice((0.0, 0.0, 0.002, 0.01)),
            refuse=random.choice((0.0, 0.0, 0.01, 0.05)),
            troubles=random.choice((0, 1, 2, 4)),
            optimizer=random.choice(("sgd", "adagrad", "adam")),
            pace=tuple(random.choice((0.0, 0.001, 0.01)) for _ in batches),
            latecomers=random.choice((0, 0, 1, 2)),
        )
        return replace(plan, **fixed)

    @classmethod
    def any(cls, seed: int, **fixed: Any) -> Plan:
        """Draw a plan of any consistency, which may also be one of a run that fails."""
        random = Random(f"any {seed}")
        consistency = random.choice(("bsp", "bsp", "bsp", "ssp:2", "ssp:1", "ssp:0", "asp", "asp"))
        ends: list[dict[str, Any]] = [
            {"server_dies": True},
            {"driver_leaves": True},
            {"driver_dies": True},
            {"memory": random.randint(3_000, 40_000)},
        ]
        if random.random() < 0.3:
            fixed = {**random.choice(ends), "troubles": random.randint(1, 4), **fixed}
        return cls.draw(seed, consistency, **fixed)

    @property
    def may_fail(self) -> bool:
        """Whether the run has a reason to fail."""
        ends = self.server_dies or self.driver_leaves or self.driver_dies
        return ends or self.memory < PLENTY

    def __post_init__(self) -> None:
        for rank in range(self.size + 1):
            for epoch in range(self.epochs):
                driver = rank == self.size
                for batch in range(int(self.barrier_epochs) if driver else self.batches[rank]):
                    self.steps[rank, epoch, batch] = self._step(rank, epoch, batch)

    @property
    def size(self) -> int:
        """How many ranks; that number is the driver's rank."""
        return len(self.batches)

    @property
    def bsp(self) -> bool:
        """Whether clocks are sealed."""
        return self.consistency == "bsp"

    @property
    def clocks(self) -> EpochPlan:
        """The clocks of the epochs."""
        return make_plan(self.clock_every, self.epochs, self.batches)

    def own(self, rank: int) -> int:
        """How many clocks a rank ticks in an epoch."""
        return own_clocks(self.clock_every, self.batches[rank])

    def clock(self, rank: int, epoch: int, batch: int) -> int:
        """The clock of a batch; the driver's writes are made at the end of their epoch."""
        clocks = self.clocks
        if rank == self.size:
            return clocks.end(epoch)
        return clocks.first(epoch) + (batch if self.clock_every == "batch" else 0)

    def all_writes(self) -> list[Write]:
        """All writes to ``counts`` of the whole run."""
        return [write for step in self.steps.values() for write in step.counts]

    def session(self) -> SessionSpec:
        """The run, as it is opened."""
        return SessionSpec(
            0,
            self.size,
            self.consistency,
            self.epochs,
            self.clock_every,
            self.barrier_epochs,
            seed=self.seed,
        )

    def tables(self) -> tuple[TableSpec, ...]:
        """The tables that it uses."""
        counts = TableSpec("counts", dtype="int64", partitions=self.partitions)
        if not self.bsp:
            return (counts,)
        optimizer = {"sgd": SGD(0.5), "adagrad": AdaGrad(0.5), "adam": Adam(0.25)}[self.optimizer]
        weights = TableSpec(
            "weights",
            optimizer=optimizer.spec(),
            init=InitSpec("uniform", -1.0, 1.0),
            seed=self.seed,
            partitions=self.partitions,
            dim=FEATURES if self.seed % 2 else None,
        )
        return (counts, weights)

    def _step(self, rank: int, epoch: int, batch: int) -> Step:
        random = Random(f"step {self.seed} {rank} {epoch} {batch}")
        clock = self.clock(rank, epoch, batch)
        writes = []
        for number in range(random.randint(1, self.writes)):
            # The writes of a clock with several batches are numbered through.
            number += 4 * batch if self.clock_every == "epoch" else 0
            first = ((rank * _CLOCKS + clock) * _WRITES + number) * _MARKERS
            markers = [first + i for i in range(random.randint(1, self.markers))]
            shared = [random.choice(SHARED) for _ in range(random.randint(0, self.shared))]
            keys = markers + shared
            values = [1] * len(markers) + [random.randint(1, 1000) for _ in shared]
            order = random.sample(range(len(keys)), len(keys))
            way: Way = random.choice(("plain", "plain", "vocabulary", "keyset"))
            writes.append(
                Write(
                    rank,
                    clock,
                    number,
                    way,
                    tuple(keys[i] for i in order),
                    tuple(values[i] for i in order),
                )
            )
        count = random.randint(0, self.changes) if self.bsp else 0
        changes = [_change(random) for _ in range(count)]
        return Step(tuple(writes), tuple(changes))


def _change(random: Random) -> Change:
    kind: Any = random.choice(("push", "push", "push", "assign", "scale"))
    if kind == "scale":
        return Change(kind, (), (random.choice((0.5, 0.75)),))
    count = random.randint(1, 6)
    if kind == "assign":
        keys = random.sample(range(FEATURES), count)
    else:
        keys = [random.randrange(FEATURES) for _ in range(count)]
    return Change(kind, tuple(keys), tuple(random.uniform(-1, 1) for _ in keys))
