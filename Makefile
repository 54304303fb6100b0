# Each goal does all the set-up it needs, from a fresh clone: it makes .venv in the checkout, installs, compiles and runs.
# Needs Python >= 3.11, gcc and a JDK >= 17 on the path.

PYTHON ?= python3
SECONDS ?= 60
VENV := .venv
CONSTRAINTS := tests/constraints.txt
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed
SOURCES := setup.py setup.cfg pyproject.toml \
    $(wildcard sparkps/*.pyx sparkps/kernels/*.pyx sparkps/kernels/*.pxd sparkps/plugin/java/org/sparkps/*.java)

export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Python itself warns of pandas and numpy through pyspark's own imports only; ours are errors in the tests.
unexport SPARK_HOME

.PHONY: demo test lint bench soak clean setup fast spark masters test-spark35 docker docker-if-any

setup: $(SETUP)

$(SETUP): $(SOURCES) $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit("Python >= 3.11 is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	@command -v gcc >/dev/null || { echo "gcc is needed to compile the kernels"; exit 1; }
	@command -v javac >/dev/null || { echo "a JDK (17 or newer) is needed to run Spark and compile its plugin"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) "setuptools>=68" "Cython>=3.0.10" wheel \
	    "pyspark[sql]>=3.5,<5"
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) --no-build-isolation -e ".[dev]"
	@# Children start in half the time when they need not compile Python themselves.
	$(BIN)/python -m compileall -q sparkps
	touch $(SETUP)

# Trains sparse logistic regression on a9a with two servers, prints its test scores, and says where the model is.
demo: $(SETUP)
	$(BIN)/python jobs/logistic_regression.py --train jobs/data/a9a/a9a_train.libsvm.gz \
	    --test jobs/data/a9a/a9a_test01.libsvm.gz --model build/a9a.model --overwrite --servers 2 --workers 2

test: lint fast spark docker-if-any

# The tests that need no JVM, with the examples in docstrings.
fast: $(SETUP)
	$(BIN)/python -m pytest -q -m "not spark and not masters and not docker" tests
	$(BIN)/python -m pytest -q --doctest-modules --doctest-glob='*.pyi' -p no:cacheprovider sparkps --ignore=sparkps/ml --ignore=sparkps/spark

spark: $(SETUP)
	$(BIN)/python -m pytest -q -m spark tests

# The same tests on Spark 3.5, in a virtual environment of its own. What is compiled is the same for both.
test-spark35:
	$(MAKE) spark VENV=.venv35 CONSTRAINTS=tests/constraints-spark35.txt

# Killed executors and speculation, on masters that need sessions of their own: five minutes more.
masters: $(SETUP)
	$(BIN)/python -m pytest -q -m masters tests

# On a compose cluster: makes the images (five minutes the first time) and needs a Docker engine and compose.
docker: $(SETUP)
	$(BIN)/python -m pytest -q -m docker tests

# Where no Docker engine answers this says so and goes on; with REQUIRE_DOCKER set, as in CI, it is an error.
docker-if-any:
	@if [ -n "$(REQUIRE_DOCKER)" ] || docker info >/dev/null 2>&1; then $(MAKE) docker; \
	else echo "no Docker engine answers: the tests of docker/ are left out"; fi

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(SETUP)
	$(BIN)/python jobs/bench/push_pull.py

# Runs the simulation on one seed after another; the first that breaks an invariant is made small and told.
soak: $(SETUP)
	$(BIN)/python -m sparkps.testing.simulation --seconds $(SECONDS)

clean:
	rm -rf build .venv .venv35 sparkps/*.so sparkps/*.c sparkps/kernels/*.so sparkps/kernels/*.c sparkps/plugin/sparkps.jar *.egg-info
