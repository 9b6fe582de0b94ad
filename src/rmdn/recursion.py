"""Recursive least squares in p x p form: the one piece of mathematics that everything else stands on.

A design matrix X (B, p) and features Z (B, h) enter only through the sums A = X'X (p, p) and G = X'Z (p, h), so that
batches, ranks, sites and days combine exactly by adding. `P` stands for the inverse of what has been seen (A summed,
plus the start's precision) and `beta` for the least-squares coefficients of Z on X. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rmdn.errors import InputError
from rmdn.products import subtract_product

# Forgetting makes P grow without end along directions that the data no longer show; past this size it stops.
LARGEST_P = 1e12
# A column counts as collinear where the columns before it explain all but this share of its square.
COLLINEAR_SHARE = 1e-10


class State(NamedTuple):
    """What has been learned from the rows so far."""

    P: Tensor  # (p, p) float64, symmetric positive definite
    beta: Tensor  # (p, h) float32 or wider
    rows: Tensor  # () float64: rows seen, earlier ones discounted by forgetting
    prior: Tensor  # () float64: what is left in P^-1 of the start's precision 1 / epsilon


def start(
    columns: int,
    features: int,
    *,
    epsilon: float = 1e3,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> State:
    """The state before any row: P = epsilon I, beta = 0. A larger epsilon trusts the first rows more."""
    return State(
        P=torch.eye(columns, dtype=torch.float64, device=device) * epsilon,
        beta=torch.zeros(columns, features, dtype=dtype, device=device),
        rows=torch.zeros((), dtype=torch.float64, device=device),
        prior=torch.full((), 1 / epsilon, dtype=torch.float64, device=device),
    )


def update(state: State, X: Tensor, Z: Tensor, *, forgetting: float = 1.0, regularization: float = 0.0) -> State:
    """The state after the rows X (B, p) and Z (B, h); an empty batch changes nothing."""
    _check_rows(state, X, Z)
    if len(X) == 0:
        return state
    X = X.double()
    P, gain = absorb_rows(forget(state.P, forgetting), X)
    beta = advance(state.beta, gain, X, Z)
    return _aged(state, regularize(P, regularization), beta, len(X), forgetting)


def update_from_sums(
    state: State, A: Tensor, G: Tensor, rows: int, *, forgetting: float = 1.0, regularization: float = 0.0
) -> State:
    """The same from the sums A (p, p) and G (p, h) over `rows` rows, which may come from several places."""
    if rows == 0:
        return state
    P = absorb(forget(state.P, forgetting), A.double())
    beta = advance(state.beta, P, A.double(), G)
    return _aged(state, regularize(P, regularization), beta, rows, forgetting)


def merge(first: State, *others: State) -> State:
    """The state of all rows that the given states have seen, each row by one of them; the start counts once."""
    for other in others:
        if other.beta.shape != first.beta.shape:
            raise InputError(
                f"The states to merge have coefficients of shape {tuple(first.beta.shape)} and"
                f" {tuple(other.beta.shape)}. Merge states of the same columns and features only."
            )
    precisions = [_inverse(state.P) for state in (first, *others)]
    precision = torch.stack(precisions).sum(0)  # (p, p)
    precision.diagonal().sub_(sum(other.prior for other in others))
    G = sum(R @ state.beta.double() for R, state in zip(precisions, (first, *others), strict=True))  # (p, h)
    P = _inverse(precision)
    rows = torch.stack([state.rows for state in (first, *others)]).sum()
    return State(P, (P @ G).to(first.beta.dtype), rows, first.prior)


def downdate(state: State, X: Tensor, Z: Tensor) -> State:
    """Take rows out again that the state has seen (a subject who withdraws); exact with forgetting 1 and lambda 0."""
    _check_rows(state, X, Z)
    X = X.double()
    L = _factor(state.P)
    kept = -(L.mT @ (X.mT @ X) @ L)
    kept.diagonal().add_(1)  # (p, p): I - L'AL, positive definite only if the rows are in the state
    C, failed = torch.linalg.cholesky_ex(kept)
    if len(X) > float(state.rows) or int(failed):
        raise InputError(
            f"{len(X)} rows were to be taken out of a state of {float(state.rows):g} rows, but they are not all in"
            " it. Give exactly the rows (encoded as then) that an update has seen."
        )
    half = torch.linalg.solve_triangular(C, L.mT, upper=False)
    P = half.mT @ half
    E = Z - X.to(Z.dtype) @ state.beta.to(Z.dtype)  # (B, h)
    beta = state.beta - ((P @ X.mT).to(Z.dtype) @ E).to(state.beta.dtype)
    return state._replace(P=P, beta=beta, rows=state.rows - len(X))


def solve(A: Tensor, G: Tensor) -> Tensor:
    """Least-squares coefficients from the sums alone; of collinear columns the smallest that fit, never an error."""
    A = A.double()
    scale = A.diagonal().clamp_min(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    values, vectors = torch.linalg.eigh(A / scale[:, None] / scale)
    kept = values > COLLINEAR_SHARE * len(A)
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    half = vectors / scale[:, None]  # (p, p)
    return (half * inverse) @ (half.mT @ G.double())


def collinear(A: Tensor, names: Sequence[str] | None = None) -> list[tuple[str, list[str]]]:
    """Columns that earlier-standing ones determine: (column, the columns that give it). Empty columns do not count.

    The last column, the ones in every design here, is taken as the first, so that a constant is found as one.
    """
    names = list(names) if names is not None else [f"column {i}" for i in range(len(A))]
    A = A.double().cpu()
    order = [len(A) - 1, *range(len(A) - 1)]
    independent: list[int] = []
    found = []
    for column in order:
        square = A[column, column]
        if square <= 0:
            continue
        weights = torch.linalg.solve(A[independent][:, independent], A[independent, column])
        explained = weights @ A[independent, column]
        if square - explained > COLLINEAR_SHARE * square:
            independent.append(column)
            continue
        shares = weights.abs() * A.diagonal()[independent].sqrt() / square.sqrt()
        sources = [names[i] for i, share in zip(independent, shares.tolist(), strict=True) if share > 1e-6]
        found.append((names[column], sources))
    return found


# The steps of an update, for callers that hold the pieces themselves (the layer) ------------------------------------


def forget(P: Tensor, forgetting: float) -> Tensor:
    """P / f: old rows count less. It waits while a direction without data would carry P past all bounds."""
    if forgetting == 1:
        return P
    grown = P / forgetting
    return torch.where(grown.diagonal().max() > LARGEST_P, P, grown)


def absorb(P: Tensor, A: Tensor) -> Tensor:
    """(P^-1 + A)^-1 (p, p). Written with factors, so that it is positive definite and no scale of columns hurts."""
    L = _factor(P)
    inner = L.mT @ A @ L
    inner.diagonal().add_(1)  # I + L'AL: eigenvalues of at least 1
    half = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(inner).L, L.mT, upper=False)
    return half.mT @ half


def absorb_rows(P: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """The new P and the gain K (p, B), equal to the new P X'; by a B x B solve (Woodbury) where that is cheaper."""
    if 2 * len(X) <= len(P):
        V = P @ X.mT  # (p, B)
        S = X @ V
        S.diagonal().add_(1)  # (B, B)
        C, failed = torch.linalg.cholesky_ex(S)
        if not failed:
            gain = torch.cholesky_solve(V.mT, C).mT
            # Joseph's form (I - KX) P (I - KX)' + KK': the plain P - K X P drifts away from positive definiteness.
            partial = torch.addmm(P, gain, V.mT, alpha=-1)
            new = torch.addmm(partial, torch.addmm(gain, partial, X.mT, beta=-1), gain.mT, alpha=-1)
            new = (new + new.mT) / 2
            if not torch.linalg.cholesky_ex(new).info:
                return new, gain
    P = absorb(P, X.mT @ X)
    return P, P @ X.mT


