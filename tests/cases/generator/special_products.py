"""NaN and infinities in single places of factors, maps, keys and tables: products, convolutions, windows, attention, indexing."""
import numpy as np

from .case import Case, chance, normal, single
from .convolutions import arguments
from .special import EVERY, INF, NAN, holding, samples
from .windows import every

# ---- products: a row of one factor, a column of the other, both
LEFT = holding(6, 5, at={(0, 1): NAN, (1, 4): INF, (2, 0): -INF, (3, 0): INF, (3, 4): INF})
RIGHT = holding(5, 6, at={(2, 0): NAN, (4, 1): INF, (0, 2): -INF})
PLAIN = holding(5, 6)
for name, a, b in (("left", LEFT, PLAIN), ("right", holding(6, 5), RIGHT), ("both", LEFT, RIGHT),
                   ("zeros", LEFT, holding(5, 6, at={(1, 0): 0.0, (4, 1): 0.0, (0, 2): 0.0}))):
    single(f"special_matmul_{name}", "matmul", {"a": a, "b": b})
    single(f"special_einsum_{name}", "einsum", {"a": a, "b": b}, args={"equation": "ij,jk->ki"})
single("special_matmul_batched", "matmul", {"a": holding(3, 4, 5, at={(0, 1, 2): NAN, (1, 3, 0): INF}), "b": holding(3, 5, 2, at={(2, 4, 1): -INF})})
single("special_matmul_column", "matmul", {"a": LEFT, "b": (5,)})
single("special_matmul_dot", "matmul", {"a": holding(9, at={3: INF}), "b": holding(9, at={7: -INF})})
single("special_einsum_rows", "einsum", {"a": LEFT, "b": (6, 5)}, args={"equation": "ij,ij->i"})
single("special_einsum_inner", "einsum", {"a": holding(13, at={2: INF}), "b": holding(13, at={11: NAN})}, args={"equation": "i,i->"})
for name, x, w, b in (("input", LEFT, (3, 5), (3,)), ("weight", (6, 5), holding(3, 5, at={(0, 2): NAN, (1, 4): INF}), (3,)),
                      ("bias", (6, 5), (3, 5), holding(3, at={0: NAN, 1: -INF}))):
    single(f"special_linear_{name}", "linear", {"x": x}, {"w": w, "b": b})
    single(f"special_linear_split_{name}", "linear", {"x": x, "w": w, "b": b})

# ---- convolutions: special values of the map, next to the border too; of weights and biases without a border
SPACE = {1: (11,), 2: (7, 6), 3: (4, 5, 4)}
for dims, space in SPACE.items():
    corner = holding(2, 2, *space, at={(0, 0, *(0,) * dims): NAN, (1, 1, *(n - 1 for n in space)): INF})
    for name, x, w, b, options in (
            ("input", samples(2, *space), (3, 2, *(3,) * dims), (3,), {"padding": 1}),
            ("corner", corner, (3, 2, *(3,) * dims), (3,), {"padding": 1}),
            ("corner_valid", corner, (3, 2, *(2,) * dims), (3,), {"stride": 2}),
            ("circular", corner, (3, 2, *(3,) * dims), (3,), {"padding": 1, "mode": "circular"}),
            ("reflect", corner, (3, 2, *(3,) * dims), (3,), {"padding": 1, "mode": "reflect"}),
            ("depthwise", samples(2, *space), (2, 1, *(3,) * dims), (2,), {"padding": 1, "groups": 2}),
            ("dilated", samples(2, *space), (3, 2, *(2,) * dims), (3,), {"dilation": 2}),
            ("pointwise", samples(2, *space), (3, 2, *(1,) * dims), (3,), {}),
            ("weight", (2, 2, *space), holding(3, 2, *(3,) * dims, at={(0, 1, *(1,) * dims): NAN, (1, 0, *(0,) * dims): INF}), (3,), {}),
            ("bias", (2, 2, *space), (3, 2, *(3,) * dims), holding(3, at={0: NAN, 2: -INF}), {"padding": 1})):
        if name == "reflect" and dims == 3:
            continue  # the map is what the padding reads: as in two dims
        Case(f"special_conv{dims}d_{name}").data(x=x).param(w=w, b=b).step(
            f"conv{dims}d", "x w b", "y", **arguments(dims, **options)).returns("y")
    # As many channels and places as vectors hold.
    channels = 17 if dims < 3 else 6
    wide = holding(2, channels, *(2 * n for n in space), at={(0, 3, *(0,) * dims): NAN, (1, channels - 1, *(n for n in space)): INF})
    Case(f"special_conv{dims}d_wide").data(x=wide).param(w=(channels + 1, channels, *(3,) * dims), b=(channels + 1,)).step(
        f"conv{dims}d", "x w b", "y", **arguments(dims, padding=1)).returns("y")
    for name, x, w, stride in (("input", samples(2, *space), (2, 3, *(3,) * dims), 2), ("corner", corner, (2, 3, *(3,) * dims), 1),
                               ("weight", (2, 2, *space), holding(2, 3, *(2,) * dims, at={(0, 1, *(1,) * dims): NAN, (1, 0, *(0,) * dims): INF}), 2)):
        args = {n: every(v, dims) for n, v in (("stride", stride), ("padding", int(name == "input")), ("output_padding", 0), ("dilation", 1))}
        Case(f"special_conv_transpose{dims}d_{name}").data(x=x).param(w=w, b=(3,)).step(
            f"conv_transpose{dims}d", "x w b", "y", groups=1, **args).returns("y")

