"""Operations that move or rename elements."""
from .case import Case, single


def reshape(name, sizes, shape, second=False):
    return single(f"reshape_{name}", "reshape", {"x": sizes}, args={"shape": shape}, second=second)


reshape("split_last", (3, 7, 8), [3, 7, 2, 4]).limit(0, {"x": [[3, 4]]}, x="S1")
reshape("merge_last", (3, 7, 2, 4), [3, 7, 8]).limit(0, {"x": [[3, 4]]}, x="S1").limit(0, {"x": [[1, 1]]}, x="S2")
reshape("split_and_merge", (2, 6, 8), [2, 3, 16])
reshape("batch_into_tokens", (3, 7, 4), [21, 4]).limit(0, {"x": [[1, 2]]}, x="S0")
reshape("tokens_into_batch", (21, 4), [3, 7, 4]).limit(0, {"x": [[7, 14]]}, x="S0")
reshape("to_vector", (3, 5, 4), [-1])
reshape("minus_one_middle", (2, 12, 5), [2, -1, 3, 5])
reshape("minus_one_first", (4, 9), [-1, 6])
reshape("regroup", (6, 10), [4, 15])
reshape("regroup_prime", (7, 6), [3, 14])
reshape("same", (3, 7), [3, 7])
reshape("add_ones", (5, 7), [1, 5, 1, 7, 1]).limit(0, {"x": [[2, 5]]}, x="S1")
reshape("drop_ones", (1, 5, 1, 7), [5, 7]).limit(0, {"x": [[2, 3]]}, x="S1")
reshape("scalar_to_one", (), [1, 1])
reshape("one_to_scalar", (1, 1), [])
reshape("nothing", (0, 6), [3, 0, 2])
reshape("image_to_tokens", (2, 3, 5, 4), [2, 3, 20]).limit(0, {"x": [[2, 3]]}, x="S2")
reshape("window_partition", (2, 8, 6), [2, 2, 4, 3, 2])

single("flatten_spatial", "flatten", {"x": (2, 3, 7, 5)}, args={"start_dim": 2, "end_dim": 3}).limit(
    0, {"x": [[3, 4]]}, x="S2").limit(0, {"x": [[0, 7]]}, x="S2")
single("flatten_inner_two", "flatten", {"x": (2, 4, 5, 3)}, args={"start_dim": -2, "end_dim": -1})
single("flatten_all", "flatten", {"x": (3, 4, 5)}, args={"start_dim": 0, "end_dim": -1})
single("flatten_batch", "flatten", {"x": (3, 7, 5)}, args={"start_dim": 0, "end_dim": 1})
single("flatten_one_dim", "flatten", {"x": (3, 7)}, args={"start_dim": 1, "end_dim": 1})
single("flatten_scalar", "flatten", {"x": ()}, args={"start_dim": 0, "end_dim": -1})
single("flatten_nothing", "flatten", {"x": (2, 0, 3)}, args={"start_dim": 0, "end_dim": 1})

single("unflatten_middle", "unflatten", {"x": (2, 15, 4)}, args={"dim": 1, "sizes": [5, 3]}).limit(
    0, {"x": [[6, 9]]}, x="S1").limit(0, {"x": [[3, 0, 12]]}, mesh=(3,), x="S1")
single("unflatten_minus_one", "unflatten", {"x": (2, 12)}, args={"dim": -1, "sizes": [2, -1, 3]})
single("unflatten_first", "unflatten", {"x": (14, 3)}, args={"dim": 0, "sizes": [2, 7]})
single("unflatten_ones", "unflatten", {"x": (5, 6)}, args={"dim": 0, "sizes": [1, 5, 1]}).limit(0, {"x": [[2, 3]]}, x="S0")

single("permute_channels_last", "permute", {"x": (2, 3, 7, 5)}, args={"dims": [0, 2, 3, 1]}).limit(
    0, {"x": [[3, 4]]}, x="S2").limit(0, {"x": [[3, 4], [1, 4]]}, mesh=(2, 2), x=("S2", "S3"))
single("permute_reverse", "permute", {"x": (2, 3, 4, 5)}, args={"dims": [3, 2, 1, 0]})
single("permute_negative", "permute", {"x": (4, 5, 3)}, args={"dims": [-1, 0, -2]})
single("permute_six_dims", "permute", {"x": (2, 3, 2, 4, 2, 3)}, args={"dims": [0, 2, 4, 1, 3, 5]})
single("permute_scalar", "permute", {"x": ()}, args={"dims": []})
single("transpose_inner", "transpose", {"x": (2, 9, 4)}, args={"dim0": 1, "dim1": 2}).limit(0, {"x": [[4, 5]]}, x="S1")
single("transpose_negative", "transpose", {"x": (2, 9, 4)}, args={"dim0": -3, "dim1": -1})
single("transpose_same", "transpose", {"x": (5, 4)}, args={"dim0": 1, "dim1": -1})
single("transpose_nothing", "transpose", {"x": (0, 4)}, args={"dim0": 0, "dim1": 1})

