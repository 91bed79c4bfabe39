"""Losses of pairs and of classes: reductions, weights, targets that do not count, corners, and what may travel."""
import numpy as np

from .case import Case, few_values, normal, single, uniform

REDUCTIONS = ("mean", "sum", "none")


def classes(count, *sizes, ignored=0.0, ignore=-100):
    """Class numbers, some of them replaced by one that does not count."""
    def make(rng):
        numbers = rng.integers(0, count, sizes)
        return np.where(rng.random(sizes) < ignored, ignore, numbers).astype(np.int64)
    return make


def pair(name, op, x=(2, 3, 7, 5), t=(2, 3, 7, 5), second=False, constant=(), **args):
    case = single(name, op, {"x": x, "t": t}, args=args, second=second, constant=constant)
    sizes = case.tensors["x"].shape
    if len(sizes) == 4:
        case.limit(0, {n: [[3, 4]] for n in "xt"}, x="S2", t="S2").limit(0, {n: [[0, 2]] for n in "xt"}, x="S0", t="S0")
    return case


# ---- l1_loss, smooth_l1_loss, huber_loss
for reduction in REDUCTIONS:
    pair(f"l1_loss_{reduction}", "l1_loss", reduction=reduction)
    pair(f"smooth_l1_loss_{reduction}", "smooth_l1_loss", reduction=reduction, second=True)
    pair(f"huber_loss_{reduction}", "huber_loss", reduction=reduction, second=True)
pair("l1_loss_ties", "l1_loss", few_values(3, 4, 5), few_values(3, 4, 5), reduction="none")
pair("l1_loss_parts", "l1_loss", (7,), (7,), reduction="mean", constant=("t",))
pair("l1_loss_scalar", "l1_loss", (), (), reduction="mean")
pair("l1_loss_of_nothing", "l1_loss", (0, 4), (0, 4), reduction="sum")
pair("smooth_l1_loss_beta", "smooth_l1_loss", reduction="mean", beta=0.3, second=True)
pair("smooth_l1_loss_beta_zero", "smooth_l1_loss", reduction="sum", beta=0.0)
pair("smooth_l1_loss_kink", "smooth_l1_loss", few_values(4, 5, 6), few_values(4, 5, 6), reduction="none", beta=2.0)
pair("smooth_l1_loss_mean_of_nothing", "smooth_l1_loss", (3, 0), (3, 0), reduction="mean")
pair("huber_loss_delta", "huber_loss", reduction="mean", delta=0.4, second=True)
pair("huber_loss_kink", "huber_loss", few_values(4, 5, 6), few_values(4, 5, 6), reduction="none", delta=2.0)
# Sizes that broadcast: PyTorch warns, and takes them.
for op in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
    pair(f"{op}_broadcast", op, (3, 4, 5), (4, 1), reduction="mean", second=op != "l1_loss")
    pair(f"{op}_broadcast_input", op, (6, 1), (1, 5), reduction="sum")

# ---- binary cross entropy
CHANCE = {"x": uniform(0.05, 0.95, 2, 9, 5), "t": uniform(0, 1, 2, 9, 5)}
for reduction in REDUCTIONS:
    single(f"binary_cross_entropy_{reduction}", "binary_cross_entropy", CHANCE, args={"reduction": reduction}, second=True)
    pair(f"bce_with_logits_{reduction}", "binary_cross_entropy_with_logits", (2, 3, 7, 5), uniform(0, 1, 2, 3, 7, 5), reduction=reduction,
         second=True)
single("binary_cross_entropy_sure", "binary_cross_entropy",
       {"x": np.array([0.0, 1, 0, 1, 0.25]), "t": np.array([0.0, 1, 1, 0, 0.5])}, args={"reduction": "none"}, constant=("t",))
# Cut alike, nothing needs to travel.
case = Case("binary_cross_entropy_split").data(x=uniform(0.1, 0.9, 8, 3), t=uniform(0, 1, 8, 3)).step(
    "binary_cross_entropy", "x t", "loss", reduction="mean").returns("loss")
case.limit(0, {n: [[3, 5]] for n in "xt"}, x="S0", t="S0").limit(0, {n: [[3, 0, 5]] for n in "xt"}, mesh=(3,), x="S0", t="S0")
Case("binary_cross_entropy_weights", second=True).data(**CHANCE).param(w=uniform(0.5, 2, 5)).constant("w").step(
    "binary_cross_entropy", "x t w", "loss", reduction="mean").returns("loss")
LOGITS = {"x": normal(4, 6, 3, scale=2), "t": uniform(0, 1, 4, 6, 3)}
Case("bce_with_logits_weights", second=True).data(**LOGITS).param(w=uniform(0.5, 2, 6, 1)).constant("w").step(
    "binary_cross_entropy_with_logits", "x t w", "loss", reduction="mean").returns("loss")
Case("bce_with_logits_positive_weights", second=True).data(**LOGITS).param(p=uniform(0.5, 3, 3)).constant("p").step(
    "binary_cross_entropy_with_logits", "x t - p", "loss", reduction="sum").returns("loss")