def _factor(P: Tensor) -> Tensor:
    L, failed = torch.linalg.cholesky_ex(P)
    if failed:  # collinear columns of very unlike size: rounding has eaten the smallest directions
        scale = P.diagonal().sqrt()
        values, vectors = torch.linalg.eigh(P / scale[:, None] / scale)
        half = (scale[:, None] * vectors) * values.clamp_min(1e-14 * len(P)).sqrt()
        L = torch.linalg.qr(half.mT).R.mT
    return L


def advance(beta: Tensor, gain: Tensor, X: Tensor, Z: Tensor) -> Tensor:
    """Beta + K (Z - X beta): of rows X and Z with their gain K, or of the sums A and G with the new P."""
    error = subtract_product(Z, X.to(Z.dtype), beta.to(Z.dtype))  # (B, h), of sums (p, h)
    return torch.addmm(beta, gain.to(beta.dtype), error.to(beta.dtype))


def regularize(P: Tensor, regularization: float) -> Tensor:
    """P + lambda I: keeps P from vanishing, so that beta goes on following features that change."""
    if regularization == 0:
        return P
    P = P.clone()
    P.diagonal().add_(regularization)
    return P


def _aged(state: State, P: Tensor, beta: Tensor, rows: int, forgetting: float) -> State:
    return State(P, beta, state.rows * forgetting + rows, state.prior * forgetting)


def _inverse(P: Tensor) -> Tensor:
    return torch.cholesky_inverse(_factor(P))


def _check_rows(state: State, X: Tensor, Z: Tensor) -> None:
    p, h = state.beta.shape
    if X.ndim != 2 or Z.ndim != 2 or len(X) != len(Z) or X.shape[1] != p or Z.shape[1] != h:
        raise InputError(
            f"A design of shape {tuple(X.shape)} and features of shape {tuple(Z.shape)} were given to a state of {p}"
            f" columns and {h} features. Expected (B, {p}) and (B, {h})."
        )
    if not (torch.isfinite(X).all() and torch.isfinite(Z).all()):
        raise InputError(
            "The design or the features hold NaN or infinite values; the state was not changed. Drop or fill those"
            " rows first."
        )
