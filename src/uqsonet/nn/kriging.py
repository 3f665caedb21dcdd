"""UQ-SONet on a Karhunen-Loeve latent space: the `kriging` architecture of the tuned recipe.

What sensors leave unknown is the rest of the input function, so z carries exactly that. With the
empirical mean and modes of the (transformed) training inputs, ``kappa = mean + modes a``,
``a ~ N(0, I)``:

- set embedding h(O) = (mean, root) of a given O: Gaussian conditioning (kriging) in closed
  form, permutation-invariant, for any number, place and noise level of the sensors;
- latent z ~ N(0, I), a = mean + root z;
- branch b(a): a linear map (its start is the least-squares one, that is cokriging) plus a
  perceptron for what linear theory cannot explain;
- trunk t: empirical modes of the training outputs, interpolated to any query;
- where the operator itself is random (sections 4.3, 4.4), a second latent of the size of the
  output carries what kappa leaves open, as a Gaussian whose covariance depends on the sensors
  (`uqsonet.nn.intrinsic`).

It is the stochastic operator model (eq:stochastic-operator) with b depending on (h, z) through
a. In the ELBO the encoder may see the full kappa of a training pair, which fixes z; its KL term
then no longer depends on the branch, and the reconstruction term is the regression trained here.
Gaussianity of the transformed input is an assumption: docs/model.md says where it matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from uqsonet.config import KrigingNetwork
from uqsonet.gaussian_process import GaussianLaw, condition
from uqsonet.modes import empirical_modes
from uqsonet.nn.base import Batch, OperatorModel, register
from uqsonet.nn.intrinsic import covariance_root, residual_covariance, residual_slopes
from uqsonet.nn.mlp import MLP
from uqsonet.posterior import LatentPosterior, Posterior
from uqsonet.sensors import Observations
from uqsonet.simulation import Functions


def _least_squares(pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return W (r, p) with a W nearest to c, over row blocks (a, c).

    One block is solved as it is. Several are summed to normal equations, which lose nothing here:
    standardised coefficients are uncorrelated, so the matrix of those equations has condition 1
    (and zero rows for modes that carry nothing, which get zero weights).
    """
    stream = iter(pairs)
    left, right = next(stream)
    for k, (a, c) in enumerate(stream):
        if k == 0:
            left, right = left.T @ left, left.T @ right
        left, right = left + a.T @ a, right + a.T @ c
    # Not torch's default driver, gelsy: it starts from uninitialised pivots, and where columns are
    # zero these decide what it takes the rank to be.
    return torch.linalg.lstsq(left, right, driver="gelsd").solution