# ---- pools, interpolation, padding: what a window reads
    for kind in ("avg", "max"):
        for name, kernel, stride, padding in (("overlapping", 3, 2, 1), ("apart", 2, 2, 0), ("wide", min(space), 1, 0)):
            args = {"kernel_size": every(kernel, dims), "stride": every(stride, dims), "padding": every(padding, dims), "ceil_mode": False}
            single(f"special_{kind}_pool{dims}d_{name}", f"{kind}_pool{dims}d", {"x": samples(2, *space)}, args=args)
    for size in (1, 3, max(space) + 2):
        single(f"special_adaptive_avg_pool{dims}d_{size}", f"adaptive_avg_pool{dims}d", {"x": samples(2, *space)},
               args={"output_size": every(size, dims)})
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[dims]
    for mode, align in (("nearest", None), ("nearest-exact", None), (linear, False), (linear, True), *((("bicubic", False),) if dims == 2 else ())):
        for label, scale in (("up", 2), ("down", 0.5)):
            single(f"special_interpolate_{mode}{'_aligned' if align else ''}_{label}_{dims}d", "interpolate", {"x": samples(2, *space)},
                   args={"mode": mode, "align_corners": align, "size": [max(int(n * scale), 1) for n in space]})
    for mode, value in (("constant", NAN), ("reflect", 0.0), ("replicate", 0.0), ("circular", 0.0)):
        single(f"special_pad_{mode}_{dims}d", "pad", {"x": corner}, args={"pad": [1, 1] * dims, "mode": mode, "value": value})
single("special_interpolate_area", "interpolate", {"x": samples(2, 7, 6)}, args={"mode": "area", "align_corners": None, "size": [3, 4]})

# ---- attention: a query spoils its row, a key or a value that all may see spoils all rows
SDPA = "scaled_dot_product_attention"
QKV = {"q": (2, 2, 7, 4), "k": (2, 2, 9, 4), "v": (2, 2, 9, 4)}


def attention(name, mask=None, causal=False, constant=(), **tensors):
    case = Case(f"special_attention_{name}").data(**{**QKV, **tensors}).constant(*constant)
    if mask is not None:
        case.data(m=mask)
    return case.step(SDPA, f"q k v {'-' if mask is None else 'm'}", "y", is_causal=causal, scale=None, enable_gqa=False).returns("y")


