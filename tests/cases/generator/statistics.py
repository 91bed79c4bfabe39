"""Reductions beyond sums: std, norm, logsumexp, prod, argmax and argmin, any, all, count_nonzero; cumsum."""
import numpy as np

from .case import few_integers, few_values, normal, single

ROWS = (("middle", [1], False), ("last_kept", [-1], True), ("two", [0, 2], False), ("all", None, False), ("all_kept", None, True))
INF, NAN = np.inf, np.nan


def rows_message(numbers, cuts, rows=12):
    """So many numbers of four bytes per row and rank."""
    return numbers * len(cuts) * rows * 4


# ---- std: as var; where all values are equal it is 0, and so is its gradient.
for name, dims, keep in ROWS:
    single(f"std_{name}", "std", {"x": (3, 11, 4)}, args={"dim": dims, "correction": 1, "keepdim": keep}, second=True)
single("std_biased", "std", {"x": (3, 11, 4)}, args={"dim": [1], "correction": 0, "keepdim": False}).limit(
    rows_message(3, (5, 6)), {"x": [[5, 6]]}, x="S1").limit(rows_message(3, (4, 0, 7)), {"x": [[4, 0, 7]]}, mesh=(3,), x="S1")
single("std_of_equal", "std", {"x": np.full((3, 8), 2.5)}, args={"dim": [1], "correction": 1, "keepdim": False})
single("std_some_rows_equal", "std", {"x": np.array([[1.0, 1, 1, 1], [1, 2, 3, 4], [-7, -7, -7, -7]])},
       args={"dim": [1], "correction": 0, "keepdim": False})
single("std_of_one", "std", {"x": (5, 1)}, args={"dim": [1], "correction": 0, "keepdim": False})
single("std_of_one_unbiased", "std", {"x": (5, 1)}, args={"dim": [1], "correction": 1, "keepdim": False})
single("std_far_from_zero", "std", {"x": normal(2, 40, shift=1000)}, args={"dim": [1], "correction": 1, "keepdim": False})
single("std_scalar", "std", {"x": ()}, args={"dim": None, "correction": 0, "keepdim": False})

for name, sizes, dims, correction in (("scalar", (), None, 2), ("one", (1,), None, 1), ("pair", (2,), None, 2), ("pair_below", (2,), None, 3),
                                      ("rows", (3, 2), [1], 2), ("rows_below", (3, 2), [1], 3)):
    for op in ("var", "std"):
        single(f"{op}_no_freedom_{name}", op, {"x": sizes}, args={"dim": dims, "correction": correction, "keepdim": False})

# ---- norm. One number per row and rank (orders 1 and infinity: none at all).
for name, dims, keep in ROWS:
    single(f"norm_{name}", "norm", {"x": (3, 11, 4)}, args={"p": 2, "dim": dims, "keepdim": keep}, second=True)
for name, p in (("one", 1), ("three", 3), ("half", 0.5), ("one_and_a_half", 1.5), ("minus_one", -1), ("infinity", "inf"),
                ("minus_infinity", "-inf")):
    c = single(f"norm_order_{name}", "norm", {"x": (3, 11, 4)}, args={"p": p, "dim": [1], "keepdim": False})
    c.limit(0 if p in (1, "inf", "-inf") else rows_message(1, (5, 6)), {"x": [[5, 6]]}, x="S1")
single("norm_order_zero", "norm", {"x": few_values(3, 3, 11)}, args={"p": 0, "dim": [1], "keepdim": False}).constant("x")
single("norm_split", "norm", {"x": (3, 11, 4)}, args={"p": 2, "dim": [1], "keepdim": True}).limit(
    rows_message(1, (5, 6)), {"x": [[5, 6]]}, x="S1")
single("norm_infinity_ties", "norm", {"x": few_values(3, 4, 9)}, args={"p": "inf", "dim": [1], "keepdim": False})
for sign, name in ((1, "infinity"), (-1, "minus_infinity")):
    single(f"norm_{name}_special", "norm", {"x": np.array([[1, NAN, -3], [2, -2, 1], [INF, 1, -INF], [0, 0, 0], [NAN, INF, NAN]])},
           args={"p": sign * INF, "dim": [1], "keepdim": False})
    single(f"norm_{name}_special_all", "norm", {"x": np.array([[1, NAN, -3], [2, -2, 1]])}, args={"p": sign * INF, "dim": None, "keepdim": True})
