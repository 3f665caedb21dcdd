"""The study of the paper: its experiments, from configuration to tables, figures and page."""
