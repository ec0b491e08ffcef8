"""vLLM's core among the processes that another has started."""

import psutil


def core_of(pid):
    """Return the child of a process that is vLLM's core.

    It gives itself a name, but not always: setproctitle cannot where the first variable of the environment was set
    again. So the core is the child that is not multiprocessing's tracker.
    """
    children = psutil.Process(pid).children()
    [core] = [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]
    return core
