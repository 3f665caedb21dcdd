"""A trained model as users hold it, and its answers."""
