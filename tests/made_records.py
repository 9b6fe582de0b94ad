"""Records as runs would have left them, made up: no training."""

import numpy as np

from rmdn.experiments import continual
from rmdn.experiments.problems import delta_name

BEST = {1: [0.75] * 5, 2: [0.75, 0.6875, 0.625, 0.5625, 0.5], 3: [0.75, 0.6875, 0.625, 0.5625, 0.5]}


def record(run, *, off=0.02, lean=0.0, dcor2=0.01, scatter=0.002):
    """A run that lies `off` above theory everywhere and loses `lean` as the confounder fades."""
    random = np.random.default_rng(int(run.key, 16))
    best = np.array(BEST[run.data.arguments["dataset"]])
    R = best + off + scatter * random.standard_normal((5, 5))
    dependence = dcor2 + scatter * random.standard_normal((5, 5, 2))
    return {
        "names": [f"stage {i + 1}" for i in range(5)],
        "best": best.tolist(),
        "stand_in": "",
        "R": R.tolist(),
        "more": {delta_name(delta): (R - (1 - delta) * lean).tolist() for delta in continual.DELTAS},
        "recall": [[[float(a), float(a)] for a in row] for row in R],
        "dcor2": [[{"0": float(one[0]), "1": float(one[1])} for one in row] for row in dependence],
        "seconds": 1.0,
        "machine": {"gpu": None, "cores": 2, "torch": "2"},
    }
