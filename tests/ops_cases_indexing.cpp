#include <limits>

#include "tests/ops_cases.h"

// Operations whose second operand says where elements come from or go to.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

Dims some_sizes(Random& random) { return operand_sizes(random, {.least = 1, .longest = 6}); }
int some_dim(Random& random, const Dims& sizes) {
  return static_cast<int>(random_int(random, 0, sizes.size() - 1));
}
// A dim that something is taken from has elements, now and then many.
void make_long(Random& random, Dims& sizes, int dim) {
  if (sizes[dim] == 0) sizes[dim] = 1;
  if (chance(random, 30)) sizes[dim] = random_int(random, 7, 20);
}
InputSpec index_spec(const Dims& sizes, std::int64_t bound) { return {sizes, InputKind::Index, bound}; }

OpCase draw_index_select(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  make_long(random, sizes, d);
  const std::int64_t count = random_int(random, 0, chance(random, 30) ? 40 : 7);
  const std::int64_t bound = chance(random, 20) ? 1 : sizes[d];  // all on one rank
  return {fmt::format("index_select {} of dim {} of {}", count, d, sizes.str()),
          {{sizes}, index_spec({count}, bound)},
          [d](const Tensors& in) { return Tensors{index_select(in[0], d, in[1])}; }};
}

OpCase draw_embedding(Random& random) {
  const Dims table{random_int(random, 1, 9), random_int(random, 0, 5)};
  const Dims index = operand_sizes(random, {.all = Dims::kMax - 1});
  const std::int64_t padding = chance(random, 50) ? INT64_MIN : random_int(random, -table[0], table[0] - 1);
  const bool by_count = chance(random, 30);
  return {fmt::format("embedding {} {} padding {} by count {}", table.str(), index.str(), padding, by_count),
          {{table}, index_spec(index, table[0])},
          [padding, by_count](const Tensors& in) {
            Tensors out{embedding(in[0], in[1], {.padding_idx = padding, .scale_grad_by_freq = by_count})};
            return out;
          },
          padding == INT64_MIN && !by_count};
}

// What is shortened is not the leaf, and what becomes of it is a result too.
OpCase draw_short_embedding(Random& random) {
  const Dims table{random_int(random, 1, 9), random_int(random, 0, 5)};
  const Dims index = random_sizes(random, static_cast<int>(random_int(random, 0, 3)), 5);
  const double infinity = std::numeric_limits<double>::infinity();
  EmbeddingOptions o;
  o.max_norm = random_constant(random, 0, 3);
  o.norm_type = pick(random, std::vector<double>{2, 2, 1, infinity, 3, 0.5, 0});
  o.scale_grad_by_freq = chance(random, 30);
  return {fmt::format("embedding {} {} max_norm {} of order {}", table.str(), index.str(), *o.max_norm,
                      o.norm_type),
          {{table}, index_spec(index, table[0])},
          [o](const Tensors& in) {
            const Tensor rows = square(in[0]);
            return Tensors{embedding(rows, in[1], o), rows * 2.0};
          },
          false};
}

// Sizes of an index into x: shorter or equal along all dims but d.
Dims index_sizes(Random& random, const Dims& x, int d) {
  Dims sizes = x;
  for (int i = 0; i < x.size(); ++i)
    if (chance(random, 25)) sizes[i] = random_int(random, 0, x[i]);
  sizes[d] = random_int(random, 0, chance(random, 30) ? 12 : 5);
  return sizes;
}

OpCase draw_gather(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  make_long(random, sizes, d);
  const Dims index = index_sizes(random, sizes, d);
  return {fmt::format("gather {} from dim {} of {}", index.str(), d, sizes.str()),
          {{sizes}, index_spec(index, sizes[d])},
          [d](const Tensors& in) { return Tensors{gather(in[0], d, in[1])}; }};
}

OpCase draw_scatter_add(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  make_long(random, sizes, d);
  const Dims index = index_sizes(random, sizes, d);
  Dims src = index;
  for (std::int64_t& n : src) n += random_int(random, 0, chance(random, 20) ? 2 : 0);
  return {fmt::format("scatter_add {} of {} to dim {} of {}", index.str(), src.str(), d, sizes.str()),
          {{sizes}, index_spec(index, sizes[d]), {src}},
          [d](const Tensors& in) { return Tensors{scatter_add(in[0], d, in[1], in[2])}; }};
}

