"""The closed-form Karhunen-Loeve model: UQ-SONet of recipe `tuned` (architecture `karhunen_loeve`).

What sensors leave unknown is the rest of the input function, so the latent variable z carries
exactly that. With the empirical mean and modes of the (transformed) training inputs, the input is
``mean + modes a`` with ``a ~ N(0, I)``:

- set embedding h(O): mean and root of the law of a given O, by Gaussian conditioning (kriging) in
  closed form; invariant under permutation, for any number, place and noise level of the sensors;
- latent z ~ N(0, I), a = mean + root z;
- branch b(a): a linear map, started at the least-squares one (that is cokriging), plus a perceptron
  for what linear theory cannot explain;
- trunk t: empirical modes of the training outputs, interpolated to any query;
- where the operator itself is random (sections 4.3, 4.4), a second latent variable carries what
  the input leaves open: residuals of training pairs (`uqsonet.operator.closed_form`).

It is the stochastic operator model (eq:stochastic-operator) with b depending on (h, z) through a.
In the ELBO the encoder may see the whole input of a training pair, which fixes z. The KL term then
no longer depends on the branch, and the reconstruction term is the regression trained here. The
transformed input is assumed to be Gaussian: docs/laws.md says where that matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.gauss.given import (
    MOMENT_SAMPLES,
    MOMENT_SEED,
    Given,
    Moments,
    Narrowing,
    Whole,
    fixed,
    moments_of,
)
from uqsonet.gauss.posterior import Joint, Posterior
from uqsonet.laws.base import InputLaw, NormalLaw
from uqsonet.laws.bases import PASS_ROWS, SINGLE_PRECISION, KarhunenLoeveBases
from uqsonet.operator.base import SAMPLES, Batch, OperatorModel, register
from uqsonet.operator.config import KEPT, LOCAL, KarhunenLoeveNetwork
from uqsonet.operator.perceptrons import MLP
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.operator.joint import OutputReadings, ReadingNoise
    from uqsonet.runs.functions import Functions

PRIOR_SAMPLES = 16_384  # inputs that show how much of the randomness training has explained


UNKNOWN_ERROR = 0.005
"""Assumed error of an operator that states none, as a fraction of the output's standard deviation;
readings of the output count with at least this noise."""


def correction(inputs: int, config: KarhunenLoeveNetwork) -> MLP:
    """Return the branch's perceptron, zero at first: training starts at the linear operator."""
    network = MLP(inputs, config.branch, config.output_modes, config.activation)
    with torch.no_grad():
        for last in list(network.parameters())[-2:]:
            last.zero_()
    return network


