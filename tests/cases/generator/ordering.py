"""sort, argsort and topk: ties, NaN, sizes 0 and 1, and what may travel where the dim is cut."""
import numpy as np
import torch

from .case import Case, few_values, normal, single
from .operations import operation


@operation()
def sort(x, *, dim, descending):
    return torch.sort(x, dim=dim, descending=descending, stable=True)


@operation()
def argsort(x, *, dim, descending):
    return torch.argsort(x, dim=dim, descending=descending, stable=True)


@operation()
def topk(x, *, k, dim, largest=True):
    """Of equal values those with the lowest index, which PyTorch's own topk does not promise."""
    values, indices = torch.sort(x, dim=dim, descending=largest, stable=True)
    if x.dim() == 0:
        return values, indices
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


@operation()
def median(x, *, dim=None, keepdim=False):
    """Of equal values the place that a stable sort gives, which PyTorch's own median does not promise."""
    if dim is None:
        return x.median()
    values, places = x.median(dim, keepdim)
    if x.dim() > 0 and not values.isnan().any():
        places = x.sort(dim=dim, stable=True).indices.select(dim, (x.shape[dim] - 1) // 2)
        places = places.unsqueeze(dim) if keepdim else places
        values = x.gather(dim, places if keepdim else places.unsqueeze(dim))
        values = values if keepdim else values.squeeze(dim)
    return values, places


def order(name, x, dim, descending=False, **more):
    return single(f"sort_{name}", "sort", {"x": x}, outs="v i", args={"dim": dim, "descending": descending}, **more)


def best(name, x, k, dim=-1, largest=True, **more):
    return single(f"topk_{name}", "topk", {"x": x}, outs="v i", args={"k": k, "dim": dim, "largest": largest}, **more)


def candidates(cuts, k, rows):
    """Bytes of the best k of every rank, values and numbers."""
    return sum(min(k, n) for n in cuts) * rows * 8


c = order("middle", (3, 11, 4), 1)
# The cut moves to the last dim: half of what each rank holds.
c.limit(3 * 11 * 2 * 4, {"x": [[5, 6]]}, x="S1").limit(0, {"x": [[1, 3]]}, x="S2")
c.limit(0, {"x": [[1, 2], [3, 1]]}, mesh=(2, 2), x=("S0", "S2"))
order("last_descending", (5, 13), -1, True)
single("topk_values_only", "topk", {"x": (4, 9)}, outs="v", args={"k": 3, "dim": 1})  # outputs may go unnamed
order("first", (12, 3), 0)
# Of a vector every value moves once, with its number; and samples.
order("vector", (97,), 0).limit(97 * 12 + 2 * 150, {"x": [[40, 57]]}, x="S0")
order("vector_descending", (64,), -1, True)
order("ties", few_values(3, 4, 17), 1)
order("ties_descending", few_values(3, 29), 0, True)
order("all_equal", np.ones((2, 9)), 1, True)
order("already", np.arange(24.0), 0)
order("backwards", np.arange(24.0)[::-1], 0)
order("size_one", (4, 1, 3), 1)
order("one_element", (1,), 0)
order("nothing", (3, 0), 1)
order("no_rows", (0, 4), 1)
order("scalar", (), 0)
Case("sort_squared", second=True).data(x=(3, 14)).step("sort", "x", "v i", dim=1, descending=True).step(
    "mul", "v v", "y").returns("y i")
Case("argsort_ties").data(x=few_values(4, 3, 15)).step("argsort", "x", "i", dim=1, descending=True).returns("i").limit(
    0, {"x": [[1, 2]]}, x="S0")

def middle(name, x, dim=None, keepdim=False, **more):
    outs = "v" if dim is None else "v i"
    return single(f"median_{name}", "median", {"x": x}, outs=outs, args={"dim": dim, "keepdim": keepdim}, **more)


middle("odd", (4, 11), 1).limit(0, {"x": [[1, 3]]}, x="S0")
middle("even_keepdim", (10, 3), 0, True)
middle("middle_dim", (3, 9, 4), 1)
middle("all", (5, 7))
middle("all_even", (4, 6))
middle("all_ties", few_values(3, 5, 6))
middle("ties", few_values(3, 4, 17), 1)
middle("vector", (40,), 0)
middle("one", (5, 1), 1)
middle("scalar", (), 0)
middle("nan_in_a_row", np.array([[3.0, 1, 2, 5], [4, np.nan, 1, np.nan], [np.inf, 1, -np.inf, 2]]), 1)
middle("nan_in_all", np.array([[3.0, 1, 2], [4, np.nan, 1]]))
Case("median_squared", second=True).data(x=(3, 13)).step("median", "x", "v i", dim=1, keepdim=True).step(
    "mul", "v x", "y").returns("y i")

c = best("few_of_many", (2, 90), 3)
c.limit(candidates((40, 50), 3, 2), {"x": [[40, 50]]}, x="S1").limit(
    candidates((2, 88), 3, 2), {"x": [[2, 88]]}, x="S1").limit(
    candidates((30, 0, 60), 3, 2), {"x": [[30, 0, 60]]}, mesh=(3,), x="S1").limit(0, {"x": [[1, 1]]}, x="S0")
best("least_of_many", (90, 2), 2, 0, False).limit(candidates((1, 89), 2, 2), {"x": [[1, 89]]}, x="S0")
best("half", (6, 10), 5)
best("all", (4, 7), 7)
best("all_of_a_vector", (31,), 31)
best("most_of_a_vector", (40,), 33, 0, False)
best("ties", few_values(3, 3, 20), 6)
best("ties_least", few_values(2, 25), 9, largest=False)
best("one", (5, 6, 4), 1, 1)
best("none", (5, 6), 0)
best("scalar", (), 1, 0)
best("no_rows", (0, 4), 2)
Case("topk_squared", second=True).data(x=(3, 30)).step("topk", "x", "v i", k=4, dim=1, largest=True).step(
    "mul", "v v", "y").returns("y")
# A router: scores, the best two experts of each token, their weights spread over all experts again.
router = Case("program_best_two").data(x=(7, 4), z=np.zeros((7, 5))).constant("z").param(w=normal(5, 4, scale=0.7))
router.step("linear", "x w -", "s").step("topk", "s", "v i", k=2, dim=-1).step("softmax", "v", "p", dim=-1)
router.step("scatter_add", "z i p", "y", dim=1).returns("y i")