OpCase draw_take_along_dim(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  make_long(random, sizes, d);
  Dims index = sizes;
  index[d] = random_int(random, 0, 5);
  for (int i = 0; i < sizes.size(); ++i)
    if (i != d && chance(random, 30)) (chance(random, 50) ? sizes : index)[i] = 1;
  const auto n = static_cast<double>(sizes[d]);
  return {fmt::format("take_along_dim {} from dim {} of {}", index.str(), d, sizes.str()),
          {{sizes}, index_spec(index, 2 * sizes[d])},
          [d, n](const Tensors& in) { return Tensors{take_along_dim(in[0], in[1] - n, d)}; }};
}

OpCase draw_one_hot(Random& random) {
  const Dims index = operand_sizes(random, {.longest = 4, .all = Dims::kMax - 1});
  const std::int64_t classes = random_int(random, 1, 5);
  return {"one_hot " + index.str(), {index_spec(index, classes)}, [classes](const Tensors& in) {
            Tensors out{one_hot(in[0], classes)};
            if (in[0].numel() > 0) out.push_back(one_hot(in[0]));
            return out;
          }};
}

OpCase draw_masked_fill(Random& random) {
  const Dims sizes = some_sizes(random);
  Dims mask = sizes;
  for (std::int64_t& n : mask)
    if (chance(random, 30)) n = 1;
  return {"masked_fill " + sizes.str() + mask.str(),
          {{sizes}, {mask, InputKind::Bool}},
          [](const Tensors& in) { return Tensors{masked_fill(in[0], in[1], 0.75)}; }};
}

// Distinct values, or few of them.
InputSpec ordered_input(Random& random, const Dims& sizes) {
  return {sizes, chance(random, 50) ? InputKind::Distinct : InputKind::Steps};
}
Tensors both(const std::pair<Tensor, Tensor>& ordered) { return {ordered.first, ordered.second}; }

OpCase draw_sort(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  if (chance(random, 40)) sizes[d] = random_int(random, 7, 60);
  const bool descending = chance(random, 50);
  const InputSpec x = ordered_input(random, sizes);
  return {fmt::format("sort dim {} of {}{}", d, sizes.str(), descending ? " descending" : ""),
          {x},
          [=](const Tensors& in) { return both(sort(in[0], d, descending)); },
          x.kind == InputKind::Distinct};
}

OpCase draw_median(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  sizes[d] = random_int(random, 1, chance(random, 40) ? 60 : 7);
  const bool all = chance(random, 30);
  const bool keepdim = chance(random, 50);
  const InputSpec x = ordered_input(random, sizes);
  return {fmt::format("median {} of {}{}", all ? -9 : d, sizes.str(), keepdim ? " keepdim" : ""),
          {x},
          [=](const Tensors& in) { return all ? Tensors{median(in[0])} : both(median(in[0], d, keepdim)); },
          x.kind == InputKind::Distinct};
}

OpCase draw_topk(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  if (chance(random, 60)) sizes[d] = random_int(random, 7, 80);
  const std::int64_t k =
      random_int(random, 0, chance(random, 50) ? sizes[d] : std::min<std::int64_t>(2, sizes[d]));
  const bool largest = chance(random, 50);
  const InputSpec x = ordered_input(random, sizes);
  return {fmt::format("topk {} dim {} of {}{}", k, d, sizes.str(), largest ? "" : " smallest"),
          {x},
          [=](const Tensors& in) { return both(topk(in[0], k, {.dim = d, .largest = largest})); },
          x.kind == InputKind::Distinct};
}

}  // namespace

void add_indexing(std::vector<OpFamily>& list) {
  list.push_back({"index_select", &draw_index_select});
  list.push_back({"embedding", &draw_embedding});
  list.push_back({"embedding with max_norm", &draw_short_embedding});
  list.push_back({"gather", &draw_gather});
  list.push_back({"scatter_add", &draw_scatter_add});
  list.push_back({"take_along_dim", &draw_take_along_dim});
  list.push_back({"one_hot", &draw_one_hot});
  list.push_back({"masked_fill", &draw_masked_fill});
  list.push_back({"sort", &draw_sort});
  list.push_back({"median", &draw_median});
  list.push_back({"topk", &draw_topk});
}

}  // namespace tessera::ops_cases