for label, value in EVERY:
    attention(f"query_{label}", q=holding(2, 2, 7, 4, at={(0, 1, 3, 2): value}))
    attention(f"key_{label}", k=holding(2, 2, 9, 4, at={(1, 0, 8, 2): value}))
    attention(f"value_{label}", v=holding(2, 2, 9, 4, at={(1, 1, 5, 0): value}))
    # Keys that no row may see get zero or NaN, which depends on the kernel, in PyTorch too.
    attention(f"causal_query_{label}", causal=True, constant="kv", q=holding(2, 2, 7, 4, at={(0, 1, 3, 2): value}))
    attention(f"causal_first_key_{label}", causal=True, constant="kv", k=holding(2, 2, 9, 4, at={(0, 1, 0, 2): value}))
    attention(f"causal_first_value_{label}", causal=True, constant="k", v=holding(2, 2, 9, 4, at={(0, 1, 0, 2): value}))


def added(rng):
    m = normal(7, 9)(rng)
    m[np.asarray(chance(0.4, 7, 9)(rng))] = -INF
    m[:, 4] = 0.25
    m[5] = -INF
    return m


attention("added_minus_infinity", added)
attention("added_minus_infinity_all", np.full((7, 9), -INF))
attention("added_nan", holding(7, 9, at={(2, 3): NAN}))
attention("added_infinity", holding(7, 9, at={(2, 3): INF}))
attention("masked_rows", lambda rng: np.logical_and(chance(0.6, 7, 9)(rng), (np.arange(7) % 3 != 1)[:, None]),
          q=holding(2, 2, 7, 4, at={(0, 1, 3, 2): INF}))

# ---- what moves elements: each value arrives where it should, and nowhere else
TABLE = holding(9, 4, at={(1, 0): NAN, (4, 2): INF, (8, 3): -INF})
single("special_index_select", "index_select", {"x": TABLE, "i": [1, 8, 0, 0, 4, 3]}, args={"dim": 0})
single("special_gather", "gather", {"x": TABLE, "i": lambda rng: rng.integers(0, 9, (6, 4))}, args={"dim": 0})
single("special_take_along_dim", "take_along_dim", {"x": TABLE, "i": lambda rng: rng.integers(0, 4, (9, 3))}, args={"dim": 1})
single("special_embedding", "embedding", {"i": [[1, 8, 2], [0, 4, 4]]}, {"t": TABLE}, ins="t i")
single("special_embedding_split", "embedding", {"t": TABLE, "i": [[1, 8, 2], [0, 4, 4]]}, ins="t i", args={"padding_idx": 4})
for name, x, s in (("into", TABLE, (7, 4)), ("terms", (9, 4), holding(7, 4, at={(1, 0): NAN, (3, 1): INF, (5, 1): -INF})),
                   ("both", TABLE, holding(7, 4, at={(1, 0): -INF, (3, 2): -INF}))):
    single(f"special_scatter_add_{name}", "scatter_add", {"x": x, "i": lambda rng: rng.integers(0, 9, (7, 4)), "s": s}, args={"dim": 0})
single("special_masked_fill", "masked_fill", {"x": TABLE, "m": chance(0.5, 9, 4)}, args={"value": 2.0})
MAP = holding(3, 5, 4, at={(0, 1, 2): NAN, (2, 4, 3): INF, (1, 0, 0): -INF})
for name, op, args in (("reshape", "reshape", {"shape": [5, 12]}), ("permute", "permute", {"dims": [2, 0, 1]}), ("roll", "roll", {"shifts": [2], "dims": [1]}),
                       ("flip", "flip", {"dims": [1, 2]}), ("slice", "slice", {"dim": 1, "start": 1, "end": 5, "step": 2}),
                       ("repeat", "repeat", {"repeats": [2, 1, 3]}), ("repeat_interleave", "repeat_interleave", {"repeats": 2, "dim": 1}),
                       ("expand", "expand", {"sizes": [2, 3, 5, 4]}), ("diagonal", "diagonal", {"offset": 0, "dim1": 0, "dim2": 1}),
                       ("tile", "tile", {"dims": [2, 1, 1]})):
    single(f"special_{name}", op, {"x": MAP}, args=args)
single("special_cat", "cat", {"a": MAP, "b": (3, 2, 4)}, args={"dim": 1})
single("special_stack", "stack", {"a": MAP, "b": (3, 5, 4)}, args={"dim": 1})
single("special_slice_scatter", "slice_scatter", {"x": MAP, "s": (3, 2, 4)}, args={"dim": 1, "start": 1, "end": 3, "step": 1})
single("special_select_scatter", "select_scatter", {"x": MAP, "s": holding(3, 4, at={(1, 1): NAN})}, args={"dim": 1, "index": 4})

