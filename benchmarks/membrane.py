"""The benchmark of Aristoff and Bangerth: 64 blocks of a membrane from 169 readings of its shape.

``-div(a grad u) = 10`` on the unit square with u = 0 on the boundary, 32 x 32 bilinear elements, a
constant on each of 8 x 8 blocks, readings at i / 14 with noise 0.05. Their prior is the density
``exp(-log(a_k)^2 / 8)`` of a_k itself, for which ``log a_k ~ N(4, 2^2)``: the logarithm's density
has a factor a_k more.

References
----------
D. Aristoff and W. Bangerth, A benchmark for the Bayesian inversion of coefficients in partial
differential equations, arXiv 2102.07263. Readings, and solutions to check the solver by, are those
of their program in deal.II's code gallery (MCMC-Laplace).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solveh_banded
from scipy.sparse import coo_matrix

BLOCKS, CELLS, READINGS = 8, 32, 13
PRIOR_MEAN, PRIOR_STD, NOISE, LOAD = 4.0, 2.0, 0.05, 10.0  # mean and std of logarithms

ELEMENT = np.array([[4, -1, -2, -1], [-1, 4, -1, -2], [-2, -1, 4, -1], [-1, -2, -1, 4]]) / 6
"""Stiffness of a square element, corners in order around it."""


def measured() -> np.ndarray:
    """Return the readings (169,), x fastest; the membrane is symmetric about its diagonal."""
    values = np.zeros((READINGS, READINGS))
    values[np.triu_indices(READINGS)] = [float(one) for one in _MEASURED.split()]
    return (values + values.T - np.diag(values.diagonal())).ravel()


class Membrane:
    """The solver, with what does not depend on the blocks worked out once."""

    def __init__(self) -> None:
        inner, side = CELLS - 1, CELLS // BLOCKS
        i, j = (one.ravel() for one in np.meshgrid(np.arange(CELLS), np.arange(CELLS)))
        block = i // side + BLOCKS * (j // side)
        corners = np.stack([(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)])  # (4, 2, cells)
        number = (corners[:, 0] - 1) + inner * (corners[:, 1] - 1)
        free = np.all((corners > 0) & (corners < CELLS), axis=1)
        rows, columns, values, blocks = [], [], [], []
        for p in range(4):
            for q in range(4):
                used = free[p] & free[q] & (number[p] >= number[q])  # the lower half
                rows.append(number[p][used] - number[q][used])
                columns.append(number[q][used])
                values.append(np.full(used.sum(), ELEMENT[p, q]))
                blocks.append(block[used])
        band, column = np.concatenate(rows), np.concatenate(columns)
        flat = band * inner**2 + column
        self._shape = inner + 2, inner**2
        shape = self._shape[0] * self._shape[1], BLOCKS**2
        stiffness = coo_matrix((np.concatenate(values), (flat, np.concatenate(blocks))), shape)
        self._stiffness = stiffness.tocsr()
        self._load = np.full(inner**2, LOAD / CELLS**2)
        self._read = self._readings(inner)

    @staticmethod
    def _readings(inner: int) -> np.ndarray:
        """Return what readings see (169, free nodes)."""
        x = np.arange(1, READINGS + 1) / (READINGS + 1) * CELLS
        tents = np.maximum(0, 1 - np.abs(x[:, None] - np.arange(1, inner + 1)))  # (13, inner)
        return np.einsum("yj,xi->yxji", tents, tents).reshape(READINGS**2, inner**2)

    def __call__(self, coefficients: np.ndarray) -> np.ndarray:
        """Return readings (S, 169) of membranes with coefficients (S, 64) of the blocks."""
        return np.stack([self._read @ self._solved(one) for one in np.atleast_2d(coefficients)])

    def _solved(self, coefficients: np.ndarray, load: np.ndarray | None = None) -> np.ndarray:
        """Return the membrane (free nodes,) under a load, by default the problem's own."""
        stiffness = (self._stiffness @ coefficients).reshape(self._shape)
        return solveh_banded(stiffness, self._load if load is None else load, lower=True)

    def likelihood(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log-likelihood of logarithms (64,) of coefficients, and its slope (64,)."""
        coefficients = np.exp(logs)
        u = self._solved(coefficients)
        off = self._read @ u - measured()
        adjoint = self._solved(coefficients, self._read.T @ off / NOISE**2)
        products = np.zeros(self._shape)
        for k in range(self._shape[0]):  # of nodes that are k apart
            left, right = u[k:], u[: len(u) - k]
            product = adjoint[k:] * right + (adjoint[: len(u) - k] * left if k else 0)
            products[k, : len(u) - k] = product
        slope = coefficients * (self._stiffness.T @ products.ravel())
        return -float(off @ off) / 2 / NOISE**2, slope


_MEASURED = """
    0.06076512 0.09601910 0.12388525 0.14951841 0.18415961 0.21745250 0.22509962 0.21979548 
    0.20746957 0.18899965 0.16327225 0.12767825 0.07711846
    0.20005895 0.33855926 0.39343000 0.40402239 0.41223295 0.41004801 0.39491516 0.36978733 
    0.33401826 0.28503978 0.21842600 0.12711212
    0.71192852 0.81757129 0.68362541 0.57794524 0.55556160 0.52851816 0.49143970 0.44093675 
    0.37300601 0.28216950 0.16101767
    0.94391546 0.80159041 0.68596837 0.65612354 0.62131972 0.57536113 0.51400918 0.43253255 
    0.32483151 0.18346004
    0.78701196 0.73731083 0.71165589 0.67451790 0.62353006 0.55593327 0.46703050 0.34998091 
    0.19688264
    0.74588120 0.72789680 0.69047935 0.63691765 0.56774437 0.47847388 0.36021906 0.20317921
    0.71219287 0.67121874 0.61391578 0.54782517 0.46771227 0.35876549 0.20507343
    0.61784083 0.54536050 0.48957597 0.43417169 0.35343900 0.20832275
    0.43366049 0.41096417 0.38818648 0.36426401 0.21795999
    0.39572726 0.37789493 0.35962683 0.21912503
    0.36333626 0.34644573 0.20963623
    0.32607290 0.18067060
    0.10679656
"""
"""Readings of the upper triangle, row by row."""
