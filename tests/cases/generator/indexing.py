"""Operations whose second operand says where elements come from or go to, and what may travel for it."""
import numpy as np
import torch
import torch.nn.functional as F

from .case import Case, chance, normal, single
from .operations import OPERATIONS, operation


@operation()
def index_select(x, index, *, dim):
    return x.index_select(dim, index)


@operation()
def gather(x, index, *, dim):
    return x.gather(dim, index)


@operation()
def scatter_add(x, index, src, *, dim):
    return x.scatter_add(dim, index, src)


@operation()
def embedding(table, index, **options):
    return F.embedding(index, table, **options)


@operation()
def take_along_dim(x, index, *, dim=None):
    return torch.take_along_dim(x, index, dim)


@operation()
def one_hot(index, *, num_classes):
    return F.one_hot(index, num_classes)


OPERATIONS["masked_fill"] = lambda x, mask, *, value: x.masked_fill(mask, value)


def numbers(bound, *sizes):
    """Numbers of rows, any of `bound`."""
    return lambda rng: rng.integers(0, bound, sizes)


def owner(cuts):
    return np.repeat(np.arange(len(cuts)), cuts)


def moved(case, x_cuts, index_cuts, dim=1, index="i"):
    """The same for elements, each for itself: to fetch them, or to deliver terms."""
    asks, holds = owner(index_cuts), owner(x_cuts)
    numbers = np.moveaxis(case.tensors[index], dim, -1)
    ranks = len(x_cuts)
    return 16 * ranks * (ranks - 1) + int((holds[numbers] != asks).sum()) * (4 + 4)


def fetched(index, x_cuts, index_cuts, row_bytes):
    """Bytes to fetch rows of a cut dim for a cut index: every rank tells every other one how many rows it asks for
    (and whether something is wrong), which, each once (in rows of four elements and more), and gets them."""
    holds, asks = owner(x_cuts), owner(index_cuts)
    wanted = {(asks[j], i) for j, i in enumerate(index) if holds[i] != asks[j]}
    ranks = len(x_cuts)
    return 16 * ranks * (ranks - 1) + len(wanted) * (4 + row_bytes)


# ---- rows along a dim
single("index_select_middle", "index_select", {"x": (2, 13, 3), "i": [3, 11, 3, 0, 7]}, args={"dim": 1}).limit(
    0, {"x": [[6, 7]]}, x="S1").limit(0, {"x": [[1, 1]]}, x="S0").limit(0, {"x": [[1, 2]]}, x="S2").limit(
    0, {"i": [[2, 3]]}, i="S0").limit(
    fetched([3, 11, 3, 0, 7], (6, 7), (2, 3), 24), {"x": [[6, 7]], "i": [[2, 3]]}, x="S1", i="S0").limit(
    0, {"x": [[6, 7], [1, 1]]}, mesh=(2, 2), x=("S1", "S0"))
permuted = np.random.default_rng(5).permutation(11)
single("index_select_permutation", "index_select", {"x": (11, 4), "i": permuted}, args={"dim": 0}).limit(
    fetched(permuted, (3, 4, 4), (5, 1, 5), 16), {"x": [[3, 4, 4]], "i": [[5, 1, 5]]}, mesh=(3,), x="S0", i="S0").limit(
    # A whole index, but a result as large as x: rows travel to an even cut.
    fetched(permuted, (3, 4, 4), (4, 4, 3), 16), {"x": [[3, 4, 4]]}, mesh=(3,), x="S0")
repeated = np.array([4, 4, 9, 4, 9, 9, 4, 0, 4, 9, 4, 4])
single("index_select_repeated", "index_select", {"x": (10, 5), "i": repeated}, args={"dim": 0}).limit(
    fetched(repeated, (5, 5), (6, 6), 20), {"x": [[5, 5]], "i": [[6, 6]]}, x="S0", i="S0").limit(
    fetched(repeated, (1, 9), (0, 12), 20), {"x": [[1, 9]], "i": [[0, 12]]}, x="S0", i="S0")