single("norm_of_zeros", "norm", {"x": np.zeros((2, 6))}, args={"p": 2, "dim": [1], "keepdim": False})
single("norm_some_rows_zero", "norm", {"x": np.array([[0.0, 0, 0], [3, 0, -4], [0, 0, 0]])}, args={"p": 2, "dim": [1], "keepdim": False})
single("norm_three_of_zeros", "norm", {"x": np.zeros((2, 6))}, args={"p": 3, "dim": [1], "keepdim": False})
single("norm_half_with_zeros", "norm", {"x": np.array([[0.0, 1, 4], [0, 0, 0]])}, args={"p": 0.5, "dim": [1], "keepdim": False})
single("norm_scalar", "norm", {"x": ()}, args={"p": 2, "dim": None, "keepdim": False})
single("norm_of_nothing", "norm", {"x": (4, 0)}, args={"p": 2, "dim": [1], "keepdim": False})

# ---- logsumexp: the largest value and the sum of each row and rank.
for name, dims, keep in ROWS:
    single(f"logsumexp_{name}", "logsumexp", {"x": normal(3, 11, 4, scale=2)}, args={"dim": dims or [0, 1, 2], "keepdim": keep}, second=True)
single("logsumexp_split", "logsumexp", {"x": (3, 11, 4)}, args={"dim": [1], "keepdim": False}).limit(
    rows_message(2, (5, 6)), {"x": [[5, 6]]}, x="S1").limit(rows_message(2, (2, 0, 9)), {"x": [[2, 0, 9]]}, mesh=(3,), x="S1")
single("logsumexp_large_values", "logsumexp", {"x": normal(3, 12, scale=80)}, args={"dim": [1], "keepdim": False})
single("logsumexp_minus_infinity", "logsumexp", {"x": np.array([[-INF, 1, 2, -INF], [0, -INF, -INF, 5]])}, args={"dim": [1], "keepdim": False})
single("logsumexp_infinite_rows", "logsumexp", {"x": np.array([[-INF, -INF, -INF], [INF, 1, 2], [INF, -INF, INF], [1, NAN, 0], [1, 2, 3]])},
       args={"dim": [1], "keepdim": False}).constant("x")
single("logsumexp_of_nothing", "logsumexp", {"x": (3, 0)}, args={"dim": [1], "keepdim": False})
single("logsumexp_no_rows", "logsumexp", {"x": (0, 3)}, args={"dim": [1], "keepdim": True})
single("logsumexp_scalar", "logsumexp", {"x": ()}, args={"dim": [-1], "keepdim": False})

# ---- prod
for name, dim, keep in (("middle", 1, False), ("last_kept", -1, True)):
    single(f"prod_{name}", "prod", {"x": (3, 7, 4)}, args={"dim": [dim], "keepdim": keep}, second=True).limit(
        0, {"x": [[3, 4]]}, x="S1")
single("prod_all", "prod", {"x": (3, 4)}, args={"dim": None, "keepdim": False})
single("prod_zeros", "prod", {"x": np.array([[2.0, 0, 3, 4], [0, 5, 0, 6], [1, 2, 3, 4], [0, 0, 0, 7]])}, args={"dim": [1], "keepdim": False},
       second=True)
single("prod_of_nothing", "prod", {"x": (3, 0)}, args={"dim": [1], "keepdim": False})
single("prod_scalar", "prod", {"x": ()}, args={"dim": None, "keepdim": False})

# ---- argmax, argmin: a value and an index. Of equal values the first; NaN counts as the extreme one.
for op in ("argmax", "argmin"):
    for name, dim, keep in (("middle", 1, False), ("last_kept", -1, True), ("all", None, False), ("all_kept", None, True)):
        single(f"{op}_{name}", op, {"x": (3, 11, 4)}, args={"dim": dim, "keepdim": keep}).constant("x")
        single(f"{op}_{name}_ties", op, {"x": few_values(3, 3, 11, 4)}, args={"dim": dim, "keepdim": keep}).constant("x")
    single(f"{op}_split", op, {"x": (3, 11, 4)}, args={"dim": 1, "keepdim": False}).constant("x").limit(
        rows_message(2, (5, 6)), {"x": [[5, 6]]}, x="S1").limit(rows_message(2, (4, 0, 7)), {"x": [[4, 0, 7]]}, mesh=(3,), x="S1")
    single(f"{op}_nan", op, {"x": np.array([[1, NAN, 3, NAN], [INF, 2, -INF, INF], [-INF, -INF, -INF, -INF], [0, 1, 2, NAN]])},
           args={"dim": 1, "keepdim": False}).constant("x")
    single(f"{op}_zeros_of_both_signs", op, {"x": np.array([[-0.0, 0.0, -0.0], [0.0, -0.0, 0.0]])}, args={"dim": 1, "keepdim": False}).constant("x")
    single(f"{op}_scalar", op, {"x": ()}, args={"dim": -1, "keepdim": False}).constant("x")
    single(f"{op}_no_rows", op, {"x": (0, 4)}, args={"dim": 1, "keepdim": False}).constant("x")

