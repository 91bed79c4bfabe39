"""matmul and linear: ranks from 1 up, batches, broadcast batches, sizes 0 and 1."""
from .case import Case, normal, single

MATMUL = {
    "plain": ((7, 5), (5, 6)), "dot": ((9,), (9,)), "row": ((5,), (5, 6)), "column": ((7, 5), (5,)),
    "batched": ((2, 3, 7, 4), (2, 3, 4, 5)), "batch_left_only": ((3, 7, 4), (4, 5)), "batch_right_only": ((7, 4), (3, 4, 5)),
    "batch_ones": ((2, 1, 5, 4), (1, 3, 4, 6)), "batch_ranks": ((2, 3, 5, 4), (3, 4, 6)), "row_batched": ((4,), (2, 3, 4, 5)),
    "column_batched": ((2, 3, 5, 4), (4,)), "size_ones": ((1, 1), (1, 1)), "outer": ((7, 1), (1, 6)),
    "inner": ((1, 11), (11, 1)),
}
for name, (a, b) in MATMUL.items():
    single(f"matmul_{name}", "matmul", {"a": a, "b": b}, second=name in ("plain", "dot", "column", "batched", "batch_ones", "row_batched"))
single("matmul_large_inner", "matmul", {"a": normal(5, 67), "b": normal(67, 6)})
single("matmul_nothing_inside", "matmul", {"a": (4, 0), "b": (0, 3)})
single("matmul_no_rows", "matmul", {"a": (0, 4), "b": (4, 3)})
single("matmul_no_batches", "matmul", {"a": (0, 5, 4), "b": (4, 3)})

# Splitting rows, columns or the batch needs nothing; splitting the inner dim on both sides gives partial sums.
single("matmul_splits", "matmul", {"a": (7, 9), "b": (9, 6)}).limit(
    0, {"a": [[2, 7]], "b": [[2, 7]]}, a="S1", b="S0").limit(0, {"a": [[3, 4]]}, a="S0", b="R").limit(
    0, {"b": [[1, 5]]}, a="R", b="S1").limit(0, {"a": [[5, 0, 4]], "b": [[5, 0, 4]]}, mesh=(3,), a="S1", b="S0")
single("matmul_batched_splits", "matmul", {"a": (3, 2, 7, 4), "b": (3, 2, 4, 5)}).limit(
    0, {"a": [[1, 2]], "b": [[1, 2]]}, a="S0", b="S0").limit(0, {"a": [[1, 1]], "b": [[1, 1]]}, a="S1", b="S1").limit(
    0, {"a": [[1, 3]], "b": [[1, 3]]}, a="S3", b="S2").limit(0, {"a": [[3, 4]]}, a="S2", b="R")

# linear: weight and bias are parameters as in a model, or data that the runner splits.
single("linear_tokens", "linear", {"x": (2, 9, 6)}, {"w": normal(8, 6, scale=0.4), "b": (8,)}, second=True).limit(
    0, {"x": [[4, 5]]}, x="S1").limit(0, {"x": [[2, 4]]}, x="S2").limit(0, {"x": [[1, 1], [4, 5]]}, mesh=(2, 2), x=("S0", "S1"))
single("linear_no_bias", "linear", {"x": (4, 7)}, {"w": normal(5, 7, scale=0.4)}, ins="x w -", second=True)
single("linear_vector", "linear", {"x": (7,)}, {"w": (3, 7), "b": (3,)})
single("linear_five_dims", "linear", {"x": (2, 3, 1, 4, 5)}, {"w": (2, 5), "b": (2,)})
single("linear_one_in_one_out", "linear", {"x": (6, 1)}, {"w": (1, 1), "b": (1,)})
single("linear_no_rows", "linear", {"x": (2, 0, 5)}, {"w": (3, 5), "b": (3,)})
single("linear_split_weight", "linear", {"x": (3, 8), "w": (7, 8), "b": (7,)}).limit(
    0, {"w": [[3, 4]], "b": [[3, 4]]}, x="R", w="S0", b="S0").limit(
    0, {"x": [[3, 5]], "w": [[3, 5]]}, x="S1", w="S1", b="R")
# One feature: a weight of one dim, a bias of none.
single("linear_one_feature", "linear", {"x": (2, 9, 6)}, {"w": normal(6, scale=0.4), "b": ()}, second=True).limit(
    0, {"x": [[4, 5]]}, x="S1").limit(0, {"x": [[2, 4]]}, x="S2")
single("linear_one_feature_vector", "linear", {"x": (7,)}, {"w": (7,), "b": ()}, second=True)
single("linear_one_feature_no_bias", "linear", {"x": (5, 7)}, {"w": (7,)}, ins="x w -", second=True)
single("linear_one_feature_no_rows", "linear", {"x": (2, 0, 5)}, {"w": (5,), "b": ()})
single("linear_one_feature_split_weight", "linear", {"x": (3, 4, 8), "w": (8,), "b": ()}, second=True).limit(
    0, {"x": [[3, 5]], "w": [[3, 5]]}, x="S2", w="S0", b="R").limit(0, {"w": [[3, 5]]}, x="R", w="S0", b="R")
single("linear_split_weight_no_bias", "linear", {"x": (3, 5, 8), "w": (7, 8)}, ins="x w -")

# The same tensor as both factors, and a chain whose middle is split both ways.
Case("matmul_gram", second=True).data(x=(6, 5)).step("transpose", "x", "t", dim0=0, dim1=1).step(
    "matmul", "x t", "g").step("matmul", "t x", "h").returns("g h")
Case("matmul_chain", second=True).data(a=(5, 6), b=normal(6, 7, scale=0.4), c=normal(7, 4, scale=0.4)).step(
    "matmul", "a b", "ab").step("matmul", "ab c", "y").returns("y")
