"""From runs to a model: candidates, validation, baselines, the card."""
