#include <fmt/ranges.h>

#include "tests/ops_cases.h"

// Operations that move elements and compute nothing.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

using One = std::function<Tensor(const Tensor&)>;
OpCase one(const std::string& text, const Dims& sizes, One f) {
  return {text, {{sizes}}, [f](const Tensors& x) { return Tensors{f(x[0])}; }};
}
Dims some_sizes(Random& random, int least = 1, int most = 3, int all = Dims::kMax) {
  return operand_sizes(random, {least, most, 6, all});
}
int some_dim(Random& random, const Dims& sizes) {
  return static_cast<int>(random_int(random, 0, sizes.size() - 1));
}

// Factors of n in random order, ones among them.
Dims factored(Random& random, std::int64_t n) {
  Dims sizes;
  while (sizes.size() < 5 && (n > 1 || chance(random, 30))) {
    std::int64_t f = random_int(random, 1, n);
    while (n % f != 0) --f;
    if (sizes.size() == 4) f = n;
    sizes.push_back(f);
    n /= f;
  }
  if (n > 1) sizes.push_back(n);
  return sizes;
}

OpCase draw_reshape(Random& random) {
  Dims sizes = some_sizes(random, 0, 4);
  if (chance(random, 40)) sizes = factored(random, pick(random, std::vector<std::int64_t>{12, 24, 36, 30}));
  const std::int64_t n = numel_of(sizes);
  Dims to = n == 0 ? Dims{0, 3} : factored(random, n);
  if (n > 0 && !to.empty() && chance(random, 30)) to[some_dim(random, to)] = -1;
  return one("reshape " + sizes.str() + " to " + to.str(), sizes,
             [to](const Tensor& x) { return reshape(x, to); });
}

OpCase draw_flatten(Random& random) {
  const Dims sizes = some_sizes(random, 1, 4);
  const int from = some_dim(random, sizes);
  const std::int64_t to = random_int(random, from, sizes.size() - 1);
  return one("flatten", sizes, [=](const Tensor& x) { return flatten(x, from, to); });
}

OpCase draw_unflatten(Random& random) {
  Dims sizes = some_sizes(random, 1, 3, 4);  // parts may be five
  const int d = some_dim(random, sizes);
  sizes[d] = pick(random, std::vector<std::int64_t>{4, 6, 12});
  const Dims parts = factored(random, sizes[d]);
  return one("unflatten " + parts.str(), sizes, [=](const Tensor& x) { return unflatten(x, d, parts); });
}

OpCase draw_permute(Random& random) {
  const Dims sizes = some_sizes(random, 1, 4);
  std::vector<std::int64_t> order;
  for (int d = 0; d < sizes.size(); ++d) order.push_back(d);
  std::shuffle(order.begin(), order.end(), random);
  const Dims dims(order);
  const int a = some_dim(random, sizes);
  const int b = some_dim(random, sizes) - sizes.size();
  return {"permute " + dims.str(), {{sizes}}, [=](const Tensors& x) {
            return Tensors{permute(x[0], dims), transpose(x[0], a, b)};
          }};
}

constexpr int kOneLess = Dims::kMax - 1;

OpCase draw_squeeze(Random& random) {
  Dims sizes = some_sizes(random, 1, 3, kOneLess);
  const int d = some_dim(random, sizes);
  if (chance(random, 70)) sizes[d] = 1;
  const std::int64_t at = random_int(random, -sizes.size() - 1, sizes.size());
  return {"squeeze, unsqueeze", {{sizes}}, [=](const Tensors& x) {
            return Tensors{squeeze(x[0], d), unsqueeze(x[0], at)};
          }};
}

OpCase draw_expand(Random& random) {
  Dims sizes = some_sizes(random, 1, 3, kOneLess);
  Dims to;
  for (std::int64_t lead = random_int(random, 0, 1); lead > 0; --lead) to.push_back(random_int(random, 1, 3));
  for (std::int64_t& n : sizes) {
    const bool widen = chance(random, 40);
    if (widen) n = 1;
    to.push_back(widen ? random_int(random, 1, 4) : chance(random, 30) ? -1 : n);
  }
  return one("expand " + sizes.str() + " to " + to.str(), sizes,
             [=](const Tensor& x) { return expand(x, to); });
}

OpCase draw_slice(Random& random) {
  const Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  const std::int64_t from = random_int(random, -sizes[d] - 2, sizes[d] + 2);
  const std::int64_t to = chance(random, 30) ? INT64_MAX : random_int(random, -sizes[d] - 2, sizes[d] + 2);
  const std::int64_t step = random_int(random, 1, 3);
  return one(fmt::format("slice {} dim {} from {} to {} step {}", sizes.str(), d, from, to, step), sizes,
             [=](const Tensor& x) { return slice(x, d, from, to, step); });
}

