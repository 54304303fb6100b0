"""``python -m sparkps doctor``: is all there that sparkps needs, here and on a cluster's executors?

Every check is a function that gives one or more findings; a finding that is not good says what to
do. The exit status is 1 if one is bad. What a check may find wrong is what users were seen to have:
another Python for tasks, a JDK that is too old, a host name that means the loopback, few open
files, a temporary directory with too long a name.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import zmq
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import sparkps
from sparkps._machine import machine_memory
from sparkps._version import __version__
from sparkps.config import java_home, spark_python
from sparkps.errors import JarMissing, PSError
from sparkps.net.directory import runtime_directory
from sparkps.net.hosts import is_loopback, resolve
from sparkps.net.serve import Router
from sparkps.net.sockets import new_context
from sparkps.plugin import jar_path
from sparkps.spark.configure import configure
from sparkps.spark.executors import is_local, settled_executors, slots_of

#: Open files that a worker of a large cluster needs: sockets and their monitors per server.
_FILES: Final = 1024
_PATIENCE: Final = 60.0
#: Seconds for a master to take a connection.
_CONNECT: Final = 5.0
_PACKAGES: Final = ("pyspark", "numpy", "pyarrow", "pyzmq", "msgspec", "cloudpickle")


class Finding(NamedTuple):
    """What a check has found; ``advice`` is empty where all is well."""

    what: str
    found: str
    advice: str = ""
    fatal: bool = True

    def __str__(self) -> str:
        mark = "ok  " if not self.advice else "FAIL" if self.fatal else "warn"
        advice = f"\n       {self.advice}" if self.advice else ""
        return f"{mark}  {self.what}: {self.found}{advice}"


def run(parsed: argparse.Namespace) -> int:
    """Run all checks; print what they find; return the exit status."""
    bad = 0
    checks: list[Callable[[], Iterable[Finding]]] = list(CHECKS)
    if parsed.cluster or parsed.master:
        checks.append(lambda: cluster(parsed.master))
    for check in checks:
        for finding in check():
            print(finding, flush=True)
            bad += bool(finding.advice and finding.fatal)
    print(f"{bad} of these must be mended" if bad else "all is well")
    return int(bad > 0)


def pythons() -> Iterator[Finding]:
    """This Python, and the one that tasks and servers will run."""
    here = ".".join(map(str, sys.version_info[:3]))
    old = "" if sys.version_info >= (3, 10) else "sparkps needs Python 3.10 or newer"
    yield Finding("Python", f"{here} at {sys.executable}", old)
    other = spark_python()
    if not other:
        yield Finding("Python of tasks", "PYSPARK_PYTHON is not set, so conf and configure set it")
        return
    code = "import sys, sparkps; print(*sys.version_info[:2], sparkps.__version__)"
    try:
        done = subprocess.run(
            [other, "-c", code], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except OSError as error:
        advice = "set PYSPARK_PYTHON to the Python of your environment, or unset it"
        yield Finding("Python of tasks", f"{other}: {error.strerror}", advice)
        return
    words = done.stdout.split()
    if done.returncode or len(words) != 3:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        yield Finding("Python of tasks", f"{other}: {last}", f"{other} -m pip install sparkps")
    elif words != [str(sys.version_info[0]), str(sys.version_info[1]), __version__]:
        found = f"{other} is Python {words[0]}.{words[1]} with sparkps {words[2]}"
        advice = (
            f"Spark needs Python {here[: here.rindex('.')]} on both sides, and we {__version__}"
        )
        yield Finding("Python of tasks", found, advice)
    else:
        yield Finding("Python of tasks", f"{other}, the same versions")


def packages() -> Iterator[Finding]:
    """What sparkps is made of."""
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "is not installed", f"{sys.executable} -m pip install sparkps")
    yield Finding("packages", ", ".join([f"sparkps {__version__}", *found]))
    curve = (
        "" if zmq.has("curve") else "use pyzmq's own wheels: pip install --force-reinstall pyzmq"
    )
    yield Finding("encryption", "libzmq has CURVE" if not curve else "libzmq has no CURVE", curve)
    try:
        importlib.import_module("sparkps.kernels.index")
        yield Finding("kernels", "are compiled")
    except ImportError as error:
        yield Finding("kernels", str(error), "pip install . in the sources of sparkps, with gcc")
    spark = importlib.metadata.version("pyspark")
    wrong = (
        "" if spark.split(".")[0] in ("3", "4") and spark >= "3.5" else "install pyspark 3.5 to 4.x"
    )
    yield Finding("Spark", spark, wrong)


def java() -> Iterator[Finding]:
    """The plugin's jar, and the Java that runs Spark."""
    try:
        yield Finding("plugin", jar_path())
    except JarMissing as error:
        yield Finding("plugin", "its jar is missing", str(error))
    home = java_home()
    program = os.path.join(home, "bin", "java") if home else shutil.which("java") or ""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except OSError:
        yield Finding("Java", "not found", "install a JDK (17 or newer), or set JAVA_HOME")
        return
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    version = int(match[1]) if match else 0
    needed = 17 if importlib.metadata.version("pyspark").startswith("4") else 11
    advice = "" if version >= needed else f"this Spark and the plugin need Java {needed} or newer"
    yield Finding("Java", f"{version} at {program}", advice)


