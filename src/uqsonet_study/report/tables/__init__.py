"""Tables of the paper: one model of a table, layouts that fill it, LaTeX and HTML made from it."""
