"""Neighbours in point clouds: ties, points upon queries, few and many dims, and what may travel.

Distances are sorted stably, so that of equal ones the lowest index is first; norm's gradient is 0 at 0.
"""
import numpy as np
import torch

from .case import Case, few_values, normal, single
from .operations import operation


def all_distances(points, queries):
    return torch.linalg.vector_norm(queries[:, None] - points[None], dim=-1)


@operation()
def knn(points, queries, *, k):
    distances, indices = torch.sort(all_distances(points, queries), dim=1, stable=True)
    return distances[:, :k], indices[:, :k]


@operation()
def radius_search(points, queries, *, radius, max_neighbors=None):
    distances, indices = torch.sort(all_distances(points, queries), dim=1, stable=True)
    near = distances <= radius
    if max_neighbors is not None:
        columns = min(max_neighbors, points.shape[0])
        missing = (0, max_neighbors - columns)
        near = torch.nn.functional.pad(near[:, :columns], missing)
        distances = torch.nn.functional.pad(distances[:, :columns], missing)
        indices = torch.nn.functional.pad(indices[:, :columns], missing)
        return torch.where(near, distances, float("inf")), torch.where(near, indices, -1), near.sum(1)
    counts = near.sum(1)
    rows = torch.arange(len(queries)).repeat_interleave(counts)
    return distances[near], indices[near], counts, counts.cumsum(0) - counts, rows


def nearest(name, points, queries, k, **more):
    return single(f"knn_{name}", "knn", {"p": points, "q": queries}, outs="d i", args={"k": k}, **more)


def within(name, points, queries, radius, most=None):
    args = {"radius": radius} if most is None else {"radius": radius, "max_neighbors": most}
    return single(f"radius_{name}", "radius_search", {"p": points, "q": queries}, args=args,
                  outs="d i n" if most is not None else "d i n o r")


def two_places(rows):
    """Half of the rows around 0, half around 100."""
    return lambda rng: (rng.standard_normal((rows, 2)) + 100 * (np.arange(rows) >= rows // 2)[:, None]).astype(np.float32)


def published(points, queries, dims):
    """Bytes of the boxes that a rank with so many points and queries tells all others, in two rounds."""
    point_boxes = queries_boxes = 1
    while points > 32 * point_boxes and point_boxes < 64:
        point_boxes *= 2
    while queries_boxes < queries and queries_boxes < 64:
        queries_boxes *= 2
    box = 2 * dims * 4 + 8
    return 2 * 48 + (point_boxes + 2 * queries_boxes) * box


nearest("plane", (30, 2), (9, 2), 4, second=True)
nearest("space", (60, 3), (17, 3), 7, second=True)
nearest("line", (12, 1), (5, 1), 3)
nearest("eight_dims", (25, 8), (6, 8), 5)
nearest("all", (11, 3), (4, 3), 11)
nearest("one_point", (1, 3), (5, 3), 1)
nearest("no_queries", (7, 2), (0, 2), 3)
nearest("ties", few_values(3, 40, 2), few_values(3, 15, 2), 9)
nearest("ties_in_space", few_values(2, 64, 3), few_values(2, 9, 3), 20)
nearest("one_place", np.full((20, 2), 0.5), np.full((6, 2), 0.5), 4)
# Every rank has its points and queries at a place of its own: nothing moves but the boxes.
nearest("two_places", two_places(600), two_places(6), 5).limit(
    2 * published(300, 3, 2), {"p": [[300, 300]], "q": [[3, 3]]}, p="S0", q="S0").limit(
    2 * 48, {"q": [[2, 4]]}, q="S0")  # points that all ranks have: whether the coordinates are finite
Case("knn_own").data(p=(40, 3)).step("knn", "p p", "d i", k=5).returns("d i")

within("few", (40, 2), (9, 2), 0.5, 6)
within("fewer_points_than_columns", (3, 2), (4, 2), 1.0, 5)
within("no_points", (0, 3), (4, 3), 1.0, 2)
within("ties", few_values(3, 40, 2), few_values(3, 15, 2), 1.0, 12)
within("nothing_near", (10, 2), normal(4, 2, shift=50), 1.0, 3)
within("zero", few_values(3, 20, 2), few_values(3, 8, 2), 0.0, 4)
within("two_places", two_places(600), two_places(6), 0.7, 4).limit(
    2 * published(300, 3, 2), {"p": [[300, 300]], "q": [[3, 3]]}, p="S0", q="S0")
within("lists", (50, 3), (12, 3), 0.8)
within("lists_ties", few_values(3, 30, 2), few_values(3, 11, 2), 1.0)
within("lists_none", (10, 2), normal(4, 2, shift=50), 1.0)
within("lists_no_queries", (10, 2), (0, 2), 1.0)
within("lists_all", (9, 3), (5, 3), 1e6)
within("lists_two_places", two_places(600), two_places(6), 0.7).limit(
    2 * published(300, 3, 2), {"p": [[300, 300]], "q": [[3, 3]]}, p="S0", q="S0")
# A step of message passing: differences to the neighbours, weighed by distance.
flow = Case("program_neighbours").data(p=(40, 2), v=(40, 4)).param(w=normal(6, 4, scale=0.5))
flow.step("knn", "p p", "d i", k=4).step("embedding", "v i", "n").step("linear", "n w -", "h").step("gelu", "h", "g")
flow.step("neg", "d", "s").step("softmax", "s", "a", dim=-1).step("unsqueeze", "a", "b", dim=-1)
flow.step("mul", "g b", "m").step("sum", "m", "y", dim=[1], keepdim=False).returns("y i")
