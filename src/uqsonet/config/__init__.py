"""Networks and trainings as a configuration states them."""
