#include "tests/ops_cases.h"

// Matrix products, convolutions and attention.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

std::int64_t small(Random& random, std::int64_t most = 5) { return random_int(random, 1, most); }

OpCase draw_matmul(Random& random) {
  const std::int64_t m = small(random);
  const std::int64_t k = small(random);
  const std::int64_t n = small(random);
  Dims a{m, k};
  Dims b{k, n};
  switch (random_int(random, 0, 5)) {
    case 0:
      a = {k};
      break;
    case 1:
      b = {k};
      break;
    case 2:
      a = {small(random, 3), m, k};
      break;
    case 3:
      a = {small(random, 3), 1, m, k};
      b = {small(random, 3), k, n};
      break;
    case 4:
      a = {2, m, k};
      b = {2, k, n};
      break;
    default:
      break;
  }
  return {fmt::format("matmul {} {}", a.str(), b.str()), {{a}, {b}}, [](const Tensors& x) {
            return Tensors{matmul(x[0], x[1])};
          }};
}

// Up to four operands of few letters, some of them repeated, of size 1 or under an ellipsis.
OpCase draw_einsum(Random& random) {
  const std::string letters = "abCde";
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < letters.size(); ++i)
    sizes.push_back(chance(random, 5) ? 0 : random_int(random, 1, 4));
  const std::int64_t hidden = chance(random, 30) ? small(random, 3) : 0;
  OpCase c{"einsum ", {}, {}};
  std::string equation;
  std::string used;
  for (std::int64_t n = random_int(random, 1, 4); n > 0; --n) {
    Dims own;
    if (hidden > 0 && chance(random, 70)) {
      equation += "...";
      own.push_back(chance(random, 30) ? 1 : hidden);
    }
    std::vector<std::int64_t> here = sizes;  // a repeated letter has one size in an operand
    for (std::int64_t& size : here)
      if (chance(random, 10)) size = 1;
    for (std::int64_t i = random_int(random, 0, 3); i > 0; --i) {
      const auto k = static_cast<std::size_t>(random_int(random, 0, 4));
      equation += letters[k];
      own.push_back(here[k]);
      if (used.find(letters[k]) == std::string::npos) used += letters[k];
    }
    c.inputs.push_back({own});
    if (n > 1) equation += ", ";
  }
  if (chance(random, 80)) {
    std::shuffle(used.begin(), used.end(), random);
    equation +=
        " -> " + std::string(chance(random, 70) && hidden > 0 ? "..." : "") +
        used.substr(0,
                    static_cast<std::size_t>(random_int(random, 0, static_cast<std::int64_t>(used.size()))));
  }
  c.text += equation;
  for (const InputSpec& in : c.inputs) c.text += " " + in.sizes.str();
  c.call = [equation](const Tensors& t) { return Tensors{einsum(equation, t)}; };
  return c;
}

OpCase draw_linear(Random& random) {
  Dims x = operand_sizes(random, {.most = 2, .all = Dims::kMax - 1});
  const std::int64_t in = small(random);
  const std::int64_t out = small(random);
  x.push_back(in);
  const bool one = chance(random, 20);  // feature, in a result without a dim for it
  const Dims w = one ? Dims{in} : Dims{out, in};
  OpCase c{"linear " + x.str() + " " + w.str(), {{x}, {w}}, {}};
  const bool bias = chance(random, 70);
  if (bias && !one && chance(random, 30)) {  // what broadcasts to the result
    Dims b = x;
    b[b.size() - 1] = out;
    for (std::int64_t& n : b)
      if (chance(random, 40)) n = 1;
    while (!b.empty() && chance(random, 40)) b.erase(0);
    c.inputs.push_back({b});
    c.text += " bias " + b.str();
  } else if (bias) {
    c.inputs.push_back({one ? Dims() : Dims{out}});
  }
  const auto activation =
      static_cast<Activation>(chance(random, 50) ? 0 : random_int(random, 1, 4));  // Relu to GeluTanh
  c.text += fmt::format(" activation {}", static_cast<int>(activation));
  c.call = [bias, activation](const Tensors& t) {
    return Tensors{linear(t[0], t[1], bias ? t[2] : Tensor(), activation)};
  };
  return c;
}

