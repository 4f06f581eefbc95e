"""What on this node would keep a job from being recorded well, with the remedy: ``rankscope doctor``."""
