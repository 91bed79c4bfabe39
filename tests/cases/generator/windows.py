"""Kin of convolution: transposed, pooling, interpolation; and what their halos may cost."""
import numpy as np

from .case import Case, few_values, normal, single
from .convolutions import arguments, conv, halo


def every(value, dims):
    return list(value) if isinstance(value, (tuple, list)) else [value] * dims


def one_step(name, op, x, args, second=False):
    """A case of one operation, which is linear: squared where second derivatives are asked for."""
    if not second:
        return single(name, op, {"x": x}, args=args)
    return Case(name, second=True).data(x=x).step(op, "x", "p", **args).step("square", "p", "y").returns("y")


def split(case, cuts, most, dim=2):
    return case.limit(most, {"x": [list(cuts)]}, mesh=(len(cuts),), x=f"S{dim}")


# ---- transposed convolution
def returned(cuts, row_bytes, kernel, stride=1, padding=0, dilation=1, output_padding=0):
    """Bytes that a dim cut into `cuts` has to move: the output is cut where the middles of the windows lie, and a
    rank sends what its windows reach beyond its own part of the output."""
    reach = dilation * (kernel - 1) + 1
    inputs = np.cumsum([0, *cuts])
    size = (sum(cuts) - 1) * stride - 2 * padding + reach + output_padding
    edges = [min(max(int(i) * stride + (reach - 1) // 2 - padding, 0), size) for i in inputs]
    edges[0], edges[-1] = 0, size
    moved = 0
    for r, length in enumerate(cuts):
        if length > 0:
            lo, hi = int(inputs[r]) * stride - padding, (int(inputs[r + 1]) - 1) * stride - padding + reach
            moved += sum(not edges[r] <= o < edges[r + 1] for o in range(max(lo, 0), min(hi, size)))
    return row_bytes * moved


def transposed(name, sizes, out_channels, kernel, bias=True, second=False, weights="param", unbatched=False,
               groups=1, **options):
    """A case of one transposed convolution of an input of `sizes` (N, C, spatial...)."""
    dims = len(sizes) - (1 if unbatched else 2)
    kernel, channels = every(kernel, dims), sizes[-dims - 1]
    case = Case(f"conv_transpose{dims}d_{name}", second).data(x=tuple(sizes))
    add = case.param if weights == "param" else case.data
    add(w=normal(channels, out_channels // groups, *kernel, scale=channels ** -0.5))
    if bias:
        add(b=(out_channels,))
    args = {n: every(options.get(n, v), dims) for n, v in (
        ("stride", 1), ("padding", 0), ("output_padding", 0), ("dilation", 1))}
    return case.step(f"conv_transpose{dims}d", f"x w {'b' if bias else '-'}", "y", groups=groups, **args).returns("y")


c = transposed("k2s2", (2, 3, 7), 4, 2, stride=2, second=True)
for cuts in ((3, 4), (1, 6), (0, 7), (2, 2, 3), (1, 0, 6)):
    split(c, cuts, 0)
split(c, (1, 2), 0, dim=1)
c = transposed("k3", (1, 2, 9), 3, 3, padding=1)
for cuts in ((4, 5), (8, 1), (3, 3, 3), (1, 7, 1), (2, 2, 2, 3)):
    split(c, cuts, returned(cuts, 3 * 4, 3, padding=1))
c = transposed("k3s2p1", (2, 2, 8), 3, 3, stride=2, padding=1, output_padding=1, second=True)
for cuts in ((4, 4), (5, 3), (2, 5, 1)):
    split(c, cuts, returned(cuts, 2 * 3 * 4, 3, stride=2, padding=1, output_padding=1))
c = transposed("k5_wide", (1, 2, 6), 2, 5)
split(c, (1, 5), returned((1, 5), 2 * 4, 5))
split(c, (1, 4, 1), returned((1, 4, 1), 2 * 4, 5))
transposed("k2s3_gaps", (1, 2, 7), 3, 2, stride=3)
transposed("k1s4", (1, 2, 5), 3, 1, stride=4, output_padding=2)
transposed("dilation3", (1, 2, 8), 2, 3, dilation=3, padding=2)
transposed("output_padding_below_dilation", (1, 2, 6), 2, 2, dilation=3, output_padding=2)
transposed("padding_beyond_kernel", (1, 2, 9), 2, 3, padding=4)
transposed("groups", (2, 4, 7), 6, 3, stride=2, groups=2)
transposed("size_one", (1, 1, 1), 1, 1)
transposed("one_input", (1, 2, 1), 3, 5, stride=2, padding=1)
transposed("no_samples", (0, 2, 5), 3, 3, stride=2)
transposed("no_samples_no_positions", (0, 2, 0), 3, 4)
transposed("no_samples", (0, 4, 5, 3), 6, 3, stride=2, padding=1, groups=2)
transposed("no_samples_no_rows", (0, 2, 0, 3), 3, (3, 2), padding=(0, 1), dilation=(2, 1), bias=False)
transposed("no_samples", (0, 2, 2, 3, 2), 2, 2, stride=2)
transposed("split_weights", (2, 4, 6), 6, 3, stride=2, weights="data")
transposed("split_weights_groups", (2, 4, 6), 6, 3, stride=2, groups=2, weights="data")
transposed("unbatched", (2, 7), 3, 4, stride=2, padding=1, unbatched=True)

c = transposed("k2s2", (2, 3, 6, 5), 4, 2, stride=2, second=True)
split(c, (1, 5), 0)
split(c, (2, 3), 0, dim=3)
c.limit(0, {"x": [[2, 4], [4, 1]]}, mesh=(2, 2), x=("S2", "S3"))
transposed("k2s2_output_padding", (1, 2, 5, 6), 2, 2, stride=2, output_padding=1)
transposed("k3s2", (1, 2, 6, 5), 2, 3, stride=2)
c = transposed("k4s2p1", (1, 2, 7, 6), 3, 4, stride=2, padding=1, second=True)
split(c, (3, 4), returned((3, 4), 3 * 12 * 4, 4, stride=2, padding=1))
split(c, (1, 1, 4, 1), returned((1, 1, 4, 1), 3 * 12 * 4, 4, stride=2, padding=1))
transposed("k3s1p1", (2, 2, 6, 7), 3, 3, padding=1, bias=False)
transposed("uneven_everything", (1, 3, 5, 6), 2, (3, 2), stride=(1, 3), padding=(2, 0), output_padding=(0, 2),
           dilation=(2, 1))
c = transposed("depthwise", (2, 4, 5, 6), 4, 3, stride=2, padding=1, output_padding=1, groups=4)
split(c, (1, 3), 0, dim=1)
transposed("pointwise", (2, 3, 5, 4), 2, 1)
transposed("split_weights", (2, 3, 4, 5), 4, 3, padding=1, weights="data", second=True)
transposed("unbatched", (3, 5, 4), 2, 2, stride=2, unbatched=True)
transposed("far_stride", (1, 2, 4, 3), 2, 2, stride=5, output_padding=3)

c = transposed("k2s2", (1, 2, 4, 3, 5), 2, 2, stride=2)
split(c, (1, 3), 0)
split(c, (2, 3), 0, dim=4)
transposed("k3s2p1", (1, 2, 3, 4, 3), 2, 3, stride=2, padding=1, output_padding=1, groups=2)
transposed("small", (2, 2, 2, 3, 2), 1, (1, 3, 2), stride=(2, 1, 1), second=True)
transposed("unbatched", (2, 2, 3, 2), 2, 2, stride=2, unbatched=True)


# ---- pooling
def fetched(cuts, row_bytes, windows):
    """Bytes that a dim cut into `cuts` has to move when output o reads positions lo to hi - 1 and lives where its home
    does; `windows` lists (lo, hi, home)."""
    edges = np.cumsum([0, *cuts])
    owner = np.repeat(np.arange(len(cuts)), cuts)
    moved = 0
    for rank in range(len(cuts)):
        mine = [w for w in windows if owner[w[2]] == rank]
        if mine:
            lo, hi = min(w[0] for w in mine), max(w[1] for w in mine)
            moved += sum(not edges[rank] <= i < edges[rank + 1] for i in range(lo, hi))
    return row_bytes * moved


def pool_windows(n, outputs, kernel, stride, padding=0, dilation=1):
    reach, found = dilation * (kernel - 1) + 1, []
    for o in range(outputs):
        at = o * stride - padding
        inside = [i for i in range(at, at + reach, dilation) if 0 <= i < n]
        found.append((min(inside), max(inside) + 1, min(max(at + (reach - 1) // 2, 0), n - 1)))
    return found


def pool(kind, name, sizes, kernel, stride=None, padding=0, dilation=1, ceil_mode=False, unbatched=False,
         content=None, second=False, **more):
    dims = len(sizes) - (1 if unbatched else 2)
    args = {"kernel_size": every(kernel, dims), "padding": every(padding, dims), "ceil_mode": ceil_mode, **more}
    if stride is not None:
        args["stride"] = every(stride, dims)
    if kind.startswith("max"):
        args["dilation"] = every(dilation, dims)
    op = f"{kind}_pool{dims}d"
    return one_step(f"{op}_{name}", op, tuple(sizes) if content is None else content, args, second)


for kind in ("avg", "max"):
    c = pool(kind, "k2", (2, 3, 13), 2)
    split(c, (6, 7), 0)
    split(c, (5, 8), fetched((5, 8), 2 * 3 * 4, pool_windows(13, 6, 2, 2)))
    split(c, (1, 2), 0, dim=1)
    c = pool(kind, "k3s2p1", (2, 2, 11), 3, 2, 1, second=True)
    for cuts in ((5, 6), (6, 5), (1, 9, 1), (0, 11), (2, 3, 3, 3)):
        split(c, cuts, fetched(cuts, 2 * 2 * 4, pool_windows(11, 6, 3, 2, 1)))
    pool(kind, "k3s1_no_padding", (1, 2, 9), 3, 1)
    pool(kind, "gaps", (1, 2, 13), 2, 5)
    pool(kind, "ceil_window_begins_in_padding", (1, 2, 5), 3, 3, 1, ceil_mode=True)
    pool(kind, "ceil_last_window_dropped", (1, 2, 4), 2, 3, 1, ceil_mode=True)
    pool(kind, "ceil_part_of_a_window", (2, 2, 10), 4, 3, ceil_mode=True)
    pool(kind, "even_kernel", (1, 2, 9), 4, 2, 2)
    pool(kind, "k1s1", (2, 2, 5), 1)
    pool(kind, "whole_row", (2, 3, 7), 7)
    pool(kind, "no_samples", (0, 2, 6), 2)
    pool(kind, "size_one", (1, 1, 1), 1)
    pool(kind, "unbatched", (3, 9), 3, 2, 1, unbatched=True)

    c = pool(kind, "k2", (1, 3, 8, 6), 2, second=True)
    split(c, (2, 6), 0)
    c.limit(0, {"x": [[4, 4], [2, 4]]}, mesh=(2, 2), x=("S2", "S3"))
    c = pool(kind, "k3s2p1", (2, 2, 11, 9), 3, 2, 1)
    split(c, (4, 7), fetched((4, 7), 2 * 2 * 9 * 4, pool_windows(11, 6, 3, 2, 1)))
    split(c, (3, 6), fetched((3, 6), 2 * 2 * 11 * 4, pool_windows(9, 5, 3, 2, 1)), dim=3)
    pool(kind, "k3s1p1", (1, 2, 9, 8), 3, 1, 1)
    one_step(f"{kind}_pool2d_kernel_as_one_number", f"{kind}_pool2d", (1, 2, 9, 8), {"kernel_size": 2, "stride": [2, 2]})
    pool(kind, "k2p1", (1, 2, 8, 7), 2, 2, 1)
    pool(kind, "uneven_everything", (2, 2, 12, 13), (2, 5), (3, 1), (1, 2), ceil_mode=True)
    pool(kind, "odd_rows", (1, 2, 9, 7), 2)
    pool(kind, "row_kernel", (1, 2, 5, 9), (1, 3), (1, 2))
    c = pool(kind, "unbatched", (3, 8, 7), 3, 2, 1, unbatched=True)
    split(c, (3, 5), fetched((3, 5), 3 * 7 * 4, pool_windows(8, 4, 3, 2, 1)), dim=1)

    c = pool(kind, "k2", (1, 2, 4, 6, 5), 2)
    split(c, (2, 4), 0, dim=3)
    split(c, (2, 2), 0)
    pool(kind, "k3s2p1", (1, 2, 5, 4, 6), 3, 2, 1, ceil_mode=True, second=True)
    pool(kind, "unbatched", (2, 4, 3, 5), 2, unbatched=True)

pool("avg", "without_padding", (1, 2, 9), 3, 2, 1, count_include_pad=False, second=True)
pool("avg", "without_padding_ceil", (1, 2, 10), 4, 3, 2, ceil_mode=True, count_include_pad=False)
pool("avg", "without_padding", (2, 2, 7, 8), (3, 2), (2, 2), (1, 1), count_include_pad=False)
pool("avg", "padding_counts_ceil", (1, 2, 10), 4, 3, 2, ceil_mode=True, count_include_pad=True)
pool("avg", "divisor", (1, 2, 7, 6), 3, 2, 1, divisor_override=5)
pool("avg", "divisor_ceil", (1, 1, 5, 4, 3), 2, 2, ceil_mode=True, divisor_override=3)
c = pool("avg", "wide_window_is_owed", (2, 3, 12), 12)
split(c, (4, 4, 4), 0)

pool("max", "dilation2", (1, 2, 11), 3, 1, dilation=2)
pool("max", "dilation3_stride2", (1, 2, 13), 2, 2, 1, dilation=3)
pool("max", "ties", (1, 2, 11), 3, 1, 1, content=few_values(3, 1, 2, 11))
pool("max", "ties", (2, 2, 7, 6), 3, 2, 1, content=few_values(2, 2, 2, 7, 6))
pool("max", "ties", (1, 2, 4, 5, 4), 2, 1, content=few_values(2, 1, 2, 4, 5, 4))
pool("max", "below_zero", (1, 1, 6), 3, 2, 1, content=normal(1, 1, 6, shift=-9))
nans = np.arange(12.0).reshape(1, 1, 12)
nans[0, 0, [2, 6, 7]] = np.nan
nans[0, 0, 9:12] = -np.inf
pool("max", "nan_and_infinity", (1, 1, 12), 3, 3, content=nans)
for dims, sizes in ((1, (2, 2, 9)), (2, (1, 2, 7, 6)), (3, (1, 2, 4, 3, 5))):
    args = {"kernel_size": [2] * dims, "stride": [1] * dims, "padding": [1] * dims, "dilation": [1] * dims}
    single(f"max_pool{dims}d_indices", f"max_pool{dims}d", {"x": few_values(4, *sizes)}, outs="y i",
           args={**args, "ceil_mode": False, "return_indices": True})


def adaptive(name, sizes, output_size, unbatched=False, second=False):
    dims = len(sizes) - (1 if unbatched else 2)
    op = f"adaptive_avg_pool{dims}d"
    return one_step(f"{op}_{name}", op, tuple(sizes), {"output_size": every(output_size, dims)}, second)


def adaptive_windows(n, m):
    bounds = [(o * n // m, -(-(o + 1) * n // m)) for o in range(m)]
    return [(lo, hi, (lo + hi - 1) // 2) for lo, hi in bounds]


c = adaptive("one", (2, 3, 13), 1)
for cuts in ((6, 7), (13, 0), (4, 4, 5)):  # the sums stay owed
    split(c, cuts, 0)
split(c, (1, 12), 2 * 3 * 4)
c = adaptive("uneven", (2, 2, 17), 5)
split(c, (8, 9), fetched((8, 9), 2 * 2 * 4, adaptive_windows(17, 5)))
split(c, (3, 11, 3), fetched((3, 11, 3), 2 * 2 * 4, adaptive_windows(17, 5)))
adaptive("larger", (1, 2, 4), 7)
adaptive("same", (1, 2, 5), 5)
adaptive("to_nothing", (1, 2, 5), 0).constant("x")  # PyTorch has no gradient for it
adaptive("no_samples", (0, 2, 5), 2)
adaptive("no_channels", (1, 0, 5), 2).constant("x")
adaptive("unbatched", (3, 8), 3, unbatched=True)
c = adaptive("one", (2, 3, 11, 9), 1)
split(c, (5, 6), 0)
c.limit(0, {"x": [[5, 6], [2, 7]]}, mesh=(2, 2), x=("S2", "S3"))
c = adaptive("uneven", (2, 3, 11, 9), (4, 3), second=True)
split(c, (5, 6), fetched((5, 6), 2 * 3 * 9 * 4, adaptive_windows(11, 4)))
adaptive("one_dim_kept", (1, 2, 7, 5), (7, 2))
adaptive("unbatched", (2, 6, 7), (1, 3), unbatched=True)
split(adaptive("one", (1, 2, 4, 5, 3), 1), (2, 3), 0, dim=3)
adaptive("uneven", (2, 2, 5, 4, 6), (2, 3, 4))


# ---- interpolation
def resize(name, sizes, mode, size=None, scale=None, align=None, second=False, **more):
    dims = len(sizes) - 2
    args = {"mode": mode, "align_corners": align, **more}
    args.update({"size": every(size, dims)} if size is not None else {"scale_factor": every(scale, dims)})
    return one_step(f"interpolate_{name}", "interpolate", tuple(sizes), args, second)


def linear_windows(n, m, scale=None):
    found = []
    for o in range(m):
        at = (o + 0.5) * (scale or n / m) - 0.5
        lo = min(int(max(at, 0)), n - 1)
        found.append((lo, min(lo + 2, n), min(max(int(np.floor(at + 0.5)), 0), n - 1)))
    return found


def cubic_windows(n, m):
    found = []
    for o in range(m):
        at = (o + 0.5) * n / m - 0.5
        i = min(int(np.floor(at)), n - 1)
        found.append((max(i - 1, 0), min(i + 3, n), min(max(int(np.floor(at + 0.5)), 0), n - 1)))
    return found


c = resize("nearest_twice", (2, 3, 7), "nearest", scale=2.0, second=True)
for cuts in ((3, 4), (1, 6), (0, 7), (2, 2, 3)):
    split(c, cuts, 0)
resize("nearest_up", (1, 2, 7), "nearest", size=12)
resize("nearest_down", (1, 2, 13), "nearest", size=5)
resize("nearest_half", (1, 2, 9), "nearest", scale=0.5)
resize("nearest_odd_factor", (1, 2, 7), "nearest", scale=1.7)
resize("nearest_exact", (1, 2, 7), "nearest-exact", size=11)
resize("nearest_same", (1, 2, 7), "nearest", size=7)
# Of images PyTorch counts positions from the sizes where they are the same or twice as large; of others from the
# factor, in the forward pass.
resize("nearest_image_near_twice", (1, 2, 3, 2), "nearest", scale=2.25, second=True)
resize("nearest_image_near_same", (2, 1, 7, 3), "nearest", scale=(1.13, 1.3))
resize("nearest_exact_image_near_twice", (1, 2, 3, 2), "nearest-exact", scale=2.25)
for near, dims in (("sequence", 1), ("volume", 3)):
    single(f"interpolate_nearest_{near}_near_twice", "interpolate", {"x": (1, 2, 3, 2, 3)[:2 + dims]}, constant=("x",),
           args={"mode": "nearest", "align_corners": None, "scale_factor": every(2.25, dims)})
resize("nearest_image", (1, 2, 7, 6), "nearest", size=(13, 15))
resize("nearest_volume", (1, 2, 3, 4, 5), "nearest", scale=2.0)
resize("nearest_no_samples", (0, 2, 3, 4), "nearest", size=(5, 2))
c = resize("linear_twice", (2, 2, 9), "linear", scale=2.0, align=False)
for cuts in ((4, 5), (1, 8), (3, 3, 3), (1, 1, 1, 6)):
    split(c, cuts, fetched(cuts, 2 * 2 * 4, linear_windows(9, 18)))
resize("linear_up", (1, 2, 7), "linear", size=12, align=False, second=True)
resize("linear_aligned", (1, 2, 7), "linear", size=12, align=True, second=True)
resize("linear_aligned_down", (1, 2, 13), "linear", size=5, align=True)
resize("linear_aligned_to_one", (1, 2, 7), "linear", size=1, align=True)
resize("linear_to_one", (1, 2, 7), "linear", size=1, align=False)
resize("linear_from_one", (1, 2, 1), "linear", size=5, align=False)
resize("linear_same", (1, 2, 6), "linear", size=6, align=False)
resize("linear_default", (1, 2, 6), "linear", size=9)
resize("linear_factor", (1, 2, 10), "linear", scale=1.3, align=False)
resize("linear_factor_recomputed", (1, 2, 10), "linear", scale=1.37, align=False, recompute_scale_factor=True)
resize("linear_down", (1, 2, 17), "linear", scale=0.3, align=False)
c = resize("bilinear_twice", (1, 2, 6, 5), "bilinear", scale=2.0, align=False, second=True)
split(c, (2, 4), fetched((2, 4), 2 * 5 * 4, linear_windows(6, 12)))
c.limit(2 * 4 * (2 * 5 + 2 * 6 + 4), {"x": [[3, 3], [2, 3]]}, mesh=(2, 2), x=("S2", "S3"))
resize("bilinear_up", (1, 2, 7, 6), "bilinear", size=(13, 15), align=False)
resize("bilinear_aligned", (2, 2, 7, 6), "bilinear", size=(13, 4), align=True)
resize("bilinear_half", (1, 2, 9, 8), "bilinear", scale=0.5, align=False)
resize("bilinear_one_and_a_half", (1, 2, 6, 8), "bilinear", scale=1.5, align=False)
resize("bilinear_anisotropic", (1, 3, 6, 8), "bilinear", scale=(2.0, 0.5), align=False)
c = resize("bicubic_twice", (1, 2, 7, 5), "bicubic", scale=2.0, align=False, second=True)
for cuts in ((3, 4), (1, 6), (1, 1, 1, 4)):
    split(c, cuts, fetched(cuts, 2 * 5 * 4, cubic_windows(7, 14)))
resize("bicubic_up", (1, 2, 7, 6), "bicubic", size=(13, 15), align=False)
resize("bicubic_aligned", (1, 2, 6, 7), "bicubic", size=(9, 13), align=True)
resize("bicubic_down", (1, 2, 11, 9), "bicubic", size=(4, 5), align=False)
resize("bicubic_small", (1, 2, 1, 2), "bicubic", size=(3, 5), align=False)
resize("trilinear_up", (1, 2, 4, 5, 3), "trilinear", size=(8, 7, 6), align=False)
c = resize("trilinear_twice", (1, 2, 4, 5, 3), "trilinear", scale=2.0, align=False)
for cuts in ((2, 2), (1, 3), (1, 1, 2)):
    split(c, cuts, fetched(cuts, 2 * 5 * 3 * 4, linear_windows(4, 8)))
split(c, (2, 3), fetched((2, 3), 2 * 4 * 3 * 4, linear_windows(5, 10)), dim=3)
resize("trilinear_aligned", (1, 1, 3, 4, 3), "trilinear", size=(5, 2, 7), align=True, second=True)
resize("area", (1, 2, 11, 9), "area", size=(4, 5))

# ---- padding with values of the map itself
def pad_case(name, sizes, amounts, mode, second=False):
    return one_step(f"pad_{name}", "pad", tuple(sizes), {"pad": amounts, "mode": mode, "value": 0.0}, second)


for mode in ("reflect", "replicate"):
    c = pad_case(f"{mode}_one_dim", (2, 3, 9), [2, 3], mode=mode, second=True)
    split(c, (4, 5), 0)
    split(c, (2, 7), 2 * 3 * 4 if mode == "reflect" else 0)
    pad_case(f"{mode}_matrix", (4, 9), [3, 1], mode=mode)
    c = pad_case(f"{mode}_two_dims", (1, 2, 7, 6), [2, 1, 3, 2], mode=mode)
    split(c, (3, 4), 2 * 6 * 4 if mode == "reflect" else 0)
    pad_case(f"{mode}_unbatched", (3, 6, 7), [1, 2, 2, 0], mode=mode)
    pad_case(f"{mode}_three_dims", (1, 2, 4, 5, 3), [1, 2, 0, 3, 2, 1], mode=mode)
    pad_case(f"{mode}_crop", (2, 2, 8), [-2, 3], mode=mode)
    pad_case(f"{mode}_crop_and_grow", (1, 2, 6, 7), [3, -1, -2, 2], mode=mode)
    pad_case(f"{mode}_nothing", (2, 2, 5), [0, 0], mode=mode)
    pad_case(f"{mode}_no_samples", (0, 2, 5), [1, 2], mode=mode)
pad_case("reflect_most", (1, 2, 4), [3, 3], mode="reflect")
pad_case("replicate_more_than_size", (1, 2, 3), [7, 5], mode="replicate")
pad_case("replicate_one_position", (2, 2, 1), [2, 3], mode="replicate")

# ---- convolution over such paddings
for mode in ("reflect", "replicate"):
    c = conv(f"conv2d_{mode}", (1, 2, 10, 9), 3, 3, padding=1, mode=mode, second=True)
    split(c, (4, 6), halo((4, 6), 2 * 9 * 4, 3, padding=1))
    conv(f"conv1d_{mode}_k5_stride2", (2, 2, 11), 3, 5, padding=2, stride=2, mode=mode)
    conv(f"conv2d_{mode}_uneven", (1, 2, 7, 8), 2, (4, 3), padding=(3, 0), dilation=(1, 2), mode=mode)
    conv(f"conv3d_{mode}", (1, 2, 4, 3, 5), 2, 3, padding=1, mode=mode, bias=False)
    conv(f"conv2d_{mode}_unbatched", (2, 6, 5), 3, 3, padding=1, mode=mode, unbatched=True)

# ---- together
c = Case("program_unet", second=True).data(x=(2, 2, 10, 8)).param(
    w1=normal(4, 2, 3, 3, scale=0.3), w2=normal(6, 4, 3, 3, scale=0.2), wu=normal(6, 4, 2, 2, scale=0.4),
    wo=normal(2, 8, 1, 1, scale=0.4))
c.step("conv2d", "x w1 -", "a", **arguments(2, padding=1, mode="reflect")).step("silu", "a", "skip")
c.step("max_pool2d", "skip", "p", kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1], ceil_mode=False)
c.step("conv2d", "p w2 -", "m", **arguments(2, padding=1)).step("silu", "m", "deep")
c.step("conv_transpose2d", "deep wu -", "u", stride=[2, 2], padding=[0, 0], output_padding=[0, 0], dilation=[1, 1], groups=1)
c.step("cat", "u skip", "both", dim=1).step("conv2d", "both wo -", "o", **arguments(2))
c.step("adaptive_avg_pool2d", "o", "mean", output_size=[1, 1]).returns("o mean")
