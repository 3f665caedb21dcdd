"""The baselines of the tables: without sensors, cokriging, and regression on the pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.gauss.given import Gaussian
from uqsonet.gauss.posterior import Posterior
from uqsonet.gauss.principal_components import empirical_modes
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.base import Conditioned
from uqsonet.operator.baselines import Cokriging
from uqsonet.operator.closed_form import INPUT_MODES, OUTPUT_MODES
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors
from uqsonet_study import BASELINES
from uqsonet_study.least_squares import LeastSquares


class SensorFree(Conditioned):
    """The law of u without any observation, as a Gaussian on the leading modes of u.

    Parameters
    ----------
    functions : Functions
        Training pairs.
    """

    method = "sensor_free"

    def __init__(self, functions: Functions) -> None:
        self.fields = functions.fields
        self._grid = self.fields.output.grid
        self._training_grid, _ = self.fields.training_grid()
        count = min(OUTPUT_MODES, functions.size - 1, self._training_grid.size)
        modes = empirical_modes(functions.u_rows, count, "output modes")
        self._stacked = torch.cat([modes.mean[:, None], modes.vectors], dim=1)
        self._root = torch.diag(modes.std)

    def _basis(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (M,) and modes (M, p) at queries (M, d)."""
        values = self._training_grid.interpolate(self._stacked, queries)
        return values[:, 0], values[:, 1:]

    def answer(self, sensors: Sensors) -> Posterior:
        """Return the prior law, once per set of checked sensors."""
        mean = torch.zeros(len(sensors), len(self._root), dtype=torch.float64)
        law = Gaussian(mean, self._root.expand(len(sensors), -1, -1))
        return Posterior(self._grid, self._basis, sensors.single, law)


def build_baseline(
    name: str,
    functions: Functions,
    noise_std: float,
    bases: KarhunenLoeveBases | None = None,
) -> SensorFree | Cokriging | LeastSquares:
    """Return the baseline `sensor_free`, `cokriging` or `regression`, fitted to training pairs.

    Parameters
    ----------
    noise_std : float
        Default noise of sensors of the input.
    bases : KarhunenLoeveBases, optional
        Bases of `Cokriging` on the same pairs: regression need not fit them again.
    """
    if name == "sensor_free":
        return SensorFree(functions)
    if name == "cokriging":
        return Cokriging(functions, noise_std)
    if name == "regression":
        return LeastSquares(functions, noise_std, INPUT_MODES, OUTPUT_MODES, bases)
    raise ConfigError(f"baseline {name!r} is unknown; there are {', '.join(BASELINES)}")
