"""What each operation of a case file means, written with PyTorch.

Every entry of OPERATIONS takes the step's arguments as keywords and its tensors in order.
"""
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

OPERATIONS = {}


def operation(*names):
    """Register the decorated function under its own name, or under `names`."""
    def register(function):
        for name in names or (function.__name__,):
            OPERATIONS[name] = function
        return function
    return register


# Element-wise: taken from PyTorch as they are.
for _name in ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "square", "sin", "cos",
              "erf", "reciprocal", "add", "sub", "mul", "div", "maximum", "minimum", "where", "matmul", "clamp"):
    OPERATIONS[_name] = getattr(torch, _name)
for _name in ("gelu", "silu", "softplus", "leaky_relu", "elu", "linear", "mse_loss", "l1_loss", "smooth_l1_loss",
              "huber_loss", "kl_div"):
    OPERATIONS[_name] = getattr(F, _name)


@operation()
def pow(*tensors, base=None):
    return torch.pow(*tensors) if base is None else torch.pow(base, *tensors)


@operation()
def pow_scalar(x, *, exponent):
    return x ** exponent


@operation("conv1d", "conv2d", "conv3d")
def convolution(x, w, b, *, stride, padding, dilation, groups, padding_mode):
    spatial = w.dim() - 2
    apply = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[spatial]
    if padding_mode != "zeros" and any(padding):
        both_sides = []
        for amount in padding[::-1]:  # F.pad wants the last dim first
            both_sides += [amount, amount]
        x, padding = F.pad(x, both_sides, mode=padding_mode), [0] * spatial
    return apply(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)


@operation("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(x, w, b, **arguments):
    apply = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[w.dim() - 2]
    return apply(x, w, b, **arguments)


for _dims in (1, 2, 3):
    for _name in (f"max_pool{_dims}d", f"avg_pool{_dims}d", f"adaptive_avg_pool{_dims}d"):
        OPERATIONS[_name] = getattr(F, _name)


@operation()
def interpolate(x, *, mode, size=None, scale_factor=None, align_corners=None, **more):
    return F.interpolate(x, size=size, scale_factor=scale_factor, mode=mode, align_corners=align_corners, **more)


@operation()
def layer_norm(x, w, b, *, normalized_shape, eps):
    return F.layer_norm(x, normalized_shape, w, b, eps)


@operation()
def add_layer_norm(x, residual, w, b, *, normalized_shape, eps):
    total = x + residual
    return total, F.layer_norm(total, normalized_shape, w, b, eps)


@operation()
def binary_cross_entropy(x, t, weight=None, *, reduction):
    return F.binary_cross_entropy(x, t, weight, reduction=reduction)


@operation()
def binary_cross_entropy_with_logits(x, t, weight=None, positive=None, *, reduction):
    return F.binary_cross_entropy_with_logits(x, t, weight, reduction=reduction, pos_weight=positive)


@operation()
def cross_entropy(x, y, weight=None, **args):
    return F.cross_entropy(x, y, weight, **args)


@operation()
def nll_loss(x, y, weight=None, **args):
    return F.nll_loss(x, y, weight, **args)


@operation()
def rms_norm(x, w=None, *, normalized_shape, eps):
    return F.rms_norm(x, normalized_shape, w, eps)


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


@operation()
def group_norm(x, w, b, *, num_groups, eps, activation="none"):
    return ACTIVATIONS[activation](F.group_norm(x, num_groups, w, b, eps))


@operation()
def batch_norm(x, w, b, mean=None, var=None, *, training=True, momentum=0.1, eps, activation="none"):
    y = ACTIVATIONS[activation](F.batch_norm(x, mean, var, w, b, training, momentum, eps))
    return (y, mean.clone(), var.clone()) if training and mean is not None else y


@operation()
def instance_norm(x, w, b, mean=None, var=None, *, use_input_stats=True, momentum=0.1, eps, activation="none"):
    y = ACTIVATIONS[activation](F.instance_norm(x, mean, var, w, b, use_input_stats, momentum, eps))
    return (y, mean.clone(), var.clone()) if use_input_stats and mean is not None else y


def _dtype(more):
    """Arguments with `dtype` as PyTorch's own, where there is one."""
    return {**more, "dtype": getattr(torch, more["dtype"])} if "dtype" in more else more


@operation()
def softmax(x, *, dim, **more):
    return x.softmax(dim, **_dtype(more))


@operation()
def log_softmax(x, *, dim, **more):
    return x.log_softmax(dim, **_dtype(more))


@operation()
def scaled_dot_product_attention(q, k, v, mask=None, *, is_causal, scale, enable_gqa):
    """In plain operations, so that it can be differentiated twice and rows without keys are zeros."""
    if not all(t.isfinite().all() for t in (q, k, v)) or (mask is not None and mask.isnan().any()):
        with sdpa_kernel([SDPBackend.MATH]):  # where NaN leads is PyTorch's own affair
            return F.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    if enable_gqa:
        times = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(times, dim=1) for t in (k, v))
    logits = torch.einsum("nhld,nhsd->nhls", q, k) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    rows, keys = logits.shape[-2:]
    allowed = torch.ones(logits.shape, dtype=torch.bool)
    if is_causal:
        allowed = allowed & (torch.arange(keys) <= torch.arange(rows)[:, None])
    if mask is not None:
        allowed = allowed & (mask if mask.dtype == torch.bool else mask > -math.inf)
        if mask.dtype != torch.bool:
            logits = logits + mask.clamp(min=torch.finfo(mask.dtype).min / 4)
    if keys == 0:
        return torch.einsum("nhls,nhsd->nhld", logits, v)
    some = allowed.any(-1, keepdim=True)
    weights = logits.masked_fill(~allowed & some, -math.inf).softmax(-1)
    return torch.einsum("nhls,nhsd->nhld", weights * some, v)


