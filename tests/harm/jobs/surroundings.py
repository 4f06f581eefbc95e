"""What scripts do in addition to training: threads, children, signals, tracers, modes, own profilers."""

import hashlib
import os
import sys
import threading
from pathlib import Path

import torch
from styles import LOSSES, RANK, STEPS, batch, main, net, out, sgd, style, usual
from torch import nn


def _child(number, folder):
    torch.manual_seed(number)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(30):  # as many as would open windows
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    ours = sorted(k for k in os.environ if "RANKSCOPE" in k or "KINETO" in k)
    seen = [model.weight.sum().item(), ours, sorted(m for m in sys.modules if "rankscope" in m)]
    Path(folder, f"child_{number}").write_text(repr(seen))


@style
def spawn_alone():
    model = net()
    optimizer = sgd(model)
    for step in range(STEPS):
        usual(model, optimizer)
        if step == 9:
            torch.multiprocessing.spawn(_child, args=(sys.argv[2],), nprocs=2)
    out(model, [Path(sys.argv[2], f"child_{n}").read_text() for n in (0, 1)])


@style
def children_alone():
    import multiprocessing
    import subprocess

    model = net()
    optimizer = sgd(model)
    told = []
    names = "sorted(k for k in os.environ if 'RANKSC' in k or 'KINETO' in k or 'PYTHONP' in k)"
    show = f"import os, sys; print({names}, sys.path[1:])"
    for step in range(STEPS):
        usual(model, optimizer)
        if step in (2, 8, 20):
            told.append(
                subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=False).stdout
            )
            with multiprocessing.get_context("fork").Pool(2) as pool:
                told.append(pool.map(abs, [-1, 2]))
            pid = os.fork()
            if pid == 0:
                usual(model, optimizer)
                os._exit(7)
            told.append(os.waitpid(pid, 0)[1])
    out(model, told)


@style
def threads_alone():
    models = [net(seed=n) for n in range(3)]
    ends = []

    def train(model, data):
        optimizer = sgd(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = model(data[step]).square().mean()
            loss.backward()
            optimizer.step()
        ends.append(loss.item())

    data = torch.randn(3, STEPS, 4, 16)
    threads = [threading.Thread(target=train, args=(models[n], data[n])) for n in (1, 2)]
    for thread in threads:
        thread.start()
    optimizer = sgd(models[0])
    for step in range(STEPS):
        usual(models[0], optimizer, data[0][step])
    for thread in threads:
        thread.join()
    out(nn.ModuleList(models), sorted(ends))


@style
def faulthandler_alone():
    import faulthandler
    import signal

    model = net()
    optimizer = sgd(model)
    path = Path(sys.argv[2], f"faults_{RANK}")
    with path.open("w") as file:
        faulthandler.enable(file)
        faulthandler.register(signal.SIGUSR2, file, all_threads=False)
        faulthandler.dump_traceback_later(600, file=file)
        for step in range(STEPS):
            usual(model, optimizer)
            if step in (2, 8):
                os.kill(os.getpid(), signal.SIGUSR2)
        faulthandler.cancel_dump_traceback_later()
        on = faulthandler.is_enabled()
        faulthandler.disable()
    out(model, on, path.read_text().count("most recent call first"))


def _counting(seen):
    def count(frame, event, _argument):
        if frame.f_code.co_filename == __file__:
            seen[frame.f_code.co_name, event] = seen.get((frame.f_code.co_name, event), 0) + 1
        return count

    return count


@style
def settrace_alone():
    model = net()
    optimizer = sgd(model)
    seen = {}
    tracer = _counting(seen)
    sys.settrace(tracer)
    for _ in range(STEPS):
        usual(model, optimizer)
    kept = sys.gettrace() is tracer
    sys.settrace(None)
    out(model, kept, sorted(seen.items()))


@style
def setprofile_alone():
    model = net()
    optimizer = sgd(model)
    seen = {}
    profiler = _counting(seen)
    sys.setprofile(profiler)
    for _ in range(STEPS):
        usual(model, optimizer)
    kept = sys.getprofile() is profiler
    sys.setprofile(None)
    out(model, kept, sorted(seen.items()))


@style
def signals_alone():
    import signal

    model = net()
    optimizer = sgd(model)
    seen = []
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, lambda n, _frame: seen.append(n))
    for step in range(STEPS):
        usual(model, optimizer)
        if step in (1, 7, 12):
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), number)
    signal.raise_signal(signal.SIGALRM)
    out(model, seen, signal.set_wakeup_fd(-1))


@style
def asyncio_alone():
    import asyncio
    import signal

    model = net()
    optimizer = sgd(model)
    seen = []

    async def train():
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, seen.append, "usr1")
        for step in range(STEPS):
            usual(model, optimizer)
            if step in (1, 8):
                os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0)
        while len(seen) < 2:
            await asyncio.sleep(0)

    asyncio.run(train())
    out(model, seen)


@style
def modes_alone():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            called.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    seen, called = [], []
    model = net()
    optimizer = sgd(model)
    with Ops(), Functions():
        for _ in range(STEPS):
            usual(model, optimizer)
    out(model, hashlib.sha256(repr(seen).encode()).hexdigest(), len(seen), len(called), sorted(set(seen)))


@style
def strict_alone():
    import warnings

    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("error")
    model = net()
    optimizer = sgd(model)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(STEPS):
            usual(model, optimizer)
    out(
        model,
        [str(w.message) for w in warned],
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        len(warnings.filters),
    )


@style
def own_profiler_alone():
    model = net()
    optimizer = sgd(model)
    events = []

    def ready(profile):
        events.append(sorted((e.key, e.count) for e in profile.key_averages() if e.key.startswith(("aten::", "mine"))))

    plan = torch.profiler.schedule(wait=5, warmup=1, active=2, repeat=2)
    with torch.profiler.profile(schedule=plan, on_trace_ready=ready) as profile:
        for _ in range(STEPS):
            with torch.profiler.record_function("mine"):
                usual(model, optimizer)
            profile.step()
    out(model, events)


@style
def patched_alone():
    """Methods that we wrap, wrapped by the script as well and taken back in the middle."""
    model = net()
    optimizer = sgd(model)
    counted = {"step": 0, "backward": 0}
    step, backward = torch.optim.SGD.step, torch.autograd.backward

    def my_step(self, *words, **more):
        counted["step"] += 1
        return step(self, *words, **more)

    def my_backward(*words, **more):
        counted["backward"] += 1
        return backward(*words, **more)

    for number in range(STEPS):
        if number == 7:
            torch.optim.SGD.step, torch.autograd.backward = my_step, my_backward
        if number == 10:
            torch.optim.SGD.step, torch.autograd.backward = step, backward
        optimizer.zero_grad()
        loss = model(batch()).square().mean()
        torch.autograd.backward(loss)
        type(optimizer).step(optimizer)
        LOSSES.append(loss.item())
    out(model, counted)


if __name__ == "__main__":
    main()
