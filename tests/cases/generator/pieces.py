"""stack, flip, repeat, tile, repeat_interleave, diagonal, narrow, select, slice_scatter, select_scatter, chunk, unbind,
movedim."""
from .case import Case, single

# ---- stack: cut along another dim, everything stays where it is.
for name, dim in (("first", 0), ("middle", 1), ("last", -1), ("end", 2)):
    single(f"stack_{name}", "stack", {"a": (5, 9), "b": (5, 9), "c": (5, 9)}, args={"dim": dim}).limit(
        0, {"a": [[4, 5]], "b": [[4, 5]], "c": [[4, 5]]}, a="S1", b="S1", c="S1")
single("stack_one", "stack", {"a": (4, 3)}, args={"dim": 1})
single("stack_scalars", "stack", {"a": (), "b": ()}, args={"dim": 0})
single("stack_empty", "stack", {"a": (0, 3), "b": (0, 3)}, args={"dim": 1})
single("stack_with_parameter", "stack", {"x": (3, 7)}, {"t": (3, 7)}, ins="t x", args={"dim": 1})
Case("stack_twice_the_same", second=True).data(x=(2, 7)).step("stack", "x x", "s", dim=0).step("mul", "s s", "y").returns("y")

# ---- flip and repeat: nothing is sent, the cuts follow.
for name, dims in (("first", [0]), ("middle", [1]), ("negative", [-1]), ("two", [0, 2]), ("all", [2, 1, 0]), ("none", [])):
    single(f"flip_{name}", "flip", {"x": (3, 11, 4)}, args={"dims": dims}).limit(0, {"x": [[4, 7]]}, x="S1").limit(
        0, {"x": [[1, 0, 10]]}, mesh=(3,), x="S1").limit(0, {"x": [[1, 2], [3, 8]]}, mesh=(2, 2), x=("S0", "S1"))
single("flip_scalar", "flip", {"x": ()}, args={"dims": []})
single("flip_scalar_dim", "flip", {"x": ()}, args={"dims": [-1]})
single("flip_empty", "flip", {"x": (0, 3)}, args={"dims": [0, 1]})
Case("flip_and_back").data(x=(2, 13)).step("flip", "x", "f", dims=[1]).step("mul", "f x", "m").step("flip", "m", "y", dims=[1]).returns(
    "y").limit(13 * 2 * 4, {"x": [[6, 7]]}, x="S1")

for name, sizes, repeats in (("middle", (2, 7, 3), [1, 3, 1]), ("all", (2, 7, 3), [2, 3, 2]), ("new_dims", (5, 4), [2, 3, 1, 2]),
                             ("once", (5, 4), [1, 1]), ("vector", (9,), [4]), ("none_of_one", (5, 4), [2, 0])):
    cut = {(2, 7, 3): "S1", (5, 4): "S0", (9,): "S0"}[sizes]
    n = sizes[int(cut[1])]
    single(f"repeat_{name}", "repeat", {"x": sizes}, args={"repeats": repeats}).limit(0, {"x": [[2, n - 2]]}, x=cut).limit(
        0, {"x": [[1, 0, n - 1]]}, mesh=(3,), x=cut)
single("repeat_scalar", "repeat", {"x": ()}, args={"repeats": [3, 2]})
single("repeat_empty", "repeat", {"x": (0, 3)}, args={"repeats": [2, 2]})
single("repeat_size_one", "repeat", {"x": (1, 5)}, args={"repeats": [6, 1]})
single("repeat_eight_dims", "repeat", {"x": (1, 2, 1, 2, 1, 2, 1, 3)}, args={"repeats": [2, 1, 1, 2, 1, 1, 1, 2]})
single("tile_fewer", "tile", {"x": (2, 5, 3)}, args={"dims": [2]})
single("tile_more", "tile", {"x": (5, 3)}, args={"dims": [2, 1, 2]}).limit(0, {"x": [[1, 4]]}, x="S0")
single("tile_none", "tile", {"x": (5, 3)}, args={"dims": []})
for name, dim in (("middle", 1), ("last", -1), ("flattened", None)):
    single(f"repeat_interleave_{name}", "repeat_interleave", {"x": (2, 7, 3)}, args={"repeats": 3, "dim": dim}).limit(
        0, {"x": [[2, 5]]}, x="S1")
single("repeat_interleave_zero", "repeat_interleave", {"x": (2, 7)}, args={"repeats": 0, "dim": 1})
single("repeat_interleave_scalar", "repeat_interleave", {"x": ()}, args={"repeats": 3, "dim": None})

# ---- diagonal: whoever holds an element keeps it, whichever of the two dims is cut, or both.
for name, sizes, args in (("plain", (6, 6), {}), ("wide", (5, 9), {}), ("tall", (9, 5), {}), ("above", (6, 8), {"offset": 3}),
                          ("below", (8, 6), {"offset": -2}), ("last_two", (2, 5, 6), {"dim1": 1, "dim2": 2}),
                          ("turned", (5, 3, 6), {"dim1": -1, "dim2": 0, "offset": 1}), ("beyond", (4, 5), {"offset": 7})):
    c = single(f"diagonal_{name}", "diagonal", {"x": sizes}, args=args)
    for dim, n in enumerate(sizes):
        c.limit(0, {"x": [[2, n - 2]]}, x=f"S{dim}")
    c.limit(0, {"x": [[1, sizes[0] - 1], [2, sizes[-1] - 2]]}, mesh=(2, 2), x=("S0", f"S{len(sizes) - 1}"))
