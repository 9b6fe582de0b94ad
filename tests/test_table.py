import json

import nibabel
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from rmdn import deconfound
from rmdn.data import table
from rmdn.data.images import Images, read_image
from rmdn.data.stages import by_bins
from rmdn.data.study import Split
from rmdn.errors import InputError, RMDNWarning
from rmdn.schema import Category, Number, Schema

N = 40


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make_rows(folder) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir(parents=True)
    rows = []
    for i in range(N):
        name = f"pictures/{i}.png"
        Image.fromarray(rng.integers(0, 256, (12, 8, 3), dtype=np.uint8)).save(folder / name)
        age = "89+" if i == 3 else str(20 + i)
        rows.append((name, "ill" if i % 2 else "well", age, "FM"[i % 3 == 0], f"p{i // 2}", f"00{i % 4}", i % 5))
    names = ["image", "label", "age", "sex", "id", "hospital", "wave"]
    return pd.DataFrame(rows, columns=names)


def make_csv(folder, **changes) -> str:
    path = folder / "study.csv"
    make_rows(folder).assign(**changes).to_csv(path, index=False)
    return str(path)


def test_csv_tsv_and_parquet_read_alike(tmp_path):
    rows = make_rows(tmp_path)
    rows.to_csv(tmp_path / "a.csv", index=False)
    rows.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    rows.to_parquet(tmp_path / "a.parquet")
    studies = [
        table.load(tmp_path / f"a.{end}", confounders=["age", "sex"], subject="id", size=(6, 4))
        for end in ("csv", "tsv", "parquet")
    ]
    for study in studies:
        assert study.label_names == ("ill", "well")
        train, test = study.datasets(0)
        assert len(train) + len(test) == N
        image, confounders, label = train[0]
        assert (image.shape, confounders.shape, label.dtype) == ((3, 6, 4), (2,), torch.int64)
        assert {train.confounders.dtype, image.dtype} == {torch.float32}
        assert torch.equal(train.confounders, studies[0].datasets(0)[0].confounders)
        assert not study.is_stand_in
    assert studies[0].schema.describe().startswith("age: number")
    assert studies[0].rows["hospital"][1] == "001"


def test_stages_and_splits(tmp_path):
    path = make_csv(tmp_path)
    study = table.load(path, confounders=["age"], subject="id", stage="wave", size=(6, 4))
    assert [stage.name for stage in study.stages] == ["0", "1", "2", "3", "4"]
    used = np.concatenate([part for stage in study.stages for part in (stage.train, stage.test)])
    assert sorted(used) == list(range(N))
    sides = [
        set(study.rows["id"].iloc[np.concatenate([getattr(s, side) for s in study.stages])]) for side in ("train", "test")
    ]
    assert not sides[0] & sides[1]
    binned = table.load(path, confounders=["sex"], subject="id", stage=by_bins("age", (40,)), size=(6, 4))
    assert [stage.name for stage in binned.stages] == ["<40", ">=40"]
    assert "binned" not in binned.describe()
    assert "<40: " in binned.describe()


def test_one_fold_after_the_other_covers_all_rows(tmp_path):
    path = make_csv(tmp_path)
    tests = [
        table.load(path, confounders=["age"], split=Split(by=("id",), fold=k), size=(6, 4)).stages[0].test for k in range(5)
    ]
    assert sorted(np.concatenate(tests)) == list(range(N))


def test_encoder_is_fitted_on_training_rows_alone(tmp_path):
    split = np.where(np.arange(N) % 8 < 6, "train", "test")
    ages = np.arange(N) + 20.0
    path = make_csv(tmp_path, split=split, age=ages)
    before = table.load(path, confounders=["age", "sex"], subject="id", split="split", size=(6, 4))
    np.testing.assert_allclose(before.schema.fits["age"]["center"], ages[split == "train"].mean())
    make_rows(tmp_path / "b").assign(split=split, age=np.where(split == "test", 5 * ages, ages)).to_csv(
        tmp_path / "b" / "study.csv", index=False
    )
    after = table.load(tmp_path / "b" / "study.csv", confounders=["age", "sex"], split="split", size=(6, 4))
    assert after.schema == before.schema
    again = table.load(path, confounders=before.schema, split="split", size=(6, 4))
    assert again.schema is before.schema