for name, dim in (("first", 0), ("middle", 1), ("end", -1)):
    single(f"unsqueeze_{name}", "unsqueeze", {"x": (5, 9)}, args={"dim": dim}).limit(0, {"x": [[4, 5]]}, x="S1")
single("unsqueeze_scalar", "unsqueeze", {"x": ()}, args={"dim": -1})
single("squeeze_middle", "squeeze", {"x": (5, 1, 9)}, args={"dim": 1}).limit(0, {"x": [[4, 5]]}, x="S2")
single("squeeze_negative", "squeeze", {"x": (5, 9, 1)}, args={"dim": -1})
single("squeeze_not_one", "squeeze", {"x": (5, 9)}, args={"dim": 0})
single("squeeze_scalar", "squeeze", {"x": ()}, args={"dim": 0})

single("expand_ones", "expand", {"x": (1, 9, 1)}, args={"sizes": [3, 9, 4]}).limit(0, {"x": [[4, 5]]}, x="S1")
single("expand_keep", "expand", {"x": (5, 1)}, args={"sizes": [-1, 7]})
single("expand_leading", "expand", {"x": (5, 4)}, args={"sizes": [2, 3, -1, 4]})
single("expand_scalar", "expand", {"x": ()}, args={"sizes": [4, 3]})
single("expand_same", "expand", {"x": (5, 4)}, args={"sizes": [5, 4]})
single("expand_to_nothing", "expand", {"x": (1, 4)}, args={"sizes": [0, 4]})


def piece(name, sizes, dim, start, end, step=1):
    return single(f"slice_{name}", "slice", {"x": sizes}, args={"dim": dim, "start": start, "end": end, "step": step})


piece("middle", (2, 13, 3), 1, 4, 9).limit(2 * 3 * 4, {"x": [[6, 7]]}, x="S1")
piece("other_dim", (2, 13, 3), 2, 1, 3).limit(0, {"x": [[6, 7]]}, x="S1")
piece("step_two", (2, 13, 3), 1, 0, None, 2).limit(2 * 3 * 4, {"x": [[7, 6]]}, x="S1")
piece("step_four_offset", (2, 13, 3), 1, 3, 12, 4)
piece("step_beyond", (13, 2), 0, 5, None, 20)
piece("negative_start", (2, 11), -1, -4, None)
piece("negative_both", (2, 11), 1, -9, -2, 3)
piece("everything", (5, 6), 0, 0, None)
piece("one_element", (5, 9), 1, 7, 8)
piece("clamped", (5, 9), 1, -50, 50)
piece("empty", (5, 9), 1, 4, 4)
piece("empty_backwards", (5, 9), 1, 6, 2)
piece("last_rows", (10, 3), 0, -1, None)

single("split_three", "split", {"x": (2, 11, 3)}, outs="p q r", args={"sizes": [2, 5, 4], "dim": 1}).limit(
    0, {"x": [[5, 6]]}, x="S1").limit(0, {"x": [[1, 0, 10]]}, mesh=(3,), x="S1")
single("split_other_dim", "split", {"x": (2, 11, 6)}, outs="p q r", args={"sizes": [2, 2, 2], "dim": -1}).limit(
    0, {"x": [[5, 6]]}, x="S1")
single("split_with_nothing", "split", {"x": (9, 2)}, outs="p q r", args={"sizes": [4, 0, 5], "dim": 0})
single("split_whole", "split", {"x": (9, 2)}, outs="p", args={"sizes": [9], "dim": 0})
Case("split_one_part_used").data(x=(2, 12)).step("split", "x", "a b c", sizes=[5, 4, 3], dim=1).returns("b")
single("cat_middle", "cat", {"a": (2, 5, 3), "b": (2, 8, 3), "c": (2, 1, 3)}, args={"dim": 1}).limit(
    0, {"a": [[2, 3]], "b": [[7, 1]]}, a="S1", b="S1")
single("cat_other_dim", "cat", {"a": (2, 9, 3), "b": (2, 9, 4)}, args={"dim": -1}).limit(
    0, {"a": [[4, 5]], "b": [[4, 5]]}, a="S1", b="S1")
