"""einsum."""
from .case import Case, single


def einsum(name, equation, second=False, params=None, **tensors):
    case = Case(f"einsum_{name}", second).data(**tensors).param(**(params or {}))
    return case.step("einsum", " ".join([*tensors, *(params or {})]), "y", equation=equation).returns("y")


# ---- two operands: cut along a kept subscript or along the summed one, nothing is sent.
c = einsum("matmul", "ij,jk->ik", True, a=(7, 9), b=(9, 4))
c.limit(0, {"a": [[3, 4]]}, a="S0").limit(0, {"a": [[4, 5]], "b": [[4, 5]]}, a="S1", b="S0").limit(
    0, {"a": [[3, 4], [4, 5]], "b": [[2, 2], [4, 5]]}, mesh=(2, 2), a=("S0", "S1"), b=("R", "S0")).limit(0, {"b": [[1, 3]]}, b="S1")
einsum("batched", "bij,bjk->bik", True, a=(3, 4, 5), b=(3, 5, 2)).limit(0, {"a": [[1, 2]], "b": [[1, 2]]}, a="S0", b="S0")
einsum("attention_scores", "bhqd,bhkd->bhqk", a=(2, 3, 7, 4), b=(2, 3, 5, 4)).limit(0, {"a": [[3, 4]]}, a="S2").limit(
    0, {"a": [[1, 2]], "b": [[1, 2]]}, a="S1", b="S1")
einsum("mode_product", "bixy,iox->boxy", params={"w": (4, 3, 6)}, x=(2, 4, 6, 5)).limit(0, {"x": [[2, 3]]}, x="S3")
einsum("spectral_weights", "bixy,ioxy->boxy", params={"w": (3, 2, 4, 5)}, x=(2, 3, 4, 5))
einsum("gram", "ni,nj->ij", a=(11, 3), b=(11, 4)).limit(0, {"a": [[5, 6]], "b": [[5, 6]]}, a="S0", b="S0")
einsum("outer", "i,j->ij", True, a=(7,), b=(5,)).limit(0, {"a": [[3, 4]]}, a="S0")
einsum("outer_turned", "i,j->ji", a=(7,), b=(5,))
einsum("inner", "i,i->", True, a=(13,), b=(13,)).limit(0, {"a": [[6, 7]], "b": [[6, 7]]}, a="S0", b="S0")
einsum("row_by_row", "ij,ij->i", a=(6, 5), b=(6, 5)).limit(0, {"a": [[2, 3]], "b": [[2, 3]]}, a="S1", b="S1")
einsum("elementwise", "ij,ij->ij", a=(6, 5), b=(6, 5))
einsum("elementwise_turned", "ij,ji->ij", a=(6, 5), b=(5, 6))
einsum("all_summed", "ij,jk->", a=(4, 5), b=(5, 3))
einsum("turned_output", "ij,jk->ki", a=(4, 5), b=(5, 3))
einsum("two_summed", "ijk,kjl->il", a=(3, 4, 5), b=(5, 4, 2))
einsum("two_rows_two_columns", "abk,kcd->cadb", a=(2, 3, 4), b=(4, 3, 2))
einsum("tensor_by_scalar", "ij,->ji", a=(4, 5), b=())
einsum("scalars", ",->", a=(), b=())
# ---- one operand
for name, equation, sizes in (("transpose", "ij->ji", (5, 7)), ("sum", "ij->", (5, 7)), ("sum_rows", "ij->j", (5, 7)), ("sum_middle", "ijk->ki", (3, 5, 4)),
                              ("trace", "ii", (6, 6)), ("diagonal", "ii->i", (6, 6)), ("diagonal_of_three", "iii->i", (4, 4, 4)),
                              ("diagonal_and_more", "iji->ji", (4, 5, 4)), ("batched_trace", "bii->b", (3, 5, 5)), ("implicit_order", "bac", (2, 3, 4)),
                              ("capitals_first", "aB", (3, 4)), ("nothing_to_do", "ij->ij", (3, 4)), ("of_scalar", "->", ())):
    einsum(name, equation, x=sizes)