def test_subjects_and_images_on_both_sides_are_refused(tmp_path):
    path = make_csv(tmp_path, split=["train", "test"] * (N // 2))
    with pytest.raises(InputError, match=r"20 values of column 'id' are in training and in test: p0, p1"):
        table.load(path, confounders=["age"], subject="id", split="split", size=(6, 4))
    rows = make_rows(tmp_path / "b").assign(split=["train", "train", "test", "test"] * (N // 4))
    rows.loc[2, "image"] = "pictures/0.png"
    rows.to_csv(tmp_path / "b" / "b.csv", index=False)
    with pytest.raises(InputError, match=r"1 values of column 'image'.*0\.png"):
        table.load(tmp_path / "b" / "b.csv", confounders=["age"], split="split", size=(6, 4))


def test_bad_files_are_named_and_counted_before_training(tmp_path):
    path = make_csv(tmp_path)
    (tmp_path / "pictures" / "7.png").unlink()
    (tmp_path / "pictures" / "9.png").write_bytes(b"not a picture")
    whole = (tmp_path / "pictures" / "11.png").read_bytes()
    (tmp_path / "pictures" / "11.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"3 of 40 images do not read \(1 absent, 2 corrupt\)") as caught:
        table.load(path, confounders=["age"], subject="id", size=(6, 4))
    for name in ("7.png (absent)", "9.png (corrupt: cannot identify image file", "11.png (corrupt: "):
        assert name in str(caught.value)
    images = Images(size=(6, 4), unreadable="drop")
    with pytest.warns(RMDNWarning, match="3 of 40"):
        study = table.load(path, confounders=["age"], subject="id", images=images)
    assert len(study.rows) == N - 3
    assert "3 of 40 rows left out" in study.describe()
    train, test = study.datasets(0)
    assert sum(1 for part in (train, test) for _ in (part[i] for i in range(len(part)))) == N - 3


def test_rows_with_missing_cells_follow_the_policy(tmp_path):
    ages = [*("n/a",) * 4, *map(str, range(30, 30 + N - 4))]
    path = make_csv(tmp_path, age=ages)
    with pytest.raises(InputError, match="'age' has no value in"):
        table.load(path, confounders=["age"], subject="id", size=(6, 4))
    study = table.load(path, confounders=Schema((Number("age", missing="drop"),)), subject="id", size=(6, 4))
    assert len(study.rows) == N - 4
    assert "4 of 40 rows left out: no value in age" in study.describe()


@pytest.mark.parametrize(
    ("cell", "message"),
    [("n/a", r"'age' has no value in 1 of 40 rows: rows 37 .*missing='mean'"), ("x", "row 37: 'x' is not a number")],
)
def test_bad_cells_are_named_by_their_row_in_the_table(tmp_path, cell, message):
    ages = [str(20 + i) for i in range(N)]
    path = make_csv(tmp_path, age=[*ages[:37], cell, *ages[38:]])
    with pytest.raises(InputError, match=message):
        table.load(path, confounders=Schema((Number("age"),)), subject="id", size=(6, 4))


def test_a_confounder_that_is_the_label_is_named_before_training(tmp_path):
    labels = ["ill" if i % 4 < 2 else "well" for i in range(N)]  # p0, p1, ...: by subject
    path = make_csv(tmp_path, label=labels, hospital=["north" if label == "ill" else "south" for label in labels])
    with pytest.warns(RMDNWarning, match=r"'label' \(VIF inf\).*'hospital=south' hardly overlaps between classes"):
        table.load(path, confounders=["hospital", "age"], subject="id", size=(6, 4))
    table.load(path, confounders=["age", "sex"], subject="id", size=(6, 4))


def test_a_study_trains_as_it_is_with_missing_confounders_left_to_the_layer(tmp_path):
    pytest.importorskip("lightning")
    from rmdn.models import CNN2d
    from rmdn.training import Settings, train

    ages = ["n/a" if i % 10 == 4 else str(20 + i) for i in range(N)]
    schema = Schema((Number("age", missing="keep"), Category("sex")))
    stage = by_bins("wave", [2])
    study = table.load(make_csv(tmp_path, age=ages), confounders=schema, subject="id", stage=stage, images=Images((16, 16)))
    network = deconfound(CNN2d(16, in_channels=3), ["fc1"], num_confounders=2, num_classes=2, missing="skip")
    result = train(network, study.splits(), settings=Settings(epochs=1, batch_size=10), progress=False)
    assert result.names == ["<2", ">=2"]
    assert torch.isfinite(result.R).all()
    trained = np.concatenate([stage.train for stage in study.stages])
    whole = [ages[i] != "n/a" for i in trained]
    assert network.layers["fc1"].seen == sum(whole) < len(trained)


def test_a_level_that_only_test_rows_have_is_found_before_training(tmp_path):
    split = ["train"] * 30 + ["test"] * 10
    path = make_csv(tmp_path, split=split, hospital=["a"] * 15 + ["b"] * 15 + ["z"] * 10)
    with pytest.raises(InputError, match="no training row has: z"):
        table.load(path, confounders=["hospital"], split="split", size=(6, 4))
    schema = Schema((Category("hospital", unseen="mean"),))
    study = table.load(path, confounders=schema, split="split", size=(6, 4))
    np.testing.assert_allclose(study.datasets(0)[1].confounders, 0.5)


def test_other_clear_errors(tmp_path):
    path = make_csv(tmp_path, one="same", hole=[None, *["x"] * (N - 1)], split="validation")
    with pytest.raises(InputError, match=r"no column 'agee'.*'age'"):
        table.load(path, confounders=["agee"], size=(6, 4))
    with pytest.raises(InputError, match="the one label same"):
        table.load(path, confounders=["age"], label="one", size=(6, 4))
    with pytest.raises(InputError, match="no label in 1 rows: rows 0"):
        table.load(path, confounders=["age"], label="hole", size=(6, 4))
    with pytest.raises(InputError, match="holds validation"):
        table.load(path, confounders=["age"], split="split", size=(6, 4))
    with pytest.raises(InputError, match="There is no table"):
        table.read(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match="has 2 axes, the size"):
        read_image(tmp_path / "pictures" / "0.png", (4, 4, 4))


def test_identifiers_are_not_numbers(tmp_path):
    ids = [f"1.{'0' * i}" for i in range(1, 11) for _ in range(4)]  # as numbers, all are 1
    path = make_csv(tmp_path, id=ids, unused=["inf"] * N)
    study = table.load(path, confounders=["age"], subject="id", size=(6, 4))
    assert study.rows["id"].nunique() == 10
    with pytest.raises(InputError, match="'unused', row 0: inf is not finite"):
        table.load(path, confounders=["unused"], subject="id", size=(6, 4))
    assert "No column names subjects" in table.load(path, confounders=["age"], size=(6, 4)).describe()


def test_a_number_can_be_the_label(tmp_path):
    study = table.load(make_csv(tmp_path), label="age", confounders=["sex"], numeric_label=True, size=(6, 4))
    train, _ = study.datasets(0)
    assert train.labels.dtype == torch.float32
    assert 89.0 in {*study.labels()}


def make_bids(folder, sessions: str) -> None:
    people = [
        "sub-01",
        "sub-02",
        "sub-03",
        "sub-04",
        "sub-05",
        "sub-06",
        "sub-07",
        "sub-08",
        "sub-09",
        "sub-10",
    ]
    folder.mkdir()
    rows = pd.DataFrame({"participant_id": people, "sex": ["2", "1"] * 5, "group": ["pat", "con"] * 5})
    rows.assign(age=["89+", *["n/a"], *range(50, 58)]).to_csv(folder / "participants.tsv", sep="\t", index=False)
    levels = {
        "sex": {"Levels": {"2": "female", "1": "male"}},
        "group": {"Levels": {"con": "", "pat": "", "odd": ""}},
    }
    (folder / "participants.json").write_text(json.dumps({**levels, "age": {"Units": "years"}}))
    visits = [(p, f"ses-{k}", 60 + k) for p in people for k in (1, 2)] if sessions else [(p, "", 0) for p in people]
    for person, session, _ in visits:
        place = folder / person / session / "anat"
        place.mkdir(parents=True)
        name = "_".join(part for part in (person, session, "T1w.nii.gz") if part)
        volume = np.random.default_rng(len(name)).random((6, 7, 8)).astype(np.float32)
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), place / name)
    visit_rows = pd.DataFrame(visits, columns=["participant_id", "session_id", "age"])
    if sessions == "root":
        visit_rows.to_csv(folder / "sessions.tsv", sep="\t", index=False)
    if sessions == "own":
        for person, part in visit_rows.groupby("participant_id"):
            part.drop(columns="participant_id").to_csv(folder / person / f"{person}_sessions.tsv", sep="\t", index=False)


def test_bids_without_sessions(tmp_path):
    make_bids(tmp_path / "bids", "")
    schema = Schema((Number("age", missing="mean"), Category("sex")))
    study = table.load(tmp_path / "bids", label="group", confounders=schema, size=(4, 4, 4))
    assert study.label_names == ("con", "pat")
    assert study.schema.names == ("age", "sex=1")  # the reference is the first that participants.json declares
    assert study.columns.subject == "participant_id"
    assert study.rows["age"][0] == 89
    assert study.datasets(0)[0][0][0].shape == (1, 4, 4, 4)
    rows, levels = table.read(tmp_path / "bids" / "participants.tsv")
    assert levels == {"sex": ("2", "1"), "group": ("con", "pat", "odd")}
    assert rows["sex"][0] == "2"


def test_bids_session_folders_without_a_table(tmp_path):
    make_bids(tmp_path / "bids", "folders")
    rows, _ = table.read(tmp_path / "bids")
    assert rows["session_id"].value_counts().to_dict() == {"ses-1": 10, "ses-2": 10}
    assert rows["image"][1] == "sub-01/ses-2/anat/sub-01_ses-2_T1w.nii.gz"
    assert rows["age"].tolist()[:2] == [89, 89]


@pytest.mark.parametrize("sessions", ["root", "own"])
def test_bids_sessions_give_a_row_each(tmp_path, sessions):
    make_bids(tmp_path / "bids", sessions)
    study = table.load(tmp_path / "bids", label="group", confounders=["age", "sex"], stage="session_id", size=(4, 4, 4))
    assert len(study.rows) == 20
    assert [stage.name for stage in study.stages] == ["ses-1", "ses-2"]
    assert set(study.rows["age"]) == {61, 62}
    assert study.schema.names == ("age", "sex=1")
    held_out = [set(study.rows["participant_id"].iloc[stage.test]) for stage in study.stages]
    assert held_out[0] == held_out[1]
