"""A fitted model's answer with the weight of PosteriorBench in place of Gaussian noise."""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet import Emulator
from uqsonet.gauss.posterior import MOMENT_SEED
from uqsonet.operator.joint import Sampled, input_posterior
from uqsonet_study.posterior.problems import log_weight

DRAWS = 4096
"""Number of samples of the Gaussian answer that are weighted."""


@torch.no_grad()
def reweighted(
    model: Emulator, read: str, sensors: tuple[object, object, float], size: int
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return mean and std (M,), samples (size, M) of the only input, and the effective size.

    Parameters
    ----------
    model : Emulator
        Its answer to Gaussian noise is weighted by the real weight over the Gaussian likelihood.
    read : str
        The output that sensors read.
    sensors : tuple
        Places (m, 2), readings (m,) and the standard deviation of the nearest Gaussian noise.
    size : int
    """
    places, values, noise = sensors
    answer = model.condition(**{read: (places, values, noise)})
    joint = answer._conditioned.joint_law(slice(0, 1))
    generator = torch.Generator()
    a = joint.input.coefficient_samples(DRAWS, generator.manual_seed(MOMENT_SEED))[0]
    c = joint.output.coefficient_samples(DRAWS, generator.manual_seed(MOMENT_SEED))[0].double()
    field, points = model.outputs[0], torch.as_tensor(places)
    offset, basis = joint.output.basis(points)
    predicted = (offset + c @ basis.T) * field.scale
    if (left := model.remainder_at(len(model.inputs), points)) is not None:
        predicted += torch.randn(predicted.shape, generator=generator, dtype=torch.float64) * left
    misfit = predicted - torch.as_tensor(values)
    logs = log_weight(misfit) + misfit.square().sum(1) / (2 * noise**2)
    weights = logs.softmax(0)
    effective = 1 / float(weights.square().sum())
    picked = torch.multinomial(weights, DRAWS, True, generator=generator)
    law = input_posterior(model.operator, True, Sampled(a[picked][None].float()))
    offset, basis = law.basis(model.inputs[0].domain.points())
    mean, covariance = law.coefficient_moments()
    variance = ((basis @ covariance[0]) * basis).sum(1)
    if law.left_out is not None:
        variance = variance + law.left_out()[0].square()
    scale = model.inputs[0].scale
    draws = law.whole(size, generator) if law.whole is not None else None
    samples = next(draws) if draws is not None else law.sample(size)
    return (offset + basis @ mean[0]) * scale, variance.sqrt() * scale, samples * scale, effective