single("index_select_longer_than_dim", "index_select", {"x": (3, 4, 2), "i": numbers(4, 33)}, args={"dim": -2})
single("index_select_all_the_same", "index_select", {"x": (9, 3), "i": [8] * 4}, args={"dim": 0}).limit(
    0, {"x": [[4, 5]]}, x="S0")
single("index_select_nothing", "index_select", {"x": (5, 3), "i": np.zeros(0, np.int64)}, args={"dim": 0})
single("index_select_from_nothing", "index_select", {"x": (0, 3), "i": np.zeros(0, np.int64)}, args={"dim": 0})
single("index_select_no_columns", "index_select", {"x": (5, 0), "i": [1, 3]}, args={"dim": 0})
single("index_select_one_row", "index_select", {"x": (6, 3), "i": np.int64(4)}, args={"dim": 0})
single("index_select_scalar", "index_select", {"x": (), "i": [0]}, args={"dim": -1})
single("index_select_vector", "index_select", {"x": (17,), "i": numbers(17, 9)}, args={"dim": 0})
Case("index_select_squared", second=True).data(x=(7, 3), i=numbers(7, 9)).step("index_select", "x i", "r", dim=0).step(
    "mul", "r r", "y").returns("y")

# ---- tables
c = single("embedding_matrix_index", "embedding", {"i": numbers(10, 2, 9)}, {"t": (10, 4)}, ins="t i")
c.limit(0, {"i": [[4, 5]]}, i="S1").limit(0, {"i": [[1, 1]]}, i="S0").limit(0, {"t": [[1, 3]]}, t="S1")
c.limit(0, {"i": [[1, 1], [4, 5]]}, mesh=(2, 2), i=("S0", "S1"))
c.limit(0, {"i": [[2, 0, 3, 4]]}, mesh=(4,), i="S1")
single("embedding_row_cut", "embedding", {"t": (40, 4), "i": [5, 39, 5, 5, 0]}, ins="t i").limit(
    0, {"t": [[20, 20]]}, t="S0").limit(
    fetched([5, 39, 5, 5, 0], (20, 20), (2, 3), 16), {"t": [[20, 20]], "i": [[2, 3]]}, t="S0", i="S0").limit(
    fetched([5, 39, 5, 5, 0], (1, 39), (5, 0), 16), {"t": [[1, 39]], "i": [[5, 0]]}, t="S0", i="S0")
# Many numbers and few rows: the table travels, once to each rank.
single("embedding_small_table", "embedding", {"t": (3, 2), "i": numbers(3, 2, 40)}, ins="t i").limit(
    3 * 2 * 4, {"t": [[2, 1]], "i": [[20, 20]]}, t="S0", i="S1")
single("embedding_three_dims", "embedding", {"i": numbers(6, 2, 3, 4)}, {"t": (6, 5)}, ins="t i").limit(
    0, {"i": [[1, 2], [1, 3]]}, mesh=(2, 2), i=("S1", "S2"))
single("embedding_scalar_index", "embedding", {"t": (6, 3), "i": np.int64(2)}, ins="t i")
single("embedding_padding", "embedding", {"i": [[2, 0, 2], [1, 2, 3]]}, {"t": (4, 3)}, ins="t i", args={"padding_idx": 2})
single("embedding_padding_negative", "embedding", {"t": (5, 3), "i": [4, 0, 4, 1, 4]}, ins="t i", args={"padding_idx": -1})
for name, args in (("two", {}), ("one", {"norm_type": 1.0}), ("three", {"norm_type": 3.0})):
    c = Case(f"embedding_max_norm_{name}").param(t=(9, 4)).data(i=numbers(7, 3, 5)).step("embedding", "t i", "r", max_norm=1.5, **args)
    c.step("mul", "t t", "s").returns("r s")  # the table as it is afterwards, rows 7 and 8 as they were
single("embedding_max_norm_split", "embedding", {"t": (9, 4), "i": numbers(9, 6)}, ins="t i", args={"max_norm": 0.5, "padding_idx": 2})
single("embedding_by_frequency", "embedding", {"i": numbers(5, 3, 8)}, {"t": (6, 4)}, ins="t i", args={"scale_grad_by_freq": True})
single("embedding_by_frequency_padding", "embedding", {"t": (6, 4), "i": numbers(5, 20)}, ins="t i",
       args={"scale_grad_by_freq": True, "padding_idx": 1, "max_norm": 1.0})