# ---- gradients that arrive special: they pass where the element counted
GRADIENT = np.array([[NAN, 1, -2, INF], [0.5, -INF, 3, 1]])


def arriving(name, op, x, cotangent, **args):
    Case(f"special_gradient_{name}").data(x=x).step(op, "x", "y", **args).returns("y", y=cotangent)


SIGNS = np.array([[-1.0, 0, 2, -3], [1, -1, -2, 0]])
for op in ("relu", "abs", "square", "neg", "sigmoid", "tanh", "exp", "silu", "softplus"):
    arriving(op, op, SIGNS, GRADIENT)
arriving("clamp", "clamp", SIGNS, GRADIENT, min=-0.5, max=0.5)
arriving("leaky_relu", "leaky_relu", SIGNS, GRADIENT, negative_slope=0.2)
arriving("sum", "sum", (2, 5, 4), GRADIENT, dim=[1], keepdim=False)
arriving("mean", "mean", (2, 5, 4), GRADIENT, dim=[1], keepdim=False)
arriving("amax", "amax", (2, 5, 4), GRADIENT, dim=[1], keepdim=False)
arriving("prod", "prod", (2, 5, 4), GRADIENT, dim=[1], keepdim=False)
arriving("var", "var", (2, 5, 4), GRADIENT, dim=[1], correction=1, keepdim=False)
arriving("logsumexp", "logsumexp", (2, 5, 4), GRADIENT, dim=[1], keepdim=False)
arriving("cumsum", "cumsum", (2, 4), GRADIENT, dim=1)
arriving("softmax", "softmax", (2, 4), GRADIENT, dim=1)
arriving("log_softmax", "log_softmax", (2, 4), GRADIENT, dim=1)
arriving("max_pool1d", "max_pool1d", (1, 2, 8), GRADIENT[None], kernel_size=[3], stride=[2], padding=[1], dilation=[1], ceil_mode=False)
arriving("avg_pool1d", "avg_pool1d", (1, 2, 8), GRADIENT[None], kernel_size=[3], stride=[2], padding=[1], ceil_mode=False)
arriving("roll", "roll", (2, 4), GRADIENT, shifts=[1], dims=[1])
arriving("transpose", "transpose", (4, 2), GRADIENT, dim0=0, dim1=1)
# (An infinite gradient meets sums of both signs in a norm, in an order that differs from kernel to kernel.)
Case("special_gradient_layer_norm").data(x=(2, 4)).param(w=(4,), b=(4,)).step("layer_norm", "x w b", "y", normalized_shape=[4], eps=1e-5).returns(
    "y", y=[[NAN, 1, -2, 1], [0.5, -1, 3, 1]])
Case("special_gradient_matmul").data(a=(2, 5), b=(5, 4)).step("matmul", "a b", "y").returns("y", y=GRADIENT)
Case("special_gradient_linear").data(x=(2, 5)).param(w=(4, 5), b=(4,)).step("linear", "x w b", "y").returns("y", y=GRADIENT)
Case("special_gradient_conv1d").data(x=(1, 3, 6)).param(w=(2, 3, 3), b=(2,)).step("conv1d", "x w b", "y", **arguments(1)).returns(
    "y", y=GRADIENT[None])
Case("special_gradient_where").data(c=SIGNS > 0, a=(2, 4), b=(2, 4)).step("where", "c a b", "y").returns("y", y=GRADIENT)
Case("special_gradient_masked_fill").data(x=(2, 4), m=SIGNS > 0).step("masked_fill", "x m", "y", value=0.5).returns("y", y=GRADIENT)
Case("special_gradient_embedding").data(i=[1, 3]).param(t=(5, 4)).step("embedding", "t i", "y", padding_idx=3).returns("y", y=GRADIENT)
Case("special_gradient_gather").data(x=(2, 6), i=[[0, 3, 3, 1], [5, 5, 2, 0]]).step("gather", "x i", "y", dim=1).returns("y", y=GRADIENT)
