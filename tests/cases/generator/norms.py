"""Norms over channels and root-mean-square norm: every split, what may travel, running statistics, corners."""
import numpy as np

from .case import Case, normal, single
from .reported import expect

FLOAT = 4
EPS = {"eps": 1e-5}


def scale(*sizes):
    return normal(*sizes, scale=0.5, shift=1)


def moments(rows, ranks=2):
    """Mean in two terms and squared deviations of every row, once from each rank."""
    return 3 * FLOAT * rows * ranks


# ---- group_norm
GROUPS = {"num_groups": 3, **EPS}
c = single("group_norm_map", "group_norm", {"x": (2, 6, 7, 5)}, {"w": scale(6), "b": (6,)}, args=GROUPS, second=True)
c.limit(moments(6), {"x": [[3, 4]]}, x="S2").limit(moments(6), {"x": [[5, 0]]}, x="S3").limit(0, {"x": [[1, 1]]}, x="S0")
c.limit(0, {"x": [[2, 4]]}, x="S1")           # borders of groups
c.limit(moments(6), {"x": [[3, 3]]}, x="S1")  # inside a group
c.limit(moments(6, 4), {"x": [[2, 5], [3, 2]]}, mesh=(2, 2), x=("S2", "S3"))
c.limit(moments(3, 4), {"x": [[1, 1], [2, 5]]}, mesh=(2, 2), x=("S0", "S2"))
c.limit(moments(6, 3), {"x": [[2, 0, 5]]}, mesh=(3,), x="S2")
c = single("group_norm_channels_cut_everywhere", "group_norm", {"x": (2, 8, 3)}, {"w": scale(8), "b": (8,)}, args={"num_groups": 2, **EPS})
c.limit(moments(4, 4), {"x": [[1, 3, 1, 3]]}, mesh=(4,), x="S1").limit(moments(4, 3), {"x": [[5, 0, 3]]}, mesh=(3,), x="S1")
single("group_norm_one_group", "group_norm", {"x": (2, 4, 5, 3)}, {"w": scale(4), "b": (4,)}, args={"num_groups": 1, **EPS}, second=True)
single("group_norm_group_each", "group_norm", {"x": (2, 4, 6)}, {"w": scale(4), "b": (4,)}, args={"num_groups": 4, **EPS})
single("group_norm_no_space", "group_norm", {"x": (3, 6)}, {"w": scale(6), "b": (6,)}, args={"num_groups": 2, **EPS}, second=True)
single("group_norm_volume", "group_norm", {"x": (1, 4, 3, 4, 5)}, {"w": scale(4), "b": (4,)}, args={"num_groups": 2, **EPS})
single("group_norm_plain", "group_norm", {"x": (2, 4, 7)}, ins="x - -", args={"num_groups": 2, **EPS}, second=True)
single("group_norm_weight_only", "group_norm", {"x": (2, 4, 7)}, {"w": scale(4)}, ins="x w -", args={"num_groups": 2, **EPS})
single("group_norm_bias_only", "group_norm", {"x": (2, 4, 7)}, {"b": (4,)}, ins="x - b", args={"num_groups": 2, **EPS})
single("group_norm_split_weights", "group_norm", {"x": (2, 6, 4), "w": scale(6), "b": (6,)}, args=GROUPS, second=True)
single("group_norm_no_samples", "group_norm", {"x": (0, 4, 5)}, {"w": scale(4), "b": (4,)}, args={"num_groups": 2, **EPS})
single("group_norm_equal_values", "group_norm", {"x": np.full((2, 4, 6), 3.0)}, {"w": scale(4), "b": (4,)}, args={"num_groups": 2, "eps": 1e-2})
single("group_norm_large_eps", "group_norm", {"x": (2, 4, 6)}, {"w": scale(4), "b": (4,)}, args={"num_groups": 2, "eps": 0.5})
NO_EPS = {"eps": 0.0}
single("group_norm_one_value_no_eps", "group_norm", {"x": (2, 4)}, {"w": scale(4), "b": (4,)}, args={"num_groups": 4, **NO_EPS})
single("group_norm_one_value_no_eps_map", "group_norm", {"x": (2, 4, 1, 1)}, ins="x - -", args={"num_groups": 4, **NO_EPS}, second=True)
for mean in (100, 1000):  # other systems lose up to a tenth here
    single(f"group_norm_mean_{mean}", "group_norm", {"x": normal(2, 4, 9, 8, shift=mean)}, {"w": scale(4), "b": (4,)},
           args={"num_groups": 2, **EPS}).limit(moments(4), {"x": [[2, 7]]}, x="S2")
