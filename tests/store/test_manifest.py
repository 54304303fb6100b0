import json
from pathlib import Path

import pytest

from sparkps.errors import BrokenModel, PathExists
from sparkps.optim import FTRL
from sparkps.spec import InitSpec, OptimizerSpec, TableSpec
from sparkps.store import manifest as manifests
from sparkps.store.manifest import Entry, Manifest, SavedField

SPEC = TableSpec("t", width=3, dim=100, optimizer=FTRL(lr=0.3).spec(), seed=2**62, partitions=2)


def entry(p):
    return Entry(p, manifests.partition_file(p), rows=5, bytes=3, sha256="0" * 64, log=p, applied=1)


def manifest(spec=SPEC, **more):
    entries = (entry(0), entry(1))
    return Manifest(
        spec, (SavedField("value", "float32"), SavedField("z", "float32")), entries, **more
    )


def staged(path, **options):
    staging = manifests.begin(str(path), **options)
    for p in range(2):
        (Path(staging) / manifests.partition_file(p)).write_bytes(b"abc")
    return staging


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model"
    manifests.commit(staged(path), str(path), manifest())
    return path


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        TableSpec("t", partitions=2, init=InitSpec("normal", 0.0, 0.1), allow_nonfinite=True),
        TableSpec("t", partitions=2, optimizer=OptimizerSpec("Mine", (("lr", 1.0),), b"\x80\xff")),
    ],
)
def test_what_was_written_is_read(tmp_path, spec):
    written = manifest(spec, sealed=False, extra={"epoch": 3})
    manifests.write_manifest(str(tmp_path), written)
    assert manifests.read_manifest(str(tmp_path)) == written
    assert manifests.read_manifest(f"file://{tmp_path}").rows == 10


def test_a_person_can_read_it(saved):
    data = json.loads((saved / manifests.MANIFEST).read_text())
    assert data["spec"]["width"] == 3
    assert data["spec"]["optimizer"]["numbers"]["lr"] == 0.3
    assert data["entries"][1]["file"] == "part-00001.parquet"


def test_nothing_is_left_beside_a_saved_table(saved):
    assert [path.name for path in saved.parent.iterdir()] == ["model"]
    names = sorted(path.name for path in saved.iterdir())
    assert names == ["_sparkps.json", "part-00000.parquet", "part-00001.parquet"]


def test_a_path_that_exists_is_not_overwritten(saved):
    with pytest.raises(PathExists, match=f"{saved} exists; pass overwrite=True"):
        manifests.begin(str(saved))
    staging = staged(saved.parent / "other")
    with pytest.raises(PathExists):
        manifests.commit(staging, str(saved), manifest())


def test_overwriting_replaces_a_saved_table(saved):
    before = (saved / manifests.MANIFEST).stat().st_ino
    staging = staged(saved, overwrite=True)
    assert manifests.read_manifest(str(saved)) == manifest()
    manifests.commit(staging, str(saved), manifest(extra={"second": True}), overwrite=True)
    assert manifests.read_manifest(str(saved)).extra == {"second": True}
    assert (saved / manifests.MANIFEST).stat().st_ino != before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_overwriting_never_removes_what_is_no_saved_table(tmp_path):
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(PathExists, match="no saved table, so it is not replaced"):
        manifests.begin(str(tmp_path), overwrite=True)
    with pytest.raises(PathExists):
        manifests.begin(str(tmp_path / "thesis.tex"), overwrite=True)


def test_a_save_that_did_not_end_is_not_there(tmp_path):
    path = tmp_path / "model"
    staging = staged(path)
    with pytest.raises(BrokenModel, match=r"has no _sparkps\.json; the save did not end"):
        manifests.read_manifest(str(path))
    with pytest.raises(BrokenModel):
        manifests.read_manifest(staging)
    manifests.abandon(staging)
    manifests.abandon(staging)
    assert list(tmp_path.iterdir()) == []


def test_a_cut_off_file_is_not_committed(tmp_path):
    path = tmp_path / "model"
    staging = staged(path)
    (Path(staging) / "part-00001.parquet").write_bytes(b"ab")
    with pytest.raises(BrokenModel, match=r"part-00001\.parquet is missing or cut off"):
        manifests.commit(staging, str(path), manifest())
    assert not path.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.update(format=99), "its format is 99"),
        (lambda data: data.update(format=0), "its format is 0"),
        (lambda data: data["spec"].update(seed=2**70), "does not make sense"),
        (lambda data: data["entries"].pop(), "1 entries, in this order, for 2 partitions"),
        (lambda data: data["entries"].reverse(), "2 entries, in this order"),
        (lambda data: data["entries"][0].update(file="../x"), r"partition 0 is in '\.\./x'"),
        (lambda data: data["fields"].clear(), "first field is not 'value'"),
        (lambda data: data.pop("sealed"), "does not make sense"),
        (lambda data: data["spec"].update(width="3"), "does not make sense"),
        (lambda data: data["spec"].update(width=0), "does not make sense: width=0"),
        (lambda data: data["spec"].update(optimizer=7), "does not make sense"),
        (lambda data: data["entries"][0].update(rows="5"), "does not make sense"),
    ],
)
def test_a_manifest_that_was_tampered_with_is_refused(saved, change, words):
    file = saved / manifests.MANIFEST
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    with pytest.raises(BrokenModel, match=words):
        manifests.read_manifest(str(saved))


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"spec": 1}'])
def test_a_manifest_that_is_none_is_refused(saved, text):
    (saved / manifests.MANIFEST).write_text(text)
    with pytest.raises(BrokenModel, match="does not make sense"):
        manifests.read_manifest(str(saved))


def test_a_link_is_followed_and_stays(saved):
    link = saved.parent / "current"
    link.symlink_to("model")
    staging = staged(link, overwrite=True)
    manifests.commit(staging, str(link), manifest(extra={"second": True}), overwrite=True)
    assert link.is_symlink()
    assert manifests.read_manifest(str(saved)).extra == {"second": True}
    assert sorted(path.name for path in saved.parent.iterdir()) == ["current", "model"]


def test_a_manifest_that_is_a_directory_is_refused(tmp_path):
    (tmp_path / manifests.MANIFEST).mkdir()
    with pytest.raises(BrokenModel, match=r"_sparkps\.json: Is a directory"):
        manifests.read_manifest(str(tmp_path))
