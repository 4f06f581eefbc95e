"""Why a job stands still, from what its ranks answer: who does not make which call, and what it does instead."""
