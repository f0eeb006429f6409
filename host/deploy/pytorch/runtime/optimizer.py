class Optimizer(torch.optim.Optimizer):
    """The optimizer. Weight decay is decoupled: x is multiplied by 1 - lr * weight_decay first.

    steps is the length of the run, for optimizers that use it. Noise is drawn from a generator that
    starts at the seed.
    """

    def __init__(self, params, lr=1e-3, weight_decay=0.0, steps=1, seed=0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay,
                                  "decoupled_weight_decay": True})
        missing = {}
        for group in self.param_groups:
            for x in group["params"]:
                try:
                    programs(x.shape)
                except ValueError as error:
                    missing[str(error)] = None
        if missing:
            raise ValueError("\n".join(missing))
        self.steps, self.generator = steps, torch.Generator().manual_seed(seed)

    def load_state_dict(self, state_dict):
        """Loads the state in its own types. PyTorch converts it to those of the parameters."""
        super().load_state_dict(state_dict)
        own = [x for group in self.param_groups for x in group["params"]]
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        for x, i in zip(own, saved):
            for name, value in state_dict["state"].get(i, {}).items():
                self.state[x][name] = value.to(x.device) if torch.is_tensor(value) else value

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for x in group["params"]:
                if x.grad is not None:
                    self.update(x, group, loss)
        return loss

    def update(self, x, group, loss):
        p, s = programs(x.shape), self.state[x]
        value, scalar = x.to(torch.float32), lambda v: torch.full((), float(v), device=x.device)
        if "step" not in s:
            s["step"] = 0
            if p.STATE:
                self.keep(p, s, p.STATE, p.init(value))
        s["step"] += 1
        values = {"x": value, "gradient": x.grad.to(torch.float32), "step": scalar(s["step"]),
                  "rate": scalar(group["lr"]), "steps": scalar(self.steps)}
        if loss is not None:
            values["loss"] = loss.to(torch.float32)
        if "noise" in p.DRAWS:
            values["noise"] = torch.randint(2**32, (2,), generator=self.generator).to(x.device)
        rate = values["rate"]
        if hasattr(p, "rate"):
            rate = self.call(p.rate, values, s)[0]
        values["x"] = value = value * (1 - rate * group["weight_decay"])
        if p.OBSERVED:
            self.keep(p, s, p.OBSERVED, self.call(p.observe, values, s))
        first, following, every = p.DUE
        if s["step"] == first:
            self.keep(p, s, p.FIRST_REFRESHED, self.call(p.first_refresh, values, s))
        elif every and first < s["step"] >= following and (s["step"] - following) % every == 0:
            self.keep(p, s, p.REFRESHED, self.call(p.refresh, values, s))
        direction, *state = self.call(p.update, values, s)
        self.keep(p, s, p.UPDATED, state)
        x.copy_(value - rate * direction)

    @staticmethod
    def call(program, values, s):
        """The results of a program for arguments by name, of the step or of the state."""
        names = arguments(program)
        missing = [n for n in names if n not in values and n not in s]
        if missing:
            raise ValueError(f"{NAME} uses the {missing[0]}: call step with a closure that returns it")
        return program(*(s[n].to(torch.float32) if n in s and n != "step" else values[n]
                         for n in names))

    @staticmethod
    def keep(p, s, names, values):
        """Stores state in its types."""
        for name, value in zip(names, values):
            dtype = p.STORED.get(name, torch.float32)
            if not dtype.is_floating_point:
                limits = torch.iinfo(dtype)
                value = value.round().clamp(limits.min, limits.max)
            s[name] = value.to(dtype)


def programs(shape):
    """The programs for a parameter of a shape."""
    if tuple(shape) not in PROGRAMS:
        size = "x".join(map(str, shape))
        raise ValueError(f"{NAME} has no program for a parameter of shape {size}: give such "
                         f"parameters to another optimizer, or write this file again with --shape {size}")
    return PROGRAMS[tuple(shape)]
