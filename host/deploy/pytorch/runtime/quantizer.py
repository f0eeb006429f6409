def call(f, values):
    """The results of a program for arguments by name."""
    return f(*(values[n] for n in arguments(f)))


def programs(role, shape):
    """The programs for a matrix of a shape."""
    found = PROGRAMS.get((role, tuple(shape)))
    if found is None or isinstance(found, str):
        size = "x".join(map(str, shape))
        found = found or f"write this file again with --shape {size}"
        raise ValueError(f"{NAME} has no program for the {role} of shape {size}: {found}")
    return found


class Quantize(torch.autograd.Function):
    """Q(x), with the gradient of the quantizer's surrogate."""

    @staticmethod
    def forward(ctx, p, names, *inputs):
        values = dict(zip(names, inputs))
        value, *saved = call(p.forward, values)
        values["value"] = value
        values.update((f"r_{i}", r) for i, r in enumerate(saved))
        ctx.p, ctx.names = p, names
        ctx.save_for_backward(*(values[n] for n in p.SAVED))
        return value

    @staticmethod
    def backward(ctx, dy):
        gradients = dict(zip(ctx.p.GRADIENTS, ctx.p.backward(*ctx.saved_tensors, dy)))
        return None, None, *(gradients.get(n) for n in ctx.names)


class Quantizer(torch.nn.Module):
    """The quantizer of one tensor: a weight, or the input of a linear layer.

    Trained parameters (trained_NAME) and state (kept_NAME) get their initial values from the first
    tensor that is quantized: run the model once before the optimizer is made. Noise is drawn from a
    generator of its own, which starts at the seed; activations must not be recomputed then, as
    torch.utils.checkpoint does. A step is a forward pass in training. In evaluation Q(x) has no
    gradient.
    """

    def __init__(self, role="weight", seed=0):
        super().__init__()
        self.role, self.programs, self.started = role, None, False
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.own = torch.Generator().manual_seed(seed)
        self.shared = torch.Generator().manual_seed(0)
        self.last = {}

    def add(self, name, value):
        """Adds a trained parameter, or state."""
        if name.startswith("trained_"):
            self.register_parameter(name, torch.nn.Parameter(value.clone()))
        else:
            self.register_buffer(name, value.clone())
        self.started = True

    def start(self, x):
        p = programs(self.role, x.shape)
        for names, f in (p.TRAINED, "init"), (p.STATE, "init_state"):
            for name, value in zip(names, getattr(p, f)(x) if names else ()):
                self.add(name, value)
        self.started = True

    def _load_from_state_dict(self, state_dict, prefix, *args):
        for key, value in state_dict.items():
            name = key.removeprefix(prefix)
            if key.startswith(prefix + "trained_") or key.startswith(prefix + "kept_"):
                if not hasattr(self, name):
                    self.add(name, value.to(self.step.device))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def values(self, x, p):
        named = {"x": x, "step": self.step.to(torch.float32), **self.last}
        return named | {n: getattr(self, n) for n in (*p.TRAINED, *p.STATE)}

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1]).to(torch.float32)
        p = self.programs = programs(self.role, flat.shape)
        if not self.started:
            self.start(flat.detach())
        if not self.training:
            return self.evaluate(flat).reshape(x.shape).to(x.dtype)
        self.step += 1
        key = lambda generator: torch.randint(2**32, (2,), generator=generator).to(x.device)
        if "noise" in p.DRAWS:
            self.last["noise"] = key(self.own)
        if "shared_noise" in p.DRAWS:
            self.last["shared_noise"] = key(self.shared)
        values = self.values(flat, p)
        read = (n for n in p.SAVED if n in values)
        names = tuple(dict.fromkeys((*arguments(p.forward), *p.GRADIENTS, *read)))
        result = Quantize.apply(p, names, *(values[n] for n in names))
        if p.STATE:
            with torch.no_grad():
                for name, value in zip(p.STATE, call(p.next, values)):
                    getattr(self, name).copy_(value)
        return result.reshape(x.shape).to(x.dtype)

    @torch.no_grad()
    def evaluate(self, x):
        """Q(x) of a model that is not being trained."""
        p = programs(self.role, x.shape)
        return call(p.evaluate, self.values(x, p))[0]

    @torch.no_grad()
    def error(self, x):
        """x - Q(x), with the noise of the last forward pass."""
        x = x.to(torch.float32)
        p = programs(self.role, x.shape)
        return x - call(p.forward, self.values(x, p))[0]

    @torch.no_grad()
    def constrain(self):
        """Moves trained parameters into their constraint sets; call it after the optimizer."""
        for name in self.programs.TRAINED if self.programs else ():
            f, value = getattr(self.programs, "constrain_" + name, None), getattr(self, name)
            if f is not None:
                value.copy_(f(value)[0])


class QuantizedLinear(torch.nn.Linear):
    """A linear layer that computes with Q(weight), and with Q(input) if it has a quantizer."""

    def forward(self, x):
        if self.input_quantizer is not None:
            x = self.input_quantizer(x)
        return torch.nn.functional.linear(x, self.weight_quantizer(self.weight), self.bias)


