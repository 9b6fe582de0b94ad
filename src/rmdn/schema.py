"""Table columns to confounder numbers. All that is learned comes from the rows given to `fit`: training rows.

    schema = Schema((Number("age", spline=3), Category("site", unseen="mean"), Interaction(("age", "sex"))))
    schema = schema.fit(train_rows)
    confounders = schema.transform(test_rows)      # (n, c)

Rows are a pandas DataFrame or any mapping of column names to cells. A missing cell follows its term's policy:
"error" names the rows; "mean" takes the training mean of each resulting column; "indicator" does so and adds
a 0/1 column that says where; "keep" leaves NaN for the layer's own policy; "drop" asks whoever builds a study
to leave the row out (see `complete`). A level that no training row has follows `unseen`: "error", "mean", or
"missing", which hands it to the policy for missing cells.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rmdn.cells import are_numbers, column, is_missing, some, to_numbers
from rmdn.errors import InputError, SettingError, UsageError
from rmdn.terms import KINDS, Category, Column, Fit, Interaction, Number, Term

__all__ = ["Category", "Interaction", "Number", "Schema", "guess"]

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Schema:
    """The terms of a design, and, once fitted, what was learned of each from the training rows."""

    terms: tuple[Term, ...]
    fits: Mapping[str, Fit] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple(self.terms))
        named = [term.name for term in self.columns]
        if len(set(named)) < len(named):
            raise SettingError(f"A column is listed twice: {', '.join(named)}.")
        for term in self.interactions:
            for name in term.names:
                if name not in named:
                    raise SettingError(f"An interaction names {name!r}, which is not among {', '.join(named)}.")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The terms that read a column of the table."""
        return tuple(term for term in self.terms if not isinstance(term, Interaction))

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """The terms that multiply others."""
        return tuple(term for term in self.terms if isinstance(term, Interaction))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that `transform` returns."""
        fits = self._fitted()
        names: dict[str, list[str]] = {t.name: t.names(fits[t.name]) for t in self.columns}
        extra = [f"{t.name} missing" for t in self.columns if fits[t.name]["indicator"]]
        products = [part for term in self.interactions for part in _joined([names[n] for n in term.names])]
        return (*(part for parts in names.values() for part in parts), *extra, *products)

    def fit(self, rows: Any) -> Schema:
        """A new schema that has learned from these rows, which must be training rows alone."""
        fits: dict[str, Fit] = {}
        with np.errstate(all="ignore"):
            for term in self.columns:
                fit = term.learn(rows)
                absent = np.array([is_missing(cell) for cell in column(rows, term.name)])
                means = term.encode(rows, fit)[~absent].mean(axis=0)
                fit |= {"means": means.tolist(), "missing": int(absent.sum()), "rows": len(absent)}
                fits[term.name] = fit | {"indicator": term.missing == "indicator" and bool(absent.any())}
        fitted = replace(self, fits=fits)
        fitted.transform(rows)
        return fitted

    def declared(self, levels: Mapping[str, Sequence[str]]) -> Schema:
        """The same schema, in which categories that list no levels take the ones declared here; a fitted one stays."""
        if self.fits is not None:
            return self
        terms = [
            replace(term, levels=tuple(levels[term.name]))
            if isinstance(term, Category) and not term.levels and term.name in levels
            else term
            for term in self.terms
        ]
        return replace(self, terms=tuple(terms))

    def check(self, rows: Any) -> None:
        """An error, with its row, for a cell that is no number or that is missing where that is refused."""
        for term in self.columns:
            cells = column(rows, term.name)
            if isinstance(term, Number):
                to_numbers(cells, term.name)
            if term.missing == "error":
                _refuse_missing(term, np.array([is_missing(cell) for cell in cells], dtype=bool))

    def complete(self, rows: Any) -> np.ndarray:
        """(n,) True for the rows to keep: no cell is missing in a column whose policy is "drop"."""
        drop = [t for t in self.columns if t.missing == "drop"]
        gone = [[is_missing(cell) for cell in column(rows, term.name)] for term in drop]
        n = len(column(rows, self.columns[0].name)) if self.columns else 0
        kept: np.ndarray = ~np.any(np.array(gone, dtype=bool).reshape(len(drop), n), axis=0)
        return kept

    def transform(self, rows: Any) -> np.ndarray:
        """(n, c) float64, finite but where a policy is "keep"; nothing is learned here."""
        fits = self._fitted()
        parts: dict[str, np.ndarray] = {}
        extra: list[np.ndarray] = []
        excused: list[np.ndarray] = []
        with np.errstate(all="ignore"):
            for term in self.columns:
                parts[term.name], absent = _encoded(term, rows, fits[term.name])
                extra += [absent[:, None].astype(np.float64)] if fits[term.name]["indicator"] else []
                excused += [absent] if term.missing == "keep" else []
            products = [_products([parts[name] for name in term.names]) for term in self.interactions]
            x = np.concatenate([*parts.values(), *extra, *products, np.empty((_rows(parts), 0))], axis=1)
        wild = ~(np.abs(x) <= LARGEST)
        wild[np.any(np.array(excused, dtype=bool).reshape(-1, len(x)), axis=0)[:, None] & np.isnan(x)] = False
        if wild.any():
            bad = [name for name, flag in zip(self.names, wild.any(axis=0), strict=True) if flag]
            raise InputError(f"Too large for float32 after encoding: {some(bad)}. Mend the cells or lower the degree.")
        return x

    def describe(self) -> str:
        """What was done to each column, in words."""
        fits = self._fitted()
        lines = []
        for term in self.columns:
            fit = fits[term.name]
            count = f"{fit['missing']} of {fit['rows']} training rows"
            lines.append(f"{term.name}: {term.words(fit)}; {_missing_words(term, fit)} ({count} missing).")
        lines += [f"{' x '.join(term.names)}: products, each column with each." for term in self.interactions]
        return "\n".join([*lines, f"{_columns(len(self.names))} in all, fitted on training rows alone."])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and lists, for JSON or a model's state."""
        terms = [{"kind": term.kind, **asdict(term)} for term in self.terms]
        plain: dict[str, Any] = json.loads(json.dumps({"version": 1, "terms": terms, "fits": self.fits}))
        return plain

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Schema:
        """The schema that `to_dict` gave; also a hand-written one, with `terms` alone."""
        if state.get("version", 1) != 1 or "terms" not in state:
            raise InputError("This is not a schema of version 1: it needs 'terms', each with a 'kind'.")
        terms: list[Term] = []
        for given in state["terms"]:
            options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if k != "kind"}
            try:
                terms.append(KINDS[given["kind"]](**options))
            except (KeyError, TypeError) as error:
                raise InputError(f"A term of the schema does not read: {dict(given)} ({error}).") from None
        return cls(tuple(terms), state.get("fits"))

    def save(self, path: str | Path) -> None:
        """Write as JSON, whole or not at all."""
        partial = Path(f"{path}.partial")
        partial.write_text(json.dumps(self.to_dict(), indent=1), encoding="utf-8")
        os.replace(partial, path)

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read what `save` wrote."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))

    def _fitted(self) -> Mapping[str, Fit]:
        if self.fits is None:
            raise UsageError("This schema has learned nothing yet: call fit(training rows) first.")
        return self.fits


