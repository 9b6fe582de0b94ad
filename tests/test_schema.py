import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmdn.cells import to_levels, to_numbers
from rmdn.errors import InputError, RMDNError, SettingError, UsageError
from rmdn.schema import Schema, guess
from rmdn.terms import Category, Interaction, Number, natural_spline

AGES = {"age": [20.0, 30.0, 40.0, 50.0, 60.0], "sex": ["M", "F", "F", "M", "F"]}


def spans_equal(a: np.ndarray, b: np.ndarray) -> None:
    """Two bases (n, k) span the same space: each is explained by the other."""
    for x, y in ((a, b), (b, a)):
        residual = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
        assert np.abs(residual).max() < 1e-8 * np.abs(y).max()


def test_number_is_standardized_by_training_rows_as_scikit_learn_does():
    from sklearn.preprocessing import StandardScaler

    test = {"age": [10.0, 99.0]}
    schema = Schema((Number("age"),)).fit(AGES)
    expected = StandardScaler().fit(np.array(AGES["age"])[:, None]).transform(np.array(test["age"])[:, None])
    np.testing.assert_allclose(schema.transform(test), expected, rtol=1e-12)


def test_spline_spans_the_natural_cubic_splines_of_patsy():
    from patsy import dmatrix

    x = np.random.default_rng(0).normal(50, 10, 200)
    knots = np.quantile(x, np.linspace(0.05, 0.95, 5))
    inner, bounds = list(knots[1:-1]), (knots[0], knots[-1])
    oracle = np.asarray(
        dmatrix(
            "cr(x, knots=inner, lower_bound=low, upper_bound=high) - 1",
            {"x": x, "inner": inner, "low": bounds[0], "high": bounds[1]},
        )
    )
    inside = (x >= knots[0]) & (x <= knots[-1])  # patsy's cr is cubic outside, ours a line
    ours = np.column_stack([np.ones(len(x)), natural_spline(x, knots)])
    spans_equal(ours[inside], oracle[inside])