def _reduction(function):
    def reduce(x, *, dim, keepdim, **more):
        dims = list(range(x.dim())) if dim is None else dim
        return function(x, dim=dims, keepdim=keepdim, **_dtype(more))
    return reduce


for _name in ("var", "std"):  # where nothing is left to divide by, no dims are not the same as all dims
    OPERATIONS[_name] = lambda x, *, dim, correction, keepdim, _f=getattr(torch, _name): _f(
        x, dim=dim, correction=correction, keepdim=keepdim)
OPERATIONS.update({name: _reduction(getattr(torch, name)) for name in ("sum", "mean", "amax", "amin", "logsumexp",
                                                                               "any", "all")})


@operation()
def norm(x, *, p, dim, keepdim):
    return torch.linalg.vector_norm(x, float(p), dim, keepdim)


@operation()
def prod(x, *, dim, keepdim, **more):
    return x.prod(**_dtype(more)) if dim is None else x.prod(dim[0], keepdim, **_dtype(more))


for _name in ("argmax", "argmin", "count_nonzero"):
    OPERATIONS[_name] = getattr(torch, _name)


@operation()
def cumsum(x, *, dim, **more):
    return x.cumsum(dim, **_dtype(more))


@operation()
def einsum(*tensors, equation):
    return torch.einsum(equation, *tensors)


@operation()
def reshape(x, *, shape):
    return x.reshape(shape)


@operation()
def flatten(x, *, start_dim, end_dim):
    return x.flatten(start_dim, end_dim)


@operation()
def unflatten(x, *, dim, sizes):
    return x.unflatten(dim, sizes)


@operation()
def permute(x, *, dims):
    return x.permute(dims)


@operation()
def transpose(x, *, dim0, dim1):
    return x.transpose(dim0, dim1)


@operation()
def unsqueeze(x, *, dim):
    return x.unsqueeze(dim)


@operation()
def squeeze(x, *, dim):
    return x.squeeze() if dim is None else x.squeeze(tuple(dim) if isinstance(dim, list) else dim)


@operation()
def expand(x, *, sizes):
    return x.expand(sizes)


@operation()
def roll(x, *, shifts, dims):
    return x.roll(shifts, dims)


@operation("slice")
def slice_(x, *, dim, start, end, step):
    where = [slice(None)] * x.dim()
    where[dim] = slice(start, end, step)
    return x[tuple(where)]


@operation()
def slice_scatter(x, src, *, dim=0, start=None, end=None, step=1):
    return torch.slice_scatter(x, src, dim, start, end, step)


@operation()
def select_scatter(x, src, *, dim, index):
    return torch.select_scatter(x, src, dim, index)


@operation()
def split(x, *, sizes, dim):
    return x.split(sizes, dim)


@operation()
def cat(*tensors, dim):
    return torch.cat(tensors, dim)


@operation()
def stack(*tensors, dim):
    return torch.stack(tensors, dim)


@operation()
def repeat(x, *, repeats):
    return x.repeat(repeats)


for _name in ("flip", "tile", "repeat_interleave", "diagonal", "narrow", "select", "chunk", "unbind", "movedim", "broadcast_to"):
    OPERATIONS[_name] = getattr(torch, _name)


@operation()
def pad(x, *, pad, mode, value):
    return F.pad(x, pad, mode=mode, value=value) if mode == "constant" else F.pad(x, pad, mode=mode)
