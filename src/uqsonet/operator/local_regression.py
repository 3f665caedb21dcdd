"""Regression on the training pairs that are nearest to what the sensors read.

A Gaussian process on all pairs takes time with the cube of their number, and has one length for all
readings. Here each set of sensors has its own process, on the `ANSWERING_PAIRS` pairs whose
readings are nearest to its own in standard deviations: many pairs cost little, and a function that
is curved everywhere is close to smooth nearby (Gramacy and Apley, J. Comput. Graph. Stat. 24,
2015). Kernel and ridge are those of `KernelRegression`, in units of the neighbourhood; for a layout
of sensors they have the least leave-one-out error around some of the pairs. Errors of the near
pairs, left out, make the band.
"""

from __future__ import annotations

import hashlib
from functools import partial

import torch
from torch import Tensor

from uqsonet.gauss.gaussian import sensor_noise
from uqsonet.gauss.given import Given, Separate
from uqsonet.gauss.posterior import Joint, Posterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.base import SAMPLES, Conditioned
from uqsonet.operator.regression import (
    COMPARED,
    KEPT_LAYOUTS,
    KernelChoice,
    Pairs,
    Prediction,
    Process,
    Targets,
    leave_one_out,
    standardised,
)
from uqsonet.sensors.sensors import Sensors

ANSWERING_PAIRS = 300
"""Number of pairs that answer one set of sensors."""

CENTRES = 2
"""Number of pairs around which kernels are compared."""

MIN_LOCAL_PAIRS, MAX_LOCAL_PAIRS = 2 * ANSWERING_PAIRS, 20_000
"""Number of pairs from which on it is tried, and maximum number of pairs that are kept."""


class LocalRegression(Conditioned):
    """A Gaussian process on the pairs that are nearest to what is read.

    Parameters
    ----------
    bases : KarhunenLoeveBases
        In which fields are read and answered.
    a, c : Tensor, shapes (N, r) and (N, p)
        Coefficients of the training pairs (`uqsonet.operator.closed_form.targets`).
    """

    method = "local_regression"
    reads_functionals = True

    def __init__(self, bases: KarhunenLoeveBases, a: Tensor, c: Tensor) -> None:
        self.fields, self.bases, self.pairs = bases.fields, bases, {"a": a, "c": c}
        sizes = bases.input_factor.norm(dim=0).float(), torch.ones(c.shape[1])
        self._targets = {
            side: Targets.of(one, size)
            for side, one, size in zip(("input", "output"), (a, c), sizes, strict=True)
        }
        self._layout: tuple[bytes, Tensor] | None = None
        self._choices: dict[tuple[str, bytes], KernelChoice] = {}

    def condition_on(
        self, seen: Sensors, read: Sensors | None = None, noise: object = None, size: int = SAMPLES
    ) -> Joint:
        """Return the law of both sides given checked sensors of both."""
        sides: dict[str, list[Given]] = {"output": [], "input": []}
        for b in range(len(seen)):
            pairs, values = self._readings(seen.alone(b), None if read is None else read.alone(b))
            for side, laws in sides.items():
                laws.append(Pairs(partial(self._predicted, side, pairs, values)))
        found = [
            Posterior(
                getattr(self.fields, side).grid,
                getattr(self.bases, f"{side}_basis"),
                seen.single,
                Separate(laws),
            )
            for side, laws in sides.items()
        ]
        return Joint.exact(found[0], found[1], len(seen))

    def _readings(self, seen: Sensors, read: Sensors | None) -> tuple[Tensor, Tensor]:
        """Return standardised readings of one set: of all pairs (N, m), with noise, and its own."""
        bases, a, c = self.bases, self.pairs["a"], self.pairs["c"]
        rows, values = bases.at_sensors(seen)
        noise = sensor_noise(seen.noise(0.0), bases.input_remainder, norm=seen.norm(2))
        parts = [(rows[0], values[0], noise[0], a)]
        if read is not None:
            offset, rows = bases.output_at(read)
            parts.append((rows[0], (read.values - offset)[0], read.noise()[0], c))
        values, noise = (torch.cat([part[k] for part in parts]) for k in (1, 2))
        seen_by = torch.cat([torch.cat([part[0].flatten(), part[2]]) for part in parts])
        key = hashlib.sha256(seen_by.numpy().tobytes()).digest()
        if self._layout is None or self._layout[0] != key:
            pairs = torch.cat([one.double() @ rows.T for rows, _, _, one in parts], 1)
            self._layout = key, pairs
        return standardised(self._layout[1], values, noise)

    def _predicted(self, side: str, pairs: Tensor, values: Tensor) -> Prediction:
        """Return what the pairs near one set's readings predict."""
        targets = self._targets[side]
        near = _nearest(pairs, values, ANSWERING_PAIRS)
        rows, values = _scaled(pairs[near], values)
        left = targets.left[near].double()
        mean = left.mean(0)
        choice = self._choice(side, pairs)
        ridge = choice.variance(rows)
        process = Process.of(rows, left - mean, targets.mean + mean, choice.kernel, ridge)
        return process.prediction(values)

    def _choice(self, side: str, pairs: Tensor) -> KernelChoice:
        """Return the kernel of a layout: the best around the first pairs, left out one by one."""
        key = side, hashlib.sha256(pairs[:CENTRES].numpy().tobytes()).digest()
        if key not in self._choices:
            combined, errors = self._targets[side].combined, []
            for centre in pairs[:CENTRES]:
                near = _nearest(pairs, centre, min(ANSWERING_PAIRS, COMPARED))
                some = combined[near] - combined[near].mean(0)
                errors.append(leave_one_out(_scaled(pairs[near], centre)[0], some))
                errors[-1] /= some.square().mean()
            if len(self._choices) >= KEPT_LAYOUTS:
                self._choices.pop(next(iter(self._choices)))
            self._choices[key] = KernelChoice.of(torch.stack(errors).sum(0))
        return self._choices[key]


def _nearest(pairs: Tensor, values: Tensor, number: int) -> Tensor:
    """Return the numbers of the pairs (N, m) nearest to readings (m,)."""
    return (pairs - values).square().sum(1).topk(number, largest=False).indices


def _scaled(near: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return near pairs (K, m) and readings (m,) less the pairs' mean, over their deviation."""
    centre = near.mean(0)
    deviation = (near - centre).square().mean().sqrt().clamp_min(1e-300)
    return (near - centre) / deviation, (values - centre) / deviation
