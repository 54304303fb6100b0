"""Train a sparse logistic regression on parameter servers, test it, and save the model.

    python jobs/logistic_regression.py --train train.libsvm.gz --test test.gz --model out.model
    spark-submit jobs/logistic_regression.py --train clicks.parquet --model hdfs:///clicks/model

Input is libsvm text (any compression that Spark reads; 1-based indices unless --base 0), or Parquet
with columns ``label``, ``features`` (a vector, or array<bigint> of ids) and, beside ids, optionally
``values``.
"""

from __future__ import annotations

import argparse
import sys
import time

from pyspark.ml.evaluation import (
    BinaryClassificationEvaluator,
    MulticlassClassificationEvaluator,
)
from pyspark.sql import DataFrame, SparkSession

from sparkps import PSContext, errors, read_libsvm
from sparkps.ml.classification import LogisticRegression


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument_group("data").add_argument
    add("--train", required=True, metavar="PATH", help="training rows: libsvm text, or *.parquet")
    add("--test", metavar="PATH", help="rows to test the model on")
    add("--base", type=int, choices=(0, 1), default=1, help="first index in libsvm (default 1)")
    add("--features", type=int, metavar="N", help="refuse libsvm indices beyond N features")
    add("--model", metavar="PATH", help="where to save the fitted model (a directory)")
    add("--overwrite", action="store_true", help="replace a model that is there")
    add = parser.add_argument_group("training").add_argument
    add("--solver", choices=("lbfgs", "adagrad", "adam", "sgd", "ftrl"), default="adagrad")
    add("--epochs", type=int, default=15, metavar="N", help="passes at most (default 15)")
    add("--reg-param", type=float, default=0.0, metavar="X", help="weight of the penalty (0)")
    add("--elastic-net", type=float, default=0.0, metavar="X", help="0 is L2, 1 is L1 (0)")
    add("--step-size", type=float, metavar="X", help="step size (default: the solver's own)")
    add("--batch-size", type=int, default=4096, metavar="N", help="rows of a gradient (4096)")
    add("--consistency", default="bsp", help='"bsp" (default), "ssp:<staleness>" or "asp"')
    add = parser.add_argument_group("cluster").add_argument
    add("--workers", type=int, metavar="N", help="training tasks (default: by the input)")
    add("--servers", type=int, metavar="N", help="server processes (default: 1 per 4 slots)")
    add("--master", metavar="URL", help="Spark master, for plain python (default local[*])")
    return parser.parse_args()


def read(spark: SparkSession, path: str, args: argparse.Namespace) -> DataFrame:
    if path.rstrip("/").endswith(".parquet"):
        return spark.read.parquet(path)
    return read_libsvm(spark, path, base=args.base, features=args.features)


def scores(predictions: DataFrame) -> dict[str, float]:
    """Mean logloss, area under the ROC curve (exact, not binned) and accuracy."""
    rows = predictions.select("label", "prediction", "probability", "rawPrediction").cache()
    by_class = MulticlassClassificationEvaluator()
    ranking = BinaryClassificationEvaluator(numBins=0)
    return {
        "logloss": by_class.setMetricName("logLoss").evaluate(rows),
        "AUC": ranking.evaluate(rows),
        "accuracy": by_class.setMetricName("accuracy").evaluate(rows),
    }


def main() -> int:
    args = arguments()
    builder = SparkSession.builder.appName("sparkps logistic regression")
    builder = builder.config("spark.ui.showConsoleProgress", "false")  # ours tells more
    spark = (builder.master(args.master) if args.master else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with PSContext(spark, **({"servers": args.servers} if args.servers else {})) as ps:
            train = read(spark, args.train, args)
            estimator = LogisticRegression(
                solver=args.solver,
                maxIter=args.epochs,
                regParam=args.reg_param,
                elasticNetParam=args.elastic_net,
                stepSize=args.step_size,
                batchSize=args.batch_size,
                consistency=args.consistency,
                numWorkers=args.workers,
                valuesCol="values" if "values" in train.columns else None,
            )
            began = time.monotonic()
            model = estimator.fit(train)
            print(
                f"trained {len(model.weights)} weights in {time.monotonic() - began:.1f} s on {ps}"
            )
        if args.test:
            found = scores(model.transform(read(spark, args.test, args)))
            print("test " + "  ".join(f"{name} {value:.4f}" for name, value in found.items()))
        if args.model:
            writer = model.write()
            (writer.overwrite() if args.overwrite else writer).save(args.model)
            print(f"model saved in {args.model}")
    except errors.PSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
