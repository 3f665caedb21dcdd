"""What laws of the input share."""

import pytest
import torch

from uqsonet.gauss.gaussian import sensor_noise


def test_independent_errors_of_a_sensor_add_up():
    assert float(sensor_noise(0.3, 0.4)) == pytest.approx(0.5, rel=1e-12)
    assert float(sensor_noise(0.0)) == 0.0
    noise, norm = torch.tensor([[0.0, 0.3]]).double(), torch.tensor([[2.0, 0.5]]).double()
    # The mean of four points averages what the modes leave out of each of them.
    assert sensor_noise(noise, 0.8, 0.6, norm=norm)[0].tolist() == pytest.approx([2, 0.34**0.5])