Case("bce_with_logits_all_weights").data(**LOGITS).param(w=uniform(0.5, 2, 4, 1, 1), p=uniform(0.5, 3, 6, 3)).constant("w", "p").step(
    "binary_cross_entropy_with_logits", "x t w p", "loss", reduction="none").returns("loss")
Case("bce_with_logits_split_weights").data(p=uniform(0.5, 3, 6, 3), **LOGITS).constant("p", "t").step(
    "binary_cross_entropy_with_logits", "x t - p", "loss", reduction="mean").returns("loss")
single("bce_with_logits_far", "binary_cross_entropy_with_logits",
       {"x": np.array([-200.0, -60, -30, -1, 0, 1, 30, 60, 200]), "t": np.array([0.0, 1, 0, 1, 0.5, 0, 1, 0, 1])},
       args={"reduction": "none"})

# ---- kl_div
PROBABILITIES = {"x": lambda rng: np.log(rng.dirichlet(np.ones(5), (3, 4))), "t": lambda rng: rng.dirichlet(np.ones(5), (3, 4))}
for reduction in (*REDUCTIONS, "batchmean"):
    single(f"kl_div_{reduction}", "kl_div", PROBABILITIES, args={"reduction": reduction, "log_target": False}, second=True).limit(
        0, {n: [[1, 3]] for n in "xt"}, x="S1", t="S1")
    single(f"kl_div_log_target_{reduction}", "kl_div", {n: PROBABILITIES["x"] for n in "xt"},
           args={"reduction": reduction, "log_target": True}, second=True)
single("kl_div_zero_targets", "kl_div", {"x": PROBABILITIES["x"], "t": lambda rng: np.maximum(rng.dirichlet(np.ones(5), (3, 4)) - 0.2, 0)},
       args={"reduction": "sum", "log_target": False}, constant=("t",))

# ---- cross_entropy: three numbers a position where the classes are cut (four with smoothing); for a mean four doubles
# a rank where the positions are.
POSITIONS = 2 * 7 * 5
MAP = {"x": normal(2, 4, 7, 5, scale=2), "y": classes(4, 2, 7, 5)}
c = single("cross_entropy_map", "cross_entropy", MAP, outs="loss", args={"reduction": "mean"}, second=True)
c.limit(3 * 4 * POSITIONS * 2, {"x": [[1, 3]]}, x="S1").limit(4 * 8 * 2, {"x": [[3, 4]], "y": [[3, 4]]}, x="S2", y="S1")
c.limit(3 * 4 * POSITIONS * 3, {"x": [[1, 0, 3]]}, mesh=(3,), x="S1")
c.limit(3 * 4 * POSITIONS * 2 + 4 * 8 * 4, {"x": [[3, 1], [2, 5]], "y": [[], [2, 5]]}, mesh=(2, 2), x=("S1", "S2"), y=("R", "S1"))
for reduction in ("sum", "none"):
    single(f"cross_entropy_{reduction}", "cross_entropy", MAP, outs="loss", args={"reduction": reduction}, second=True).limit(
        3 * 4 * POSITIONS * 2, {"x": [[1, 3]]}, x="S1").limit(0, {"x": [[3, 4]], "y": [[3, 4]]}, x="S2", y="S1")
SOME = {"x": normal(6, 5, scale=2), "y": classes(5, 6, ignored=0.4)}
single("cross_entropy_some_ignored", "cross_entropy", SOME, outs="loss", args={"reduction": "mean"}, second=True).limit(
    4 * 8 * 3, {"x": [[1, 0, 5]], "y": [[1, 0, 5]]}, mesh=(3,), x="S0", y="S0")
single("cross_entropy_none_ignored", "cross_entropy", SOME, outs="loss", args={"reduction": "none"}, second=True)
single("cross_entropy_ignored_class", "cross_entropy", {"x": (5, 3, 4), "y": classes(3, 5, 4)}, outs="loss",
       args={"reduction": "mean", "ignore_index": 1})
single("cross_entropy_all_ignored", "cross_entropy", {"x": (4, 3), "y": classes(3, 4, ignored=1.0)}, outs="loss", args={"reduction": "mean"})
single("cross_entropy_all_ignored_sum", "cross_entropy", {"x": (4, 3), "y": classes(3, 4, ignored=1.0)}, outs="loss", args={"reduction": "sum"})
for reduction in REDUCTIONS:
    Case(f"cross_entropy_weights_{reduction}", second=True).data(x=(3, 4, 6), y=classes(4, 3, 6, ignored=0.2)).param(w=uniform(0.2, 2, 4)).constant(
        "w").step("cross_entropy", "x y w", "loss", reduction=reduction).returns("loss")
    Case(f"cross_entropy_smoothing_{reduction}", second=True).data(x=(3, 4, 6), y=classes(4, 3, 6, ignored=0.2)).step(
        "cross_entropy", "x y", "loss", reduction=reduction, label_smoothing=0.3).returns("loss").limit(
        4 * 4 * 18 * 2, {"x": [[1, 3]]}, x="S1")
    Case(f"cross_entropy_smoothing_weights_{reduction}", second=True).data(x=(3, 4, 6), y=classes(4, 3, 6, ignored=0.2)).param(
        w=uniform(0.2, 2, 4)).constant("w").step("cross_entropy", "x y w", "loss", reduction=reduction, label_smoothing=0.2).returns("loss")
