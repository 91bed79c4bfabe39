"""Several steps: what models are made of, and what happens to a value between two operations."""
import numpy as np

from .attention import OP as ATTENTION
from .case import Case, chance, few_values, normal, uniform
from .convolutions import arguments

EPS = 1e-5


def transformer_block(case, x, out, prefix, shape, causal=False):
    """Pre-norm attention and MLP with residuals on (N, T, D); adds the parameters it needs."""
    batch, tokens, width, heads = shape
    p = lambda n: f"{prefix}{n}"  # noqa: E731
    case.param(**{p("g1"): normal(width, scale=0.3, shift=1), p("b1"): normal(width, scale=0.3),
                  p("wqkv"): normal(3 * width, width, scale=0.4), p("bqkv"): normal(3 * width, scale=0.2),
                  p("wo"): normal(width, width, scale=0.4), p("bo"): normal(width, scale=0.2),
                  p("g2"): normal(width, scale=0.3, shift=1), p("b2"): normal(width, scale=0.3),
                  p("w1"): normal(2 * width, width, scale=0.4), p("c1"): normal(2 * width, scale=0.2),
                  p("w2"): normal(width, 2 * width, scale=0.3), p("c2"): normal(width, scale=0.2)})
    case.step("layer_norm", f"{x} {p('g1')} {p('b1')}", p("n1"), normalized_shape=[width], eps=EPS)
    case.step("linear", f"{p('n1')} {p('wqkv')} {p('bqkv')}", p("qkv"))
    case.step("reshape", p("qkv"), p("r"), shape=[batch, tokens, 3, heads, width // heads])
    case.step("permute", p("r"), p("s"), dims=[2, 0, 3, 1, 4])
    case.step("split", p("s"), f"{p('q1')} {p('k1')} {p('v1')}", sizes=[1, 1, 1], dim=0)
    for t in "qkv":
        case.step("squeeze", p(t + "1"), p(t), dim=0)
    case.step(ATTENTION, f"{p('q')} {p('k')} {p('v')} -", p("a"), is_causal=causal, scale=None, enable_gqa=False)
    case.step("transpose", p("a"), p("at"), dim0=1, dim1=2).step("reshape", p("at"), p("ar"), shape=[batch, tokens, width])
    case.step("linear", f"{p('ar')} {p('wo')} {p('bo')}", p("o")).step("add", f"{x} {p('o')}", p("h"))
    case.step("layer_norm", f"{p('h')} {p('g2')} {p('b2')}", p("n2"), normalized_shape=[width], eps=EPS)
    case.step("linear", f"{p('n2')} {p('w1')} {p('c1')}", p("m1")).step("gelu", p("m1"), p("m2"), approximate="none")
    case.step("linear", f"{p('m2')} {p('w2')} {p('c2')}", p("m3")).step("add", f"{p('h')} {p('m3')}", out)


def vision_transformer(name, batch, second):
    """One training step of a small map-to-map transformer, patch 2 x 3 on 10 x 12."""
    case = Case(name, second).data(x=(batch, 2, 10, 12), t=(batch, 2, 10, 12)).constant("t")
    case.param(wp=normal(8, 2, 2, 3, scale=0.3), bp=(8,), pos=normal(1, 20, 8, scale=0.2))
    case.step("conv2d", "x wp bp", "p", **arguments(2, stride=(2, 3)))
    case.step("flatten", "p", "f", start_dim=2, end_dim=3).step("transpose", "f", "tok", dim0=1, dim1=2)
    case.step("add", "tok pos", "e")
    transformer_block(case, "e", "z", "k_", (batch, 20, 8, 2))
    case.param(gn=(8,), bn=(8,), wh=normal(12, 8, scale=0.4), bh=normal(12, scale=0.2))
    case.step("layer_norm", "z gn bn", "zn", normalized_shape=[8], eps=EPS).step("linear", "zn wh bh", "hd")
    case.step("reshape", "hd", "u1", shape=[batch, 5, 4, 2, 2, 3]).step("permute", "u1", "u2", dims=[0, 3, 1, 4, 2, 5])
    case.step("reshape", "u2", "y", shape=[batch, 2, 10, 12]).step("mse_loss", "y t", "loss", reduction="mean")
    case.returns("y loss")


vision_transformer("program_vision_transformer_step", 1, second=False)
vision_transformer("program_vision_transformer_batch2", 2, second=False)
c = Case("program_transformer_block", second=True).data(x=(2, 7, 6))
transformer_block(c, "x", "y", "", (2, 7, 6, 3))
c.returns("y")
c = Case("program_causal_block").data(x=(1, 11, 6))
transformer_block(c, "x", "y", "", (1, 11, 6, 2), causal=True)
c.returns("y")

# Halo after halo.
c = Case("program_conv_chain", second=True).data(x=(1, 2, 9, 8))
c.param(w1=normal(4, 2, 3, 3, scale=0.3), b1=(4,), w2=normal(4, 4, 3, 3, scale=0.2), w3=normal(2, 4, 5, 5, scale=0.1), b3=(2,))
c.step("conv2d", "x w1 b1", "a", **arguments(2, padding=1)).step("gelu", "a", "ag", approximate="tanh")
c.step("conv2d", "ag w2 -", "b", **arguments(2, padding=1)).step("silu", "b", "bs")
c.step("conv2d", "bs w3 b3", "y", **arguments(2, padding=2)).returns("y")
c = Case("program_conv_chain_globe").data(x=(2, 2, 7, 9)).param(w1=normal(3, 2, 3, 3, scale=0.3), w2=normal(3, 3, 3, 3, scale=0.3), b2=(3,))
for source, weights, out in (("x", "w1 -", "a"), ("at", "w2 b2", "y")):  # round in longitude, zeros beyond the poles
    c.step("pad", source, out + "p", pad=[1, 1, 0, 0], mode="circular", value=0.0)
    c.step("conv2d", f"{out}p {weights}", out, **arguments(2, padding=(1, 0)))
    if out == "a":
        c.step("tanh", "a", "at")
c.returns("y")
c = Case("program_conv_down_to_one").data(x=(1, 2, 11, 8)).param(
    w1=normal(3, 2, 3, 3, scale=0.3), w2=normal(3, 3, 3, 3, scale=0.3), w3=normal(4, 3, 2, 2, scale=0.4), w4=normal(2, 4, 1, 1))
c.step("conv2d", "x w1 -", "a", **arguments(2, stride=2, padding=1)).step("relu", "a", "ar")
c.step("conv2d", "ar w2 -", "b", **arguments(2, stride=2, padding=1)).step("relu", "b", "br")
c.step("conv2d", "br w3 -", "d", **arguments(2, stride=2)).step("conv2d", "d w4 -", "y", **arguments(2)).returns("y")
c = Case("program_conv1d_dilated_stack").data(x=(2, 3, 23)).param(**{f"w{i}": normal(3, 3, 3, scale=0.4) for i in range(3)})
for i, (source, out) in enumerate((("x", "a"), ("ar", "b"), ("br", "y"))):
    c.step("conv1d", f"{source} w{i} -", out, **arguments(1, padding=2 ** i, dilation=2 ** i))
    if out != "y":
        c.step("add", f"{source} {out}", out + "r")
c.returns("y")
c = Case("program_convnext_block").data(x=(2, 4, 7, 6)).param(
    wd=normal(4, 1, 7, 7, scale=0.2), bd=(4,), g=(4,), b=(4,), w1=normal(8, 4, scale=0.5), b1=(8,), w2=normal(4, 8, scale=0.4), s=(4,))
c.step("conv2d", "x wd bd", "d", **arguments(2, padding=3, groups=4)).step("permute", "d", "p", dims=[0, 2, 3, 1])
c.step("layer_norm", "p g b", "n", normalized_shape=[4], eps=1e-6).step("linear", "n w1 b1", "h1")
c.step("gelu", "h1", "h2", approximate="none").step("linear", "h2 w2 -", "h3").step("mul", "h3 s", "h4")
c.step("permute", "h4", "r", dims=[0, 3, 1, 2]).step("add", "x r", "y").returns("y")
c = Case("program_down_up_skip").data(x=(1, 2, 8, 6), t=(1, 1, 8, 6)).param(
    w1=normal(3, 2, 3, 3, scale=0.3), w2=normal(3, 3, 2, 2, scale=0.3), w3=normal(1, 6, 3, 3, scale=0.2))
c.step("conv2d", "x w1 -", "a", **arguments(2, padding=1)).step("conv2d", "a w2 -", "d", **arguments(2, stride=2))
c.step("reshape", "d", "d6", shape=[1, 3, 4, 1, 3, 1]).step("expand", "d6", "e6", sizes=[1, 3, 4, 2, 3, 2])
c.step("reshape", "e6", "u", shape=[1, 3, 8, 6]).step("cat", "a u", "k", dim=1)
c.step("conv2d", "k w3 -", "y", **arguments(2, padding=1)).step("mse_loss", "y t", "loss", reduction="mean").returns("y loss")
c = Case("program_conv3d_attention").data(x=(1, 2, 3, 4, 4)).param(w=normal(4, 2, 1, 2, 2, scale=0.4), b=(4,))
c.step("conv3d", "x w b", "p", **arguments(3, stride=(1, 2, 2))).step("flatten", "p", "f", start_dim=2, end_dim=-1)
c.step("transpose", "f", "s", dim0=1, dim1=2).step("unsqueeze", "s", "h", dim=1)
c.step(ATTENTION, "h h h -", "a", is_causal=False, scale=None, enable_gqa=False).step("squeeze", "a", "y", dim=1).returns("y")

# Attention along one axis of a map, then along the other.
c = Case("program_axial_attention").data(x=(1, 6, 5, 4))
for source, out, order in (("x", "a", [0, 1, 2, 3]), ("a", "y", [0, 2, 1, 3])):
    c.step("permute", source, out + "i", dims=order)
    c.step(ATTENTION, f"{out}i {out}i {out}i -", out + "o", is_causal=False, scale=None, enable_gqa=False)
    c.step("permute", out + "o", out, dims=order)
c.returns("y")
# Shifted windows: roll, cut into windows, attend inside them, put back.
c = Case("program_shifted_windows").data(x=(1, 8, 6, 4), m=normal(1, 2, 8, 8)).step("roll", "x", "r", shifts=[-2, -1], dims=[1, 2])
c.step("reshape", "r", "w6", shape=[1, 2, 4, 3, 2, 4]).step("permute", "w6", "wp", dims=[0, 1, 3, 2, 4, 5])
c.step("reshape", "wp", "w", shape=[6, 8, 2, 2]).step("transpose", "w", "wt", dim0=1, dim1=2)
c.step(ATTENTION, "wt wt wt m", "a", is_causal=False, scale=None, enable_gqa=False).step("transpose", "a", "at", dim0=1, dim1=2)
c.step("reshape", "at", "b6", shape=[1, 2, 3, 4, 2, 4]).step("permute", "b6", "bp", dims=[0, 1, 3, 2, 4, 5])
c.step("reshape", "bp", "b", shape=[1, 8, 6, 4]).step("roll", "b", "y", shifts=[2, 1], dims=[1, 2]).returns("y")
# Rotary position: halves are split, turned and joined.
c = Case("program_rotary", second=True).data(x=(2, 9, 8)).param(co=uniform(-1, 1, 9, 4), si=uniform(-1, 1, 9, 4))
c.step("split", "x", "a b", sizes=[4, 4], dim=-1).step("mul", "a co", "ac").step("mul", "b si", "bs").step("sub", "ac bs", "l")
c.step("mul", "b co", "bc").step("mul", "a si", "as").step("add", "bc as", "r").step("cat", "l r", "y", dim=-1).returns("y")

# Multi-layer perceptron on a batch of fields, and a loss over it.
c = Case("program_mlp_batch", second=True).data(x=(3, 7, 5), t=(3, 7, 2)).param(
    w1=normal(9, 5, scale=0.4), b1=(9,), w2=normal(2, 9, scale=0.3), b2=(2,))
c.step("reshape", "x", "f", shape=[21, 5]).step("linear", "f w1 b1", "h").step("gelu", "h", "hg", approximate="none")
c.step("linear", "hg w2 b2", "o").step("reshape", "o", "y", shape=[3, 7, 2]).step("mse_loss", "y t", "loss", reduction="mean")
c.returns("loss y")

# What a partial sum may not be used for as it is.
c = Case("partial_then_nonlinear", second=True).data(a=(4, 9), b=(9, 5)).param(bias=(5,))
c.step("matmul", "a b", "p").step("add", "p bias", "s").step("tanh", "s", "y").step("clamp", "p", "z", min=-1.0, max=1.0).returns("y z")
for lengths in ((4, 5), (2, 0, 7)):  # the product is owed, and made once for each of the two functions
    c.limit(2 * len(lengths) * 20 * 4, {n: [list(lengths)] for n in "ab"}, mesh=(len(lengths),), a="S1", b="S0")
c = Case("partial_times_partial", second=True).data(x=(3, 9)).step("sum", "x", "s", dim=[1], keepdim=True)
c.step("mean", "x", "m", dim=[1], keepdim=True).step("mul", "s m", "y").returns("y")
c = Case("partial_meets_sharded", second=True).data(x=(6, 9)).step("sum", "x", "s", dim=[0], keepdim=True)
c.step("sub", "x s", "d").step("mul", "d s", "y").returns("y")
c = Case("partial_then_softmax").data(a=(4, 8), b=(8, 6)).step("matmul", "a b", "p").step("softmax", "p", "y", dim=1)
c.step("amax", "p", "z", dim=[0], keepdim=False).returns("y z")
c = Case("partial_then_conv").data(x=(2, 5, 1, 8)).param(w=normal(3, 1, 3, scale=0.5), b=(3,))
c.step("sum", "x", "s", dim=[1], keepdim=False).step("conv1d", "s w b", "y", **arguments(1, padding=1)).returns("y")
c = Case("partial_then_matmul").data(a=(5, 8), b=normal(8, 6, scale=0.4), d=normal(6, 4, scale=0.4)).step("matmul", "a b", "p").step(
    "reshape", "p", "q", shape=[6, 5]).step("transpose", "q", "t", dim0=0, dim1=1).step("matmul", "t d", "y").returns("y")
c = Case("partial_added_and_scaled").data(x=(4, 7), y=(4, 7), s=()).step("sum", "x", "a", dim=None, keepdim=False).step(
    "sum", "y", "b", dim=None, keepdim=False).step("add", "a b", "c").step("mul", "c s", "d").step("neg", "d", "z").returns("z c")
for lengths in ((3, 4), (3, 0, 4)):  # owed to the end; on a device the product has the sum of both made
    c.limit(len(lengths) * 4, {n: [list(lengths)] for n in "xy"}, mesh=(len(lengths),), x="S1", y="S1")
c.limit(2 * 4, {"x": [[1, 3]], "y": [[3, 4]]}, x="S0", y="S1")
c = Case("partial_loss_of_losses").data(x=(3, 8), t=(3, 8)).step("mse_loss", "x t", "m", reduction="mean").step(
    "square", "x", "q").step("sum", "q", "r", dim=None, keepdim=False).step("sqrt", "r", "n").step("mul", "m n", "loss").returns("loss")
for lengths in ((3, 5), (3, 0, 5)):  # the sum whose root is taken is made; on a device both factors
    c.limit(2 * len(lengths) * 4, {n: [list(lengths)] for n in "xt"}, mesh=(len(lengths),), x="S1", t="S1")
# Sums that are owed on both sides: chosen from or joined, beside what is whole, they stay owed; where they must be
# made, both are in one message.
OWED = {"x": (6, 3, 4), "z": (6, 3, 4)}


def owed(name, made_of, most, **data):
    """x and z summed over dim 0, which is cut, as a and b (b may be given whole)."""
    case = Case(f"partial_{name}").data(x=OWED["x"], **data).step("sum", "x", "a", dim=[0], keepdim=False)
    cut = ["x"]
    if "b" not in data:
        case.data(z=OWED["z"]).step("sum", "z", "b", dim=[0], keepdim=False)
        cut.append("z")
    for lengths, mesh in (((2, 4), (2,)), ((3, 0, 3), (3,))):
        case.limit(most * (len(lengths) - 1) * 2 * 4, {n: [list(lengths)] for n in cut}, mesh=mesh, **{n: "S0" for n in cut})
    made_of(case)
    return case.returns("y")


owed("where_partial", lambda c: c.step("where", "c a b", "y"), 0, c=chance(0.5, 3, 4))
owed("where_whole", lambda c: c.step("where", "c a b", "y"), 0, c=chance(0.5, 3, 4), b=(3, 4))
owed("where_whole_first", lambda c: c.step("where", "c b a", "y"), 0, c=chance(0.5, 4), b=(3, 4))
owed("cat_partial", lambda c: c.step("cat", "a b", "y", dim=1), 0)
owed("cat_whole", lambda c: c.step("cat", "b a", "y", dim=0), 0, b=(2, 4))
for extremum in ("maximum", "minimum"):
    owed(extremum, lambda c, op=extremum: c.step(op, "a b", "y"), 2 * 12)

# Norms and softmax written out by hand.
c = Case("program_standardise_by_hand", second=True).data(x=normal(2, 9, 4, shift=3)).step("mean", "x", "m", dim=[1], keepdim=True).step(
    "var", "x", "v", dim=[1], correction=0, keepdim=True).step("sub", "x m", "d").step("rsqrt", "v", "r").step("mul", "d r", "y").returns("y")
c = Case("program_softmax_by_hand", second=True).data(x=(3, 10)).step("amax", "x", "m", dim=[1], keepdim=True).step("sub", "x m", "d").step(
    "exp", "d", "e").step("sum", "e", "s", dim=[1], keepdim=True).step("div", "e s", "y").returns("y")
c = Case("program_masked_mean").data(x=(3, 10), k=chance(0.6, 3, 10), z=np.array(0.0), o=np.array(1.0)).constant("z", "o")
c.step("where", "k x z", "a").step("where", "k o z", "n").step("sum", "a", "sa", dim=[1], keepdim=False).step(
    "sum", "n", "sn", dim=[1], keepdim=False).step("div", "sa sn", "y").returns("y")
c = Case("program_gated_residual").data(x=(2, 8, 5)).param(w=normal(10, 5, scale=0.4), b=(10,)).step("linear", "x w b", "h").step(
    "split", "h", "u g", sizes=[5, 5], dim=-1).step("sigmoid", "g", "gs").step("mul", "u gs", "k").step("add", "x k", "y").returns("y")
c = Case("program_weighted_latitudes").data(x=(2, 2, 9, 6), t=(2, 2, 9, 6)).param(w=uniform(0.2, 1.5, 9, 1)).step("sub", "x t", "d").step(
    "square", "d", "q").step("mul", "q w", "l").step("mean", "l", "loss", dim=None, keepdim=False).returns("loss")

# Moving things about in a row, and nothing at all going through a model.
c = Case("program_layout_chain").data(x=(2, 6, 10)).step("transpose", "x", "a", dim0=1, dim1=2).step(
    "slice", "a", "b", dim=1, start=1, end=9, step=1).step("unflatten", "b", "d", dim=1, sizes=[4, 2]).step(
    "flatten", "d", "e", start_dim=2, end_dim=3).step("roll", "e", "f", shifts=[1], dims=[2]).step(
    "pad", "f", "g", pad=[1, -2, 0, 1], mode="constant", value=0.0).step("permute", "g", "y", dims=[2, 0, 1]).returns("y")
c = Case("program_neighbour_differences").data(x=few_values(9, 3, 14)).step("slice", "x", "r", dim=1, start=1, end=None, step=1).step(
    "slice", "x", "l", dim=1, start=0, end=-1, step=1).step("sub", "r l", "d").step("square", "d", "y").returns("y")
c = Case("program_empty_batch").data(x=(0, 2, 6)).param(w=normal(4, 2, 3), b=(4,), v=normal(3, 6)).step(
    "conv1d", "x w b", "a", **arguments(1, padding=1)).step("relu", "a", "r").step("linear", "r v -", "o").step(
    "sum", "o", "y", dim=[0], keepdim=False).returns("y")
c = Case("program_more_ranks_than_rows").data(x=(1, 2, 2, 3)).param(w=normal(2, 2, 3, 3, scale=0.4), b=(2,)).step(
    "conv2d", "x w b", "a", **arguments(2, padding=1)).step("gelu", "a", "g", approximate="none").step(
    "conv2d", "g w b", "y", **arguments(2, padding=1)).returns("y")
