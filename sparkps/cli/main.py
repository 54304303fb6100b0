"""The verbs of ``python -m sparkps``, and how they are read.

An error of sparkps is a sentence on stderr and exit status 1; a wrong argument is argparse's, 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sparkps._version import __version__
from sparkps.cli import cluster, doctor
from sparkps.config import PREFIX, Settings
from sparkps.errors import PSError
from sparkps.spark.configure import submit_arguments


def main(arguments: Sequence[str]) -> int:
    """Run a verb; return the exit status."""
    if not arguments:
        parser().print_help()
        return 2
    parsed = parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
    except PSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return status


def parser() -> argparse.ArgumentParser:
    """The arguments of all verbs."""
    top = argparse.ArgumentParser(
        prog="python -m sparkps", description="A parameter server for Apache Spark."
    )
    top.add_argument("--version", action="version", version=__version__)
    verbs = top.add_subparsers(required=True, metavar="VERB")

    conf = verbs.add_parser(
        "conf",
        help="print what spark-submit needs to start servers beside executors",
        description="Prints arguments: spark-submit $(python -m sparkps conf) job.py",
    )
    conf.add_argument("--jars", default="", metavar="LIST", help="your own jars, with commas")
    conf.add_argument("--plugins", default="", metavar="LIST", help="your own Spark plugins")
    conf.set_defaults(run=_conf)

    external = verbs.add_parser(
        "cluster",
        help="run servers on this host for PSContext.connect",
        description="Runs a coordinator and servers on this host until Ctrl-C or SIGTERM.",
    )
    external.add_argument("--servers", type=int, metavar="N", help="processes (1)")
    external.add_argument(
        "--host", default="127.0.0.1", help="address to listen on, and by which others reach it"
    )
    external.add_argument(
        "--key-file", metavar="PATH", help="file with the key; made (0600) if it is not there"
    )
    external.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help=f"a {PREFIX}* setting"
    )
    external.set_defaults(run=cluster.run)

    check = verbs.add_parser(
        "doctor",
        help="check whether this machine, and a cluster, can run sparkps",
        description="Checks what sparkps needs, and says what to do about what is missing.",
    )
    check.add_argument("--cluster", action="store_true", help="also run a task on every executor")
    check.add_argument(
        "--master", metavar="URL", help="of the cluster (default: Spark's own); implies --cluster"
    )
    check.set_defaults(run=doctor.run)

    table = verbs.add_parser("settings", help="print all settings, as a Markdown table")
    table.set_defaults(run=_settings)
    return top


def _conf(parsed: argparse.Namespace) -> int:
    have = {"spark.jars": parsed.jars, "spark.plugins": parsed.plugins}
    arguments = submit_arguments({key: value for key, value in have.items() if value})
    spaced = [argument for argument in arguments if any(c.isspace() for c in argument)]
    if spaced:
        print(
            f"warning: {spaced[0]!r} has a space in it, which $(...) splits; quote it yourself",
            file=sys.stderr,
        )
    print(" ".join(arguments))
    return 0


def _settings(_: argparse.Namespace) -> int:
    print(Settings.describe())
    return 0
