"""Table 3: R-MDN beside analytic continual learning, on the continual synthetic data set 3."""

from __future__ import annotations

from rmdn.experiments import continual
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.summary import claim, missing
from rmdn.experiments.transfer_table import Published, Scores, nearer, scores, table, values
from rmdn.metrics import kruskal_conover
from rmdn.report import Claim, Section

PUBLISHED: Published = {
    "ACIL": (0.29, 0.00, -0.00, 0.00, 0.30, 0.00),
    "F-OAL": (0.28, 0.00, 0.01, 0.00, 0.28, 0.00),
    "R-MDN": (0.02, 0.01, -0.00, 0.01, 0.02, 0.00),
}
OURS = "Guarded R-MDN"
METHODS = (*PUBLISHED, OURS)
RIVALS = ("ACIL", "F-OAL")
EXCELLENT = 0.02  # of |BWTd|: the largest published mean here is .01, of the methods that forget .12


def runs_of(method: str, plan: Plan) -> list[Run]:
    """The seeds of one row; those of R-MDN are Table 1's."""
    return continual.runs(3, method, plan, seeds=3)


def runs(plan: Plan) -> list[Run]:
    """Every method."""
    return [run for method in plan.rows(METHODS) for run in runs_of(method, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The table, and whether remembering and ignoring the confounder are two things."""
    found = scores(METHODS, runs_of, plan, find)
    return Section(
        "table3",
        "Table 3. Beside analytic continual learning",
        "Data set 3, the CNN of Table 1 and its settings. ACIL and F-OAL train the network in the first stage alone and go "
        "on with a recursive classifier; the runs of R-MDN are Table 1's.",
        [table("Mean and standard deviation over seeds; nearer 0 is better.", found, PUBLISHED)],
        [
            *(remembers(found, rival) for rival in RIVALS),
            *(worse(found, rival, measure) for rival in RIVALS for measure in ("ACCd", "FWTd")),
            *(nearer(found, "R-MDN", RIVALS, measure) for measure in ("BWTd", "ACCd", "FWTd")),
            nearer(found, OURS, (*RIVALS, "R-MDN"), "ACCd"),
        ],
        command=plan.command("table3"),
        warnings=missing(runs(plan), find),
    )


def remembers(found: Scores, rival: str) -> Claim:
    """Whether a method forgets next to nothing."""
    text = f"{rival} has an excellent BWTd"
    backward = values(found.get(rival, ()), "BWTd")
    if not backward:
        return claim(text, None, "not enough runs", 0)
    mean = sum(backward) / len(backward)
    return claim(text, abs(mean) <= EXCELLENT, f"mean {mean:.3f}, at most {EXCELLENT} from 0", len(backward))


def worse(found: Scores, rival: str, measure: str) -> Claim:
    """Whether a method is significantly farther from theory than R-MDN."""
    text = f"{rival} is significantly farther from theory than R-MDN ({measure})"
    tested = {method: [abs(value) for value in values(runs, measure)] for method, runs in found.items() if len(runs) > 1}
    if rival not in tested or "R-MDN" not in tested:
        return claim(text, None, "not enough runs", 0)
    pairs = kruskal_conover(tested).pairs
    p = next(p for pair, p in pairs.items() if set(pair) == {rival, "R-MDN"})
    theirs, ours = (sum(tested[method]) / len(tested[method]) for method in (rival, "R-MDN"))
    why = f"means {theirs:.3f} and {ours:.3f}, Conover p = {p:.2g}"
    return claim(text, theirs > ours and p < 0.05, why, min(len(tested[rival]), len(tested["R-MDN"])))


register(
    Experiment("table3", "Table 3. Beside analytic continual learning", {"quick": 1, "paper": 50}, runs, section),
)
