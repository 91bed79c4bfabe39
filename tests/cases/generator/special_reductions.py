"""NaN and infinities in single places of rows, maps and sums: reductions, running sums, softmax, orders, norms, losses."""
import numpy as np

from .case import Case, normal, single
from .special import EVERY, INF, NAN, holding, rows, samples

WIDTH = 19  # more than a vector of any kind holds
# Rows of each kind of value, twice: beside others, and all of them.
ROWS = rows(WIDTH)
ROW = {"dim": [1], "keepdim": False}
ALL = {"dim": None, "keepdim": False}


def reductions(op, row=ROW, whole=ALL, name=None, constant=(), **more):
    """The op of rows, of columns that cross them, and of all in one where a single value is special."""
    name = f"special_{name or op}"
    single(f"{name}_rows", op, {"x": ROWS}, args={**row, **more}, constant=constant)
    single(f"{name}_columns", op, {"x": holding(9, 4, at={(2, 0): NAN, (8, 1): INF, (0, 2): -INF})},
           args={**row, "dim": [0] if isinstance(row["dim"], list) else 0, **more}, constant=constant)
    for label, value in EVERY if whole else ():
        single(f"{name}_all_{label}", op, {"x": holding(5, 3, 4, at={(3, 1, 2): value})}, args={**whole, **more}, constant=constant)


for op in ("sum", "mean", "amax", "amin"):
    reductions(op)
for op in ("var", "std"):
    reductions(op, correction=1)
    single(f"special_{op}_biased_rows", op, {"x": ROWS}, args={**ROW, "correction": 0})
reductions("logsumexp", whole={"dim": [0, 1, 2], "keepdim": False})
for label, p in (("one", 1), ("two", 2), ("three", 3), ("half", 0.5), ("minus_one", -1), ("infinity", "inf"), ("minus_infinity", "-inf")):
    reductions("norm", name=f"norm_{label}", whole=ALL if p == 2 else None, p=p)
single("special_norm_zero_rows", "norm", {"x": ROWS}, args={"p": 0, **ROW}, constant=("x",))
for op in ("argmax", "argmin"):
    reductions(op, row={"dim": 1, "keepdim": False}, constant=("x",))
for op in ("any", "all"):
    reductions(op, constant=("x",))
reductions("count_nonzero", row={"dim": [1]}, whole={"dim": None}, constant=("x",))

# ---- prod: where the tensor holds no zero the gradient is a quotient, else the product of the others. (Of second
# derivatives beside zeros PyTorch's depend on how it works them out.)
PROD = {"dim": [1], "keepdim": False}
for label, values in (
        ("no_zero", [[2, NAN, 3, 4], [2, INF, 3, 4], [-INF, 2, 5, -3], [INF, 2, -INF, 1], [NAN, 2, INF, 3], [NAN, NAN, 2, 1], [1, 2, 3, 4]]),
        ("zeros", [[NAN, 0, 2, 3], [INF, 0, 2, 3], [0, -INF, 0, 2], [0, NAN, 0, 1], [INF, 0, -INF, 2], [NAN, 0, INF, 3], [0, 2, 3, 4]]),
        ("zero_in_another_row", [[INF, 2, 3, -1], [NAN, 2, 3, 4], [INF, -INF, 2, 3], [NAN, INF, 2, 5], [NAN, NAN, 1, 2], [INF, INF, INF, -1],
                                 [2, 0, 5, 6]]),
        ("two_infinities", [[INF, 2, 3, -INF], [1, 2, 3, 4]])):
    again = "zero" not in label or label == "no_zero"
    single(f"special_prod_{label}", "prod", {"x": np.array(values, float)}, args=PROD, second=again)
    single(f"special_prod_{label}_columns", "prod", {"x": np.array(values, float).T}, args={"dim": [0], "keepdim": True}, second=again)
for label, values in (("nan", [2, NAN, 3, 4]), ("infinity", [2, INF, 3, -4]), ("nan_zero", [NAN, 0, 2]), ("infinity_zero", [INF, 0, -2]),
                      ("nan_two_zeros", [NAN, 0, 2, 0]), ("infinity_two_zeros", [0, INF, 0, 1]), ("infinities", [INF, -INF, 2, 3]),
                      ("nan_infinity_zero", [NAN, 1, INF, 0])):
    single(f"special_prod_all_{label}", "prod", {"x": np.array(values, float)}, args=ALL, second="zero" not in label)
    single(f"special_prod_vector_{label}", "prod", {"x": np.array(values, float)}, args={"dim": [0], "keepdim": False})

