def arguments(f):
    """The names of the arguments of a program."""
    return f.__code__.co_varnames[:f.__code__.co_argcount]


def iota(shape, axis, dtype, device):
    """The index of each element along the axis."""
    index = torch.arange(shape[axis], dtype=dtype, device=device)
    return index.reshape([-1 if i == axis else 1 for i in range(len(shape))]).expand(shape)


def random_bits(key, shape):
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011): the first word for the counters (i, 0)."""
    k = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x = (torch.arange(math.prod(shape), dtype=torch.int64, device=key.device) + k[0]) & 0xFFFFFFFF
    y = k[1].expand(x.shape)
    for group in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = (x + y) & 0xFFFFFFFF
            y = ((y << r | y >> (32 - r)) & 0xFFFFFFFF) ^ x
        x = (x + k[(group + 1) % 3]) & 0xFFFFFFFF
        y = (y + k[(group + 2) % 3] + group + 1) & 0xFFFFFFFF
    return x.reshape(shape)


def sign(x):
    """-1, 0 or 1; NaN stays NaN."""
    return torch.where(x.isnan(), x, x.sign()) if x.is_floating_point() else x.sign()


def logb(x):
    """The unbiased exponent, also of subnormal numbers; -inf for 0, +inf for infinities."""
    small = x.abs() < 2.0**-126
    bits = torch.where(small, x * 2.0**24, x).view(torch.int32)
    exponent = ((bits >> 23) & 255) - 127 - torch.where(small, 24, 0)
    result = torch.where(x == 0, -math.inf, exponent.to(torch.float32))
    return torch.where(x.isfinite(), result, x.abs())


def ldexp(x, n):
    """x times 2 to the power n, an integer in -300 to 300, by three factors that are exact."""
    whole = torch.where(n.isnan(), 0.0, n).to(torch.int32)
    result = x
    for part in (whole // 3, (whole + 1) // 3, (whole + 2) // 3):
        result = result * ((part + 127) << 23).view(torch.float32)
    return torch.where(n.isnan(), math.nan, result)


def hadamard(x, block):
    """The orthonormal Walsh-Hadamard transform of each run of block elements of the last axis."""
    y = x.reshape(-1, block)
    half = 1
    while half < block:
        y = y.reshape(-1, block // (2 * half), 2, half)
        y = torch.stack((y[:, :, 0] + y[:, :, 1], y[:, :, 0] - y[:, :, 1]), 2).reshape(-1, block)
        half *= 2
    return (y * block**-0.5).reshape(x.shape)


def finite_matrices(f, x, read):
    """f of each matrix; NaN for matrices that are not finite where f reads them."""
    finite = read.isfinite().all(-1).all(-1)[..., None, None]
    y = f(torch.where(finite, x, torch.eye(*x.shape[-2:], dtype=x.dtype, device=x.device)))
    finite = finite if y.ndim == x.ndim else finite[..., 0]
    return torch.where(finite, y, math.nan)


def qr(x):
    """The factor with orthonormal columns."""
    return finite_matrices(lambda a: torch.linalg.qr(a).Q, x, x)


def eigh_values(x):
    """The eigenvalues of symmetric matrices, in ascending order."""
    return finite_matrices(torch.linalg.eigvalsh, x, x.tril())


def eigh_vectors(x):
    """The eigenvectors of symmetric matrices, as columns."""
    return finite_matrices(lambda a: torch.linalg.eigh(a).eigenvectors, x, x.tril())


def sort_columns(x, keys):
    """The columns in descending order of their keys; NaN comes last."""
    order = torch.sort(-keys, dim=-1, stable=True).indices
    return x.gather(-1, order[..., None, :].expand(x.shape))


def nearest(x, table):
    """The index of the nearest row of the table; the lowest of several."""
    if table.ndim == 1:
        x, table = x[..., None], table[:, None]
    distance = (x[..., None, :] - table).square().sum(-1)
    return torch.where(distance.isnan(), math.inf, distance).argmin(-1).to(torch.int32)


def lookup(index, table):
    """The rows of the table with the given indices."""
    return table[index.clamp(0, table.shape[0] - 1)]


def scatter_add(index, x, shape):
    """A table of zeros, to whose rows x is added."""
    row = index.clamp(0, shape[0] - 1).reshape(-1).to(torch.int64)
    return torch.zeros(shape, dtype=x.dtype, device=x.device).index_add(
        0, row, x.reshape(-1, *shape[1:]))


def top_k(x, k):
    """Whether an element is among the k largest of its row; the first of equal ones are."""
    order = torch.sort(x, dim=-1, descending=True, stable=True).indices
    return order.argsort(-1) < k


def order_statistic(x, k):
    """The element with index k of each row in ascending order; NaN if the row has a NaN."""
    k = k.clamp(0, x.shape[-1] - 1).to(torch.int64).reshape([1] * x.ndim)
    result = x.sort(-1).values.gather(-1, k.expand(*x.shape[:-1], 1))[..., 0]
    return torch.where(x.isnan().any(-1), math.nan, result)
