"""What the package promises as a whole: a light core, all names there, an extra named where it is missing."""

import inspect
import os
import subprocess
import sys

import pytest

import rmdn.metrics
from rmdn.errors import MissingExtraError
from rmdn.metrics._inputs import need

CODE = """
import sys, torch
before = set(sys.modules)
from rmdn.metrics import dcor2, transfer
dcor2([1., 2, 4, 3, 9], [2., 1, 5, 3, 4])
transfer([[.5, .5], [.6, .7]])
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new & {"scipy", "sklearn", "pandas", "matplotlib", "torchmetrics", "captum", "nilearn", "rich"}))
"""


def test_the_core_loads_nothing_but_torch_and_numpy():
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=os.environ | path)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_says_what_it_cannot_show():
    for name in rmdn.metrics.__all__:
        thing = getattr(rmdn.metrics, name)
        words = " ".join((inspect.getdoc(thing) or "").split())
        assert words, name
        if inspect.isfunction(thing):
            assert "It assumes" in words, name
            assert "cannot show" in words, name
    assert set(rmdn.metrics.__all__) <= set(dir(rmdn.metrics))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rmdn.metrics.nothing


def test_a_missing_extra_is_named():
    with pytest.raises(MissingExtraError, match=r"A picture needs 'no_such_package': pip install 'rmdn\[study\]'"):
        need("no_such_package.part", "study", "A picture")
