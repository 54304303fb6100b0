"""Train a sparse logistic regression on parameter servers, test it, and save the model.

    python jobs/logistic_regression.py --train train.libsvm.gz --test test.libsvm.gz --model out.model
    spark-submit jobs/logistic_regression.py --train hdfs:///clicks/train.parquet --model hdfs:///clicks/model

Input is libsvm text (any compression that Spark reads; 1-based indices unless --base 0), or Parquet with columns
``label``, ``features`` (a vector, or array<bigint> of ids) and, beside ids, optionally ``values``.
"""

from __future__ import annotations

import argparse
import sys
import time

from pyspark.ml.functions import vector_to_array
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkps import PSContext, errors, read_libsvm
from sparkps.ml.classification import LogisticRegression


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    data = parser.add_argument_group("data")
    data.add_argument("--train", required=True, metavar="PATH", help="training rows: libsvm text, or *.parquet")
    data.add_argument("--test", metavar="PATH", help="rows to test the model on")
    data.add_argument("--base", type=int, choices=(0, 1), default=1, help="first index in libsvm files (default 1)")
    data.add_argument("--features", type=int, metavar="N", help="refuse libsvm indices beyond N features")
    data.add_argument("--model", metavar="PATH", help="where to save the fitted model (a directory)")
    data.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    fit = parser.add_argument_group("training")
    fit.add_argument("--solver", choices=("adagrad", "adam", "sgd", "ftrl"), default="adagrad")
    fit.add_argument("--epochs", type=int, default=15, metavar="N", help="passes over the data at most (default 15)")
    fit.add_argument("--reg-param", type=float, default=0.0, metavar="X", help="weight of the penalty (default 0)")
    fit.add_argument("--elastic-net", type=float, default=0.0, metavar="X", help="0 = L2 ... 1 = L1 (default 0)")
    fit.add_argument("--step-size", type=float, metavar="X", help="step size (default: the solver's own)")
    fit.add_argument("--batch-size", type=int, default=4096, metavar="N", help="rows of one gradient (default 4096)")
    fit.add_argument("--consistency", default="bsp", help='"bsp" (default), "ssp:<staleness>" or "asp"')
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--workers", type=int, metavar="N", help="training tasks (default: what the input allows)")
    cluster.add_argument("--servers", type=int, metavar="N", help="server processes (default: one per 4 task slots)")
    cluster.add_argument("--master", metavar="URL", help="Spark master, for plain python (default local[*])")
    return parser.parse_args()


def read(spark: SparkSession, path: str, args: argparse.Namespace) -> DataFrame:
    if path.rstrip("/").endswith(".parquet"):
        return spark.read.parquet(path)
    return read_libsvm(spark, path, base=args.base, features=args.features)


def scores(predictions: DataFrame) -> dict[str, float]:
    """Mean logloss, area under the ROC curve (Mann-Whitney, ties count half) and accuracy."""
    p = vector_to_array("probability")[1]
    rows = predictions.select("label", "prediction", p.alias("p"))
    one = F.greatest(F.when(F.col("label") == 1, F.col("p")).otherwise(1 - F.col("p")), F.lit(1e-15))
    overall = rows.agg(
        F.avg(-F.log(one)).alias("logloss"), F.avg((F.col("label") == F.col("prediction")).cast("int")).alias("accuracy")
    ).first()
    by_score = rows.groupBy("p").agg(F.sum("label").alias("pos"), F.sum(1 - F.col("label")).alias("neg"))
    below, area, positives = 0.0, 0.0, 0.0
    for row in by_score.orderBy("p").toLocalIterator():
        area += row.pos * (below + row.neg / 2)
        below, positives = below + row.neg, positives + row.pos
    auc = area / (positives * below) if positives and below else float("nan")
    return {"logloss": overall.logloss, "AUC": auc, "accuracy": overall.accuracy}


def main() -> int:
    args = arguments()
    builder = SparkSession.builder.appName("sparkps logistic regression")
    spark = (builder.master(args.master) if args.master else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with PSContext(spark, **({"servers": args.servers} if args.servers else {})) as ps:
            train = read(spark, args.train, args)
            estimator = LogisticRegression(
                solver=args.solver, maxIter=args.epochs, regParam=args.reg_param, elasticNetParam=args.elastic_net,
                stepSize=args.step_size, batchSize=args.batch_size, consistency=args.consistency,
                numWorkers=args.workers, valuesCol="values" if "values" in train.columns else None,
            )  # fmt: skip
            began = time.monotonic()
            model = estimator.fit(train)
            print(f"trained {len(model.weights)} weights in {time.monotonic() - began:.1f} s on {ps}")
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
