"""Convolutions in one to three dims with every parameter, and what their halos may cost."""
import numpy as np

from .case import Case, normal


def arguments(dims, stride=1, padding=0, dilation=1, groups=1, mode="zeros"):
    """The arguments of a convN d step; a single number counts for all dims. Padding may be "same" or "valid"."""
    every = lambda v: list(v) if isinstance(v, (tuple, list)) else [v] * dims  # noqa: E731
    return {"stride": every(stride), "padding": padding if isinstance(padding, str) else every(padding), "dilation": every(dilation), "groups": groups,
            "padding_mode": mode}


def halo(cuts, row_bytes, kernel, stride=1, padding=0, dilation=1, periodic=False):
    """Bytes that a dim cut into `cuts` has to move: output o lives where the middle of its window does, and a
    rank is sent what its windows reach beyond its own interval."""
    size, reach = sum(cuts), dilation * (kernel - 1)
    edges = np.cumsum([0, *cuts])
    owner = np.repeat(np.arange(len(cuts)), cuts)
    needed = set()
    for o in range((size + 2 * padding - reach - 1) // stride + 1):
        first = o * stride - padding
        home = owner[min(max(first + reach // 2, 0), size - 1)]
        for t in range(kernel):
            i = first + t * dilation
            if periodic or 0 <= i < size:
                needed.add((home, i % size))
        lo, hi = int(edges[home]), int(edges[home + 1])
        # what lies between the first and the last element of a window range travels too
        inside = [i for h, i in needed if h == home]
        if not periodic and inside:
            needed |= {(home, i) for i in range(min(min(inside), lo), max(max(inside) + 1, hi))}
    return row_bytes * sum(1 for home, i in needed if owner[i] != home)


def conv(name, sizes, out_channels, kernel, bias=True, second=False, weights="param", unbatched=False, **options):
    """A case of one convolution of an input of `sizes` (N, C, spatial...), or without N."""
    dims = len(sizes) - (1 if unbatched else 2)
    kernel = tuple(kernel) if isinstance(kernel, (tuple, list)) else (kernel,) * dims
    inside = sizes[-dims - 1] // options.get("groups", 1)
    case = Case(name, second).data(x=tuple(sizes))
    add = case.param if weights == "param" else case.data
    add(w=normal(out_channels, inside, *kernel, scale=(inside * np.prod(kernel)) ** -0.5))
    if bias:
        add(b=(out_channels,))
    return case.step(f"conv{dims}d", f"x w {'b' if bias else '-'}", "y", **arguments(dims, **options)).returns("y")


def split(case, cuts, most, dim=2):
    return case.limit(most, {"x": [list(cuts)]}, mesh=(len(cuts),), x=f"S{dim}")


# ---- 1-D
c = conv("conv1d_same", (2, 3, 17), 4, 3, padding=1, second=True)
for cuts in ((8, 9), (1, 16), (5, 5, 7), (0, 9, 8)):
    split(c, cuts, halo(cuts, 2 * 3 * 4, 3, padding=1))
c = conv("conv1d_k5_wide", (1, 2, 16), 3, 5, padding=2)
split(c, (1, 15), halo((1, 15), 2 * 4, 5, padding=2))
split(c, (1, 14, 1), halo((1, 14, 1), 2 * 4, 5, padding=2))
split(c, (7, 1, 1, 7), halo((7, 1, 1, 7), 2 * 4, 5, padding=2))
conv("conv1d_k9_longer_than_input", (1, 2, 5), 2, 9, padding=4)
conv("conv1d_no_padding", (1, 2, 13), 3, 4)
conv("conv1d_stride2", (2, 2, 15), 3, 3, stride=2, padding=1, second=True)
conv("conv1d_stride3_skips", (1, 2, 16), 3, 2, stride=3)
conv("conv1d_stride5_k1", (1, 2, 17), 3, 1, stride=5)
conv("conv1d_dilation4", (1, 2, 19), 2, 3, padding=4, dilation=4)
conv("conv1d_dilation3_stride2", (1, 2, 18), 2, 3, padding=2, dilation=3, stride=2)
conv("conv1d_even_kernel", (1, 2, 12), 3, 4, padding=2)
conv("conv1d_padding_beyond_kernel", (1, 2, 7), 2, 3, padding=3)
conv("conv1d_k1_padding1", (1, 2, 7), 2, 1, padding=1)
conv("conv1d_circular_k5", (1, 2, 11), 3, 5, padding=2, mode="circular", second=True)
conv("conv1d_circular_stride2", (2, 2, 12), 3, 3, padding=1, stride=2, mode="circular")
conv("conv1d_circular_full_turn", (1, 2, 4), 2, 5, padding=4, mode="circular")
conv("conv1d_depthwise_multiplier", (2, 3, 13), 6, 3, padding=1, groups=3)
conv("conv1d_one_output", (1, 3, 6), 2, 6)
conv("conv1d_size_one", (1, 1, 1), 1, 1)
conv("conv1d_no_samples", (0, 2, 9), 3, 3, padding=1)
conv("conv1d_no_samples_no_positions", (0, 2, 0), 3, 3, padding=2)
conv("conv1d_split_weights", (2, 4, 9), 6, 3, padding=1, weights="data")
conv("conv1d_split_weights_groups", (2, 4, 9), 6, 3, padding=1, groups=2, weights="data")
c = conv("conv1d_unbatched", (2, 12), 3, 4, stride=2, padding=1, unbatched=True)
split(c, (5, 7), halo((5, 7), 2 * 4, 4, stride=2, padding=1), dim=1)
conv("conv1d_padding_same_k4", (1, 2, 9), 3, 4, padding="same")
conv("conv1d_padding_same_dilated", (2, 2, 9), 3, 2, dilation=3, padding="same")
conv("conv1d_padding_valid", (1, 2, 9), 3, 4, padding="valid")

# ---- 2-D
c = conv("conv2d_same", (1, 3, 13, 10), 4, 3, padding=1, second=True)
for cuts in ((6, 7), (12, 1), (4, 1, 8), (3, 4, 2, 4), (13, 0)):
    split(c, cuts, halo(cuts, 3 * 10 * 4, 3, padding=1))
split(c, (3, 7), halo((3, 7), 3 * 13 * 4, 3, padding=1), dim=3)
# On a 2 x 2 mesh: rows, columns and the corners, each element once to each rank that needs it.
c.limit(3 * 4 * (2 * 10 + 2 * 13 + 4), {"x": [[6, 7], [4, 6]]}, mesh=(2, 2), x=("S2", "S3"))
c = conv("conv2d_batch3_no_bias", (3, 2, 9, 7), 4, 3, bias=False, padding=1)
split(c, (4, 5), halo((4, 5), 3 * 2 * 7 * 4, 3, padding=1))
split(c, (1, 2), 0, dim=0)
c.limit(halo((4, 5), 3 * 2 * 7 * 4, 3, padding=1), {"x": [[2, 1], [4, 5]]}, mesh=(2, 2), x=("S0", "S2"))
c = conv("conv2d_pointwise", (2, 3, 7, 6), 5, 1, second=True)
split(c, (3, 4), 0)
c.limit(0, {"x": [[3, 4], [1, 5]]}, mesh=(2, 2), x=("S2", "S3"))
c = conv("conv2d_patch", (2, 3, 12, 8), 6, 4, stride=4, second=True)
split(c, (4, 8), 0)
split(c, (8, 0, 4), 0)
split(c, (5, 7), halo((5, 7), 2 * 3 * 8 * 4, 4, stride=4))
conv("conv2d_patch_leftover", (1, 2, 14, 11), 5, (4, 3), stride=(4, 3))
conv("conv2d_patch_one_token", (2, 2, 4, 4), 5, 4, stride=4)
c = conv("conv2d_stride2", (2, 2, 13, 12), 3, 3, stride=2, padding=1, second=True)
split(c, (6, 7), halo((6, 7), 2 * 2 * 12 * 4, 3, stride=2, padding=1))
split(c, (5, 8), halo((5, 8), 2 * 2 * 12 * 4, 3, stride=2, padding=1))
conv("conv2d_stride2_no_padding", (1, 2, 12, 11), 3, 3, stride=2)
conv("conv2d_stride3", (1, 2, 13, 12), 3, 3, stride=3)
conv("conv2d_stride4_k2", (1, 2, 15, 13), 2, 2, stride=4)
conv("conv2d_k4_stride2", (1, 2, 12, 10), 3, 4, stride=2, padding=1)
conv("conv2d_k2", (1, 2, 9, 8), 3, 2)
c = conv("conv2d_k7", (1, 2, 12, 9), 2, 7, padding=3)
split(c, (1, 11), halo((1, 11), 2 * 9 * 4, 7, padding=3))
split(c, (1, 1, 1, 9), halo((1, 1, 1, 9), 2 * 9 * 4, 7, padding=3))
conv("conv2d_dilation2", (2, 2, 12, 11), 2, 3, padding=2, dilation=2, second=True)
conv("conv2d_dilation3_valid", (1, 2, 13, 12), 2, 3, dilation=3)
conv("conv2d_uneven_everything", (1, 2, 12, 15), 3, (3, 5), stride=(1, 2), padding=(1, 3), dilation=(2, 1))
conv("conv2d_row_kernel", (1, 2, 9, 8), 3, (1, 5), padding=(0, 2))
conv("conv2d_column_kernel", (1, 2, 9, 8), 3, (5, 1), padding=(2, 0))
conv("conv2d_groups2", (2, 4, 9, 8), 6, 3, padding=1, groups=2, second=True)
c = conv("conv2d_depthwise", (1, 4, 9, 8), 4, 5, padding=2, groups=4)
split(c, (4, 5), halo((4, 5), 4 * 8 * 4, 5, padding=2))
conv("conv2d_depthwise_stride2", (2, 3, 9, 8), 6, 3, stride=2, padding=1, groups=3, bias=False)
c = conv("conv2d_circular", (2, 2, 9, 10), 3, 3, padding=1, mode="circular", second=True)
split(c, (4, 5), halo((4, 5), 2 * 2 * 10 * 4, 3, padding=1, periodic=True))
split(c, (3, 2, 4), halo((3, 2, 4), 2 * 2 * 10 * 4, 3, padding=1, periodic=True))
conv("conv2d_circular_k5_uneven", (1, 2, 7, 12), 3, (3, 5), stride=(1, 2), padding=(1, 2), mode="circular")
conv("conv2d_circular_one_dim", (1, 2, 8, 9), 3, (3, 3), padding=(0, 1), mode="circular")
conv("conv2d_circular_dilated_depthwise", (1, 3, 9, 8), 3, 3, padding=2, dilation=2, groups=3, mode="circular")
conv("conv2d_one_row", (1, 2, 1, 9), 3, 3, padding=1)
conv("conv2d_no_samples", (0, 2, 5, 6), 3, 3, padding=1)
conv("conv2d_split_weights", (2, 3, 7, 6), 4, 3, padding=1, weights="data", second=True)
conv("conv2d_split_weights_depthwise", (2, 4, 7, 6), 4, 3, padding=1, groups=4, weights="data")
c = conv("conv2d_unbatched", (3, 8, 7), 4, 3, padding=1, unbatched=True)
split(c, (3, 5), halo((3, 5), 3 * 7 * 4, 3, padding=1), dim=1)
conv("conv2d_padding_same_k4_k2", (1, 2, 7, 6), 3, (4, 2), padding="same", second=True)
c = conv("conv2d_k1_padding1", (1, 2, 6, 5), 3, 1, padding=1)
split(c, (2, 4), 0)

# ---- 3-D
c = conv("conv3d_same", (1, 2, 7, 6, 5), 3, 3, padding=1)
split(c, (3, 4), halo((3, 4), 2 * 30 * 4, 3, padding=1))
split(c, (2, 3), halo((2, 3), 2 * 42 * 4, 3, padding=1), dim=4)
c.limit(2 * 4 * 5 * (2 * 6 + 2 * 7 + 4), {"x": [[3, 4], [2, 4]]}, mesh=(2, 2), x=("S2", "S3"))
conv("conv3d_small", (2, 1, 4, 5, 3), 2, 2, second=True)
conv("conv3d_stride2", (1, 2, 8, 7, 6), 2, 3, stride=2, padding=1)
conv("conv3d_uneven_everything", (1, 2, 6, 7, 8), 2, (1, 3, 2), stride=(2, 1, 3), padding=(0, 2, 1), dilation=(1, 2, 1))
conv("conv3d_groups", (1, 4, 5, 4, 6), 4, 3, padding=1, groups=2, bias=False)
conv("conv3d_depthwise", (1, 3, 5, 6, 4), 3, 3, padding=1, groups=3)
conv("conv3d_circular", (1, 2, 5, 4, 6), 2, 3, padding=1, mode="circular")
conv("conv3d_pointwise", (2, 3, 4, 3, 5), 2, 1)
c = conv("conv3d_patch", (1, 2, 4, 6, 4), 5, 2, stride=2)
split(c, (2, 4), 0, dim=3)
conv("conv3d_unbatched", (2, 3, 4, 5), 3, 2, stride=(1, 2, 1), unbatched=True)
