"""Servers beside executors: spark-submit and plain Python, on local-cluster and standalone masters;
what is lost when something is killed, and that nothing is left.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from sparkps.plugin import PLUGIN, jar_path
from sparkps.spark.configure import submit_arguments
from tests.spark.remote import GONE, PATIENCE, ROOT, Driver, Raised, command_of, driver, inherited
from tests.spark.remote import until as eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MASTER = "local-cluster[2,1,1024]"
BEGIN = """
import sparkps, threading
from pyspark.sql import SparkSession
from sparkps import PSContext
builder = sparkps.configure(SparkSession.builder.master({master!r}).appName("sidecars"))
for key, value in {conf!r}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
"""
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
}
STEP = """
def step(worker, batch):
    worker.table("t").push([worker.rank], [batch.num_rows])
    return {"rows": batch.num_rows}
"""

UNWILLING = """
import org.apache.spark.api.plugin.*;

public class Unwilling implements SparkPlugin {
    public DriverPlugin driverPlugin() {
        throw new IllegalStateException("I will not");
    }

    public ExecutorPlugin executorPlugin() {
        return null;
    }
}
"""

GAUGES = """
import json, urllib.request
def gauges():
    with urllib.request.urlopen(spark.sparkContext.uiWebUrl + "/metrics/json") as page:
        found = json.load(page)["gauges"]
    plugin = "driver.plugin.org.sparkps.SparkPSPlugin."
    return {name.partition(plugin)[2]: g["value"] for name, g in found.items() if plugin in name}