single("group_norm_long_rows", "group_norm", {"x": (1, 2, 40, 70)}, {"w": scale(2), "b": (2,)}, args={"num_groups": 1, **EPS})

# ---- batch_norm
c = single("batch_norm_map", "batch_norm", {"x": (3, 4, 7, 5)}, {"w": scale(4), "b": (4,)}, args=EPS, second=True)
c.limit(moments(4), {"x": [[1, 2]]}, x="S0").limit(moments(4), {"x": [[3, 4]]}, x="S2").limit(0, {"x": [[1, 3]]}, x="S1")
c.limit(moments(4, 4), {"x": [[2, 1], [3, 4]]}, mesh=(2, 2), x=("S0", "S2"))
c.limit(moments(1, 2) + moments(3, 2), {"x": [[2, 1], [1, 3]]}, mesh=(2, 2), x=("S0", "S1"))
single("batch_norm_vectors", "batch_norm", {"x": (9, 5)}, {"w": scale(5), "b": (5,)}, args=EPS, second=True).limit(
    moments(5, 3), {"x": [[4, 0, 5]]}, mesh=(3,), x="S0")
single("batch_norm_sequence", "batch_norm", {"x": (2, 3, 11)}, {"w": scale(3), "b": (3,)}, args=EPS)
single("batch_norm_volume", "batch_norm", {"x": (2, 3, 3, 2, 4)}, {"w": scale(3), "b": (3,)}, args=EPS)
single("batch_norm_plain", "batch_norm", {"x": (4, 3, 5)}, ins="x - -", args=EPS, second=True)
single("batch_norm_weight_only", "batch_norm", {"x": (4, 3, 5)}, {"w": scale(3)}, ins="x w -", args=EPS)
single("batch_norm_split_weights", "batch_norm", {"x": (4, 6, 3), "w": scale(6), "b": (6,)}, args=EPS, second=True)
single("batch_norm_two_values", "batch_norm", {"x": (2, 3)}, {"w": scale(3), "b": (3,)}, args=EPS)
single("batch_norm_far_from_zero", "batch_norm", {"x": normal(3, 4, 6, 5, shift=1000)}, {"w": scale(4), "b": (4,)}, args=EPS)
single("batch_norm_long_rows", "batch_norm", {"x": (2, 2, 60, 50)}, {"w": scale(2), "b": (2,)}, args=EPS)
RUNNING = {"m": (4,), "v": lambda rng: rng.uniform(0.5, 2, 4).astype(np.float32)}
Case("batch_norm_running").data(x=(3, 4, 6), **RUNNING).param(w=scale(4), b=(4,)).constant("m", "v").step(
    "batch_norm", "x w b m v", "y m2 v2", training=True, momentum=0.3, **EPS).returns("y m2 v2")
Case("batch_norm_running_twice").data(x=(3, 4, 6), **RUNNING).constant("m", "v").step(
    "batch_norm", "x - - m v", "y m2 v2", training=True, momentum=0.1, **EPS).step(
    "batch_norm", "y - - m v", "z m3 v3", training=True, momentum=1.0, **EPS).returns("z m3 v3")
Case("batch_norm_eval", second=True).data(x=(3, 4, 6, 5), **RUNNING).param(w=scale(4), b=(4,)).constant("m", "v").step(
    "batch_norm", "x w b m v", "y", training=False, **EPS).returns("y").limit(0, {"x": [[4, 2]]}, x="S2").limit(
    0, {"x": [[1, 3]]}, x="S1")