single("diagonal_empty", "diagonal", {"x": (0, 3)})
Case("diagonal_trace", second=True).data(x=(7, 7)).step("diagonal", "x", "d").step("square", "d", "q").step(
    "sum", "q", "y", dim=None, keepdim=False).returns("y").limit(0, {"x": [[3, 4], [5, 2]]}, mesh=(2, 2), x=("S0", "S1"))

# ---- pieces
single("narrow_middle", "narrow", {"x": (2, 13, 3)}, args={"dim": 1, "start": 4, "length": 5}).limit(0, {"x": [[6, 7]]}, x="S1")
single("narrow_negative", "narrow", {"x": (2, 13, 3)}, args={"dim": -2, "start": -5, "length": 5})
single("narrow_nothing", "narrow", {"x": (2, 13)}, args={"dim": 1, "start": 13, "length": 0})
for name, dim, index in (("first", 0, 1), ("middle", 1, -3), ("last", -1, 0)):  # the one slice goes to everybody
    single(f"select_{name}", "select", {"x": (3, 11, 4)}, args={"dim": dim, "index": index}).limit(
        12 * 4 if dim == 1 else 0, {"x": [[5, 6]]}, x="S1")
single("select_vector", "select", {"x": (9,)}, args={"dim": 0, "index": 5})
# What writing into a part leaves: what is written travels to where the part is.
for name, part, args in (("rows", (2, 4, 3), {"dim": 1, "start": 3, "end": 7}), ("steps", (2, 4, 3), {"dim": 1, "start": 2, "end": -1, "step": 3}),
                         ("to_the_end", (2, 3, 3), {"dim": -2, "start": -3, "end": None}), ("first", (2, 13, 3), {"dim": 0}),
                         ("nothing", (2, 0, 3), {"dim": 1, "start": 13, "end": 13})):
    single(f"slice_scatter_{name}", "slice_scatter", {"x": (2, 13, 3), "s": part}, args=args).limit(
        0, {"x": [[6, 7]]}, x="S1").limit(0, {"x": [[1, 2]], "s": [[1, 2]]}, x="S2", s="S2")
single("slice_scatter_vector", "slice_scatter", {"x": (11,), "s": (4,)}, args={"dim": 0, "start": 5, "end": 9}).limit(
    4 * 4, {"x": [[3, 8]], "s": [[3, 1]]}, x="S0", s="S0")
for name, dim, index, part in (("first", 0, 1, (11, 4)), ("middle", 1, -3, (3, 4)), ("last", -1, 0, (3, 11))):
    single(f"select_scatter_{name}", "select_scatter", {"x": (3, 11, 4), "s": part}, args={"dim": dim, "index": index}).limit(
        0, {"x": [[5, 6]]}, x="S1")
single("select_scatter_vector", "select_scatter", {"x": (9,), "s": ()}, args={"dim": 0, "index": 5})
Case("slice_scatter_in_itself", second=True).data(x=(3, 8)).step("slice", "x", "p", dim=1, start=0, end=4, step=1).step(
    "square", "p", "q").step("slice_scatter", "x q", "w", dim=1, start=4, end=8, step=1).step("mul", "w x", "y").returns("y")

single("chunk_even", "chunk", {"x": (2, 12)}, outs="p q r", args={"chunks": 3, "dim": 1})
single("chunk_uneven", "chunk", {"x": (11, 3)}, outs="p q r s", args={"chunks": 4, "dim": 0}).limit(0, {"x": [[5, 6]]}, x="S0")
single("chunk_fewer_than_asked", "chunk", {"x": (6, 2)}, outs="p q r", args={"chunks": 4, "dim": 0})
single("chunk_of_nothing", "chunk", {"x": (0, 2)}, outs="p q", args={"chunks": 2, "dim": 0})
single("split_into_twelve", "split", {"x": (3, 14)}, outs="a b c d e f g h i j k l", args={"sizes": [1] * 11 + [3], "dim": 1})
single("unbind_first", "unbind", {"x": (3, 11)}, outs="p q r", args={"dim": 0}).limit(0, {"x": [[5, 6]]}, x="S1").limit(
    33 * 4, {"x": [[1, 2]]}, x="S0")
single("unbind_last", "unbind", {"x": (2, 5, 2)}, outs="p q", args={"dim": -1})
Case("unbind_one_used").data(x=(4, 6)).step("unbind", "x", "a b c d", dim=0).returns("c")
single("movedim_one", "movedim", {"x": (2, 3, 4, 5)}, args={"source": [0], "destination": [2]}).limit(0, {"x": [[3, 1]]}, x="S2")
single("movedim_two", "movedim", {"x": (2, 3, 4, 5)}, args={"source": [0, 2], "destination": [-1, 0]})
single("movedim_scalar", "movedim", {"x": ()}, args={"source": [0], "destination": [-1]})
single("squeeze_all", "squeeze", {"x": (1, 5, 1, 3)}, args={"dim": None})
single("squeeze_two", "squeeze", {"x": (1, 5, 1, 3)}, args={"dim": [0, -2]})
single("squeeze_some_not_one", "squeeze", {"x": (1, 5, 1, 3)}, args={"dim": [0, 1]})
single("broadcast_to_more", "broadcast_to", {"x": (5, 1)}, args={"size": [2, 5, 3]}).limit(
    0, {"x": [[2, 3]]}, x="S0").limit(0, {"x": [[2, 0, 3]]}, mesh=(3,), x="S0")