Case("cross_entropy_split_weights").data(x=(5, 4), y=classes(4, 5), w=uniform(0.2, 2, 4)).constant("w").step(
    "cross_entropy", "x y w", "loss", reduction="mean").returns("loss")
single("cross_entropy_vector", "cross_entropy", {"x": (7,), "y": np.array(3)}, outs="loss", args={"reduction": "mean"}, second=True).limit(
    3 * 4 * 3, {"x": [[2, 0, 5]]}, mesh=(3,), x="S0")
single("cross_entropy_vector_none", "cross_entropy", {"x": (7,), "y": np.array(6)}, outs="loss", args={"reduction": "none"})
single("cross_entropy_no_samples", "cross_entropy", {"x": (0, 3, 4), "y": np.zeros((0, 4), dtype=np.int64)}, outs="loss", args={"reduction": "sum"})
single("cross_entropy_mean_of_nothing", "cross_entropy", {"x": (0, 3), "y": np.zeros((0,), dtype=np.int64)}, outs="loss", args={"reduction": "mean"})
single("cross_entropy_one_class", "cross_entropy", {"x": (4, 1, 3), "y": classes(1, 4, 3)}, outs="loss", args={"reduction": "sum"})
single("cross_entropy_many_classes", "cross_entropy", {"x": normal(5, 67, scale=3), "y": classes(67, 5)}, outs="loss", args={"reduction": "mean"})
single("cross_entropy_huge_logits", "cross_entropy", {"x": normal(4, 5, scale=300), "y": classes(5, 4)}, outs="loss", args={"reduction": "none"})
single("cross_entropy_impossible_classes", "cross_entropy",
       {"x": np.array([[-np.inf, 0, 1, 2], [3, -np.inf, -np.inf, 1], [0, 0, 0, -np.inf]]), "y": np.array([1, 3, 0])}, outs="loss",
       args={"reduction": "none"})
single("cross_entropy_probabilities", "cross_entropy", {"x": (3, 4, 5), "t": lambda rng: rng.dirichlet(np.ones(4), (3, 5)).transpose(0, 2, 1)},
       outs="loss", args={"reduction": "mean"}, second=True)
Case("cross_entropy_probabilities_weights").data(x=(6, 4), t=lambda rng: rng.dirichlet(np.ones(4), 6)).param(w=uniform(0.2, 2, 4)).constant(
    "w").step("cross_entropy", "x t w", "loss", reduction="none", label_smoothing=0.2).returns("loss")

# ---- nll_loss: one number a position
c = single("nll_loss_map", "nll_loss", MAP, outs="loss", args={"reduction": "mean"})
c.limit(4 * POSITIONS * 2, {"x": [[1, 3]]}, x="S1").limit(4 * 8 * 2, {"x": [[3, 4]], "y": [[3, 4]]}, x="S2", y="S1")
for reduction in ("none", "sum"):
    single(f"nll_loss_{reduction}", "nll_loss", SOME, outs="loss", args={"reduction": reduction}).limit(
        0, {n: [[1, 5]] for n in "xy"}, x="S0", y="S0")
Case("nll_loss_weights").data(**SOME).param(w=uniform(0.2, 2, 5)).constant("w").step(
    "nll_loss", "x y w", "loss", reduction="mean").returns("loss")
single("nll_loss_vector", "nll_loss", {"x": (7,), "y": np.array(2)}, outs="loss", args={"reduction": "sum"})

# ---- in use
Case("program_classifier", second=True).data(x=(6, 5), y=classes(7, 6, ignored=0.3)).param(w=normal(7, 5, scale=0.5), b=(7,)).step(
    "linear", "x w b", "h").step("cross_entropy", "h y", "loss", reduction="mean").returns("loss")
Case("program_classes_over_ranks").data(x=(4, 5), y=classes(6, 4)).data(w=normal(6, 5, scale=0.5)).step("linear", "x w -", "h").step(
    "cross_entropy", "h y", "loss", reduction="mean").returns("loss").limit(3 * 4 * 4 * 2, {"w": [[2, 4]]}, w="S0")
# Gradients of means must not grow with the number of ranks, nor lose empty shares.
for op in ("smooth_l1_loss", "l1_loss"):
    Case(f"reported_{op}_gradient").data(x=np.arange(1.0, 9).reshape(2, 4) * 3, t=np.zeros((2, 4))).step(op, "x t", "loss", reduction="mean").returns(
        "loss", loss=1.0)
