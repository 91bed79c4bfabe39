#include "tests/ops_cases.h"

// Operations that move elements and compute nothing.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

using One = std::function<Tensor(const Tensor&)>;
OpCase one(const std::string& text, const Dims& sizes, One f) {
  return {text, {{sizes}}, [f](const Tensors& x) { return Tensors{f(x[0])}; }};
}
Dims some_sizes(Random& random, int least = 1, int most = 3) {
  return random_sizes(random, static_cast<int>(random_int(random, least, most)), 6);
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
  Dims sizes = some_sizes(random);
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

OpCase draw_squeeze(Random& random) {
  Dims sizes = some_sizes(random);
  const int d = some_dim(random, sizes);
  if (chance(random, 70)) sizes[d] = 1;
  const std::int64_t at = random_int(random, -sizes.size() - 1, sizes.size());
  return {"squeeze, unsqueeze", {{sizes}}, [=](const Tensors& x) {
            return Tensors{squeeze(x[0], d), unsqueeze(x[0], at)};
          }};
}

OpCase draw_expand(Random& random) {
  Dims sizes = some_sizes(random);
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
  const Dims parts(random_lengths(random, sizes[d], static_cast<int>(random_int(random, 1, 3))));
  return {"split " + parts.str(), {{sizes}}, [=](const Tensors& x) { return split(x[0], parts, d); }};
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
  return one(fmt::format("pad {} by {}{}", sizes.str(), Dims(pads).str(),
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
  list.push_back({"roll", &draw_roll});
  list.push_back({"pad", &draw_pad});
}

}  // namespace tessera::ops_cases
