"""Networks and learned operator models: one file a method."""