single("cat_first", "cat", {"a": (4, 3), "b": (7, 3)}, args={"dim": 0}).limit(
    0, {"a": [[1, 3]], "b": [[4, 3]]}, a="S0", b="S0").limit(0, {"a": [[0, 4]]}, a="S0")
single("cat_with_nothing", "cat", {"a": (0, 3), "b": (5, 3), "c": (0, 3)}, args={"dim": 0})
single("cat_nothing_first", "cat", {"a": (0,), "b": (2, 3), "c": (5, 3)}, args={"dim": 0})
single("cat_nothing_last", "cat", {"a": (2, 3), "b": (2, 1), "c": (0,)}, args={"dim": -1})
single("cat_vectors", "cat", {"a": (4,), "b": (1,), "c": (6,)}, args={"dim": -1})
single("cat_with_parameter", "cat", {"x": (2, 9, 4)}, {"t": (2, 1, 4)}, ins="t x", args={"dim": 1})
Case("cat_twice_the_same", second=True).data(x=(2, 7)).step("cat", "x x", "c", dim=1).step("mul", "c c", "y").returns("y")


def pad(name, sizes, amounts, mode="constant", value=0.0, second=False):
    return single(f"pad_{name}", "pad", {"x": sizes}, args={"pad": amounts, "mode": mode, "value": value}, second=second)


pad("last", (2, 3, 9), [2, 1]).limit(0, {"x": [[1, 2]]}, x="S1")
pad("value", (1, 2, 7, 6), [2, 1, 0, 3], value=0.5).limit(4 * 2 * 9 * 4, {"x": [[3, 4]]}, x="S2")
pad("channels_and_batch", (2, 3, 5), [0, 0, 1, 2, 3, 0], value=-1.5)
pad("matrix", (7, 5), [1, 2, 3, 4])
pad("vector", (9,), [0, 4], value=2.0)
pad("more_than_size", (2, 3), [7, 5])
pad("crop", (1, 2, 9, 8), [-1, -2, -3, 0])
pad("crop_and_grow", (1, 2, 9, 8), [3, -2, -4, 5], value=0.25)
pad("crop_to_nothing", (2, 6), [-3, -3])
pad("from_nothing", (2, 0), [2, 1], value=1.0)
pad("zero_amount", (3, 5), [0, 0])
pad("circular_one_dim", (2, 3, 9), [2, 3], mode="circular")
c = pad("circular_cut", (2, 3, 9), [2, 3], mode="circular")  # what wraps, from one end to the other
for cuts in ([4, 5], [3, 3, 3], [3, 2, 1, 3]):
    c.limit((2 + 3) * 2 * 3 * 4, {"x": [cuts]}, mesh=(len(cuts),), x="S2")
pad("circular_matrix", (4, 9), [3, 1], mode="circular")
pad("circular_two_dims", (1, 2, 7, 6), [2, 1, 3, 2], mode="circular")
pad("circular_unbatched", (3, 6, 7), [1, 2, 2, 0], mode="circular")
pad("circular_three_dims", (1, 2, 4, 5, 3), [1, 2, 0, 3, 2, 1], mode="circular")
pad("circular_whole_turn", (1, 2, 5), [5, 5], mode="circular")
pad("circular_cropped", (2, 3, 7, 6), [-1, 3, 2, -2], mode="circular")
pad("circular_width_only", (2, 2, 7, 8), [1, 1, 0, 0], mode="circular").limit(0, {"x": [[3, 4]]}, x="S2")

single("roll_one", "roll", {"x": (2, 11, 4)}, args={"shifts": [3], "dims": [1]}).limit(
    2 * 3 * 2 * 4 * 4, {"x": [[4, 7]]}, x="S1").limit(0, {"x": [[1, 3]]}, x="S2")
single("roll_back", "roll", {"x": (13, 3)}, args={"shifts": [-5], "dims": [0]})
single("roll_two", "roll", {"x": (2, 11, 7)}, args={"shifts": [3, -2], "dims": [1, 2]})
single("roll_more_than_once_round", "roll", {"x": (3, 7)}, args={"shifts": [17], "dims": [-1]})
single("roll_same_dim_twice", "roll", {"x": (3, 9)}, args={"shifts": [2, 3], "dims": [1, 1]})
single("roll_nothing_to_do", "roll", {"x": (3, 9)}, args={"shifts": [9], "dims": [1]})
single("roll_empty", "roll", {"x": (0, 4)}, args={"shifts": [1], "dims": [0]})