@register("kriging")
class KrigingUQSONet(OperatorModel):
    """Conditional sampling of KL coefficients of kappa, then a learned operator on them."""

    method = "uqsonet"
    reads_sensors = False

    kappa_mean: Tensor
    kappa_factor: Tensor
    nugget: Tensor
    u_mean: Tensor
    u_modes: Tensor
    scale: Tensor
    start_weight: Tensor
    intrinsic_covariance: Tensor
    intrinsic_slopes: Tensor

    def __init__(self, problem: str, config: KrigingNetwork, noise_std: float) -> None:
        super().__init__(problem, config, noise_std)
        self.config: KrigingNetwork = config
        r, p = config.input_modes, config.output_modes
        self.training_grid, _ = self.problem.training_grid()
        n, points = self.problem.grid.size, self.training_grid.size

        def double(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64)

        self.register_buffer("kappa_mean", double(n))
        self.register_buffer("kappa_factor", double(n, r))
        self.register_buffer("nugget", double())
        self.register_buffer("u_mean", double(points))
        self.register_buffer("u_modes", double(points, p))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("start_weight", torch.zeros(p, r))
        if self.problem.intrinsic is not None:
            self.register_buffer("intrinsic_covariance", double(p, p))
            self.register_buffer("intrinsic_slopes", torch.zeros(r, p, p))
        self.linear = nn.Linear(r, p)
        self.network = MLP(r, config.branch, p, config.activation)
        with torch.no_grad():
            # Zero corrections: training starts at the linear (cokriging) operator.
            *_, weight, bias = self.network.parameters()
            for tensor in (self.linear.weight, self.linear.bias, weight, bias):
                tensor.zero_()

    def fit_constants(self, functions: Functions) -> None:
        """Set both bases, and the linear branch by least squares (training data only)."""
        field, u = functions.field_rows(), functions.u_rows
        inputs = empirical_modes(field, self.config.input_modes, "network.input_modes")
        outputs = empirical_modes(u, self.config.output_modes, "network.output_modes")
        self.kappa_mean.copy_(inputs.mean)
        # Modes below the rounding of stored data carry nothing and must not be divided by.
        seen = inputs.std > 1e-6 * inputs.std[0]
        self.kappa_factor.copy_(inputs.vectors * inputs.std * seen)
        self.nugget.fill_(inputs.remainder)
        self.u_mean.copy_(outputs.mean)
        self.u_modes.copy_(outputs.vectors)
        self.scale.fill_(float(outputs.std.norm()))
        self.start_weight.copy_(_least_squares(self._coefficients(functions)).T)
        if self.problem.intrinsic is not None:
            targets = self.targets(functions)
            pairs = targets["a"], targets["c"], self.start_weight
            self.intrinsic_covariance.copy_(residual_covariance(*pairs))
            self.intrinsic_slopes.copy_(residual_slopes(*pairs))

    def _coefficients(self, functions: Functions) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield standardised coefficients of inputs (B, r) and outputs (B, p), float64."""
        to_a = self.kappa_factor / self.kappa_factor.square().sum(0).clamp_min(1e-300)
        for kappa, u in functions.blocks():
            field = self.problem.transform.forward(kappa.double()) - self.kappa_mean
            yield field @ to_a, (u.double() - self.u_mean) @ self.u_modes / self.scale

    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return standardised coefficients of inputs (N, r) and outputs (N, p)."""
        a = torch.empty(functions.size, self.config.input_modes)
        c = torch.empty(functions.size, self.config.output_modes)
        first = 0
        for left, right in self._coefficients(functions):
            rows = slice(first, first + len(left))
            a[rows], c[rows] = left, right
            first += len(left)
        return {"a": a, "c": c}

    def branch(self, a: Tensor) -> Tensor:
        """Map input coefficients (..., r) to scaled output coefficients (..., p)."""
        start = nn.functional.linear(a, self.start_weight)
        return start + self.linear(a) + self.network(a)

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared error as a fraction of the output's variance."""
        error = ((self.branch(batch["a"]) - batch["c"]) ** 2).sum(-1).mean()
        return error, {"reconstruction": error}

    def basis(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return output mean (M,) and modes (M, p) at queries, float64."""
        stacked = torch.cat([self.u_mean[:, None], self.u_modes * self.scale.double()], dim=1)
        values = self.training_grid.interpolate(stacked, queries)
        return values[:, 0], values[:, 1:]

    def input_law(self, observations: Observations, noise_std: float) -> GaussianLaw:
        """Return h(O): the law of the input's coefficients given observations, float64."""
        ready = observations.to(torch.float64, self.kappa_mean.device)
        stacked = torch.cat([self.kappa_mean[:, None], self.kappa_factor], dim=1)
        at_sensors = self.problem.grid.interpolate(stacked, ready.locations)
        residual = self.problem.transform.forward(ready.values) - at_sensors[..., 0]
        # What the modes leave out acts as observation noise; without it, close sensors would
        # ask the leading modes to explain rounding.
        level = float((noise_std**2 + self.nugget**2) ** 0.5)
        return condition(at_sensors[..., 1:], residual, level, ready.mask)

    def _intrinsic_root(self, mean: Tensor) -> Tensor | None:
        """Return a root (B, p, p) of what kappa leaves open, None for a fixed operator.

        Parameters
        ----------
        mean : Tensor, shape (B, r)
            Of the input's coefficients given the observations.
        """
        if self.problem.intrinsic is None:
            return None
        slopes = torch.tensordot(mean, self.intrinsic_slopes.double(), dims=1)
        return covariance_root(self.intrinsic_covariance + slopes)

    def _posterior(self, observations: Observations, noise_std: float, single: bool) -> Posterior:
        law = self.input_law(observations, noise_std)
        mean = law.mean.float()
        directions, shrink = law.directions.float(), law.shrink.float()
        given = GaussianLaw(mean, directions, shrink)
        root = self._intrinsic_root(law.mean)

        def normals(size: int, width: int, generator: torch.Generator) -> Tensor:
            shape = (len(mean), size, width)
            return torch.randn(shape, generator=generator, device=generator.device).to(mean)

        def draw(size: int, generator: torch.Generator) -> Tensor:
            with torch.no_grad():
                a = given.coordinates(normals(size, mean.shape[-1], generator))
                c = self.branch(a).double()
                if root is None:
                    return c
                intrinsic = normals(size, c.shape[-1], generator).double()
                return c + intrinsic @ root.transpose(-1, -2)

        return LatentPosterior(self.problem.grid, self.basis, single, draw)
