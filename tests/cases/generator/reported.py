"""Small inputs on which other systems were reported to fail, with the right values written down beside them."""
import numpy as np

from .attention import OP as ATTENTION
from .case import Case
from .convolutions import arguments, halo


def ramp(n, *sizes):
    return np.arange(1, n + 1, dtype=np.float64).reshape(sizes or (n,))


def expect(case, rtol=1e-6, **values):
    """The values known beforehand ("grad_x" stands for the gradient of x), checked when the case is made."""
    plain = case.evaluate

    def checked():
        tensors, metadata = plain()
        for name, want in values.items():
            got = tensors[f"grad.{name[5:]}" if name.startswith("grad_") else f"out.{name}"]
            np.testing.assert_allclose(got.reshape(-1), np.reshape(want, -1), rtol=rtol, atol=rtol, err_msg=f"{case.name} {name}")
        return tensors, metadata
    case.evaluate = checked
    return case


# A periodic axis with the same neighbour on both sides.
expect(Case("reported_periodic_map").data(x=np.arange(16.0).reshape(1, 1, 4, 4)).param(w=ramp(9, 1, 1, 3, 3)).step(
    "conv2d", "x w -", "y", **arguments(2, padding=1, mode="circular")).returns("y", y=ramp(16, 1, 1, 4, 4)).limit(
    halo((2, 2), 16, 3, padding=1, periodic=True), {"x": [[2, 2]]}, x="S3"),
    y=[222, 219, 264, 237, 306, 303, 348, 321, 486, 483, 528, 501, 282, 279, 324, 297],
    grad_x=[423, 396, 441, 438, 219, 192, 237, 234, 399, 372, 417, 414, 483, 456, 501, 498],
    grad_w=[952, 976, 952, 1336, 1360, 1336, 952, 976, 952])

# Strides, dilation and no padding over uneven cuts.
for k, s, p, d, y, dx, dw in (
        (3, 2, 1, 1, [3, 14, 26, 38, 50], [2, 5, 4, 9, 6, 13, 8, 17, 10, 15], [66, 80, 95]),
        (3, 3, 0, 1, [8, 26, 44], [1, 2, 3, 2, 4, 6, 3, 6, 9, 0], [24, 30, 36]),
        (5, 1, 2, 1, [14, 26, 40, 55, 70, 85, 100, 115, 80, 50], [10, 20, 35, 50, 65, 80, 95, 110, 114, 106], [224, 276, 330, 285, 240]),
        (3, 1, 2, 2, [6, 11, 16, 22, 28, 34, 40, 46, 22, 25], [5, 8, 14, 20, 26, 32, 38, 44, 39, 44], [224, 330, 240])):
    case = Case(f"reported_window_k{k}s{s}p{p}d{d}").data(x=np.arange(10.0).reshape(1, 1, 10)).param(w=ramp(k, 1, 1, k)).step(
        "conv1d", "x w -", "y", **arguments(1, stride=s, padding=p, dilation=d)).returns("y", y=ramp(len(y), 1, 1, len(y)))
    for cuts in ((4, 3, 3), (1, 7, 2)):
        case.limit(halo(cuts, 4, k, s, p, d), {"x": [list(cuts)]}, mesh=(3,), x="S2")
    expect(case, y=y, grad_x=dx, grad_w=dw)

