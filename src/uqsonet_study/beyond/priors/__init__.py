"""Laws of an input that are no Gaussian field, each with its exact posterior given sensors."""