for label, values in (("zero", [[2.0, 0, 3], [-1, 4, 5]]), ("two_zeros", [[2.0, 0, 3], [-1, 4, 0]]), ("three_zeros", [[0, 2.0, 0], [3, 0, 1]])):
    single(f"prod_all_{label}", "prod", {"x": np.array(values)}, args=ALL, second=label != "three_zeros")

# ---- along a dim, nothing left out
for op in ("softmax", "log_softmax"):
    single(f"special_{op}_rows", op, {"x": ROWS}, args={"dim": 1})
    single(f"special_{op}_impossible", op, {"x": np.array([[-INF] * 4, [-INF, 1, -INF, 2], [INF, 1, 2, INF], [0, 1, 2, 3]])}, args={"dim": 1})
    single(f"special_{op}_columns", op, {"x": holding(9, 4, at={(2, 0): NAN, (8, 1): INF, (0, 2): -INF})}, args={"dim": 0})
single("special_cumsum_rows", "cumsum", {"x": ROWS}, args={"dim": 1})
single("special_cumsum_columns", "cumsum", {"x": holding(9, 4, at={(2, 0): NAN, (8, 1): INF, (0, 2): -INF})}, args={"dim": 0})
for descending in (False, True):
    label = "descending" if descending else "ascending"
    single(f"special_sort_{label}", "sort", {"x": ROWS}, outs="v i", args={"dim": 1, "descending": descending})
    single(f"special_sort_vector_{label}", "sort", {"x": holding(23, at={4: NAN, 9: INF, 10: -INF, 17: NAN})}, outs="v i",
           args={"dim": 0, "descending": descending})
    single(f"special_argsort_{label}", "argsort", {"x": ROWS}, args={"dim": 1, "descending": descending}, constant=("x",))
    single(f"special_topk_{label}", "topk", {"x": ROWS}, outs="v i", args={"k": 4, "dim": 1, "largest": descending})
    single(f"special_topk_columns_{label}", "topk", {"x": holding(40, 3, at={(2, 0): NAN, (38, 1): INF, (0, 2): -INF})}, outs="v i",
           args={"k": 3, "dim": 0, "largest": descending})
single("special_median_infinities", "median", {"x": holding(4, WIDTH, at={(0, 1): INF, (1, 7): -INF, (2, 3): INF, (2, 5): -INF})}, outs="v i",
       args={"dim": 1, "keepdim": False})
for label, value in EVERY:
    single(f"special_median_all_{label}", "median", {"x": holding(5, 7, at={(3, 2): value})}, outs="v", args={})

# ---- norms: a row, a group, a channel or a sample becomes NaN as a whole, the others stay.
EPS = {"eps": 1e-5}


def affine(n):
    return {"w": normal(n, scale=0.5, shift=1), "b": (n,)}


single("special_layer_norm", "layer_norm", {"x": ROWS}, affine(WIDTH), args={"normalized_shape": [WIDTH], **EPS})
single("special_layer_norm_plain", "layer_norm", {"x": ROWS}, ins="x - -", args={"normalized_shape": [WIDTH], **EPS})
single("special_layer_norm_split_weights", "layer_norm", {"x": ROWS, **affine(WIDTH)}, args={"normalized_shape": [WIDTH], **EPS})
# Of one element: nothing, and NaN where it is not finite.
ONES = np.array([[1.5], [NAN], [-2], [INF], [-INF], [0], [3]])
single("special_layer_norm_of_one", "layer_norm", {"x": ONES}, affine(1), args={"normalized_shape": [1], **EPS})
single("special_layer_norm_of_one_plain", "layer_norm", {"x": ONES}, ins="x - -", args={"normalized_shape": [1], **EPS})
Case("special_layer_norm_of_one_gradient").data(x=(5, 1)).step("layer_norm", "x - -", "y", normalized_shape=[1], **EPS).returns(
    "y", y=[[1], [INF], [NAN], [2], [-INF]])
single("special_group_norm_of_one", "group_norm", {"x": ONES[:6].reshape(2, 3)}, affine(3), args={"num_groups": 3, **EPS})
single("special_add_layer_norm", "add_layer_norm", {"x": ROWS, "residual": (7, WIDTH)}, affine(WIDTH), outs="s y",
       args={"normalized_shape": [WIDTH], **EPS})
