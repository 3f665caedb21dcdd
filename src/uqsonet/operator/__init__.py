"""The Karhunen-Loeve operator, its joint law, its residual and its file."""
