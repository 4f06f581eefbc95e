"""Settings in, several runs of each, a table of what each gains out (``records/sweep.py``)."""