@register("karhunen_loeve")
class KarhunenLoeveModel(OperatorModel):
    """Conditional sampling of the input's coefficients, then a learned operator on them."""

    method = "uqsonet"
    config_type = KarhunenLoeveNetwork
    reads_sensors = False
    reads_functionals = True

    residual_covariance: Tensor
    residual_slopes: Tensor
    residuals: Tensor
    output_remainder: Tensor
    local_answers: Tensor
    local_outputs: Tensor

    def __init__(
        self, fields: OperatorFields, config: KarhunenLoeveNetwork, noise_std: float
    ) -> None:
        super().__init__(fields, config, noise_std)
        self.config: KarhunenLoeveNetwork = config
        r, p = config.input_modes, config.output_modes
        self.bases = KarhunenLoeveBases(fields, r, p)
        if fields.random_operator or config.held_out_residuals:
            self.register_buffer("residual_covariance", torch.zeros(p, p, dtype=torch.float64))
            self.register_buffer("residuals", torch.zeros(KEPT, p))
        if config.held_out_residuals:
            self.register_buffer("output_remainder", torch.zeros((), dtype=torch.float64))
        if config.nearest:
            points = len(self.bases.output_mean)
            self.use_nearest(torch.zeros(1, p), torch.zeros(1, points), config.nearest)
        if fields.random_operator:
            self.register_buffer("residual_slopes", torch.zeros(r, p, p))
        self.law: InputLaw = NormalLaw()
        self._kept_law: tuple[object, Tensor, Tensor] | None = None
        self.linear = nn.Linear(r, p) if config.linear_skip else None
        if self.linear is not None:
            nn.init.zeros_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
        self.network = self._learned_part()

    def _learned_part(self) -> nn.Module | None:
        """Return what the branch adds to its linear part."""
        if self.config.kernel:
            from uqsonet.operator.kernel_branch import KernelBranch

            sizes = self.config.input_modes, self.config.output_modes, self.config.kernel
            return KernelBranch(*sizes)
        return correction(self.config.input_modes, self.config) if self.config.branch else None

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load weights; files of version 0.2 and before do not say what output modes leave out."""
        kept = dict(self.named_buffers())
        if "output_remainder" in kept and "output_remainder" not in state_dict:
            nothing = torch.zeros_like(kept["output_remainder"])
            state_dict = {**state_dict, "output_remainder": nothing}
        return super().load_state_dict(state_dict, *args, **kwargs)

    @torch.no_grad()
    def condition_on(
        self, seen: Sensors, read: Sensors | None = None,
        noise: Sequence[ReadingNoise] | None = None, size: int = SAMPLES,
    ) -> Joint:  # fmt: skip
        """Return the law of input and output given checked sensors (`uqsonet.operator.joint`).

        A set without sensors is answered by the law before any measurement. Noise may be of any
        level, and differ from sensor to sensor.
        """
        if noise is None and (read is None or not read.values.shape[1]):
            law = self.input_law_given(seen)
            output = law.each(lambda one: self.output_given(one, self.residual_root(one)))
            sides = (
                self.output_posterior(output, seen.single),
                self.input_posterior(law, seen.single),
            )
            return Joint.exact(*sides, len(seen))
        from uqsonet.operator.joint import condition

        return condition(self, seen, read, noise, size)

    def input_law_given(self, sensors: Sensors) -> Given:
        """Return the law of the input's coefficients given checked sensors."""
        known = self.law.condition(
            self.bases, replace(sensors, noise_std=sensors.noise(self.noise_std))
        )
        assert known is not None
        return known

    def input_posterior(self, law: Given, single: bool) -> Posterior:
        """Return the law of the transformed input's coefficients as one of functions."""
        return Posterior(self.fields.input.grid, self.bases.input_basis, single, law)

    def output_given(
        self, law: Given, root: Tensor | None, readings: OutputReadings | None = None
    ) -> Given:
        """Return the law of the output's coefficients for one of the input's, given all sensors.

        The root (B or 1, p, p) is of the covariance of what the operator leaves over, None where
        that is nothing; `readings` are sensors of the output, on which it is conditioned, too.
        """
        return OutputGiven(self, law, root, readings)

    def output_posterior(self, law: Given, single: bool) -> Posterior:
        """Return the law of the output's coefficients as one of functions."""
        return Posterior(self.fields.output.grid, self.bases.output_basis, single, law)

    def use_law(self, law: InputLaw | None) -> None:
        """Answer with another law of the input; None is the Gaussian one."""
        self.law = law or NormalLaw()
        self.config = self.config.model_copy(update={"law": self.law.name})

    def use_nearest(self, answers: Tensor, outputs: Tensor, nearest: int) -> None:
        """Answer with outputs (V, M), on the training grid, of pairs with the nearest answers.

        Pairs are held out, and answers (V, p) to them the branch's, scaled. So many are near; 0
        keeps the answer itself.
        """
        rows = torch.arange(LOCAL) % len(answers)
        self.register_buffer("local_answers", answers[rows].float())
        self.register_buffer("local_outputs", outputs[rows].float())
        self.config = self.config.model_copy(update={"nearest": nearest})

    def law_tensors(self) -> dict[str, Tensor]:
        """Return what the law of the input is made of, as it is stored (``law/...``)."""
        return {f"law/{name}": tensor for name, tensor in self.law.tensors().items()}

    def branch(self, a: Tensor) -> Tensor:
        """Map coefficients of the input (..., r) to scaled coefficients of the output (..., p)."""
        straight = self.straight_answers(a)
        return straight if self.network is None else straight + self.network(a)

    def drawn(
        self, given: Given, size: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor | float]:
        """Return samples (B, size, p) of b(a): its linear part, and what the network adds."""
        a = given.even(size) if generator is None else given.sample(size, generator)
        a = a.to(self.bases.linear_weight)
        if self.network is None:
            return self.straight_answers(a), 0.0
        added = torch.cat([self.network(rows) for rows in a.flatten(0, -2).split(PASS_ROWS)])
        return self.straight_answers(a), added.unflatten(0, a.shape[:-1])

    def answers_to(self, functions: Functions, a: Tensor) -> Tensor:
        """Return the branch's answer (N, p) to functions with coefficients a (N, r)."""
        return self.branch(a.float())

    def straight_answers(self, a: Tensor) -> Tensor:
        """Return the linear part (..., p) of b(a)."""
        start = nn.functional.linear(a, self.bases.linear_weight)
        return start if self.linear is None else start + self.linear(a)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Whether the branch is linear and the law Gaussian."""
        return self.network is None and self.law.name == NormalLaw.name

    def straight(self) -> tuple[Tensor, Tensor]:
        """Return weight (p, r) and offset (p,) of the linear part of b(a), float64."""
        weight = self.bases.linear_weight
        offset = weight.new_zeros(self.config.output_modes)
        if self.linear is not None:
            weight, offset = weight + self.linear.weight, self.linear.bias
        return weight.detach().double(), offset.detach().double()

    def output_error(self) -> float:
        """Return the least noise that readings of the output count with."""
        size = float(self.bases.output_scale) / len(self.bases.output_mean) ** 0.5
        if self.config.held_out_residuals:
            return max(float(self.output_remainder), SINGLE_PRECISION * size)
        return size * (SINGLE_PRECISION if self.fields.random_operator else UNKNOWN_ERROR)

    def residual_root(self, given: Given) -> Tensor | None:
        """Return a root (B or 1, p, p) of what the input leaves open, None where it is nothing."""
        if self.config.held_out_residuals:
            return covariance_root(self.residual_covariance)[None]
        if not self.fields.random_operator:
            return None
        covariance, slopes = self._residual_law()
        return covariance_root(
            covariance + torch.tensordot(given.mean.to(slopes.device), slopes, dims=1)
        )

    def _residual_law(self) -> tuple[Tensor, Tensor]:
        """Return C_0 (p, p) and slopes (r, p, p) without what the trained branch explains.

        Both were fitted to residuals of the linear start, in which the correction g(a) that
        training has added since counts as random: ``E[g g^T]`` and ``E[a_j g g^T]`` of it are
        subtracted. Kept until weights change.
        """
        fitted = *self.parameters(), self.residual_covariance, self.residual_slopes
        weights = tuple((id(tensor), tensor._version) for tensor in fitted)
        if self._kept_law is None or self._kept_law[0] != weights:
            from uqsonet.operator.closed_form import residual_covariance, residual_slopes

            start = self.bases.linear_weight
            generator = torch.Generator().manual_seed(MOMENT_SEED)
            shape = PRIOR_SAMPLES, self.config.input_modes
            a = torch.randn(shape, generator=generator, dtype=torch.float32).to(start)
            with torch.no_grad():
                added = self.branch(a) - nn.functional.linear(a, start)
            explained, along = residual_covariance(added), residual_slopes(a, added)
            left = self.residual_covariance - explained.to(self.residual_covariance)
            self._kept_law = weights, left, self.residual_slopes.double() - along.to(left)
        return self._kept_law[1:]

    def fit_constants(self, functions: Functions) -> None:
        """Set both bases, and the linear branch by least squares (training data only)."""
        from uqsonet.operator.closed_form import fit_constants

        fit_constants(self, functions)

    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return standardised coefficients of inputs (N, r) and outputs (N, p)."""
        from uqsonet.operator.closed_form import targets

        return targets(self.bases, functions)

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared error as a fraction of the output's variance."""
        error = ((self.branch(batch["a"]) - batch["c"]) ** 2).sum(-1).mean()
        return error, {"reconstruction": error}


