"""From scores to what a reader sees: averages, tables, the scorecard, figures."""