Case("batch_norm_eval_plain").data(x=(5, 4), **RUNNING).constant("m", "v").step(
    "batch_norm", "x - - m v", "y", training=False, **EPS).returns("y")
Case("batch_norm_eval_no_samples").data(x=(0, 4, 3), **RUNNING).param(w=scale(4), b=(4,)).constant("m", "v").step(
    "batch_norm", "x w b m v", "y", training=False, **EPS).returns("y")
Case("batch_norm_no_samples").data(x=(0, 4, 3), **RUNNING).param(w=scale(4), b=(4,)).constant("m", "v").step(
    "batch_norm", "x w b m v", "y m2 v2", training=True, **EPS).returns("y m2 v2")

# ---- instance_norm
c = single("instance_norm_map", "instance_norm", {"x": (2, 4, 7, 5)}, {"w": scale(4), "b": (4,)}, args=EPS, second=True)
c.limit(moments(8), {"x": [[3, 4]]}, x="S2").limit(0, {"x": [[1, 1]]}, x="S0").limit(0, {"x": [[1, 3]]}, x="S1")
c.limit(moments(8, 4), {"x": [[3, 4], [1, 4]]}, mesh=(2, 2), x=("S2", "S3"))
single("instance_norm_sequence", "instance_norm", {"x": (3, 2, 9)}, {"w": scale(2), "b": (2,)}, args=EPS)
single("instance_norm_volume", "instance_norm", {"x": (1, 3, 3, 4, 2)}, {"w": scale(3), "b": (3,)}, args=EPS)
single("instance_norm_plain", "instance_norm", {"x": (2, 3, 8)}, ins="x - -", args=EPS, second=True)
single("instance_norm_no_samples", "instance_norm", {"x": (0, 3, 8)}, ins="x - -", args=EPS)
single("instance_norm_far_from_zero", "instance_norm", {"x": normal(2, 3, 6, 5, shift=1000)}, ins="x - -", args=EPS)
Case("instance_norm_running").data(x=(3, 4, 6), **RUNNING).param(w=scale(4), b=(4,)).constant("m", "v").step(
    "instance_norm", "x w b m v", "y m2 v2", use_input_stats=True, momentum=0.3, **EPS).returns("y m2 v2")
Case("instance_norm_given").data(x=(3, 4, 6), **RUNNING).param(w=scale(4), b=(4,)).constant("m", "v").step(
    "instance_norm", "x w b m v", "y", use_input_stats=False, **EPS).returns("y").limit(0, {"x": [[1, 5]]}, x="S2")

for name, value, sizes in (("", 3.0, (2, 4, 7)), ("_rounded", 0.1, (2, 4, 37)), ("_image", 1e6 + 0.1, (2, 4, 7, 3))):
    single(f"instance_norm_equal_values_no_eps{name}", "instance_norm", {"x": np.full(sizes, value)}, {"w": scale(4), "b": (4,)},
           args=NO_EPS, second=True)
# ---- an activation in the same pass
for kind in ("relu", "silu", "gelu", "gelu_tanh"):
    ACTIVE = {**EPS, "activation": kind}
    c = single(f"group_norm_{kind}", "group_norm", {"x": (2, 6, 7, 5)}, {"w": scale(6), "b": (6,)},
               args={"num_groups": 3, **ACTIVE}, second=kind != "relu")
    c.limit(moments(6), {"x": [[3, 4]]}, x="S2").limit(moments(6), {"x": [[3, 3]]}, x="S1").limit(0, {"x": [[2, 4]]}, x="S1")
    single(f"batch_norm_{kind}", "batch_norm", {"x": (3, 4, 5, 3)}, {"w": scale(4), "b": (4,)}, args=ACTIVE).limit(
        moments(4), {"x": [[1, 2]]}, x="S0")
    single(f"instance_norm_{kind}", "instance_norm", {"x": (2, 4, 9)}, {"w": scale(4), "b": (4,)}, args=ACTIVE)
