"""The library as a regressor of scikit-learn: rows of readings in, rows of a field out."""

from __future__ import annotations

from typing import Any

import numpy as np

from uqsonet.errors import library
from uqsonet.fitting.fit import fit
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.runs import Runs

base, validation = (library(f"sklearn.{name}", "handover") for name in ("base", "utils.validation"))


class UQSONetRegressor(base.MultiOutputMixin, base.RegressorMixin, base.BaseEstimator):
    """Regression of a field on readings at fixed places, with its whole law (`uqsonet.fit`).

    The model is the attribute `emulator_`; its fields are called ``X`` and ``y``. Columns of X are
    read at `places` (m, d), those of y stand at `points` (M, d); by default evenly on [0, 1]. The
    other parameters are those of `uqsonet.fit`, whose `rng` is `random_state`.
    """

    def __init__(
        self, places: Any = None, points: Any = None, *,
        noise_std: float = 0.0, law: str = "auto", random_state: int = 0,
    ) -> None:  # fmt: skip
        self.places, self.points = places, points
        self.noise_std, self.law, self.random_state = noise_std, law, random_state

    def fit(self, X: Any, y: Any) -> UQSONetRegressor:
        """Learn from readings X (N, m) and fields y (N, M), or numbers (N,); at least 8 rows."""
        kinds = {"dtype": np.float64, "multi_output": True, "y_numeric": True}
        X, y = validation.validate_data(self, X, y, ensure_min_samples=8, **kinds)
        read = FieldRuns.of(X, self.places, "identity")  # new readings may be negative
        runs = Runs({"X": read}, {"y": FieldRuns.of(y, self.points)})
        places = read.domain.points().numpy() if self.places is None else self.places
        self._places, self._row = places, y.shape[1:]
        self.emulator_ = fit(
            runs, sensors=[X.shape[1]], noise_std=self.noise_std,
            rng=self.random_state, law=self.law, bar=False,
        )  # fmt: skip
        return self

    def _answer(self, X: Any) -> Any:
        validation.check_is_fitted(self)
        X = validation.validate_data(self, X, dtype=np.float64, reset=False)
        return self.emulator_.condition(self._places, X)["y"]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean (N, M) or (N,) for readings (N, m); with `return_std` (mean, std)."""
        answer, shape = self._answer(X), (-1, *self._row)
        mean = answer.mean(self.points).reshape(shape)
        return (mean, answer.std(self.points).reshape(shape)) if return_std else mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int = 0) -> np.ndarray:
        """Return samples (N, M, n_samples) or (N, n_samples), as Gaussian processes do."""
        drawn = self._answer(X).sample(n_samples, self.points, random_state)
        return np.moveaxis(drawn, 1, -1).reshape(len(drawn), *self._row, n_samples)
