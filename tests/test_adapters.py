"""Stand-ins are written, then read back by the adapters of the real data; least squares finds the effects."""

import shutil
from dataclasses import replace
from functools import lru_cache

import nibabel
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch

from rmdn.data import abcd, adni, ham10000
from rmdn.data.images import Images, small_motions
from rmdn.data.simulate import simulate_abcd, simulate_adni, simulate_ham10000
from rmdn.data.simulate.adni import IMAGES
from rmdn.data.simulate.draw import maximum_entropy
from rmdn.data.simulate.ham10000 import DIAGNOSES
from rmdn.errors import InputError, RMDNWarning, SettingError

SMALL = Images(size=(8, 8, 8))
HIPPOCAMPUS = [(-27, -22, -14), (27, -22, -14)]
VENTRICLES = [(-10, 16, 10), (10, 16, 10), (-22, -40, 10), (22, -40, 10)]
CEREBELLUM = [(-24, -64, -36), (24, -64, -36)]
INSULA = [(-37, 6, 0), (37, 6, 0)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def skins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "ham"
    simulate_ham10000(folder, 200, seed=1, size=(96, 72))
    return folder


@pytest.fixture(scope="module")
def elders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "adni"
    simulate_adni(folder, 120, seed=1, resolution=6)
    return folder


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "abcd"
    simulate_abcd(folder, 120, seed=1, resolution=6)
    return folder


def brightness(path: str, centers: list[tuple[float, float, float]], radius: float) -> float:
    """Mean around MNI coordinates, over the mean of the whole brain."""
    image = nibabel.load(path)
    volume = np.asarray(image.dataobj, dtype=np.float64)
    near = ball(volume.shape, tuple(image.affine.flatten()), tuple(centers), radius)
    return float(volume[near].mean() / volume[volume > 0].mean())


@lru_cache
def ball(shape: tuple[int, ...], affine: tuple[float, ...], centers: tuple, radius: float) -> np.ndarray:
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    places = nibabel.affines.apply_affine(np.reshape(affine, (4, 4)), grid)
    return np.any([((places - center) ** 2).sum(axis=-1) < radius**2 for center in centers], axis=0)


def t_values(y, **columns) -> pd.Series:
    return sm.OLS(np.asarray(y), sm.add_constant(pd.DataFrame(columns).astype(float))).fit().tvalues


# --- HAM10000


def test_ham10000_reads_back(skins):
    study = ham10000.load(skins)
    assert study.is_stand_in
    assert study.describe().startswith("STAND-IN")
    assert len(study.rows) == 200
    used = np.concatenate([part for stage in study.stages for part in (stage.train, stage.test)])
    assert sorted(used) == list(range(200))
    image, age, label = study.datasets(0)[0][0]
    assert (image.shape, age.shape, label.shape) == ((3, 64, 64), (1,), ())
    means = [study.rows["age"].iloc[np.concatenate([s.train, s.test])].mean() for s in study.stages]
    assert means == sorted(means)
    train = np.concatenate([stage.train for stage in study.stages])
    test = np.concatenate([stage.test for stage in study.stages])
    assert not set(study.rows["lesion_id"].iloc[train]) & set(study.rows["lesion_id"].iloc[test])
    assert 0.15 < len(test) / 200 < 0.25


def test_ham10000_random_split_is_the_papers(skins):
    study = ham10000.load(skins, split="random")
    for stage in study.stages:
        assert abs(len(stage.test) - 0.2 * (len(stage.train) + len(stage.test))) < 3
    assert "some lesions are in training and in test" in study.describe()


def test_ham10000_missing_ages_follow_the_policy(skins):
    missing = pd.read_csv(skins / "HAM10000_metadata.csv")["age"].isna().sum()
    assert missing > 0
    assert len(ham10000.load(skins, missing_age="drop").rows) == 200 - missing
    with pytest.raises(InputError, match="'age' has no value in 1 of 200 rows"):
        ham10000.load(skins, missing_age="error")
    with pytest.raises(SettingError, match="none of spread"):
        ham10000.load(skins, missing_age="mean")


@pytest.mark.parametrize(("name", "separator"), [("HAM10000_metadata", ","), ("HAM10000_metadata.tab", "\t")])
def test_ham10000_metadata_has_three_names(skins, tmp_path, name, separator):
    shutil.copytree(skins, tmp_path / "ham")
    table = tmp_path / "ham" / "HAM10000_metadata.csv"
    pd.read_csv(table).drop(columns="stand_in").to_csv(tmp_path / "ham" / name, index=False, sep=separator)
    table.unlink()
    study = ham10000.load(tmp_path / "ham")
    assert study.rows["age"].equals(ham10000.load(skins).rows["age"])
    assert not study.is_stand_in


def test_ham10000_has_the_published_shares(skins):
    table = pd.read_csv(skins / "HAM10000_metadata.csv")
    counts = table["dx"].value_counts()
    for dx, published in DIAGNOSES.items():
        assert abs(counts.get(dx, 0) - 200 * published / 10015) < 1
    assert {*ham10000.DIAGNOSES} >= {*table["dx"]}
    ages = table.groupby("dx")["age"].mean()
    assert ages["nv"] + 5 < ages["mel"]
    assert {p.parent.name for p in skins.rglob("*.jpg")} == {
        "HAM10000_images_part_1",
        "HAM10000_images_part_2",
    }
    assert 0.65 < table["lesion_id"].nunique() / 200 < 0.85  # 7,470 lesions of 10,015 images


def test_ham10000_skin_follows_age_and_lesions_follow_diagnosis(skins):
    study = ham10000.load(skins, missing_age="drop")
    train, _ = study.datasets(0)
    everyone = train.__class__(list(study.rows["image"]), train.confounders, train.labels, study.images)
    images = np.stack([everyone.files[i].numpy() for i in range(len(study.rows))])
    corners = np.concatenate([images[:, :, :6, :6], images[:, :, -6:, -6:]], axis=2).mean(axis=(2, 3))
    melanoma = (study.rows["dx"] == "mel").to_numpy()
    skin = t_values(corners[:, 2], age=study.rows["age"].to_numpy(), melanoma=melanoma)
    assert skin["age"] < -8
    assert abs(skin["melanoma"]) < 3
    middle = images[:, :, 26:38, 26:38].mean(axis=(1, 2, 3))
    lesion = t_values(middle, age=study.rows["age"].to_numpy(), melanoma=melanoma)
    assert lesion["melanoma"] < -6
    assert abs(lesion["age"]) < 4


# --- ADNI


def test_adni_reads_back(elders):
    study = adni.load(elders, images=SMALL)
    assert study.is_stand_in
    assert [stage.name for stage in study.stages] == ["<=2010", "2011", "2012", "2013", ">=2014"]
    assert study.label_names == ("CN", "MCI", "AD")
    assert study.schema.names == ("age", "sex=M")
    sides = [
        set(study.rows["subject"].iloc[np.concatenate([getattr(s, side) for s in study.stages])])
        for side in ("train", "test")
    ]
    assert not sides[0] & sides[1]
    assert study.rows["site"].str.fullmatch(r"\d{3}").all()
    assert study.datasets(4)[1][0][0].shape == (1, 8, 8, 8)
    assert adni.load.__kwdefaults__["images"] is None
    assert adni.SIZE == (64, 64, 64)


def test_adni_has_the_papers_table(elders):
    assert sum(map(sum, IMAGES.values())) == 3880
    rows = pd.read_csv(next(elders.glob("*.csv")))
    year = pd.to_datetime(rows["Acq Date"]).dt.year.clip(2010, 2014)
    for (group, sex), counts in IMAGES.items():
        for k, count in enumerate(counts):
            here = (rows["Group"] == group) & (rows["Sex"] == sex) & (year == 2010 + k)
            assert abs(here.sum() - 120 * count / 3880) < 1
    per_subject = rows.groupby("Subject")
    assert (per_subject["Sex"].nunique() == 1).all()
    assert 5 < len(rows) / rows["Subject"].nunique() < 9  # 3,880 images of 573 people


def test_adni_effects_are_where_they_should_be(elders):
    study = adni.load(elders, images=SMALL)
    rows = study.rows
    design = {
        "illness": rows["label"].map({"CN": 0, "MCI": 0.5, "AD": 1}),
        "age": rows["age"],
        "man": rows["sex"] == "M",
    }
    region = {
        name: t_values([brightness(path, centers, radius) for path in rows["image"]], **design)
        for name, centers, radius in (
            ("hippocampus", HIPPOCAMPUS, 8),
            ("ventricles", VENTRICLES, 12),
            ("insula", INSULA, 8),
        )
    }
    assert region["hippocampus"]["illness"] < -5
    assert region["ventricles"]["age"] < -4
    assert region["ventricles"]["illness"] < -4
    assert region["insula"]["man"] > 5
    assert abs(region["insula"]["illness"]) < 3.5


def test_adni_groups_and_absent_files(elders, tmp_path):
    shutil.copytree(elders, tmp_path / "adni")
    table = next((tmp_path / "adni").glob("*.csv"))
    rows = pd.read_csv(table)
    rows.loc[rows.index[:30], "Group"] = ["EMCI", "SMC", "Patient"] * 10
    rows.to_csv(table, index=False)
    with pytest.warns(RMDNWarning, match="10 of 120 rows left out"):
        study = adni.load(tmp_path / "adni", images=SMALL)
    assert set(study.rows["label"]) == {"CN", "MCI", "AD"}
    first = sorted((tmp_path / "adni").rglob("*.nii"))[-1]
    first.write_bytes(first.read_bytes()[:1000])
    with (
        pytest.warns(RMDNWarning, match="left out"),
        pytest.raises(InputError, match=r"1 of 110 images do not read \(0 absent, 1 corrupt\)"),
    ):
        adni.load(tmp_path / "adni", images=SMALL)
    first.unlink()
    with (
        pytest.warns(RMDNWarning, match="left out"),
        pytest.raises(InputError, match=r"1 of 110 images do not read \(1 absent"),
    ):
        adni.load(tmp_path / "adni", images=SMALL)


def test_adni_reads_bids_alike(elders, tmp_path):
    plain = adni.load(elders, images=SMALL)
    people, visits = {}, []
    for i, row in enumerate(plain.rows.to_dict("records")):
        name = "sub-ADNI" + row["subject"].replace("_", "")
        people[name] = row["sex"]
        session = f"ses-{i:03d}"
        visits.append((name, session, row["age"], row["label"], f"{row['year']}-05-01"))
        place = tmp_path / "bids" / name / session / "anat"
        place.mkdir(parents=True)
        shutil.copy(row["image"], place / f"{name}_{session}_T1w.nii")
    table = pd.DataFrame({"participant_id": list(people), "sex": list(people.values())})
    table.to_csv(tmp_path / "bids" / "participants.tsv", sep="\t", index=False)
    names = ["participant_id", "session_id", "age", "diagnosis", "examination_date"]
    pd.DataFrame(visits, columns=names).to_csv(tmp_path / "bids" / "sessions.tsv", sep="\t", index=False)
    bids = adni.load(tmp_path / "bids", images=SMALL)
    assert not bids.is_stand_in
    for name in ("age", "sex", "label", "site", "year"):
        assert bids.rows[name].tolist() == plain.rows[name].tolist()
    assert [len(s.train) + len(s.test) for s in bids.stages] == [len(s.train) + len(s.test) for s in plain.stages]


# --- ABCD


def test_abcd_reads_back(children):
    scored = pd.read_csv(next(children.rglob("ph_p_pds.csv")))
    first = scored[scored["eventname"] == "baseline_year_1_arm_1"]
    score = first["pds_p_ss_male_category_2"].fillna(first["pds_p_ss_female_category_2"])
    tests = []
    for fold in range(5):
        study = abcd.load(children, fold=fold, images=SMALL)
        assert len(study.rows) == score.notna().sum() < 120
        (stage,) = study.stages
        for name in ("subject", "site"):
            sides = [set(study.rows[name].iloc[side]) for side in (stage.train, stage.test)]
            assert not sides[0] & sides[1]
        tests.append(stage.test)
    assert sorted(np.concatenate(tests)) == list(range(len(study.rows)))
    assert study.is_stand_in
    assert study.label_names == ("girl", "boy")
    assert "rows left out: no value in pds" in study.describe()
    expected = first.assign(score=score).set_index("src_subject_id")["score"].dropna()
    expected.index = expected.index.str.replace("_", "")
    assert study.rows.set_index("subject")["pds"].to_dict() == expected.to_dict()


def test_abcd_trains_on_moving_images_by_default(children):
    study = abcd.load(children, images=replace(SMALL, augment=small_motions()))
    train, test = study.datasets(0)
    assert (train.augment is None, test.augment is None) == (False, True)
    torch.manual_seed(0)
    assert not torch.equal(train[0][0], train.files[0])
    assert torch.equal(test[0][0], test.files[0])


def test_abcd_families_can_be_kept_together(children):
    study = abcd.load(children, by=("subject", "site", "family"), images=SMALL)
    assert study.rows["family"].duplicated().any()
    (stage,) = study.stages
    assert not set(study.rows["family"].iloc[stage.train]) & set(study.rows["family"].iloc[stage.test])


def test_abcd_has_the_published_scores(children):
    for mean, deviation, k in (
        (1.372, 0.622, np.arange(1, 6)),
        (2.182, 0.907, np.arange(1, 6)),
        (119.18, 7.562, np.arange(107, 134)),
    ):
        shares = maximum_entropy(mean, deviation, k)
        np.testing.assert_allclose([shares.sum(), shares @ k], [1, mean], rtol=1e-9)
        np.testing.assert_allclose(np.sqrt(shares @ k**2 - mean**2), deviation, rtol=1e-9)
    rows = abcd.load(children, images=SMALL).rows
    boys, girls = rows[rows["sex"] == "boy"], rows[rows["sex"] == "girl"]
    assert abs(boys["pds"].mean() - 1.372) < 0.06
    assert abs(girls["pds"].mean() - 2.182) < 0.08
    assert abs(boys["pds"].std() - 0.622) < 0.08
    assert abs(girls["pds"].std() - 0.907) < 0.08
    assert abs(len(boys) / len(rows) - 5385 / 10421) < 0.04
    assert abs(rows["age"].mean() - 119) < 1
    assert abs(rows["age"].std() - 7.54) < 0.4
    assert rows["site"].nunique() > 15


def test_abcd_effects_are_where_they_should_be(children):
    rows = abcd.load(children, images=SMALL).rows
    design = {"pds": rows["pds"], "boy": rows["sex"] == "boy"}
    cerebellum = t_values([brightness(path, CEREBELLUM, 10) for path in rows["image"]], **design)
    insula = t_values([brightness(path, INSULA, 8) for path in rows["image"]], **design)
    assert cerebellum["pds"] > 6
    assert abs(cerebellum["boy"]) < 3
    assert insula["boy"] > 5
    assert abs(insula["pds"]) < 3


def test_abcd_children_without_scan_or_sex_are_named(children, tmp_path):
    shutil.copytree(children, tmp_path / "abcd")
    file = sorted((tmp_path / "abcd").rglob("*.nii.gz"))[0]
    flat = tmp_path / "abcd" / "images" / "NDAR_INVAAAAAAAA_T2w.nii.gz"
    file.rename(flat)
    with pytest.warns(RMDNWarning, match=r"1 of 120 children left out: no NIfTI.*NDARINV"):
        study = abcd.load(tmp_path / "abcd", images=SMALL)
    assert "1 of 120 children left out" in study.describe()
    flat.rename(tmp_path / "abcd" / "images" / (file.name[4:].partition("_")[0] + ".nii.gz"))
    assert len(abcd.load(tmp_path / "abcd", images=SMALL).rows) == len(abcd.load(children, images=SMALL).rows)
    next((tmp_path / "abcd").rglob("abcd_y_lt.csv")).unlink()
    with pytest.raises(InputError, match=r"holds no abcd_y_lt\.csv"):
        abcd.load(tmp_path / "abcd", images=SMALL)
