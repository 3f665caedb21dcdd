"""Beyond the paper: inputs whose law is no Gaussian field, their problems, laws and scores."""