def guess(rows: Any, names: Sequence[str], levels: Mapping[str, Sequence[str]] | None = None) -> Schema:
    """A schema for these columns: a category where levels are declared or a cell is no number."""
    terms: list[Term] = []
    for name in names:
        if name in (levels or {}):
            terms.append(Category(name, tuple((levels or {})[name])))
        else:
            terms.append(Number(name) if are_numbers(column(rows, name)) else Category(name))
    return Schema(tuple(terms))


def _encoded(term: Column, rows: Any, fit: Fit) -> tuple[np.ndarray, np.ndarray]:
    """The term's columns, filled by its policies, and where its cells count as missing."""
    x = term.encode(rows, fit)  # (n, k)
    absent = np.array([is_missing(cell) for cell in column(rows, term.name)], dtype=bool)
    unseen = term.unseen_rows(rows, fit)
    if isinstance(term, Category) and term.unseen == "missing":
        absent = absent | unseen
    if term.missing in ("error", "drop"):
        _refuse_missing(term, absent)
    x[unseen & ~absent if term.missing == "keep" else absent | unseen] = fit["means"]
    return x, absent


def _refuse_missing(term: Column, absent: np.ndarray) -> None:
    if absent.any():
        raise InputError(
            f"Column {term.name!r} has no value in {absent.sum()} of {len(absent)} rows: rows "
            f"{some(np.flatnonzero(absent).tolist())} (counted from 0). Fill them, or say in a schema what they mean: "
            f"{type(term).__name__}({term.name!r}, missing='mean'), or 'indicator', 'keep' or 'drop'."
        )


def _missing_words(term: Column, fit: Fit) -> str:
    if term.missing == "indicator" and not fit["indicator"]:
        return "no training cell is missing, so none is flagged; a missing one takes the training mean"
    return {
        "error": "a missing cell is refused",
        "mean": "a missing cell takes the training mean",
        "indicator": "a missing cell takes the training mean and is flagged in a column of its own",
        "keep": "a missing cell stays NaN for the layer",
        "drop": "rows with a missing cell are left out",
    }[term.missing]


def _columns(count: int) -> str:
    return f"{count} column" if count == 1 else f"{count} columns"


def _rows(parts: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(parts.values()))) if parts else 0


def _products(parts: Sequence[np.ndarray]) -> np.ndarray:
    product = parts[0]
    for part in parts[1:]:
        product = (product[:, :, None] * part[:, None, :]).reshape(len(part), -1)
    return product


def _joined(parts: Sequence[Sequence[str]]) -> list[str]:
    names = list(parts[0])
    for part in parts[1:]:
        names = [f"{left} x {right}" for left in names for right in part]
    return names
