"""sum, mean, amax, amin, var; softmax and log_softmax; layer_norm, add_layer_norm; mse_loss."""
import numpy as np

from .case import Case, few_values, normal, single

# ---- sum and mean. Split along the reduced dim each rank keeps its own part: nothing is sent.
for op in ("sum", "mean"):
    for name, dims, keep in (("middle", [1], False), ("middle_kept", [1], True), ("last", [-1], False),
                             ("first_and_last", [0, -1], False), ("two_kept", [2, 1], True), ("all", None, False),
                             ("all_kept", None, True)):
        single(f"{op}_{name}", op, {"x": (3, 11, 4)}, args={"dim": dims, "keepdim": keep}).limit(
            0, {"x": [[5, 6]]}, x="S1").limit(0, {"x": [[4, 0, 7]]}, mesh=(3,), x="S1")
    single(f"{op}_scalar", op, {"x": ()}, args={"dim": None, "keepdim": False})
    single(f"{op}_scalar_dim", op, {"x": ()}, args={"dim": [-1], "keepdim": False})
    single(f"{op}_size_one", op, {"x": (3, 1, 4)}, args={"dim": [1], "keepdim": False})
    single(f"{op}_no_rows_left", op, {"x": (0, 5)}, args={"dim": [1], "keepdim": False})
single("sum_of_nothing", "sum", {"x": (4, 0)}, args={"dim": [1], "keepdim": False})
single("sum_of_nothing_all", "sum", {"x": (0,)}, args={"dim": None, "keepdim": False})
single("mean_of_nothing", "mean", {"x": (0, 3)}, args={"dim": [0], "keepdim": False})
single("mean_spatial", "mean", {"x": (2, 3, 7, 5)}, args={"dim": [2, 3], "keepdim": False}).limit(
    0, {"x": [[3, 4], [2, 3]]}, mesh=(2, 2), x=("S2", "S3"))

# ---- amax; equal largest values share the gradient. One candidate per row and rank may travel.
for name, dims, keep in (("middle", [1], False), ("last_kept", [-1], True), ("two", [0, 2], False), ("all", None, False)):
    single(f"amax_{name}", "amax", {"x": (3, 11, 4)}, args={"dim": dims, "keepdim": keep})
    single(f"amax_{name}_ties", "amax", {"x": few_values(3, 3, 11, 4)}, args={"dim": dims, "keepdim": keep})
single("amax_split", "amax", {"x": (3, 11, 4)}, args={"dim": [1], "keepdim": True}).limit(
    2 * 12 * 4, {"x": [[5, 6]]}, x="S1")
single("amax_all_equal", "amax", {"x": np.full((2, 7), -3.0)}, args={"dim": [1], "keepdim": False})
single("amax_negative", "amax", {"x": normal(3, 9, shift=-20)}, args={"dim": [1], "keepdim": False})
single("amax_scalar", "amax", {"x": ()}, args={"dim": None, "keepdim": False})
single("amax_no_rows", "amax", {"x": (0, 4)}, args={"dim": [1], "keepdim": False})

# The smallest of a rank's rows stays owed: nothing is sent.
for name, dims, keep in (("middle", [1], False), ("last_kept", [-1], True), ("all", None, False)):
    single(f"amin_{name}", "amin", {"x": (3, 11, 4)}, args={"dim": dims, "keepdim": keep}).limit(
        0, {"x": [[5, 6]]}, x="S1").limit(0, {"x": [[1, 3]]}, x="S2")
single("amin_ties", "amin", {"x": few_values(3, 3, 11, 4)}, args={"dim": [1], "keepdim": False})

# ---- var: three statistics per row and rank are enough (count, mean, squares about the mean).
for name, dims, correction, keep in (("middle", [1], 1, False), ("biased_kept", [1], 0, True), ("two", [0, 2], 1, False),
                                     ("all", None, 1, False), ("all_biased_kept", None, 0, True), ("correction_two", [1], 2, False),
                                     ("last", [-1], 1, True)):
    single(f"var_{name}", "var", {"x": (3, 11, 4)}, args={"dim": dims, "correction": correction, "keepdim": keep}, second=True)
