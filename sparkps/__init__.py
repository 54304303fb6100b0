"""A parameter server for Apache Spark: exactly-once updates, bounded staleness, bit-reproducible
BSP.

The public names, resolved when they are first used: a server and a client must start without
pyspark, and neither needs what the driver needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparkps._version import __version__

if TYPE_CHECKING:
    from sparkps import errors, optim
    from sparkps.plugin import jar_path
    from sparkps.spark.batches import CSR, csr
    from sparkps.spark.configure import configure
    from sparkps.spark.context import PSContext
    from sparkps.spark.libsvm import read_libsvm
    from sparkps.store import functions, init

__all__ = [
    "CSR",
    "PSContext",
    "__version__",
    "configure",
    "csr",
    "errors",
    "functions",
    "init",
    "jar_path",
    "optim",
    "read_libsvm",
]

#: Public name -> the module that has it, and its name there; a module itself has no name in it.
_WHERE: dict[str, tuple[str, str]] = {
    "CSR": ("sparkps.spark.batches", "CSR"),
    "PSContext": ("sparkps.spark.context", "PSContext"),
    "configure": ("sparkps.spark.configure", "configure"),
    "csr": ("sparkps.spark.batches", "csr"),
    "errors": ("sparkps.errors", ""),
    "functions": ("sparkps.store.functions", ""),
    "init": ("sparkps.store.init", ""),
    "jar_path": ("sparkps.plugin", "jar_path"),
    "optim": ("sparkps.optim", ""),
    "read_libsvm": ("sparkps.spark.libsvm", "read_libsvm"),
}


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _WHERE[name]
    except KeyError:
        raise AttributeError(f"module 'sparkps' has no attribute {name!r}") from None
    found = importlib.import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