def network() -> Iterator[Finding]:
    """Whether ports can be opened, and what this host's name means."""
    name = socket.gethostname()
    try:
        address = resolve(name)
    except PSError:
        advice = "put it into /etc/hosts, or set spark.sparkps.bind.host and spark.driver.host"
        yield Finding("host", f"{name} has no address", advice, fatal=False)
        address = "127.0.0.1"
    else:
        advice = (
            "other hosts cannot reach that: set SPARK_LOCAL_IP or spark.driver.host for a cluster "
            "of several hosts"
        )
        yield Finding(
            "host", f"{name} is {address}", advice if is_loopback(address) else "", fatal=False
        )
    context = new_context()
    try:
        router = Router(
            context, [f"tcp://[{address}]:0" if ":" in address else f"tcp://{address}:0"]
        )
        yield Finding("ports", f"can be opened ({router.endpoints[0]})")
        router.close()
    except (zmq.ZMQError, PSError) as error:
        yield Finding(
            "ports", f"{address}: {error}", "set spark.sparkps.bind.host to an own address"
        )
    finally:
        context.term()


def limits() -> Iterator[Finding]:
    """Open files, memory, and directories for sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    advice = "" if soft >= _FILES else f"ulimit -n {min(hard, 65536)}"
    yield Finding("open files", str(soft), advice, fatal=False)
    yield Finding("memory", f"{machine_memory() / 2**30:.1f} GiB")
    try:
        directory = runtime_directory()
        os.rmdir(directory)
        yield Finding("sockets", f"go to {os.path.dirname(directory)}")
    except OSError as error:
        advice = f"{tempfile.gettempdir()} must be writable, or set TMPDIR"
        yield Finding("sockets", str(error), advice)


def _unreachable(master: str) -> str:
    """Why none of a standalone master's addresses answers; empty if one does, or for other masters.
    Spark itself tries for a minute, and does not say it.
    """
    why = ""
    if not master.startswith("spark://"):
        return why
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not port.isdecimal() or not 0 < int(port) < 1 << 16:
            return ""  # what is wrong with it is Spark's to say
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()
        except OSError as error:
            why = f"{address}: {error.strerror or error}"
        else:
            return ""
    return why


def cluster(master: str | None) -> Iterator[Finding]:
    """One task per executor that imports sparkps, and says what it has."""
    why = _unreachable(master or "")
    if why:
        yield Finding("master", f"{master} cannot be reached", f"{why}; does it run there?")
        return
    builder = SparkSession.builder.appName("sparkps doctor")
    try:
        spark = configure(builder.master(master) if master else builder).getOrCreate()
    except Exception as error:  # noqa: BLE001 - py4j's errors have no common class
        advice = str(error).strip().splitlines()[0] + "; is the address right, and does it run?"
        yield Finding("master", f"{master or 'of the configuration'}: Spark does not start", advice)
        return
    try:
        spark.sparkContext.setLogLevel("ERROR")
        executors = settled_executors(spark, _PATIENCE)
        slots = slots_of(spark)
        yield Finding(
            "master", f"{spark.sparkContext.master}: {executors} executors, {slots} slots"
        )
        tasks = max(1, slots)
        # By value: an executor may lack sparkps, which is what is asked.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        try:
            told = spark.sparkContext.parallelize(range(tasks), tasks).map(_report).collect()
        except Exception as error:  # noqa: BLE001 - as above
            lines = [line.strip() for line in str(error).splitlines() if "Error" in line]
            yield Finding("tasks", "do not run", (lines or [str(error)])[-1])
            return
        finally:
            cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        hosts = {json.dumps(report, sort_keys=True): report for report in told}
        ours = _report(0)
        for report in hosts.values():
            wrong = [
                f"{key} is {report.get(key)}, here {ours[key]}"
                for key in ("python", "sparkps", "pyspark", "numpy")
                if report.get(key) != ours[key]
            ]
            what = f"executor on {report['host']}"
            versions = f"sparkps {report.get('sparkps')}, Python {report['python']}"
            advice = "; ".join(wrong)
            if report.get("error"):
                advice = f"{report['error']}: install sparkps where {report['executable']} is"
            yield Finding(what, f"{versions} at {report['executable']}", advice)
        if not is_local(spark.sparkContext.master):
            yield from _servers(spark)
    finally:
        spark.stop()


def _servers(spark: SparkSession) -> Iterator[Finding]:
    """Whether servers stand beside the executors and serve."""
    try:
        with sparkps.PSContext(spark) as ps:
            table = ps.table("doctor", dtype="int64")
            table.push([1, 2], [1, 1])
            servers = ps.status()["servers_up"]
            yield Finding("servers", f"{servers} serve: {table.pull([1, 2, 3]).tolist()}")
    except (PSError, ImportError) as error:
        yield Finding("servers", "do not serve", str(error))


def _report(_: int) -> dict[str, Any]:
    """Runs in a task: what is here?"""
    report: dict[str, Any] = {
        "host": socket.gethostname(),
        "python": ".".join(map(str, sys.version_info[:2])),
        "executable": sys.executable,
    }
    try:
        for name in ("sparkps", "pyspark", "numpy"):
            report[name] = importlib.import_module(name).__version__
        importlib.import_module("sparkps.kernels.index")
    except ImportError as error:
        report["error"] = str(error)
    return report


CHECKS: Final = (pythons, packages, java, network, limits)
