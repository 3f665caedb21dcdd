"""Colours of all figures, and the words that captions call them by."""

from __future__ import annotations

# Okabe and Ito's palette: told apart by colour-blind readers and in grey print.
BLACK = "#000000"
AMBER = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
ORANGE = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#7F7F7F"
CYCLE: tuple[str, ...] = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, BLACK)

REFERENCE, PREDICTION, TRUTH = ORANGE, BLUE, BLACK
"""What these three are drawn in, in every figure that shows them."""

WORDS = {ORANGE: "orange", BLUE: "blue", BLACK: "black"}
"""How a reader would call a colour; a test compares the words with the hues."""