single("var_split", "var", {"x": (3, 11, 4)}, args={"dim": [1], "correction": 1, "keepdim": False}).limit(
    3 * 2 * 12 * 4, {"x": [[2, 9]]}, x="S1")
single("var_far_from_zero", "var", {"x": normal(2, 40, shift=1000)}, args={"dim": [1], "correction": 1, "keepdim": False})
single("var_of_equal", "var", {"x": np.full((2, 7), 2.5)}, args={"dim": [1], "correction": 0, "keepdim": False})
single("var_of_one", "var", {"x": (4, 1)}, args={"dim": [1], "correction": 0, "keepdim": False})

# ---- softmax: the largest value and the sum of each row and rank, two statistics.
for op in ("softmax", "log_softmax"):
    for dim in (0, 1, 2, -1):
        c = single(f"{op}_dim{str(dim).replace('-', 'minus')}", op, {"x": normal(4, 9, 5, scale=2)}, args={"dim": dim}, second=dim == 1)
        c.limit(2 * 2 * 20 * 4 if dim == 1 else 0, {"x": [[4, 5]]}, x="S1")
        c.limit(3 * 2 * 20 * 4 if dim == 1 else 0, {"x": [[2, 0, 7]]}, mesh=(3,), x="S1")
    single(f"{op}_vector", op, {"x": (13,)}, args={"dim": 0}, second=True)
    single(f"{op}_four_dims", op, {"x": (2, 3, 7, 5)}, args={"dim": -2})
    single(f"{op}_large_values", op, {"x": normal(3, 12, scale=80)}, args={"dim": 1})
    single(f"{op}_scalar", op, {"x": ()}, args={"dim": -1})
    single(f"{op}_size_one", op, {"x": (4, 1, 3)}, args={"dim": 1})
    single(f"{op}_no_rows", op, {"x": (0, 6)}, args={"dim": 1})
    single(f"{op}_empty_dim", op, {"x": (3, 0)}, args={"dim": 1})

# ---- layer_norm
EPS = {"eps": 1e-5}
c = single("layer_norm_last", "layer_norm", {"x": (2, 9, 8)}, {"w": normal(8, scale=0.5, shift=1), "b": (8,)},
           args={"normalized_shape": [8], **EPS}, second=True)
c.limit(0, {"x": [[2, 7]]}, x="S1").limit(0, {"x": [[1, 1], [5, 4]]}, mesh=(2, 2), x=("S0", "S1"))
c.limit(3 * 2 * 18 * 4, {"x": [[3, 5]]}, x="S2")
c = single("layer_norm_two_dims", "layer_norm", {"x": (3, 6, 5)}, {"w": normal(6, 5, scale=0.5, shift=1), "b": (6, 5)},
           args={"normalized_shape": [6, 5], **EPS}, second=True)
c.limit(3 * 2 * 3 * 4, {"x": [[2, 4]]}, x="S1").limit(3 * 3 * 3 * 4, {"x": [[1, 0, 4]]}, mesh=(3,), x="S2")
c.limit(3 * 4 * 3 * 4, {"x": [[2, 4], [3, 2]]}, mesh=(2, 2), x=("S1", "S2"))
# One element to a row has no gradient, not even rounding: dy w must not meet its mean in a fused multiplication.
Case("layer_norm_one_element").data(x=np.array([[[-0.6438]], [[-1.1866]], [[-0.7681]]])).param(w=np.array([[-0.2909925580024719]]), b=(1, 1)).step(
    "layer_norm", "x w b", "y", normalized_shape=[1, 1], **EPS).returns("y", y=[[[-0.629600465297699]], [[-1.3431172370910645]], [[-0.7479333877563477]]])