single("embedding_no_index", "embedding", {"i": np.zeros((2, 0), np.int64)}, {"t": (4, 3)}, ins="t i")
Case("embedding_squared", second=True).param(t=(5, 3)).data(i=numbers(5, 2, 4)).step("embedding", "t i", "r").step(
    "mul", "r r", "y").returns("y")
Case("embedding_padding_squared", second=True).data(t=(5, 3), i=[1, 2, 2, 0, 4]).step(
    "embedding", "t i", "r", padding_idx=2).step("mul", "r r", "y").returns("y")

# ---- elements
c = single("gather_middle", "gather", {"x": (2, 13, 3), "i": numbers(13, 2, 6, 3)}, args={"dim": 1})
c.limit(0, {"x": [[6, 7]]}, x="S1").limit(0, {"i": [[2, 4]]}, i="S1")
c.limit(0, {"x": [[1, 2]], "i": [[1, 2]]}, x="S2", i="S2").limit(0, {"x": [[1, 2]]}, x="S2")
c.limit(0, {"x": [[6, 7], [1, 1]], "i": [[], [1, 1]]}, mesh=(2, 2), x=("S1", "S0"), i=("R", "S0"))
c.limit(moved(c, (6, 7), (2, 4)), {"x": [[6, 7]], "i": [[2, 4]]}, x="S1", i="S1")
c.limit(moved(c, (1, 0, 12), (2, 2, 2)), {"x": [[1, 0, 12]], "i": [[2, 2, 2]]}, mesh=(3,), x="S1", i="S1")
single("gather_longer_than_dim", "gather", {"x": (4, 3), "i": numbers(4, 15, 3)}, args={"dim": 0})
single("gather_smaller_index", "gather", {"x": (5, 6, 4), "i": numbers(6, 3, 4, 2)}, args={"dim": 1})
single("gather_last", "gather", {"x": (5, 8), "i": numbers(8, 5, 3)}, args={"dim": -1})
single("gather_first", "gather", {"x": (9, 4), "i": numbers(9, 4, 4)}, args={"dim": 0})
single("gather_vector", "gather", {"x": (19,), "i": numbers(19, 11)}, args={"dim": 0})
single("gather_scalar", "gather", {"x": (), "i": np.int64(0)}, args={"dim": 0})
single("gather_scalar_index", "gather", {"x": (7,), "i": np.int64(5)}, args={"dim": 0})
single("gather_from_scalar", "gather", {"x": (), "i": [0, 0, 0]}, args={"dim": -1})
single("gather_nothing", "gather", {"x": (4, 3), "i": np.zeros((0, 3), np.int64)}, args={"dim": 0})
single("gather_nothing_of_another_shape", "gather", {"x": (4, 3), "i": np.zeros((0, 9), np.int64)}, args={"dim": 0})
Case("gather_squared", second=True).data(x=(6, 3), i=numbers(6, 4, 3)).step("gather", "x i", "r", dim=0).step(
    "mul", "r r", "y").returns("y")