def _changes_of_moments(straight: Tensor, added: Tensor) -> Moments:
    """Return how the moments of samples (B, n, p) change when `added` (B, n, p) joins them."""
    mean = added.mean(1)
    # (s + d)'(s + d) - s's = h'd + d'h with h = s + d / 2; one centred factor is enough.
    half = torch.add(straight, added, alpha=0.5)
    product = half.transpose(1, 2) @ (added - mean[:, None, :]) / (half.shape[1] - 1)
    return mean, product + product.transpose(1, 2)


class OutputGiven(Given):
    """The law of the output's coefficients, by samples and by moments (`output_given`)."""

    def __init__(
        self, model: KarhunenLoeveModel, given: Given, root: Tensor | None,
        readings: OutputReadings | None,
    ) -> None:  # fmt: skip
        self.model, self.given, self.root, self.readings = model, given, root, readings
        # Outputs are those of held-out pairs nearby; sensors of outputs ask all pairs.
        self.local = model.config.nearest > 0 and readings is None

    @property
    def functions(self) -> Whole | None:
        """Outputs of held-out pairs nearby, where these are the answer."""
        return self._outputs if self.local else None

    @torch.no_grad()
    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw coefficients (B, size, p)."""
        if self.local:
            pairs = self._pairs(size, generator)
            return self.model.bases.output_coefficients(self.model.local_outputs)[pairs]
        c = self._without_residuals(size, generator)
        if self.root is None:
            return c
        shape = 1, size  # sets share random numbers
        picked = torch.randint(KEPT, shape, generator=generator, device=generator.device)
        c = c + self.model.residuals[picked.to(c.device)].double() @ self.root
        return c if self.readings is None else self.readings.corrected(c, generator)

    @torch.no_grad()
    def even(self, size: int) -> Tensor:
        """Return coefficients (B, size, p) of even inputs, each residual as often as another."""
        if self.local or self.readings is not None:
            return super().even(size)
        c = self._without_residuals(size, None)
        if self.root is None:
            return c
        size = c.shape[1]  # there may be more than were asked for
        picked = torch.randperm(max(size, KEPT), generator=fixed())[:size] % KEPT
        return c + self.model.residuals[picked.to(c.device)].double() @ self.root

    def _without_residuals(self, size: int, generator: torch.Generator | None) -> Tensor:
        """Return the operator's answers (B, size, p) to inputs, even ones without a generator."""
        straight, added = self.model.drawn(self.given, size, generator)
        return (straight + added).double()

    @torch.no_grad()
    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return mean (B, p) and covariance (B, p, p).

        Where the linear part has exact moments, it is the control variate of the sampled ones, so
        that only the perceptron's part keeps the error of sampling.
        """
        if self.local:
            return super().estimate(size, generator)
        weight, offset = self.model.straight()
        moments = self.given.linear_moments(weight)
        if moments is not None:
            moments = moments[0] + offset.to(moments[0].device), moments[1]
        if self.model.network is not None or moments is None:
            straight, added = self.model.drawn(self.given, size, generator)
            if moments is None:
                moments = moments_of(straight + added)
            else:
                assert isinstance(added, Tensor)  # of a network
                changes = _changes_of_moments(straight.double(), added.double())
                moments = moments[0] + changes[0], moments[1] + changes[1]
        if self.root is None:
            return moments
        if self.readings is not None:
            return self.readings.moments(*moments)
        return moments[0], moments[1] + self.root @ self.root.transpose(-1, -2)

    @torch.no_grad()
    def cross(self, other: Given) -> Tensor:
        """Return the covariance (r, p) of the input's coefficients with these, of the only set.

        What the operator leaves over is independent of the input, but for what readings of the
        output say of both. The linear part is known; that of the network is sampled.
        """
        weight, _ = self.model.straight()
        found = self.given.moments()[1][0] @ weight.T
        if self.model.network is not None:
            a = self.given.sample(MOMENT_SAMPLES, fixed())[0].to(self.model.bases.linear_weight)
            added = (self.model.branch(a) - self.model.straight_answers(a)).cpu().double()
            both = moments_of(torch.cat([a.cpu().double(), added], 1)[None])[1][0]
            found = found + both[: a.shape[1], a.shape[1] :]
        if self.readings is None:
            return found
        return found - found @ self.readings.rows.T @ self.readings.gain.T

    @torch.no_grad()
    def narrowing(self) -> Narrowing | None:
        """Return the covariances as the prior's less what sensors of the input see of it.

        They are that for a linear operator with a Gaussian law, and one law of residuals.
        """
        model, given = self.model, self.given
        if model.network is not None or model.fields.random_operator or self.readings is not None:
            return None
        inputs = given.narrowing()
        if self.local or inputs is None:
            return None
        weight, offset = (one.to(given.mean) for one in model.straight())
        prior = weight @ weight.T
        if self.root is not None:
            prior = prior + self.root[0] @ self.root[0].T
        return Narrowing(inputs.mean @ weight.T + offset, prior, inputs.directions @ weight.T)

    @cached_property
    def mean(self) -> Tensor:
        """Mean (B, p) of the coefficients, float64."""
        known = self.narrowing()
        return self.moments()[0] if known is None else known.mean

    def _outputs(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield outputs (size, M) on the training grid for each set, of held-out pairs nearby."""
        yield from self.model.local_outputs[self._pairs(size, generator)]

    @torch.no_grad()
    def _pairs(self, size: int, generator: torch.Generator) -> Tensor:
        """Return a pair (B, size) for each answer: one of those whose answers are nearest."""
        straight, added = self.model.drawn(self.given, size, generator)
        away = torch.cdist((straight + added).double(), self.model.local_answers.double())
        nearest = away.topk(self.model.config.nearest, largest=False).indices
        shape = 1, size, 1  # sets share random numbers
        picked = torch.randint(nearest.shape[2], shape, generator=generator)
        return nearest.gather(2, picked.expand(len(nearest), -1, -1).to(away.device))[..., 0]