single("group_norm_silu_plain", "group_norm", {"x": (2, 4, 3, 4, 5)}, ins="x - -", args={"num_groups": 2, **EPS, "activation": "silu"}, second=True)
Case("batch_norm_eval_gelu").data(x=(3, 4, 6, 5), **RUNNING).param(w=scale(4), b=(4,)).constant("m", "v").step(
    "batch_norm", "x w b m v", "y", training=False, activation="gelu", **EPS).returns("y").limit(0, {"x": [[4, 2]]}, x="S2")

# ---- rms_norm
c = single("rms_norm_last", "rms_norm", {"x": (2, 9, 8)}, {"w": scale(8)}, args={"normalized_shape": [8], "eps": 1e-6}, second=True)
c.limit(0, {"x": [[2, 7]]}, x="S1").limit(18 * 2 * FLOAT, {"x": [[3, 5]]}, x="S2").limit(0, {"x": [[1, 1], [5, 4]]}, mesh=(2, 2), x=("S0", "S1"))
c = single("rms_norm_two_dims", "rms_norm", {"x": (3, 6, 5)}, {"w": scale(6, 5)}, args={"normalized_shape": [6, 5], "eps": 1e-6}, second=True)
c.limit(3 * 2 * FLOAT, {"x": [[2, 4]]}, x="S1").limit(3 * 4 * FLOAT, {"x": [[2, 4], [3, 2]]}, mesh=(2, 2), x=("S1", "S2"))
single("rms_norm_plain", "rms_norm", {"x": (4, 7)}, ins="x -", args={"normalized_shape": [7], "eps": 1e-5}, second=True)
single("rms_norm_no_eps", "rms_norm", {"x": (4, 7)}, {"w": (7,)}, args={"normalized_shape": [7], "eps": None})
single("rms_norm_vector", "rms_norm", {"x": (12,)}, {"w": (12,)}, args={"normalized_shape": [12], "eps": 1e-5})
single("rms_norm_size_one", "rms_norm", {"x": (5, 1)}, {"w": (1,)}, args={"normalized_shape": [1], "eps": 0.1})
single("rms_norm_zeros", "rms_norm", {"x": np.zeros((2, 6))}, {"w": (6,)}, args={"normalized_shape": [6], "eps": 1e-2})
single("rms_norm_no_rows", "rms_norm", {"x": (0, 8)}, {"w": (8,)}, args={"normalized_shape": [8], "eps": 1e-5})
single("rms_norm_split_weights", "rms_norm", {"x": (4, 9), "w": (9,)}, args={"normalized_shape": [9], "eps": 1e-5}, second=True)

# ---- in use
Case("program_conv_group_norm").data(x=(2, 2, 9, 7)).param(k=normal(4, 2, 3, 3, scale=0.3), w=scale(4), b=(4,)).step(
    "conv2d", "x k -", "h", stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1, padding_mode="zeros").step(
    "group_norm", "h w b", "n", num_groups=2, **EPS).step("gelu", "n", "y", approximate="none").returns("y")
Case("program_split_channels_batch_norm").data(a=(3, 5)).param(u=normal(5, 6, scale=0.5), w=scale(6), b=(6,)).step(
    "matmul", "a u", "h").step("batch_norm", "h w b", "n", **EPS).step("relu", "n", "y").returns("y")

# An empty share beside full ones, and known values.
expect(Case("reported_batch_norm_unequal_counts").data(x=np.array([1.0, 2, 6]).reshape(3, 1), m=np.zeros(1), v=np.ones(1)).param(
    w=np.ones(1), b=np.zeros(1)).constant("m", "v").step("batch_norm", "x w b m v", "y m2 v2", training=True, momentum=0.1, **EPS).returns(
    "y m2 v2", y=np.array([1.0, 2, 4]).reshape(3, 1)).limit(moments(1, 3), {"x": [[2, 0, 1]]}, mesh=(3,), x="S0"),
    y=[-0.9258191078240388, -0.4629095539120194, 1.3887286617360581], m2=0.3, v2=1.6,
    grad_x=[-0.08817438201781538, 0.11021599362843207, -0.022041611610616893], grad_w=3.703276431296155)