OpCase draw_pieces(Random& random) {
  Dims x = operand_sizes(random, {1, 2, 4, Dims::kMax - 1});
  const std::int64_t in = small(random);
  const std::int64_t out = small(random);
  Dims y = x;
  x.push_back(in);
  y.push_back(out);
  return {"linear_product, outer_product " + x.str(), {{x}, {{in, out}}, {y}}, [](const Tensors& t) {
            return Tensors{linear_product(t[0], t[1], false),
                           linear_product(t[0], transpose(t[1], 0, 1), true), outer_product(t[0], t[2])};
          }};
}

OpCase draw_conv_of(Random& random, int spatial) {
  ConvOptions o;
  o.groups = chance(random, 25) ? 2 : 1;
  const std::vector<PaddingMode> modes{PaddingMode::Zeros,    PaddingMode::Zeros,   PaddingMode::Circular,
                                       PaddingMode::Circular, PaddingMode::Reflect, PaddingMode::Replicate};
  o.padding_mode = pick(random, modes);
  o.stride = o.padding = o.dilation = Dims();
  Dims x{small(random, 3), o.groups * small(random, 2)};
  Dims w{o.groups * small(random, 2), x[1] / o.groups};
  for (int d = 0; d < spatial; ++d) {
    const std::int64_t kernel = random_int(random, 1, spatial == 1 ? 5 : 3);
    const std::int64_t n = random_int(random, 1, spatial == 1 ? 11 : spatial == 2 ? 6 : 3);
    o.stride.push_back(random_int(random, 1, 3));
    o.dilation.push_back(random_int(random, 1, 2));
    const std::int64_t reach = o.dilation[d] * (kernel - 1) + 1;
    std::int64_t pad = random_int(random, 0, 3);
    const bool wraps = chance(random, 20);
    if (wraps) o.periodic.push_back(d);
    if (wraps || o.padding_mode == PaddingMode::Circular) pad = std::min(pad, n);
    if (o.padding_mode == PaddingMode::Reflect) pad = std::min(pad, n - 1);
    o.padding.push_back(pad);
    w.push_back(kernel);
    x.push_back(std::max(n, reach - 2 * pad));
  }
  o.same = chance(random, 10);
  if (o.same) o.stride = {1};
  for (int d = 0; o.same && d < spatial; ++d)  // padding that may wrap or mirror more than was drawn above
    x[d + 2] = std::max(x[d + 2], o.dilation[d] * (w[d + 2] - 1) + 1);
  if (chance(random, 15)) x.erase(0);
  OpCase c{fmt::format("conv x {} w {} stride {} padding {} dilation {} groups {} mode {} periodic {}{}",
                       x.str(), w.str(), o.stride.str(), o.padding.str(), o.dilation.str(), o.groups,
                       static_cast<int>(o.padding_mode), o.periodic.str(), o.same ? " same" : ""),
           {{x}, {w}},
           {}};
  const bool bias = chance(random, 50);
  if (bias) c.inputs.push_back({{w[0]}});
  if (chance(random, 50)) o.activation = static_cast<Activation>(random_int(random, 1, 4));
  c.smooth = o.activation != Activation::Relu;
  c.text += fmt::format(" activation {}", static_cast<int>(o.activation));
  c.call = [o, bias](const Tensors& t) { return Tensors{conv(t[0], t[1], bias ? t[2] : Tensor(), o)}; };
  return c;
}
OpCase draw_conv(Random& random) { return draw_conv_of(random, static_cast<int>(random_int(random, 1, 2))); }
OpCase draw_conv3d(Random& random) { return draw_conv_of(random, 3); }