def test_spline_is_a_straight_line_outside_the_knots():
    schema = Schema((Number("age", spline=3),)).fit({"age": np.linspace(20, 80, 50)})
    far = schema.transform({"age": [200.0, 210.0, 220.0, -50.0, -60.0, -70.0]})
    np.testing.assert_allclose(np.diff(far[:3], n=2, axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.diff(far[3:], n=2, axis=0), 0, atol=1e-9)


def test_spline_on_few_distinct_values_falls_back_and_says_so():
    schema = Schema((Number("score", spline=4),)).fit({"score": [1, 2, 1, 2, 1, 1]})
    assert schema.names == ("score",)
    assert "too few distinct values" in schema.describe()


def test_polynomial_spans_the_powers():
    x = np.random.default_rng(1).normal(50, 10, 100)
    ours = np.column_stack([np.ones(100), Schema((Number("x", degree=3),)).fit({"x": x}).transform({"x": x})])
    z = (x - 50) / 10
    spans_equal(ours, np.stack([np.ones(100), z, z**2, z**3], axis=1))


def test_category_has_a_reference_and_names():
    schema = Schema((Category("site", levels=("b", "a", "c")),)).fit({"site": ["a", "b", "c", "a"]})
    assert schema.names == ("site=a", "site=c")
    np.testing.assert_array_equal(schema.transform({"site": ["b", "c"]}), [[0, 0], [0, 1]])
    assert "b is the reference" in schema.describe()


def test_codes_are_one_level_however_they_are_written():
    assert to_levels([1, 1.0, "1", " 1 ", np.int64(1), np.float64(1)]) == ["1"] * 6
    assert to_levels([None, float("nan"), pd.NA, pd.NaT, "n/a", ""]) == [None] * 6


def test_cut_off_ages_read_as_numbers():
    np.testing.assert_array_equal(to_numbers(["89+", "n/a", 12, True], "age"), [89, np.nan, 12, 1])
    with pytest.raises(InputError, match=r"'age', row 1: 'old' is not a number"):
        to_numbers(["4", "old"], "age")


@pytest.mark.parametrize("term", [Number("x"), Category("x")])
def test_missing_cells_follow_the_policy(term):
    def of(policy):
        return type(term)("x", missing=policy)

    rows = {"x": [1, 1, 2, None]}
    with pytest.raises(InputError, match=r"'x' has no value in 1 of 4 rows: rows 3"):
        Schema((of("error"),)).fit(rows)
    mean = Schema((of("mean"),)).fit(rows).transform(rows)
    np.testing.assert_allclose(mean[3], mean[:3].mean(axis=0))
    flagged = Schema((of("indicator"),)).fit(rows)
    assert flagged.names[-1] == "x missing"
    np.testing.assert_array_equal(flagged.transform(rows)[:, -1], [0, 0, 0, 1])
    assert np.isnan(Schema((of("keep"),)).fit(rows).transform(rows)).tolist() == [[False]] * 3 + [[True]]
    np.testing.assert_array_equal(Schema((of("drop"),)).complete(rows), [True, True, True, False])


def test_unseen_levels_follow_the_policy():
    train, test = {"site": ["a", "a", "b"]}, {"site": ["z", "b"]}
    with pytest.raises(InputError, match="no training row has: z"):
        Schema((Category("site"),)).fit(train).transform(test)
    mean = Schema((Category("site", unseen="mean"),)).fit(train).transform(test)
    np.testing.assert_allclose(mean, [[1 / 3], [1]])
    kept = Schema((Category("site", unseen="missing", missing="keep"),)).fit(train).transform(test)
    assert np.isnan(kept[0, 0])
    with pytest.raises(InputError, match="no value in 1 of 2"):
        Schema((Category("site", unseen="missing"),)).fit(train).transform(test)


def test_interaction_multiplies_columns():
    schema = Schema((Number("age"), Category("sex"), Interaction(("age", "sex")))).fit(AGES)
    x = schema.transform(AGES)
    assert schema.names == ("age", "sex=M", "age x sex=M")
    np.testing.assert_allclose(x[:, 2], x[:, 0] * x[:, 1])


def test_guess_takes_declared_levels_and_texts_as_categories():
    rows = {"age": ["40", "89+", "n/a"], "sex": ["1", "2", "1"], "site": ["a", "b", "a"]}
    terms = guess(rows, ["age", "sex", "site"], {"sex": ["2", "1"]}).terms
    assert terms == (Number("age"), Category("sex", ("2", "1")), Category("site"))


def test_saved_schema_encodes_the_same(tmp_path):
    schema = Schema((Number("age", spline=2), Category("sex"), Interaction(("age", "sex")))).fit(AGES)
    schema.save(tmp_path / "schema.json")
    loaded = Schema.load(tmp_path / "schema.json")
    assert loaded == schema
    np.testing.assert_array_equal(loaded.transform(AGES), schema.transform(AGES))
    assert [path.name for path in tmp_path.iterdir()] == ["schema.json"]
    torch.save({"model": torch.nn.Linear(2, 2).state_dict(), "schema": schema.to_dict()}, tmp_path / "model.pt")
    beside = Schema.from_dict(torch.load(tmp_path / "model.pt", weights_only=True)["schema"])
    np.testing.assert_array_equal(beside.transform(AGES), schema.transform(AGES))
    assert beside.describe() == schema.describe()


def test_clear_errors():
    with pytest.raises(UsageError, match="fit"):
        Schema((Number("age"),)).transform(AGES)
    with pytest.raises(InputError, match=r"no column 'agee'.*'age'"):
        Schema((Number("agee"),)).fit(AGES)
    with pytest.raises(InputError, match="not declared: M"):
        Schema((Category("sex", levels=("F",)),)).fit(AGES)
    with pytest.raises(SettingError, match="not both"):
        Number("age", degree=2, spline=2)
    with pytest.raises(SettingError, match="none of"):
        Number("age", missing="guess")
    with pytest.raises(SettingError, match="'sex', which is not among"):
        Schema((Number("age"), Interaction(("age", "sex"))))
    with pytest.raises(InputError, match="does not read"):
        Schema.from_dict({"terms": [{"kind": "numbr", "name": "age"}]})


cells = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**6), 10**6),
    st.sampled_from(["n/a", "", "89+", "12", "-3.5"]),
)
levels = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["a", "b", "c", "n/a"]), st.integers(0, 3))
numbers_terms = st.builds(
    lambda form, scale, missing: Number("x", *form, scale=scale, missing=missing),
    st.sampled_from([(1, 0), (2, 0), (3, 0), (1, 2), (1, 4)]),
    st.booleans(),
    st.sampled_from(["error", "mean", "indicator", "drop"]),
)
level_terms = st.builds(
    lambda missing, unseen: Category("g", missing=missing, unseen=unseen),
    st.sampled_from(["error", "mean", "indicator", "drop"]),
    st.sampled_from(["error", "mean", "missing"]),
)


@st.composite
def tables(draw):
    n = draw(st.integers(1, 12))
    return {
        "x": draw(st.lists(cells, min_size=n, max_size=n)),
        "g": draw(st.lists(levels, min_size=n, max_size=n)),
    }


@settings(max_examples=60, deadline=None)
@given(tables(), tables(), numbers_terms, level_terms, st.booleans())
def test_any_table_gives_finite_numbers_or_a_clear_error(train, test, number, category, interact):
    terms = (number, category, *([Interaction(("x", "g"))] if interact else []))
    try:
        schema = Schema(terms).fit(train)
        before = json.dumps(schema.to_dict())
        for rows in (train, test):
            x = schema.transform(rows)
            assert x.shape == (len(rows["x"]), len(schema.names))
            assert np.isfinite(x.astype(np.float32)).all()
        assert schema.describe()
    except RMDNError as error:
        clear = [part in str(error) for part in ("'x'", "'g'", "after encoding")]
        assert any(clear)
    else:
        assert json.dumps(schema.to_dict()) == before
        whole = {name: test[name] + train[name] for name in ("x", "g")}
        n = len(test["x"])
        np.testing.assert_array_equal(schema.transform(whole)[n:], schema.transform(train))
        np.testing.assert_array_equal(Schema.from_dict(json.loads(before)).transform(test), schema.transform(test))