# ---- any, all, count_nonzero: what each rank finds is owed to the others, and nothing is sent.
for op in ("any", "all", "count_nonzero"):
    keep = {} if op == "count_nonzero" else {"keepdim": True}
    single(f"{op}_middle", op, {"x": few_values(2, 3, 5, 4)}, args={"dim": [1], **keep}).constant("x").limit(
        0, {"x": [[2, 3]]}, x="S1").limit(0, {"x": [[2, 0, 3]]}, mesh=(3,), x="S1").limit(0, {"x": [[1, 3]]}, x="S2")
    single(f"{op}_everything", op, {"x": few_values(2, 3, 5)}, args={"dim": None, **keep}).constant("x").limit(
        0, {"x": [[1, 2], [2, 3]]}, mesh=(2, 2), x=("S0", "S1"))
    single(f"{op}_of_nothing", op, {"x": (3, 0)}, args={"dim": [1], **keep}).constant("x")
    single(f"{op}_nan", op, {"x": np.array([[NAN, 0.0], [0.0, 0.0], [NAN, 1.0]])}, args={"dim": [1], **keep}).constant("x")

# ---- cumsum: the sum of each piece.
for name, dim in (("first", 0), ("middle", 1), ("last", -1)):
    single(f"cumsum_{name}", "cumsum", {"x": (3, 11, 4)}, args={"dim": dim})
single("cumsum_split", "cumsum", {"x": (3, 11, 4)}, args={"dim": 1}).limit(
    rows_message(1, (5, 6)), {"x": [[5, 6]]}, x="S1").limit(rows_message(1, (5, 6)), {"x": [[5, 0, 6]]}, mesh=(3,), x="S1").limit(
    0, {"x": [[1, 2]]}, x="S0")
single("cumsum_vector", "cumsum", {"x": (17,)}, args={"dim": 0})
single("cumsum_scalar", "cumsum", {"x": ()}, args={"dim": 0})
single("cumsum_nothing", "cumsum", {"x": (3, 0)}, args={"dim": 1})
single("cumsum_no_rows", "cumsum", {"x": (0, 5)}, args={"dim": 1})
single("cumsum_infinite", "cumsum", {"x": np.array([[1, INF, 2, -INF, 3], [1, 2, NAN, 4, 5]])}, args={"dim": 1}).constant("x")
single("cumsum_many_tenths", "cumsum", {"x": np.full((1, 3000), 0.1)}, args={"dim": 1})

# ---- a dtype: what the input is cast to first
for op in ("sum", "mean", "prod"):
    single(f"{op}_dtype", op, {"x": (3, 5, 4)}, args={"dim": [1], "keepdim": False, "dtype": "float64"}, second=op == "prod")
    single(f"{op}_dtype_of_integers", op, {"x": few_integers(-4, 9, 3, 5, 4)}, args={"dim": [1], "keepdim": True, "dtype": "float64"})
for op in ("sum", "prod"):
    single(f"{op}_dtype_whole", op, {"x": normal(3, 5, scale=3)}, args={"dim": [1], "keepdim": False, "dtype": "int32"}).constant("x")
    single(f"{op}_dtype_wraps", op, {"x": few_integers(2**29, 2**30, 3, 5)}, args={"dim": [1], "keepdim": False, "dtype": "int32"})
    single(f"{op}_dtype_bool", op, {"x": few_integers(0, 2, 6, 3)}, args={"dim": [1], "keepdim": False, "dtype": "bool"})
for op in ("cumsum", "softmax", "log_softmax"):
    single(f"{op}_dtype", op, {"x": (3, 5, 4)}, args={"dim": 1, "dtype": "float64"}, second=op != "cumsum")
    single(f"{op}_dtype_of_integers", op, {"x": few_integers(-4, 9, 3, 5, 4)}, args={"dim": 1, "dtype": "float64"})
single("cumsum_dtype_wraps", "cumsum", {"x": few_integers(2**29, 2**30, 3, 5)}, args={"dim": 1, "dtype": "int32"})