# Even kernels with one zero more on the right than on the left.
for k, y in ((2, [21, 32, 43, 54, 65, 76, 87, 8]), (4, [3210, 4321, 5432, 6543, 7654, 8765, 876, 87])):
    expect(Case(f"reported_same_size_even_k{k}").data(x=ramp(8, 1, 1, 8)).param(w=(10.0 ** np.arange(k)).reshape(1, 1, k)).step(
        "pad", "x", "p", pad=[(k - 1) // 2, k // 2], mode="constant", value=0.0).step(
        "conv1d", "p w -", "y", **arguments(1)).returns("y"), y=y)

# Two split axes, one of them periodic: the corners.
expect(Case("reported_corners").data(x=np.arange(16.0).reshape(1, 1, 4, 4)).param(w=ramp(9, 1, 1, 3, 3)).step(
    "pad", "x", "p", pad=[1, 1, 0, 0], mode="circular", value=0.0).step(
    "conv2d", "p w -", "y", **arguments(2, padding=(1, 0))).returns("y", y=ramp(16, 1, 1, 4, 4)),
    y=[144, 139, 178, 157, 306, 303, 348, 321, 486, 483, 528, 501, 252, 253, 274, 259],
    grad_x=[77, 62, 83, 84, 219, 192, 237, 234, 399, 372, 417, 414, 467, 446, 485, 480],
    grad_w=[818, 836, 818, 1336, 1360, 1336, 866, 884, 866])

# An axis shorter than the group of ranks.
case = Case("reported_thin_axis").data(x=np.array([2.0, 3.0, 5.0]).reshape(1, 1, 3)).param(w=np.array([1.0, 10.0, 100.0]).reshape(1, 1, 3))
case.step("conv1d", "x w -", "y", **arguments(1, padding=1)).returns("y", y=ramp(3, 1, 1, 3))
for cuts in ((1, 1, 1, 0), (0, 1, 2, 0), (0, 0, 0, 3)):
    case.limit(halo(cuts, 4, 3, padding=1), {"x": [list(cuts)]}, mesh=(4,), x="S2")
expect(case, y=[320, 532, 53], grad_x=[12, 123, 230], grad_w=[13, 23, 13])


def waves(f, length, heads, width):
    s, h, d = np.meshgrid(np.arange(length), np.arange(heads), np.arange(width), indexing="ij")
    return np.sin(f * (s + 1) * (d + 1) + h).transpose(1, 0, 2)[None]


def wave_attention(name, length, heads, width, cuts, figures=None, half=False, mask=None):
    """Queries, keys, values and cotangent from sines; `figures`: sum o, then sums of |o|, |dq|, |dk|, |dv|."""
    make = waves
    if half:  # rounded to bfloat16, whose bits are the upper half of a float's (to nearest, ties to even)
        def make(*a):
            bits = waves(*a).astype(np.float32).view(np.uint32)
            return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    shape = (length, heads, width)
    case = Case(name).data(q=make(0.7, *shape), k=make(0.3, *shape), v=make(0.11, *shape))
    if mask is not None:
        case.data(m=mask)
    case.step(ATTENTION, f"q k v {'-' if mask is None else 'm'}", "y", is_causal=False, scale=None, enable_gqa=False)
    case.returns("y", y=waves(0.05, *shape))
    for c in cuts:
        case.limit(2 * heads * width * 4 * length * (len(c) - 1), {n: [list(c)] for n in "qkv"}, mesh=(len(c),), q="S2", k="S2", v="S2")
    if figures:
        plain = case.evaluate

        def checked():
            tensors, metadata = plain()
            got = [tensors["out.y"].astype(float).sum()] + [
                np.abs(tensors[n].astype(float)).sum() for n in ("out.y", "grad.q", "grad.k", "grad.v")]
            np.testing.assert_allclose(got, figures, rtol=2e-5, err_msg=name)
            return tensors, metadata
        case.evaluate = checked


wave_attention("reported_attention_uneven_length", 10, 4, 8, [(3, 3, 3, 1)], [
    15.946540297207655, 103.28672000036471, 38.02898760657426, 23.94551428673104, 161.74330704502367])
wave_attention("reported_attention_seven_heads", 8, 7, 4, [], [
    13.214237014762947, 116.0057874656496, 26.167717606171053, 11.983565458475884, 130.8034579268517])
wave_attention("reported_attention_twelve_heads", 8, 12, 4, [], [
    -4.222511427094641, 198.555650090064, 49.48770620751414, 22.12428759577843, 240.2169920374272])
wave_attention("reported_attention_half_precision_inputs", 64, 2, 16, [(16, 16, 16, 16), (5, 31, 1, 27)], [
    33.71657242940532, 127.38467899452311, 65.44280353888935, 73.72943867173773, 163.40254153260494], half=True)
back = np.subtract.outer(np.arange(9), np.arange(9))
wave_attention("reported_attention_window_causal", 9, 4, 8, [], mask=(back >= 0) & (back < 5))

# A causal mask of which single blocks hold nothing.
expect(Case("reported_causal_blocks").data(
    q=np.array([[1.0, 0], [0, 1], [1, 1], [1, -1]]).reshape(1, 1, 4, 2), k=np.array([[1.0, 0], [0, 1], [1, 1], [-1, 1]]).reshape(1, 1, 4, 2),
    v=np.array([[1.0, 0], [2, 0], [3, 0], [4, 1]]).reshape(1, 1, 4, 2)).step(
    ATTENTION, "q k v -", "y", is_causal=True, scale=None, enable_gqa=False).returns("y"),
    y=[1, 0, 1.6697615493266569, 0, 2.255234765226831, 0, 1.8560472188397295, 0.06458483864659637])
# Means over unequal shares, masked, weighted, of a batch.
expect(Case("reported_masked_mean").data(l=ramp(6), m=np.array([1.0, 1, 1, 0, 0, 0])).constant("m").step("mul", "l m", "a").step(
    "sum", "a", "s", dim=None, keepdim=False).step("sum", "m", "n", dim=None, keepdim=False).step("div", "s n", "loss").returns(
    "loss", loss=1.0), loss=2.0, grad_l=[1 / 3, 1 / 3, 1 / 3, 0, 0, 0])
expect(Case("reported_thirteen_samples").data(i=ramp(13)).param(w=np.array(1.0)).step("mul", "w i", "l").step(
    "mean", "l", "loss", dim=None, keepdim=False).returns("loss", loss=1.0).limit(0, {"i": [[7, 6]]}, i="S0"), loss=7.0, grad_w=7.0)
expect(Case("reported_batch_over_domain").data(x=ramp(12, 2, 6)).param(w=np.array(0.5)).step("mul", "x w", "y").step(
    "square", "y", "q").step("mean", "q", "loss", dim=None, keepdim=False).returns("loss", loss=1.0).limit(0, {"x": [[4, 2]]}, x="S1"),
    loss=13.541666666666666, grad_w=54.166666666666664)
expect(Case("reported_batch_flattened").data(x=ramp(12, 2, 6)).param(w=np.array(0.5)).step("mul", "x w", "y").step(
    "flatten", "y", "f", start_dim=0, end_dim=-1).returns("f"), f=0.5 * ramp(12))
expect(Case("reported_weighted_loss").data(p=np.arange(6.0)).param(w=ramp(6)).step("square", "p", "q").step("mul", "q w", "a").step(
    "sum", "a", "s", dim=None, keepdim=False).step("sum", "w", "n", dim=None, keepdim=False).step("div", "s n", "loss").returns(
    "loss", loss=1.0), loss=13.333333333333334)
# mse_loss: its gradient must not grow with the number of ranks.
expect(Case("reported_mse_gradient").data(x=ramp(8, 2, 4), y=np.zeros((2, 4))).step("mse_loss", "x y", "loss", reduction="mean").returns(
    "loss", loss=1.0), loss=25.5, grad_x=ramp(8) / 4, grad_y=-ramp(8) / 4)
# One local row beside several must not be spread over them.
expect(Case("reported_one_row_each").data(a=ramp(8, 8, 1), b=10 * ramp(8, 8, 1)).step("add", "a b", "y").returns("y"), y=11 * ramp(8))
