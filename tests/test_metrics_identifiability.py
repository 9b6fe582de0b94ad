"""VIF and condition number against statsmodels and numpy; warnings name the columns."""

import numpy as np
import pytest

from rmdn.errors import InputError, RMDNWarning
from rmdn.metrics import identifiability


def test_vif_and_condition_equal_the_textbook():
    from statsmodels.stats.outliers_influence import variance_inflation_factor

    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 200)
    c = np.c_[rng.normal(size=200) * 1e4 + 3e4, rng.normal(size=(200, 2)) + 0.5 * label[:, None]]
    found = identifiability(c, label, names=["age", "score", "motion"])
    design = np.c_[c, label, np.ones(200)]
    expected = [variance_inflation_factor(design, k) for k in range(4)]
    assert list(found.vif) == ["age", "score", "motion", "label"]
    assert list(found.vif.values()) == pytest.approx(expected)
    standard = (design[:, :4] - design[:, :4].mean(0)) / design[:, :4].std(0)
    assert found.condition == pytest.approx(np.linalg.cond(standard))
    assert found.problems == ()


def test_collinear_columns_are_named_and_others_are_not():
    rng = np.random.default_rng(0)
    a, b, other = rng.normal(size=(3, 100))
    with pytest.warns(RMDNWarning, match="'a' .VIF inf.*'b'.*'sum'") as caught:
        found = identifiability(np.c_[a, b, a + b, other], names=["a", "b", "sum", "other"])
    assert "other" not in str(caught[0].message)
    assert found.inseparable == ()  # a matter of the confounders among each other
    assert found.vif["other"] == pytest.approx(1, abs=0.1)
    assert found.condition == np.inf


def test_label_that_is_the_confounder():
    label = np.arange(60) % 2
    with pytest.warns(RMDNWarning, match="'site'.*'label'.*hardly overlaps"):
        found = identifiability(label, label, names=["site"])
    assert found.overlap["site"] == 0
    assert "'label' (VIF inf) is all but a sum of 'site'" in found.inseparable[0]
    assert "'site' hardly overlaps" in found.inseparable[1]


def test_all_levels_of_a_category_beside_the_ones():
    sites = np.eye(3)[np.arange(30) % 3]
    with pytest.warns(RMDNWarning, match="collinear"):
        assert set(identifiability(sites).vif.values()) == {np.inf}
    assert max(identifiability(sites[:, 1:]).vif.values()) < 2


def test_overlap_of_uniform_ranges():
    """U(1, 4) against U(3, 6) share a third; quantile bins see that within sampling error."""
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1], 4000)
    found = identifiability(rng.uniform(1, 4, 8000) + 2 * label, label, names=["s"])
    assert found.overlap["s"] == pytest.approx(1 / 3, abs=0.05)
    assert np.isnan(identifiability(rng.normal(size=50)).overlap["confounder 0"])
    assert identifiability(rng.permutation(8000) % 2, label).overlap["confounder 0"] > 0.95


def test_constant_columns_and_one_class():
    with pytest.warns(RMDNWarning, match="'x' is constant"):
        found = identifiability(np.full(20, 0.1), np.arange(20.0) ** 2, names=["x"])
    assert np.isnan(found.vif["x"])
    assert found.vif["label"] == pytest.approx(1)
    found = identifiability(np.arange(20.0), np.zeros(20), warn=False)
    assert np.isnan(found.overlap["confounder 0"])


def test_nearly_collinear_by_condition_number():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(500, 8))
    total = base.sum(1) + 0.4 * rng.normal(size=500)
    with pytest.warns(RMDNWarning, match="VIF"):
        identifiability(np.c_[base, total])


def test_bad_input_is_named():
    with pytest.raises(InputError, match="2 entries for 1"):
        identifiability(np.arange(5.0), names=["a", "b"])
    with pytest.raises(InputError, match="labels has 4 rows"):
        identifiability(np.arange(5.0), np.arange(4))
    with pytest.raises(InputError, match="row 1"):
        identifiability([0.0, np.nan])