def quantize_(model, activations=False, skip=("lm_head",), seed=0):
    """Makes the linear layers of a model quantized ones, in place, and returns the model.

    activations: quantize the inputs of the layers too. skip: names, or last parts of names, of
    layers that stay as they are. Weights stay the same parameters. Load the weights of a model that
    was not quantized first. Layers whose code reads weights itself, as that of
    torch.nn.MultiheadAttention does, are not quantized.
    """
    skip = (skip,) if isinstance(skip, str) else skip
    layers = {name: layer for name, layer in model.named_modules()
              if type(layer) is torch.nn.Linear
              and not any(name == s or name.endswith("." + s) for s in skip)}
    missing = {}
    for name, layer in layers.items():
        try:
            programs("weight", layer.weight.shape)
        except ValueError as error:
            missing.setdefault(str(error), name)
    if missing:
        raise ValueError("\n".join(f"layer {name}: {error}, or skip={name!r}"
                                   for error, name in missing.items()))
    torch.backends.mha.set_fastpath_enabled(False)  # which would read the weights themselves
    for index, (name, layer) in enumerate(layers.items()):
        layer.__class__ = QuantizedLinear
        layer.weight_quantizer = Quantizer("weight", seed + 2 * index)
        layer.weight_quantizer.to(layer.weight.device)
        layer.weight_quantizer.start(layer.weight.detach().to(torch.float32))
        layer.input_quantizer = None
        if activations:
            layer.input_quantizer = Quantizer("activation", seed + 2 * index + 1)
            layer.input_quantizer.to(layer.weight.device)
    return model


def CAGE(optimizer, model, steps, strength=None, silence=0.9, lambda_=None, scheduler=None):
    """Adds the correction of CAGE (MLSys 2026, Algorithm 1) to any optimizer, and returns it.

    After each step of the optimizer it subtracts rate * lambda_t * e from each quantized weight,
    where e = x - Q(x) was taken before the step, after the weight decay. lambda_t is 0 in the first
    part of the run, silence, and then grows linearly to lambda. strength is the sum of rate *
    lambda_t over the run: a weight that nothing else moves keeps the share exp(-strength) of its
    error; by default 0.24, and proportionally less in fewer than 1000 steps. The learning rates of
    the run, on which lambda then depends, are those of the scheduler, which has to be at its start
    (load its state afterwards); without one they are constant. lambda_ sets lambda itself.
    """
    if steps < 1 or steps != int(steps) or not 0 <= silence < 1:
        raise ValueError(f"CAGE: steps = {steps}, silence = {silence}: "
                         "want steps of at least 1, and a silence of at least 0, below 1")
    if strength is not None and lambda_ is not None:
        raise ValueError("CAGE: want strength or lambda_, not both")
    if strength is None:
        strength = 0.24 * min(1, steps / 1000)
    if not 0 <= (strength if lambda_ is None else lambda_) < float("inf"):
        raise ValueError("CAGE: want a strength, or lambda_, of at least 0, and finite")
    quantizers = {id(m.weight): m.weight_quantizer for m in model.modules()
                  if hasattr(m, "weight_quantizer")}
    if not any(id(x) in quantizers for group in optimizer.param_groups for x in group["params"]):
        raise ValueError("CAGE: the optimizer has no quantized weight of the model: call quantize_ "
                         "first, and give the optimizer the parameters of this model")
    ramp = [max(0.0, (t / steps - silence) / (1 - silence)) for t in range(1, int(steps) + 1)]
    if lambda_ is None:
        rates = learning_rates(optimizer, scheduler, int(steps))
        sums = [sum(r[i] * w for r, w in zip(rates, ramp)) for i in range(len(rates[0]))]
        if strength > 0 and max(sums) == 0:
            raise ValueError("CAGE: the learning rate is 0 in all steps of the correction")
        lambdas = [strength / total if total > 0 else 0.0 for total in sums]
    else:
        lambdas = [lambda_] * len(optimizer.param_groups)
    decays = isinstance(optimizer, (torch.optim.AdamW, getattr(torch.optim, "Muon", ())))
    errors = []

    @torch.no_grad()
    def before(optimizer, args, kwargs):
        errors.clear()
        for group, top in zip(optimizer.param_groups, lambdas):
            t = group["cage_step"] = group.get("cage_step", 0) + 1
            rate = float(group["lr"])
            weight = rate * top * ramp[min(t, len(ramp)) - 1]
            decay = group["weight_decay"] if group.get("decoupled_weight_decay", decays) else 0
            for x in group["params"]:
                if weight > 0 and x.grad is not None and id(x) in quantizers:
                    e = quantizers[id(x)].error(x * (1 - rate * decay))
                    # A weight whose error is not finite is not corrected in this step.
                    errors.append((x, torch.where(e.isfinite().all(), e, 0.0), weight))

    @torch.no_grad()
    def after(optimizer, args, kwargs):
        for x, e, weight in errors:
            x.sub_((e * weight).to(x.dtype))
        errors.clear()
        for m in model.modules():
            if hasattr(m, "constrain"):
                m.constrain()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
    return optimizer


def learning_rates(optimizer, scheduler, steps):
    """The learning rates of each step, by group of parameters."""
    now = lambda: [float(group["lr"]) for group in optimizer.param_groups]
    if scheduler is None:
        if any("initial_lr" in group for group in optimizer.param_groups):
            raise ValueError("CAGE: the optimizer has a scheduler: want scheduler, or lambda_")
        return [now()] * steps
    state, rates = copy.deepcopy(scheduler.state_dict()), []
    settings = [copy.deepcopy({k: v for k, v in group.items() if k != "params"})
                for group in optimizer.param_groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimizer did not step
        for _ in range(steps):
            rates.append(now())
            scheduler.step()
    scheduler.load_state_dict(state)
    for group, was in zip(optimizer.param_groups, settings):
        if torch.is_tensor(group["lr"]):
            was["lr"] = group["lr"].copy_(was["lr"])  # which a compiled step may hold
        group.update(was)
    return rates
