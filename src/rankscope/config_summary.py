"""Describe in sentences what a run with a configuration will do. Standard library only."""

from __future__ import annotations

from rankscope.config import BudgetConfig, ToolConfig

__all__ = ["plan_in_words"]


def plan_in_words(config: ToolConfig) -> list[str]:
    """Describe what a run with this configuration will do, one sentence per line."""
    windows, every = config.schedule.windows(), config.schedule.every
    if every:
        windows = windows[:1]
    shown = ", ".join(f"{a} to {b}" if a != b else f"{a}" for a, b in windows[:3])
    more = f" and {len(windows) - 3} windows more" if len(windows) > 3 else ""
    single = windows[0][0] == windows[0][1] and len(windows) == 1
    extras = [
        words
        for wanted, words in (
            (config.capture.record_shapes or config.capture.with_flops, "input shapes"),
            (config.capture.with_stack, "Python stacks (slow)"),
            (config.capture.profile_memory, "memory"),
            (config.capture.with_flops, "FLOPs"),
            (config.capture.with_modules, "modules"),
        )
        if wanted
    ]
    activities = config.capture.activities
    devices = "CPU and the device in use" if "auto" in activities else ", ".join(a.upper() for a in activities)
    source = config.steps.source
    then = f", then {config.schedule.active} steps every {every:,} steps to the end of the job" if every else ""
    return [
        f"{'step' if single else 'steps'} {shown}{more} of every rank will be recorded{then} (the first step is 0)",
        f"the job needs {windows[-1][1] + 1} steps for that; a shorter one leaves a partial trace, marked so",
        f"recorded: {devices}" + (f", with {', '.join(extras)}" if extras else ", nothing that costs extra"),
        "steps are counted by " + ("the best signal seen, the optimizer as a rule" if source == "auto" else source),
        *_beyond_the_plan(config.budget, every=bool(every)),
        f"the run is kept in {config.run.dir or 'rankscope_runs/run_NNNN, the next free number'}",
        "the report is written when the job has ended"
        if config.analysis.enabled
        else "no report is written at the end; `rankscope analyze RUN` writes it",
    ]


def _beyond_the_plan(budget: BudgetConfig, *, every: bool) -> list[str]:
    """Describe what is recorded in addition to the planned windows, and its limits; empty if nothing is."""
    slow = f"after a step {budget.slow_step:g} times as slow as usual" if budget.slow_step else ""
    wanted = " and ".join(filter(None, ("every so many steps" if every else "", slow)))
    if not wanted:
        return []
    limits = f"{budget.windows} windows, {budget.megabytes:g} MB and {budget.step_pct:g} % of the steps"
    first = "; the first window always comes" if every and budget.windows else ""
    return [f"what is recorded {wanted} stays within {limits}{first}"]