OpCase draw_attention(Random& random) {
  const std::int64_t n = small(random, 2);
  const std::int64_t key_heads = small(random, 2);
  const bool grouped = chance(random, 30);
  const std::int64_t heads = grouped ? 2 * key_heads : key_heads;
  const std::int64_t rows = small(random, 6);
  const std::int64_t keys = small(random, 6);
  const std::int64_t d = small(random, 4);
  const std::int64_t width = chance(random, 10) ? 0 : small(random, 3);  // of the values
  AttentionOptions o;
  o.enable_gqa = grouped;
  if (chance(random, 30)) o.scale = 0.4;
  OpCase c{"", {{{n, heads, rows, d}}, {{n, key_heads, keys, d}}, {{n, key_heads, keys, width}}}, {}};
  const std::int64_t mask = random_int(random, 0, 3);
  o.is_causal = mask != 1 && mask != 2 && chance(random, 60);
  if (mask == 1) c.inputs.push_back({{n, 1, rows, keys}, InputKind::Bool});
  if (mask == 2) c.inputs.push_back({{rows, keys}});
  if (chance(random, 35)) o.dropout_p = pick(random, std::vector<double>{0.1, 0.5, 0.8, 1.0});
  const std::uint64_t seed = random();
  c.text = fmt::format("attention q {} k {} v {} mask {}{}{} dropout {}", c.inputs[0].sizes.str(),
                       c.inputs[1].sizes.str(), c.inputs[2].sizes.str(),
                       mask == 1   ? "bool"
                       : mask == 2 ? "added"
                                   : "none",
                       o.is_causal ? " causal" : "", grouped ? " grouped" : "", o.dropout_p);
  c.call = [o, seed](const Tensors& t) {
    AttentionOptions with = o;
    with.generator = std::make_shared<Generator>(seed);
    if (t.size() > 3) with.attn_mask = t[3];
    return Tensors{scaled_dot_product_attention(t[0], t[1], t[2], with)};
  };
  return c;
}

// Two to five dims as a rule; keys and values may be fewer in a leading dim, or lack it.
OpCase draw_attention_dims(Random& random) {
  const Dims lead = operand_sizes(random, {.longest = 3, .all = Dims::kMax - 2});
  const auto some = [&](std::int64_t rows, std::int64_t width) {
    Dims sizes;
    const int from = static_cast<int>(chance(random, 30) ? random_int(random, 0, lead.size()) : 0);
    for (int d = from; d < lead.size(); ++d) sizes.push_back(chance(random, 25) ? 1 : lead[d]);
    sizes.push_back(rows);
    sizes.push_back(width);
    return sizes;
  };
  const std::int64_t rows = small(random, 5);
  const std::int64_t keys = small(random, 5);
  const std::int64_t d = small(random, 3);
  Dims q = lead;
  q.push_back(rows);
  q.push_back(d);
  OpCase c{"", {{q}, {some(keys, d)}, {some(keys, small(random, 3))}}, {}};
  const std::int64_t mask = random_int(random, 0, 2);
  if (mask > 0) c.inputs.push_back({some(rows, keys), mask == 1 ? InputKind::Bool : InputKind::Any});
  const double p = chance(random, 35) ? 0.4 : 0.0;
  const std::uint64_t seed = random();
  c.text = fmt::format("attention dropout {}", p);
  for (const InputSpec& in : c.inputs) c.text += " " + in.sizes.str();
  c.call = [p, seed](const Tensors& t) {
    AttentionOptions o{.dropout_p = p, .generator = std::make_shared<Generator>(seed)};
    if (t.size() > 3) o.attn_mask = t[3];
    return Tensors{scaled_dot_product_attention(t[0], t[1], t[2], o)};
  };
  return c;
}

}  // namespace

void add_products(std::vector<OpFamily>& list) {
  list.push_back({"matmul", &draw_matmul});
  list.push_back({"einsum", &draw_einsum});
  list.push_back({"einsum again", &draw_einsum});
  list.push_back({"linear", &draw_linear});
  list.push_back({"linear pieces", &draw_pieces});
  list.push_back({"conv", &draw_conv});
  list.push_back({"conv again", &draw_conv});
  list.push_back({"conv3d", &draw_conv3d});
  list.push_back({"attention", &draw_attention});
  list.push_back({"attention of any dims", &draw_attention_dims});
}

}  // namespace tessera::ops_cases
