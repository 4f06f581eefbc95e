"""Sections of the page, one module each, in the table of ``report.sections.table``."""
