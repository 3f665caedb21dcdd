"""The posterior of a Darcy case by the prior and the real solver: tempered samples, then chains.

A learned operator only proposes. Populations of samples of the latent field are brought from the
prior to what the operator says of the readings (`uqsonet.operator.particles.Following`), weighted
by the real solver, and moved: a proposal is the end of some moves that leave the operator's
posterior as it is, and is accepted by the ratio of the real weight to the operator's (surrogate
transitions: Liu, Monte Carlo Strategies in Scientific Computing, 2001, section 9.4.3). The second
population is an independent reference of the same size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.posteriorbench.metrics import mixing, moment_errors, moments
from benchmarks.posteriorbench.problems import (
    CUT,
    NEAREST_NOISE,
    POINTS,
    SIGMA,
    Case,
    Darcy,
    likelihood,
    log_weight,
    synthesis,
)
from uqsonet.emulator.emulator import Emulator
from uqsonet.laws.truncated import resampled
from uqsonet.operator.particles import ISLANDS, Following, tempered

MODES = 64  # cosines of the latent field along each axis; the others have 1.3e-4 of its variance
SIZE = 384  # samples of a population

LAST_DISTANCE = 2.0  # how far samples move after the last rise
ROUNDS, KEPT, INNER = 5, 3, 6
"""Rounds of solves, last ones that are kept, and moves by the operator between them."""

CHECKED = 64  # samples that tell the operator's error
WIDER = 1.1
"""Misfit at which the operator's weight ends, relative to the real one: it must cover that."""


class DarcyPosterior:
    """The posterior of one case.

    Parameters
    ----------
    model : Emulator
        What proposes; it has learned from pairs.
    """

    def __init__(self, case: Case, model: Emulator, generator: torch.Generator) -> None:
        self._case, self._generator = case, generator
        self._inputs, self._outputs = model.inputs[0], model.outputs[0]
        self._operator: Any = model.operator
        bases = self._operator.bases
        self._mean = bases.output_mean[case.sensors]
        self._rows = bases.output_modes[case.sensors].double() * bases.output_scale.double()
        self._std, self._weight = Darcy().std[:MODES, :MODES], likelihood(SIGMA, WIDER * CUT)

    def media(self, z: Tensor) -> Tensor:
        """Return media (n, 128, 128), float32, of standard normals (n, k)."""
        return Darcy.medium(synthesis((self._std * z.view(-1, MODES, MODES)).float()))

    def _read(self, media: Tensor) -> Tensor:
        """Return what the operator says that sensors read, (n, m)."""
        a = self._operator.bases.coefficients_of(self._inputs.encode(media.flatten(1)))
        return self._outputs.decode(self._mean + self._operator.branch(a).double() @ self._rows.T)

    @torch.no_grad()
    def operator_error(self, media: Tensor) -> float:
        """Return the mean absolute error of the operator at the sensors."""
        u = Darcy().solve(media).flatten(1)[:, self._case.sensors]
        return float((self._read(media) - u).abs().mean())

    def _weigh(self, z: Tensor, _: torch.Generator) -> tuple[Tensor, Tensor]:
        read = self._read(self.media(z))
        gaussian = -((read - self._case.readings) / NEAREST_NOISE).square().sum(1) / 2
        real = self._weight(read, self._case.readings)
        return z[:, :1].float(), torch.stack([gaussian, real - gaussian], 1)

    def _solved(self, z: Tensor) -> Tensor:
        """Return the logarithms (n,) of the real weight."""
        u = Darcy().solve(self.media(z)).flatten(1)[:, self._case.sensors]
        return log_weight(u.double() - self._case.readings)

    @torch.no_grad()
    def population(self) -> tuple[Tensor, float]:
        """Return samples (KEPT, SIZE, k) and the share of proposals that were accepted."""
        generator, source = self._generator, Following(self._weigh, MODES**2)
        source.last = LAST_DISTANCE
        now, step = tempered(source, SIZE, generator)
        ratio = self._solved(now.z) - now.weight.sum(1)
        if not bool(ratio.view(ISLANDS, -1).isfinite().any(1).all()):
            raise RuntimeError(f"case {self._case.number}: an island has no sample within the cut")
        index = resampled(ratio.view(ISLANDS, -1), generator)
        index = (index + torch.arange(0, SIZE, SIZE // ISLANDS)[:, None]).flatten()
        now, ratio = now.pick(index), ratio[index]
        kept, accepted, powers = [], [], torch.ones(2, dtype=torch.float64)
        for _ in range(ROUNDS):
            other = now
            for _ in range(INNER):
                proposed, odds = source.proposal(other, powers, step, generator)
                other = other.where(self._taken(odds), proposed)
            found = self._solved(other.z) - other.weight.sum(1)
            taken = self._taken(found - ratio)
            now, ratio = now.where(taken, other), torch.where(taken, found, ratio)
            kept.append(now.z)
            accepted.append(float(taken.double().mean()))
        return torch.stack(kept[-KEPT:]), sum(accepted) / ROUNDS

    def _taken(self, odds: Tensor) -> Tensor:
        draw = torch.rand(len(odds), generator=self._generator, dtype=torch.float64)
        return draw.log() < odds


def reference(
    case: Case, model: Emulator, generator: torch.Generator
) -> tuple[tuple[Tensor, Tensor], list[Tensor], dict[str, float]]:
    """Return moments (n, n), media of two independent populations, and how well they agree.

    R-hat and effective size are those of the islands as chains: medians over the 35 lowest cosines.
    """
    posterior = DarcyPosterior(case, model, generator)
    media, low, shares = [], [], []
    for _ in range(2):
        z, share = posterior.population()
        media.append(torch.cat([posterior.media(part) for part in z]))
        lowest = z.view(KEPT, SIZE, MODES, MODES)[..., :6, :6].flatten(2)[..., 1:]
        low.append(lowest.view(KEPT, ISLANDS, -1, 35).transpose(1, 2).flatten(0, 1))
        shares.append(share)
    rhat, effective = mixing(torch.cat(low, 1))
    halves = [moments(one.flatten(1).double()) for one in media]
    apart = moment_errors(*halves[0], *halves[1])
    mean, std = moments(torch.cat(media).flatten(1).double())
    notes = {"effective": effective, "rhat": rhat, "accepted": sum(shares) / 2}
    notes["operator_error"] = posterior.operator_error(media[0][:CHECKED])
    notes |= {"halves_mean": apart[0], "halves_std": apart[1]}
    return (mean.view(POINTS, -1), std.view(POINTS, -1)), media, notes
