import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparkps.errors import BrokenModel
from sparkps.optim import Adam
from sparkps.store import manifest as manifests
from sparkps.store import snapshot

KEYS = np.random.default_rng(0).integers(-(2**62), 2**62, 300)


def save(table, path):
    """As the servers and the driver do together."""
    staging = manifests.begin(str(path))
    entries = [
        snapshot.save_partition(staging, table, p, ledgers=[[7, 0, p]])
        for p in reversed(range(table.spec.partitions))
    ]
    made = snapshot.make_manifest(table.spec, snapshot.saved_fields(table), entries)
    manifests.commit(staging, str(path), made)
    return manifests.read_manifest(str(path))


@pytest.fixture(params=[("float32", 1), ("float64", 3), ("float32", 3)])
def table(request, make, push):
    dtype, width = request.param
    table = make(Adam(), dtype=dtype, width=width, partitions=7)
    values = np.random.default_rng(1).normal(size=(300, width))
    push(table, KEYS, values[:, 0] if width == 1 else values)
    table.apply(2, lambda part: None)
    return table


def test_a_saved_table_comes_back_bit_for_bit_with_its_row_order(table, make, tmp_path):
    manifest = save(table, tmp_path / "model")
    spec = table.spec
    copy = make(Adam(), here=[], dtype=spec.dtype, width=spec.width, partitions=7)
    for entry in manifest.entries:
        arrays = snapshot.read_partition(str(tmp_path / "model"), manifest, entry.partition)
        assert entry.ledgers == [[7, 0, entry.partition]]
        assert entry.applied == (entry.partition == 2)
        copy.load(entry.partition, arrays.pop("key"), list(arrays.values()), entry.log)
        for name, numbers in table.arrays(entry.partition).items():
            assert numbers.tobytes() == copy.arrays(entry.partition)[name].tobytes()
    assert manifest.rows == 300


def test_any_parquet_reader_opens_the_directory(table, tmp_path):
    save(table, tmp_path / "model")
    read = pq.read_table(tmp_path / "model")
    assert read.column_names == ["key", "value", "m", "v", "t"]
    assert sorted(read["key"].to_pylist()) == sorted(KEYS.tolist())
    by_key = dict(zip(read["key"].to_pylist(), read["value"].to_pylist(), strict=True))
    first = int(table.keys(3)[0])
    assert by_key[first] == table.field(3, 0)[0].tolist()


def test_integer_and_dense_tables_are_saved_too(make, push, tmp_path):
    table = make(dtype="int64", dim=10, width=2, partitions=3)
    push(table, [0, 9], [[2**62, -1], [3, 4]])
    manifest = save(table, tmp_path / "model")
    arrays = snapshot.read_partition(str(tmp_path / "model"), manifest, 2)
    assert arrays["key"].tolist() == [6, 7, 8, 9]
    assert arrays["value"].tolist() == [[0, 0], [0, 0], [0, 0], [3, 4]]


def test_large_partitions_are_written_in_several_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "GROUP_NUMBERS", 64)
    arrays = {"key": np.arange(50), "value": np.arange(200, dtype="f4").reshape(50, 4)}
    snapshot.write_partition(str(tmp_path), 0, arrays)
    file = pq.ParquetFile(tmp_path / "part-00000.parquet")
    assert file.num_row_groups == 4
    assert file.read()["value"].to_pylist() == arrays["value"].tolist()


def test_only_the_fields_asked_for_are_read(table, tmp_path):
    manifest = save(table, tmp_path / "model")
    arrays = snapshot.read_partition(str(tmp_path / "model"), manifest, 0, ["value"])
    assert list(arrays) == ["key", "value"]
    assert all(array.flags.owndata or array.base.flags.owndata for array in arrays.values())
    arrays["value"][...] = 0


@pytest.mark.parametrize("flip", [0, 100, -1])
def test_a_file_with_another_checksum_is_refused(table, tmp_path, flip):
    manifest = save(table, tmp_path / "model")
    file = tmp_path / "model" / "part-00004.parquet"
    data = bytearray(file.read_bytes())
    data[flip] ^= 1
    file.write_bytes(data)
    with pytest.raises(BrokenModel, match=r"part-00004\.parquet is not what was saved"):
        snapshot.read_partition(str(tmp_path / "model"), manifest, 4)
    file.unlink()
    with pytest.raises(BrokenModel, match=r"part-00004\.parquet: No such file"):
        snapshot.read_partition(str(tmp_path / "model"), manifest, 4)


def test_columns_other_than_the_manifests_are_refused(table, tmp_path):
    manifest = save(table, tmp_path / "model")
    fields = (*manifest.fields, manifests.SavedField("z", "float32"))
    other = manifests.Manifest(manifest.spec, fields, manifest.entries)
    with pytest.raises(BrokenModel, match="z"):
        snapshot.read_partition(str(tmp_path / "model"), other, 0)
    fields = (manifests.SavedField("value", "int64"),)
    other = manifests.Manifest(manifest.spec, fields, manifest.entries)
    with pytest.raises(BrokenModel, match="int64"):
        snapshot.read_partition(str(tmp_path / "model"), other, 0)


def test_a_directory_that_is_gone_is_an_os_error(table, tmp_path):
    with pytest.raises(FileNotFoundError):
        snapshot.save_partition(str(tmp_path / "gone"), table, 0)


def test_the_store_loads_without_pyarrow_pandas_and_scipy():
    code = "import sys, sparkps.store.snapshot, sparkps.store.functions\n" + (
        "print(sorted({'pyarrow', 'pandas', 'scipy', 'pyspark', 'zmq'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
