"""Styles of training."""

import contextlib
import io
import random

import torch
import torch.distributed as dist
from styles import LOSSES, RANK, STEPS, batch, main, net, out, sgd, style, usual
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


@style
def ddp():
    model = DistributedDataParallel(net())
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
    maker, judge = (
        DistributedDataParallel(net(), broadcast_buffers=False),
        DistributedDataParallel(net(seed=2), broadcast_buffers=False),
    )
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
    model = DistributedDataParallel(net())
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
    model = DistributedDataParallel(net())
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

    LOSSES.extend(optimizer.step(closure).item() for _ in range(STEPS))
    out(model)


@style
def amp():
    model = DistributedDataParallel(net())
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


@style
def double_backward():
    model = DistributedDataParallel(net())
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
def validation():
    model = DistributedDataParallel(net(16, nn.BatchNorm1d(16), nn.Dropout(0.3)))
    optimizer = sgd(model)
    for step in range(STEPS):
        model.train()
        usual(model, optimizer)
        if step % 4 == 0:
            model.eval()
            with torch.inference_mode():
                LOSSES.extend(model(batch()).sum().item() for _ in range(3))
    out(model, [b.sum().item() for b in model.buffers()])


class Twice(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        return super().step()


@style
def odd_optimizers():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, second = DistributedDataParallel(net()), net(seed=3)
    optimizer, other = (
        ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01),
        Twice(second.parameters(), lr=0.01),
    )
    for _ in range(STEPS):
        usual(model, optimizer)
        usual(second, other)
    out(nn.ModuleList([model, second]))


@style
def functional_alone():
    model = net()
    optimizer = sgd(model)
    parameters = dict(model.named_parameters())

    def loss_of(values, x):
        return torch.func.functional_call(model, values, (x,)).square().mean()

    for _ in range(STEPS):
        slopes, loss = torch.func.grad_and_value(loss_of)(parameters, batch())
        for name, parameter in parameters.items():
            parameter.grad = slopes[name]
        optimizer.step()
        LOSSES.append(loss.item())
    each = torch.func.vmap(lambda x: model(x).sum())(batch())
    out(model, each.tolist())


@style
def compiled_optimizer_alone():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    whole = torch.compile(model, fullgraph=True, backend="eager")

    @torch.compile(backend="eager")
    def update():
        optimizer.step()

    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = whole(batch()).square().mean()
        loss.backward()
        update()
        if len(LOSSES) % 5 == 0:
            optimizer.step()  # and by itself
        LOSSES.append(loss.item())
    out(model)


@style
def jit_alone():
    model = net()
    scripted = torch.jit.script(model)
    optimizer = sgd(scripted)
    told = []
    for step in range(STEPS):
        usual(scripted, optimizer)
        if step in (3, 8):  # before a window and inside of one
            traced = torch.jit.trace(model, batch())
            told.append(traced(torch.ones(4, 16)).sum().item())
            graph = torch.fx.symbolic_trace(model).graph
            exported = torch.export.export(model, (batch(),)).graph
            told.append((len(list(graph.nodes)), len(list(exported.nodes)), str(traced.graph).count("prim")))
    out(model, told)


@style
def uneven():
    from torch.distributed.algorithms.join import Join

    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    with Join([model]):
        for _ in range(STEPS - 7 * RANK):  # rank 1 has fewer batches
            usual(model, optimizer)
    out(model)


if __name__ == "__main__":
    main()