single("special_rms_norm", "rms_norm", {"x": ROWS}, {"w": normal(WIDTH)}, args={"normalized_shape": [WIDTH], **EPS})
single("special_rms_norm_plain", "rms_norm", {"x": ROWS}, args={"normalized_shape": [WIDTH], **EPS})
for label, sizes in (("row", (4, 7)), ("map", (4, 6, 5))):
    single(f"special_group_norm_{label}", "group_norm", {"x": samples(*sizes)}, affine(4), args={"num_groups": 2, **EPS})
    single(f"special_instance_norm_{label}", "instance_norm", {"x": samples(*sizes)}, affine(4), args=EPS)
    channels = holding(3, *sizes, at={(1, 0, *(2,) * (len(sizes) - 1)): NAN, (0, 1, *(0,) * (len(sizes) - 1)): INF,
                                      (2, 2, *(1,) * (len(sizes) - 1)): -INF})
    single(f"special_batch_norm_{label}", "batch_norm", {"x": channels}, affine(4), args=EPS)
    Case(f"special_batch_norm_running_{label}").data(x=channels, m=(4,), v=normal(4, scale=0.1, shift=1)).param(**affine(4)).constant("m", "v").step(
        "batch_norm", "x w b m v", "y m2 v2", training=True, momentum=0.3, **EPS).returns("y m2 v2")
    Case(f"special_batch_norm_eval_{label}").data(x=channels, m=(4,), v=normal(4, scale=0.1, shift=1)).param(**affine(4)).constant("m", "v").step(
        "batch_norm", "x w b m v", "y", training=False, **EPS).returns("y")
for activation in ("relu", "silu", "gelu", "gelu_tanh"):
    single(f"special_group_norm_{activation}", "group_norm", {"x": samples(4, 6, 5)}, affine(4), args={"num_groups": 2, "activation": activation, **EPS})

# ---- losses
for reduction in ("mean", "none"):
    for op in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
        targets = lambda rng: rng.uniform(0, 1, (7, WIDTH))  # noqa: E731
        single(f"special_{op}_{reduction}", op, {"x": ROWS, "t": targets}, args={"reduction": reduction})
        single(f"special_{op}_target_{reduction}", op, {"x": targets, "t": ROWS}, args={"reduction": reduction})
    single(f"special_kl_div_{reduction}", "kl_div", {"x": ROWS, "t": lambda rng: rng.dirichlet(np.ones(WIDTH), 7)},
           args={"reduction": reduction, "log_target": False})
    single(f"special_kl_div_log_target_{reduction}", "kl_div", {"x": (7, WIDTH), "t": ROWS}, args={"reduction": reduction, "log_target": True})
    for op in ("cross_entropy", "nll_loss"):
        single(f"special_{op}_{reduction}", op, {"x": ROWS, "y": np.array([1, 3, 2, 0, 5, 6, 7])}, outs="loss", args={"reduction": reduction})
        single(f"special_{op}_elsewhere_{reduction}", op, {"x": ROWS, "y": np.array([4, 4, 4, 4, 4, -100, 4])}, outs="loss",
               args={"reduction": reduction})
    single(f"special_cross_entropy_smoothing_{reduction}", "cross_entropy", {"x": ROWS, "y": np.array([1, 3, 2, 0, 5, 6, -100])}, outs="loss",
           args={"reduction": reduction, "label_smoothing": 0.2})
    single(f"special_cross_entropy_probabilities_{reduction}", "cross_entropy",
           {"x": ROWS, "t": lambda rng: rng.dirichlet(np.ones(WIDTH), 7)}, outs="loss", args={"reduction": reduction})
# Targets that do not count hide what their rows hold.
single("special_cross_entropy_ignored", "cross_entropy", {"x": ROWS, "y": np.array([-100, -100, -100, -100, -100, 6, 7])}, outs="loss",
       args={"reduction": "mean"})
single("special_nll_loss_ignored", "nll_loss", {"x": ROWS, "y": np.array([-100, -100, -100, -100, -100, 6, 7])}, outs="loss",
       args={"reduction": "mean"})

# ---- nothing at all
for op, more in (("sum", {}), ("mean", {}), ("prod", {}), ("var", {"correction": 1}), ("std", {"correction": 1}), ("norm", {"p": 2})):
    for label, sizes, dim in (("rows", (4, 0), [1]), ("columns", (0, 3), [0])):
        single(f"special_{op}_of_nothing_{label}", op, {"x": sizes}, args={"dim": dim, "keepdim": False, **more})
    single(f"special_{op}_of_nothing", op, {"x": (0, 3)}, args={**ALL, **more})
for op in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
    single(f"special_{op}_mean_of_nothing", op, {"x": (0, 4), "t": (0, 4)}, args={"reduction": "mean"})
single("special_kl_div_mean_of_nothing", "kl_div", {"x": (0, 4), "t": (0, 4)}, args={"reduction": "mean", "log_target": False})