single("layer_norm_plain", "layer_norm", {"x": (4, 7)}, ins="x - -", args={"normalized_shape": [7], **EPS}, second=True)
single("layer_norm_plain_two_dims", "layer_norm", {"x": (2, 3, 4, 5)}, ins="x - -", args={"normalized_shape": [4, 5], **EPS})
single("layer_norm_weight_only", "layer_norm", {"x": (4, 7)}, {"w": (7,)}, ins="x w -", args={"normalized_shape": [7], **EPS})
single("layer_norm_everything", "layer_norm", {"x": (5, 6)}, {"w": (5, 6), "b": (5, 6)}, args={"normalized_shape": [5, 6], **EPS})
single("layer_norm_vector", "layer_norm", {"x": (12,)}, {"w": (12,), "b": (12,)}, args={"normalized_shape": [12], **EPS})
single("layer_norm_one_value_no_eps", "layer_norm", {"x": (5, 1)}, {"w": (1,), "b": (1,)}, args={"normalized_shape": [1], "eps": 0.0})
single("layer_norm_one_value_no_eps_plain", "layer_norm", {"x": (3, 1, 1)}, ins="x - -", args={"normalized_shape": [1, 1], "eps": 0.0})
single("layer_norm_size_one", "layer_norm", {"x": (5, 1)}, {"w": (1,), "b": (1,)}, args={"normalized_shape": [1], **EPS})
single("layer_norm_far_from_zero", "layer_norm", {"x": normal(3, 5, 16, shift=1000)}, {"w": (16,), "b": (16,)},
       args={"normalized_shape": [16], **EPS})
single("layer_norm_equal_values", "layer_norm", {"x": np.full((3, 8), 4.0)}, {"w": (8,), "b": (8,)},
       args={"normalized_shape": [8], "eps": 1e-2})
single("layer_norm_large_eps", "layer_norm", {"x": (3, 8)}, {"w": (8,), "b": (8,)}, args={"normalized_shape": [8], "eps": 0.5})
single("layer_norm_no_rows", "layer_norm", {"x": (0, 8)}, {"w": (8,), "b": (8,)}, args={"normalized_shape": [8], **EPS})
single("layer_norm_split_weights", "layer_norm", {"x": (4, 9), "w": (9,), "b": (9,)}, args={"normalized_shape": [9], **EPS}, second=True)

# ---- add_layer_norm: a sum and its norm, both used
SUMMANDS = {"x": (2, 9, 8), "residual": (2, 9, 8)}
c = single("add_layer_norm_last", "add_layer_norm", SUMMANDS, {"w": normal(8, scale=0.5, shift=1), "b": (8,)}, outs="s y",
           args={"normalized_shape": [8], **EPS}, second=True)
c.limit(0, {n: [[2, 7]] for n in SUMMANDS}, x="S1", residual="S1").limit(3 * 2 * 18 * 4, {n: [[3, 5]] for n in SUMMANDS}, x="S2", residual="S2")
c.limit(3 * 3 * 18 * 4, {"x": [[3, 0, 5]]}, mesh=(3,), x="S2")
single("add_layer_norm_plain", "add_layer_norm", {"x": (3, 4, 5), "residual": (3, 4, 5)}, ins="x residual - -", outs="s y",
       args={"normalized_shape": [4, 5], **EPS})

# ---- mse_loss: the gradient of the target counts as well.
for reduction in ("mean", "sum", "none"):
    single(f"mse_loss_{reduction}", "mse_loss", {"x": (2, 3, 7, 5), "t": (2, 3, 7, 5)}, args={"reduction": reduction},
           second=True).limit(0, {n: [[3, 4]] for n in "xt"}, x="S2", t="S2")
single("mse_loss_fixed_target", "mse_loss", {"x": (2, 9), "t": (2, 9)}, args={"reduction": "mean"}, constant=("t",))
single("mse_loss_scalar", "mse_loss", {"x": (), "t": ()}, args={"reduction": "mean"})
single("mse_loss_sum_of_nothing", "mse_loss", {"x": (0, 4), "t": (0, 4)}, args={"reduction": "sum"})
Case("mse_loss_parameter_target").data(x=(4, 6)).param(y=(4, 6)).step("mse_loss", "x y", "loss", reduction="mean").returns(
    "loss").limit(0, {"x": [[1, 3]]}, x="S0")
# An output may take the name of an input: "grad.y" then means the input's gradient.
single("mse_loss_named_like_input", "mse_loss", {"x": (2, 9), "y": (2, 9)}, args={"reduction": "mean"})