OpCase draw_split(Random& random) {
  const Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  if (chance(random, 30)) {
    const std::int64_t each = random_int(random, 1, 4);
    return {fmt::format("split {} dim {} into pieces of {}", sizes.str(), d, each),
            {{sizes}},
            [=](const Tensors& x) { return split(x[0], each, d); }};
  }
  const int count =
      static_cast<int>(chance(random, 20) ? random_int(random, 9, 12) : random_int(random, 1, 3));
  const std::vector<std::int64_t> parts = random_lengths(random, sizes[d], count);
  return {fmt::format("split {} dim {} into {}", sizes.str(), d, count), {{sizes}}, [=](const Tensors& x) {
            return split(x[0], parts, d);
          }};
}

OpCase draw_cat(Random& random) {
  const Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  OpCase c{"cat", {}, [d](const Tensors& x) { return Tensors{cat(x, d)}; }};
  for (std::int64_t i = random_int(random, 1, 3); i > 0; --i) {
    Dims own = sizes;
    own[d] = random_int(random, 0, 4);
    c.inputs.push_back({own});
    c.text += own.str();
  }
  return c;
}

OpCase draw_stack(Random& random) {
  const Dims sizes = some_sizes(random, 0, 3, kOneLess);
  const std::int64_t d = random_int(random, -sizes.size() - 1, sizes.size());
  OpCase c{fmt::format("stack {} along {}", sizes.str(), d), {}, [d](const Tensors& x) {
             return Tensors{stack(x, d)};
           }};
  c.inputs.assign(static_cast<std::size_t>(random_int(random, 1, 3)), {sizes});
  return c;
}

OpCase draw_flip(Random& random) {
  const Dims sizes = some_sizes(random, 0);
  Dims dims;
  for (int d = 0; d < sizes.size(); ++d)
    if (chance(random, 60)) dims.push_back(chance(random, 50) ? d : d - sizes.size());
  return one("flip " + sizes.str() + " " + dims.str(), sizes, [=](const Tensor& x) { return flip(x, dims); });
}

OpCase draw_repeat(Random& random) {
  const Dims sizes = some_sizes(random, 0, 3, kOneLess);
  Dims repeats;
  for (std::int64_t i = random_int(random, 0, 1) + sizes.size(); i > 0; --i)
    repeats.push_back(chance(random, 10) ? 0 : random_int(random, 1, 3));
  const Dims fewer(repeats.span().first(static_cast<std::size_t>(random_int(random, 0, repeats.size()))));
  return {"repeat " + sizes.str() + " by " + repeats.str() + ", tile by " + fewer.str(),
          {{sizes}},
          [=](const Tensors& x) {
            return Tensors{repeat(x[0], repeats), tile(x[0], fewer)};
          }};
}

OpCase draw_repeat_interleave(Random& random) {
  const Dims sizes = some_sizes(random);
  const std::int64_t times = random_int(random, 0, 3);
  std::optional<std::int64_t> dim;
  if (chance(random, 80)) dim = some_dim(random, sizes);
  return one(fmt::format("repeat_interleave {} by {} along {}", sizes.str(), times, dim ? *dim : -9), sizes,
             [=](const Tensor& x) { return repeat_interleave(x, times, dim); });
}

OpCase draw_diagonal(Random& random) {
  const Dims sizes = some_sizes(random, 2, 4);
  const int a = some_dim(random, sizes);
  const int b = (a + 1 + static_cast<int>(random_int(random, 0, sizes.size() - 2))) % sizes.size();
  const std::int64_t offset = random_int(random, -3, 3);
  return one(fmt::format("diagonal {} of dims {} and {} of {}", offset, a, b, sizes.str()), sizes,
             [=](const Tensor& x) { return diagonal(x, offset, a, b - x.dim()); });
}

OpCase draw_pieces(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  sizes[d] = random_int(random, 1, 6);
  const std::int64_t start = random_int(random, -sizes[d], sizes[d]);
  const std::int64_t length = random_int(random, 0, start < 0 ? -start : sizes[d] - start);
  const std::int64_t index = random_int(random, -sizes[d], sizes[d] - 1);
  return {fmt::format("narrow {} of {}, select {} of {} dim {}", length, start, index, sizes.str(), d),
          {{sizes}},
          [=](const Tensors& x) {
            return Tensors{narrow(x[0], d, start, length), select(x[0], d - x[0].dim(), index)};
          }};
}