c = single("scatter_add_middle", "scatter_add", {"x": (2, 13, 3), "i": numbers(13, 2, 9, 3), "s": (2, 9, 3)}, args={"dim": 1})
c.limit(0, {"x": [[6, 7]]}, x="S1").limit(0, {"x": [[1, 2]], "i": [[1, 2]], "s": [[1, 2]]}, x="S2", i="S2", s="S2")
c.limit(0, {"i": [[4, 5]], "s": [[4, 5]]}, i="S1", s="S1")
c.limit(moved(c, (6, 7), (4, 5)), {"x": [[6, 7]], "i": [[4, 5]], "s": [[4, 5]]}, x="S1", i="S1", s="S1")
single("scatter_add_repeated", "scatter_add", {"x": (6, 2), "i": np.zeros((9, 2), np.int64), "s": (9, 2)}, args={"dim": 0})
single("scatter_add_larger_src", "scatter_add", {"x": (5, 6, 4), "i": numbers(6, 3, 4, 2), "s": (4, 7, 2)}, args={"dim": 1}, constant="s")
single("scatter_add_vector", "scatter_add", {"x": (11,), "i": numbers(11, 17), "s": (17,)}, args={"dim": -1})
single("scatter_add_scalar", "scatter_add", {"x": (), "i": np.int64(0), "s": ()}, args={"dim": 0})
single("scatter_add_to_scalar", "scatter_add", {"x": (), "i": [0, 0], "s": (3,)}, args={"dim": 0}, constant="s")
single("scatter_add_nothing", "scatter_add", {"x": (4, 3), "i": np.zeros((0, 3), np.int64), "s": (2, 3)}, args={"dim": 0}, constant="s")
Case("scatter_add_squared", second=True).data(x=(6, 3), i=numbers(6, 8, 3), s=(8, 3)).step(
    "scatter_add", "x i s", "r", dim=0).step("mul", "r r", "y").returns("y")

single("take_along_dim_middle", "take_along_dim", {"x": (3, 7, 2), "i": numbers(7, 3, 4, 2)}, args={"dim": 1}).limit(
    0, {"x": [[1, 2]], "i": [[1, 2]]}, x="S0", i="S0").limit(0, {"i": [[3, 1]]}, i="S1")
single("take_along_dim_broadcast", "take_along_dim", {"x": (3, 7, 1), "i": numbers(7, 1, 4, 5)}, args={"dim": -2})
single("take_along_dim_negative", "take_along_dim", {"x": (6, 4), "i": lambda rng: rng.integers(-6, 6, (3, 4))}, args={"dim": 0})
single("take_along_dim_of_all", "take_along_dim", {"x": (4, 5), "i": numbers(20, 7)}, args={"dim": None})

Case("one_hot_matrix").data(i=numbers(4, 3, 6)).step("one_hot", "i", "y", num_classes=5).returns("y").limit(
    0, {"i": [[2, 4]]}, i="S1")
Case("one_hot_scalar").data(i=np.int64(1)).step("one_hot", "i", "y", num_classes=3).returns("y")
Case("one_hot_counted").data(i=[0, 6, 2, 2, 4]).step("one_hot", "i", "y", num_classes=-1).returns("y")
Case("one_hot_nothing").data(i=np.zeros(0, np.int64)).step("one_hot", "i", "y", num_classes=3).returns("y")
single("masked_fill_broadcast", "masked_fill", {"x": (2, 5, 3), "m": chance(0.5, 5, 1)}, args={"value": -1.5}).limit(
    0, {"x": [[2, 3]], "m": [[2, 3]]}, x="S1", m="S0").limit(0, {"x": [[1, 2]]}, x="S2").limit(0, {"m": [[1, 0, 4]]}, mesh=(3,), m="S0")
single("masked_fill_wider_mask", "masked_fill", {"x": (4,), "m": chance(0.4, 3, 4)}, args={"value": 2.0}).limit(
    0, {"x": [[1, 3]], "m": [[1, 3]]}, x="S0", m="S1").limit(0, {"m": [[1, 2]]}, m="S0")

# ---- messages along the edges of a graph: cut edges, cut nodes
edges = Case("program_graph_messages", second=True).data(x=(12, 4), a=numbers(12, 30), b=numbers(12, 30, 1), w=(30, 1))
edges.step("index_select", "x a", "from", dim=0).step("mul", "from w", "message")
edges.step("expand", "b", "to", sizes=[30, 4]).step("scatter_add", "x to message", "h", dim=0)
edges.step("tanh", "h", "y").returns("y")
# ---- words, their order, and the same table for the output
words = Case("program_tied_embedding").data(i=numbers(9, 2, 7)).param(t=normal(9, 6, scale=0.5), p=normal(7, 6, scale=0.5))
words.step("embedding", "t i", "e").step("add", "e p", "h").step("tanh", "h", "g").step("linear", "g t -", "y").returns("y")
