"""Everything on one page: see `uqsonet.report.sections.build_page`."""