OpCase draw_slice_scatter(Random& random) {
  const Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  const std::int64_t start = random_int(random, -sizes[d] - 1, sizes[d]);
  const std::int64_t end = chance(random, 30) ? INT64_MAX : random_int(random, -sizes[d], sizes[d] + 1);
  const std::int64_t step = random_int(random, 1, 3);
  const Dims part = slice(zeros(sizes, DType::F64), d, start, end, step).sizes();
  return {fmt::format("slice_scatter {} to {} step {} of {} dim {}", start, end, step, sizes.str(), d),
          {{sizes}, {part}},
          [=](const Tensors& x) { return Tensors{slice_scatter(x[0], x[1], d, start, end, step)}; }};
}

OpCase draw_select_scatter(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  sizes[d] = random_int(random, 1, 6);
  const std::int64_t index = random_int(random, -sizes[d], sizes[d] - 1);
  Dims part = sizes;
  part.erase(d);
  return {fmt::format("select_scatter {} of {} dim {}", index, sizes.str(), d),
          {{sizes}, {part}},
          [=](const Tensors& x) { return Tensors{select_scatter(x[0], x[1], d, index)}; }};
}

OpCase draw_unbind(Random& random) {
  const Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  const bool chunks = chance(random, 50);
  const std::int64_t count = random_int(random, 1, 7);
  return {fmt::format("{} {} dim {}", chunks ? "chunk" : "unbind", sizes.str(), d),
          {{sizes}},
          [=](const Tensors& x) { return chunks ? chunk(x[0], count, d) : unbind(x[0], d); }};
}

OpCase draw_movedim(Random& random) {
  const Dims sizes = some_sizes(random, 1, 4);
  std::vector<std::int64_t> order;
  for (int d = 0; d < sizes.size(); ++d) order.push_back(d);
  std::shuffle(order.begin(), order.end(), random);
  const auto count = static_cast<std::size_t>(random_int(random, 0, sizes.size()));
  const Dims from(std::span<const std::int64_t>(order).first(count));
  std::shuffle(order.begin(), order.end(), random);
  const Dims to(std::span<const std::int64_t>(order).first(count));
  return one("movedim " + from.str() + " to " + to.str(), sizes,
             [=](const Tensor& x) { return movedim(x, from, to); });
}

OpCase draw_roll(Random& random) {
  const Dims sizes = some_sizes(random);
  Dims shifts;
  Dims dims;
  for (int d = 0; d < sizes.size(); ++d) {
    if (chance(random, 30)) continue;
    dims.push_back(d);
    shifts.push_back(random_int(random, -8, 8));
  }
  return one("roll " + sizes.str() + " by " + shifts.str(), sizes,
             [=](const Tensor& x) { return roll(x, shifts, dims); });
}

OpCase draw_pad(Random& random) {
  const Dims sizes = some_sizes(random);
  std::vector<std::int64_t> pads;
  const PadMode mode = chance(random, 50) ? PadMode::Circular : PadMode::Constant;
  const int count = static_cast<int>(random_int(random, 1, sizes.size()));
  for (int d = 0; d < count; ++d) {
    const std::int64_t n = sizes[sizes.size() - 1 - d];
    const std::int64_t least = mode == PadMode::Circular ? 0 : -n / 2;
    const std::int64_t most = mode == PadMode::Circular ? n : 3;
    pads.push_back(random_int(random, least, most));
    pads.push_back(random_int(random, least, most));
  }
  return one(fmt::format("pad {} by [{}]{}", sizes.str(), fmt::join(pads, ", "),
                         mode == PadMode::Circular ? " circular" : ""),
             sizes, [=](const Tensor& x) { return pad(x, pads, mode, 0.75); });
}

}  // namespace

void add_shapes(std::vector<OpFamily>& list) {
  list.push_back({"reshape", &draw_reshape});
  list.push_back({"reshape again", &draw_reshape});
  list.push_back({"flatten", &draw_flatten});
  list.push_back({"unflatten", &draw_unflatten});
  list.push_back({"permute", &draw_permute});
  list.push_back({"squeeze", &draw_squeeze});
  list.push_back({"expand", &draw_expand});
  list.push_back({"slice", &draw_slice});
  list.push_back({"split", &draw_split});
  list.push_back({"cat", &draw_cat});
  list.push_back({"stack", &draw_stack});
  list.push_back({"flip", &draw_flip});
  list.push_back({"repeat, tile", &draw_repeat});
  list.push_back({"repeat_interleave", &draw_repeat_interleave});
  list.push_back({"diagonal", &draw_diagonal});
  list.push_back({"narrow, select", &draw_pieces});
  list.push_back({"slice_scatter", &draw_slice_scatter});
  list.push_back({"select_scatter", &draw_select_scatter});
  list.push_back({"unbind, chunk", &draw_unbind});
  list.push_back({"movedim", &draw_movedim});
  list.push_back({"roll", &draw_roll});
  list.push_back({"pad", &draw_pad});
}

}  // namespace tessera::ops_cases