"""


def begin(spark: Driver, master: str = MASTER, **conf: str) -> None:
    """Start Spark in a driver."""
    spark.do(BEGIN.format(master=master, conf={**CONF, **conf}))
    spark.do(STEP)


def nothing_is_left(spark: Driver) -> list[str]:
    """Wait as long as it may take; return what is left."""
    eventually(lambda: not spark.left(), GONE)
    return spark.left()


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Driver]:
    with driver(tmp_path) as started:
        yield started


def test_b22_b25_b26_servers_stand_beside_executors_and_losses_are_told(spark: Driver) -> None:
    """One long story, since each Spark that is started costs many seconds."""
    conf = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.sparkps.server.memory": "8m"}
    begin(spark, **conf)
    spark.do("ps = PSContext(spark, progress=False)")
    assert spark.do("repr(ps)").startswith("<PSContext of app-")
    servers = spark.servers()
    executors = spark.running("CoarseGrainedExecutorBackend")
    assert (len(servers), set(servers.values())) == (2, set(executors))

    spark.do("ps.table('t', dim=8, dtype='int64'); ps.table('kept', dtype='int64')")
    run = "ps.run(spark.range(0, 400, 1, 2), step, workers=2, batch_rows=100)[0]['rows']"
    assert spark.do(run) == 400
    assert spark.do("ps.table('t').pull([0, 1]).tolist()") == [200, 200]
    # A function of the user's goes over the encrypted port, or the local socket.
    total = "sum(ps.table('t').reduce(lambda part: int(part['value'].sum())))"
    assert spark.do(total) == 400

    # What the coordinator knows is in Spark's metrics.
    spark.do(GAUGES)
    assert eventually(lambda: spark.do("gauges().get('rows')") == 8.0, 5.0)
    assert spark.do("gauges()").keys() >= {"servers", "partitions", "bytes", "slowestClock"}
    assert spark.do("gauges()['servers']") == 2.0

    # A server that would grow beyond its limit refuses; nobody is killed for it.
    with pytest.raises(Raised, match=r"MemoryLimit: .* raise spark\.sparkps\.server\.mem") as over:
        spark.do("ps.table('wide', width=1000).push(range(5000), [[0.0] * 1000] * 5000)")
    assert "MemoryError" in over.value.kinds
    assert spark.servers() == servers
    spark.do("ps.table('wide').drop()")

    # B26: a server dies; what it had is lost and said to be, and another takes its place.
    victim = min(servers)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(Raised, match=r"ServerLost: server [01] is lost .*SIGKILL.*no replica"):
        spark.do("[ps.table('t').pull(list(range(8))) for _ in iter(int, 1)]")
    assert eventually(lambda: len(spark.servers()) == 2, GONE)
    again = spark.servers()
    assert set(again.values()) == set(executors)
    assert eventually(lambda: spark.do("ps.status()['servers_up']") == 2, GONE)
    with pytest.raises(Raised, match="ServerLost"):
        spark.do("ps.table('t').pull(list(range(8)))")
    spark.do("ps.table('t', dim=8, dtype='int64', replace=True)")
    assert spark.do(run) == 400

    # B22, B25: an executor dies; its server goes, another comes with the executor that replaces it.
    spark.do("[table.drop() for table in ps.tables()]")
    spark.do("ps.table('t', dim=8, dtype='int64')")
    held = "{s['id'] for s in ps.status()['servers'] if s['state'] == 'up'}"
    assert len(spark.do(f"sorted({held})")) == 2
    os.kill(executors[0], signal.SIGKILL)
    assert eventually(lambda: executors[0] not in spark.servers().values(), GONE)
    with pytest.raises(Raised, match="ServerLost"):
        spark.do("[ps.table('t').pull(list(range(8))) for _ in iter(int, 1)]")
    assert eventually(lambda: spark.do("ps.status()['servers_up']") == 2, 60.0)
    spark.do("ps.table('t', dim=8, dtype='int64', replace=True)")
    assert spark.do(run) == 400
    assert spark.do("ps.table('t').pull([0, 1]).tolist()") == [200, 200]
    assert spark.do("len(ps.client.core.view.servers)") == 2

    # Another context of the same Spark finds the servers again, and no tables.
    spark.do("ps.stop()")
    spark.do("ps = PSContext(spark, progress=False)")
    assert spark.do("ps.tables()") == []
    assert spark.do("spark.stop()") is None
    assert nothing_is_left(spark) == []
    assert spark.end() == 0


@pytest.mark.parametrize("who", ["driver", "JVM"])
def test_a_killed_driver_leaves_nothing(spark: Driver, who: str) -> None:
    begin(spark)
    spark.do("ps = PSContext(spark, progress=False); ps.table('t', dim=8)")
    assert len(spark.servers()) == 2
    (jvm,) = spark.running("org.apache.spark.deploy.SparkSubmit")
    os.kill(spark.pid if who == "driver" else jvm, signal.SIGKILL)
    assert nothing_is_left(spark) == []


def test_a_plugin_that_fails_after_ours_leaves_nothing(spark: Driver, tmp_path: Path) -> None:
    """Spark shuts down no plugin then."""
    (tmp_path / "Unwilling.java").write_text(UNWILLING)
    classes = Path(pyspark.__file__).with_name("jars") / "*"
    compiled = subprocess.run(
        ["javac", "--release", "11", "-cp", classes, "Unwilling.java"], cwd=tmp_path, check=False
    )
    assert compiled.returncode == 0
    with zipfile.ZipFile(tmp_path / "unwilling.jar", "w") as jar:
        jar.write(tmp_path / "Unwilling.class", "Unwilling.class")
    both = {
        "spark.plugins": f"{PLUGIN},Unwilling",
        "spark.jars": f"{jar_path()},{tmp_path / 'unwilling.jar'}",
    }
    with pytest.raises(Raised, match="I will not"):
        begin(spark, **both)
    assert spark.do("'alive'") == "alive"
    assert nothing_is_left(spark) == []


@pytest.mark.parametrize("how", ["spark.stop()", "killed JVMs"])
def test_a_server_whose_interpreter_is_held_is_ended_too(spark: Driver, how: str) -> None:
    begin(spark)
    spark.do("ps = PSContext(spark, progress=False, request_timeout='4s'); import re")
    spark.do("table = ps.table('t', dim=8); held = lambda part: re.match('(a+)+$', 'a' * 60 + 'b')")
    with pytest.raises(Raised, match="RequestTimeout"):
        spark.do("table.reduce(held)")
    if how == "spark.stop()":
        spark.do("spark.stop()")
    else:
        for pid in spark.running("org.apache.spark"):
            os.kill(pid, signal.SIGKILL)
    assert nothing_is_left(spark) == []


def test_ctrl_c_in_spark_submit_leaves_nothing(tmp_path: Path) -> None:
    submit = ["spark-submit", "--master", MASTER, *submit_arguments({})]
    with driver(tmp_path, submit) as spark:
        spark.do("from pyspark.sql import SparkSession; from sparkps import PSContext")
        spark.do("spark = SparkSession.builder.getOrCreate()")
        spark.do("ps = PSContext(spark, progress=False); ps.table('t', dim=8)")
        assert len(spark.servers()) == 2
        os.killpg(spark.pid, signal.SIGINT)
        assert nothing_is_left(spark) == []
        spark.process.wait(PATIENCE)


def test_servers_run_the_python_of_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nARCHIVED=yes exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(python, "bin/python")
    pythons = {
        "PYSPARK_PYTHON": "./environment/bin/python",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    for name, value in pythons.items():
        monkeypatch.setenv(name, value)
    archives = ["--archives", f"{tmp_path / 'env.tar.gz'}#environment"]
    submit = ["spark-submit", "--master", MASTER, *archives, *submit_arguments({})]
    with driver(tmp_path, submit, pythons) as spark:
        spark.do("from pyspark.sql import SparkSession; from sparkps import PSContext")
        spark.do("spark = SparkSession.builder.getOrCreate(); ps = PSContext(spark)")
        spark.do(STEP)
        spark.do("ps.table('t', dim=8, dtype='int64')")
        assert spark.do("ps.run(spark.range(0, 400, 1, 2), step, workers=2)[0]['rows']") == 400
        environments = [Path(f"/proc/{pid}/environ").read_text() for pid in spark.servers()]
        assert ["ARCHIVED=yes" in environment for environment in environments] == [True, True]
        spark.do("spark.stop()")
        assert nothing_is_left(spark) == []


def test_spark_submit_trains_beside_executors_as_on_one_machine(tmp_path: Path) -> None:
    data, events = ROOT / "jobs/data/a9a", tmp_path / "events"
    events.mkdir()
    told = [
        "spark.eventLog.enabled=true",
        "spark.eventLog.compress=false",
        f"spark.eventLog.dir=file://{events}",
    ]
    job = [
        *(word for setting in told for word in ("--conf", setting)),
        str(ROOT / "jobs/logistic_regression.py"), "--workers", "2",
        "--train", str(data / "a9a_train.libsvm.gz"), "--test", str(data / "a9a_test01.libsvm.gz"),
    ]  # fmt: skip
    found = []
    for master in (MASTER, "local[2]"):
        plugin = submit_arguments({}) if master == MASTER else []
        done = subprocess.run(
            ["spark-submit", "--master", master, *plugin, *job],
            env=inherited(tmp_path), cwd=tmp_path, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(re.search(r"test logloss .*", done.stdout))
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("sparkps")] == []
    # The key is told to executors, and stands in no event.
    logs = [path.read_text() for path in events.rglob("*") if path.is_file()]
    assert any("SparkListenerApplicationEnd" in log for log in logs)
    assert [re.findall(r"\b[0-9a-f]{64}\b", log) for log in logs] == [[] for _ in logs]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0][0] == found[1][0]


class Standalone:
    """A standalone master and worker, as processes of one session."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []
        log = directory / "master.log"
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        self._start("master.Master", *here, "--port", "0", log=log)
        told = re.compile(r"Starting Spark master at (\S+)")
        started = eventually(lambda: told.search(log.read_text()), 60)
        assert started, log.read_text()
        self.url = started[1]
        work = directory / "work"
        self.worker = self._start(
            "worker.Worker", *here, "--cores", "2", "--memory", "2g", "--work-dir", str(work),
            self.url, log=directory / "worker.log",
        )  # fmt: skip

    def _start(self, name: str, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                stdout=file, stderr=file, env=inherited(self.directory), cwd=self.directory,
                start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def executors(self) -> list[int]:
        """The executors' processes, children of the worker."""
        return [
            int(path.name)
            for path in Path("/proc").glob("[0-9]*")
            if "CoarseGrainedExecutorBackend" in command_of(int(path.name))
            and self.mine(int(path.name))
        ]

    def mine(self, pid: int) -> bool:
        """Whether a process runs in our directory."""
        try:
            return os.readlink(f"/proc/{pid}/cwd").startswith(str(self.directory))
        except OSError:
            return False

    def sidecars(self) -> list[int]:
        """Servers that run in our directory."""
        return [
            int(path.name)
            for path in Path("/proc").glob("[0-9]*")
            if "-m sparkps.server" in command_of(int(path.name)) and self.mine(int(path.name))
        ]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    directory = tmp_path / "s"
    directory.mkdir()
    started = Standalone(directory)
    try:
        yield started
    finally:
        started.close()


def test_a_standalone_masters_executors_have_servers_and_a_killed_worker_leaves_none(
    standalone: Standalone, spark: Driver
) -> None:
    begin(spark, standalone.url, **{"spark.sparkps.servers.perExecutor": "2"})
    spark.do("ps = PSContext(spark, progress=False); ps.table('t', dim=8, dtype='int64')")
    assert len(standalone.sidecars()) == 2
    assert spark.do("ps.run(spark.range(0, 400, 1, 2), step, workers=2)[0]['rows']") == 400
    os.kill(standalone.worker.pid, signal.SIGKILL)
    assert eventually(lambda: not standalone.sidecars(), GONE)
    with pytest.raises(Raised, match="ServerLost"):
        spark.do("[ps.table('t').pull([1]) for _ in iter(int, 1)]")
    spark.do("spark.stop()")
    assert nothing_is_left(spark) == []


#: What is wrong -> Spark's settings for it, the class of the error, and what its sentence says.
BROKEN: dict[str, tuple[dict[str, str], str, str]] = {
    "no python": ({"spark.sparkps.python": "/nowhere/python"}, "Py4JJavaError", "/nowhere/python"),
    "no package": (
        {"spark.pyspark.python": "{bare}", "spark.pyspark.driver.python": sys.executable},
        "LaunchFailed", "No module named",
    ),
    "no port": (
        {"spark.sparkps.ports": "{port}"}, "LaunchFailed", "no port of {port}-{port} is free",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_servers_that_do_not_start_are_one_clear_error(
    spark: Driver, tmp_path: Path, what: str
) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    port = str(_free_port())
    conf, kind, sentence = BROKEN[what]
    words: Any = {"bare": str(bare), "port": port}
    asked = {key: value.format(**words) for key, value in conf.items()}
    with pytest.raises(Raised) as failed:  # noqa: PT012 - which of the two raises is the question
        begin(spark, "local-cluster[1,1,1024]", **asked)
        spark.do("ps = PSContext(spark)", 30.0)
    assert failed.value.kinds[0] == kind, str(failed.value)[:3000]
    assert sentence.format(**words) in str(failed.value)
    assert len(spark.running("CoarseGrainedExecutorBackend")) <= 1
    spark.do("SparkSession.builder.getOrCreate().stop()" if kind == "LaunchFailed" else "None")
    assert nothing_is_left(spark) == []


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_dynamic_allocation_starts_executors_for_a_fit_and_again_after_they_were_idle(
    spark: Driver,
) -> None:
    begin(
        spark,
        **{
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "0",
            "spark.dynamicAllocation.maxExecutors": "2",
            "spark.dynamicAllocation.executorIdleTimeout": "3s",
            "spark.sparkps.executor.linger": "10s",
        },
    )
    spark.do("from sparkps.ml.classification import LogisticRegression")
    data = str(ROOT / "jobs/data/a9a/a9a_test01.libsvm.gz")
    spark.do(f"df = sparkps.read_libsvm(spark, {data!r})")
    spark.do("ps = PSContext(spark, progress=False)")
    fit = "LogisticRegression(maxIter=5).fit(df)"
    spark.do(f"first = {fit}")
    # Executors without tables are taken away, and their servers with them.
    assert eventually(lambda: not spark.servers(), 60.0)
    spark.do(f"second = {fit}")
    weights = "{0}.weights.values.tolist()"
    first, second = (spark.do(weights.format(model)) for model in ("first", "second"))
    assert first == second
    assert len(first) > 50
    # An executor with a table stays.
    spark.do("ps.table('t', dim=8, dtype='int64').push([3], [1])")
    assert not eventually(lambda: not spark.servers(), 16.0)
    assert spark.do("ps.table('t').pull([3]).tolist()") == [1]
    spark.do("spark.stop()")
    assert nothing_is_left(spark) == []
