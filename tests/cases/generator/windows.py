"""Kin of convolution: transposed, pooling, interpolation; and what their halos may cost."""
import numpy as np

from .case import Case, normal


def every(value, dims):
    return list(value) if isinstance(value, (tuple, list)) else [value] * dims


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
transposed("split_weights", (2, 4, 6), 6, 3, stride=2, weights="data")
transposed("split_weights_groups", (2, 4, 6), 6, 3, stride=2, groups=2, weights="data")
transposed("unbatched", (2, 7), 3, 4, stride=2, padding=1, unbatched=True)

c = transposed("k2s2", (2, 3, 6, 5), 4, 2, stride=2, second=True)
split(c, (1, 5), 0)
split(c, (2, 3), 0, dim=3)
c.limit(0, {"x": [[2, 4], [4, 1]]}, mesh=(2, 2), x=("S2", "S3"))
c = transposed("k4s2p1", (1, 2, 7, 6), 3, 4, stride=2, padding=1, second=True)
split(c, (3, 4), returned((3, 4), 3 * 12 * 4, 4, stride=2, padding=1))
split(c, (1, 1, 4, 1), returned((1, 1, 4, 1), 3 * 12 * 4, 4, stride=2, padding=1))
transposed("k3s1p1", (2, 2, 6, 7), 3, 3, padding=1, bias=False)
transposed("uneven_everything", (1, 3, 5, 6), 2, (3, 2), stride=(1, 3), padding=(2, 0), output_padding=(0, 2), dilation=(2, 1))
transposed("depthwise", (2, 4, 5, 6), 4, 3, stride=2, padding=1, output_padding=1, groups=4)
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