einsum("trace_split", "ii->", x=(7, 7)).limit(0, {"x": [[3, 4], [5, 2]]}, mesh=(2, 2), x=("S0", "S1"))
# ---- implicit outputs, spaces, ellipses, sizes of 1
einsum("implicit", "ij,jk", a=(4, 5), b=(5, 3))
einsum("implicit_letters", "ki,kj", a=(5, 4), b=(5, 3))
einsum("spaces", "  i j ,j k ->  k i", a=(4, 5), b=(5, 3))
einsum("ellipsis_batch", "...ij,...jk->...ik", True, a=(3, 2, 4, 5), b=(3, 2, 5, 3)).limit(0, {"a": [[1, 2]], "b": [[1, 2]]}, a="S0", b="S0")
einsum("ellipsis_broadcast", "...ij,...jk->...ik", a=(3, 1, 4, 5), b=(2, 5, 3))
einsum("ellipsis_one_sided", "...ij,jk->...ik", a=(3, 2, 4, 5), b=(5, 3))
einsum("ellipsis_implicit", "...ij,jk", a=(2, 4, 5), b=(5, 3))
einsum("ellipsis_middle", "i...j->j...i", x=(2, 3, 4, 5))
einsum("ellipsis_last", "...i->i...", x=(2, 3, 4))
einsum("ellipsis_summed", "i...->i", x=(2, 3, 4))
einsum("ellipsis_all_summed", "...->", x=(2, 3))
einsum("ellipsis_of_nothing", "ij...,jk...->ik...", a=(2, 3), b=(3, 4))
einsum("ellipsis_different_lengths", "i...,i...->i...", a=(3, 2), b=(3, 4, 2))
einsum("size_one_stretches", "ij,kj->ik", a=(4, 5), b=(3, 1))
einsum("size_one_kept", "ij,ij->ij", a=(1, 5), b=(4, 5))
einsum("size_one_summed", "i,i->", a=(1,), b=(5,))
einsum("size_one_everywhere", "ij,jk->ik", a=(1, 1), b=(1, 1))
einsum("repeated_in_both", "iij,jkk->ik", a=(3, 3, 4), b=(4, 5, 5))
# ---- more operands
einsum("chain_of_three", "ij,jk,kl->il", True, a=(4, 5), b=(5, 3), c=(3, 6)).limit(0, {"a": [[1, 3]]}, a="S0")
einsum("chain_of_four", "ij,jk,kl,lm->im", a=(3, 4), b=(4, 5), c=(5, 2), d=(2, 3))
einsum("chain_of_six", "ab,bc,cd,de,ef,fg->ag", a=(2, 3), b=(3, 2), c=(2, 4), d=(4, 2), e=(2, 3), f=(3, 2))
einsum("bilinear", "bi,bj,ijk->bk", params={"w": (4, 5, 3)}, x=(7, 4), z=(7, 5)).limit(0, {"x": [[3, 4]], "z": [[3, 4]]}, x="S0", z="S0")
einsum("three_elementwise", "i,i,i->i", True, a=(6,), b=(6,), c=(6,))
einsum("three_inner", "i,i,i->", a=(6,), b=(6,), c=(6,))
einsum("tucker", "abc,ia,jb,kc->ijk", a=(2, 3, 2), b=(4, 2), c=(3, 3), d=(5, 2))
einsum("four_norms", "ij,ij,ik,ik->", a=(3, 4), b=(3, 4), c=(3, 2), d=(3, 2))
einsum("three_vectors", "i,j,k->kji", a=(2,), b=(3,), c=(4,))
# ---- empty
einsum("no_rows", "ij,jk->ik", a=(0, 3), b=(3, 4))
einsum("nothing_summed", "ij,jk->ik", a=(2, 0), b=(0, 4))
einsum("empty_diagonal", "ii->i", x=(0, 0))
# ---- the same tensor twice
Case("einsum_twice_the_same", second=True).data(x=(6, 4)).step("einsum", "x x", "y", equation="ni,nj->ij").returns("y")
single("einsum_cube_of_one", "einsum", {"x": (4, 4)}, ins="x x x", args={"equation": "ij,jk,ki->"}, second=True)
