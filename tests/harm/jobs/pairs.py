"""Small jobs that differ in kind: ``pairs.py STYLE FOLDER``. Each rank leaves what came out in ``FOLDER/RANK``.

Each ends with :func:`out`: parameters, losses and random states, to the last bit, and whatever else the style may tell.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import random
import sys
import threading
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, STEPS = int(os.environ["RANK"]), 26
LOSSES: list[float] = []
STYLES = {}


def style(function):
    STYLES[function.__name__] = function
    return function


def net(width=16, *more, seed=1):
    torch.manual_seed(seed)
    layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh(), *more) for _ in range(2)]
    torch.manual_seed(100 + RANK)
    return nn.Sequential(*layers)


def sgd(model, **more):
    return torch.optim.SGD(model.parameters(), lr=0.1, **{"momentum": 0.9, **more})


def batch(width=16):
    return torch.randn(4, width)


def usual(model, optimizer, data=None):
    """One step."""
    optimizer.zero_grad()
    loss = model(batch() if data is None else data).square().mean()
    loss.backward()
    optimizer.step()
    LOSSES.append(loss.item())


def out(model, *more):
    digest = hashlib.sha256(pickle.dumps(LOSSES))
    for p in model.parameters():
        whole = p.full_tensor() if hasattr(p, "full_tensor") else p
        digest.update(whole.detach().double().numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes())
    digest.update(repr((random.getstate(), np.random.get_state()[1].tolist())).encode())
    Path(sys.argv[2], str(RANK)).write_text(f"{digest.hexdigest()} {len(LOSSES)} {more!r}")


@style
def ddp():
    model = DDP(net())
    optimizer = sgd(model)
    for _ in range(STEPS):
        usual(model, optimizer)
    out(model)


@style
def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = net(), init_device_mesh("cpu", (2,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        usual(model, optimizer)
    out(model)


@style
def hooks_alone():
    model = net()
    each = {p: torch.optim.SGD([p], lr=0.05, momentum=0.9) for p in model.parameters()}

    def step(p):
        each[p].step()
        each[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        loss = model(batch()).square().mean()
        loss.backward()
        LOSSES.append(loss.item())
    out(model)


@style
def compiled_alone():
    model = net()
    optimizer = sgd(model)

    @torch.compile(backend="aot_eager")
    def forward(x):
        return model(x).square().mean()

    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = forward(batch())
        loss.backward()
        optimizer.step()
        LOSSES.append(loss.item())
    out(model)


@style
def gan():
    maker, judge = DDP(net(), broadcast_buffers=False), DDP(net(seed=2), broadcast_buffers=False)
    one, two = torch.optim.Adam(maker.parameters(), lr=0.01), torch.optim.RMSprop(judge.parameters(), lr=0.01)
    for step in range(STEPS):
        two.zero_grad()
        with maker.no_sync():
            made = maker(batch()).detach()
        loss = judge(batch()).mean() - judge(made).mean()
        loss.backward()
        two.step()
        if step % 2 == 0:
            one.zero_grad()
            fooled = judge(maker(batch())).mean()
            fooled.backward()
            one.step()
            LOSSES.append(fooled.item())
        LOSSES.append(loss.item())
    out(nn.ModuleList([maker, judge]))


@style
def accumulation():
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    average = torch.optim.swa_utils.AveragedModel(model)
    for step in range(STEPS):
        for part in range(3):
            with model.no_sync() if part < 2 else contextlib.nullcontext():
                loss = model(batch()).square().mean() / 3
                loss.backward()
        optimizer.step()
        plan.step()
        optimizer.zero_grad()
        average.update_parameters(model)
        LOSSES.append(loss.item())
        if step == 9:  # inside a window
            file = io.BytesIO()
            torch.save((model.state_dict(), optimizer.state_dict()), file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
            model.load_state_dict(state[0])
            optimizer.load_state_dict(state[1])
    out(average)


@style
def no_optimizer():
    model = DDP(net())
    for _ in range(STEPS):
        loss = model(batch()).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad
                p.grad = None
        LOSSES.append(loss.item())
    out(model)


@style
def lbfgs_alone():
    model = net()
    optimizer, data = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4), batch()

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(data), data)
        loss.backward()
        return loss

    for _ in range(STEPS):
        LOSSES.append(optimizer.step(closure).item())
    out(model)


@style
def amp():
    model = DDP(net())
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=3)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch()).square().mean() * (float("inf") if step in (7, 8) else 1.0)  # two are skipped
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        LOSSES.append(scaler.get_scale())
    out(model)


@style
def checkpointing_alone():
    from torch.utils.checkpoint import checkpoint

    model = net(16, nn.Dropout(0.2))
    optimizer = sgd(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = batch().requires_grad_()
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=len(LOSSES) % 2 == 0)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        LOSSES.append(loss.item())
    out(model)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * 4

    def __getitem__(self, index):
        return torch.randn(16) + index + random.random()


def seeded(number):
    random.seed(number)


def _loader(start):
    model = net(16, nn.Dropout(0.1))
    optimizer = sgd(model)
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, shuffle=True, num_workers=2, worker_init_fn=seeded, multiprocessing_context=start
    )
    for data in loader:
        usual(model, optimizer, data)
    out(model)


@style
def loader_fork_alone():
    _loader("fork")


@style
def loader_spawn_alone():
    _loader("spawn")


@style
def asynchronous():
    model = net()
    optimizer = sgd(model)
    late = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch()).square().mean()
        loss.backward()
        works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
        total = torch.tensor([loss.item()])
        late.append((dist.all_reduce(total, async_op=True), total))  # waited for three steps later
        for work in works:
            work.wait()
        optimizer.step()
        if step >= 3:
            work, value = late[step - 3]
            work.wait()
            LOSSES.append(value.item())
    for work, _ in late:
        work.wait()
    out(model)


@style
def pipeline():
    model = net(seed=1 + RANK)
    optimizer = sgd(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        if RANK == 0:
            x = model(batch())
            dist.send(x.detach(), 1)
            gradient = torch.empty_like(x)
            dist.irecv(gradient, 1).wait()
            x.backward(gradient)
            LOSSES.append(gradient.sum().item())
        else:
            x = torch.empty(4, 16)
            dist.recv(x, 0)
            loss = model(x.requires_grad_()).square().mean()
            loss.backward()
            dist.isend(x.grad, 0).wait()
            LOSSES.append(loss.item())
        optimizer.step()
    out(model)


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
    show = "import os, sys; print(sorted(k for k in os.environ if 'RANKSC' in k or 'KINETO' in k or 'PYTHONP' in k), sys.path[1:])"
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
def double_backward():
    model = DDP(net())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)
    with torch.autograd.set_detect_anomaly(True):
        for _ in range(STEPS):
            x = batch().requires_grad_()
            loss = model(x).square().mean()
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            optimizer.zero_grad()
            (loss + slope.square().sum()).backward()
            optimizer.step()
            LOSSES.append(loss.item())
    out(model)


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
def validation():
    model = DDP(net(16, nn.BatchNorm1d(16), nn.Dropout(0.3)))
    optimizer = sgd(model)
    for step in range(STEPS):
        model.train()
        usual(model, optimizer)
        if step % 4 == 0:
            model.eval()
            with torch.inference_mode():
                for _ in range(3):
                    LOSSES.append(model(batch()).sum().item())
    out(model, [b.sum().item() for b in model.buffers()])


class Twice(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        return super().step()


@style
def odd_optimizers():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, second = DDP(net()), net(seed=3)
    optimizer, other = (
        ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01),
        Twice(second.parameters(), lr=0.01),
    )
    for _ in range(STEPS):
        usual(model, optimizer)
        usual(second, other)
    out(nn.ModuleList([model, second]))


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
    name = sys.argv[1]
    random.seed(RANK)
    np.random.seed(RANK)
    torch.manual_seed(100 + RANK)
    if not name.endswith("_alone"):
        dist.init_process_group("gloo")
    STYLES[name]()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
