// The layers of networks among the operations on which another library's sharded tensors were measured to
// give wrong numbers, to refuse or to hang; see ops_reports_test.cpp.
#include "tests/reports_cases.h"

using namespace tessera;
using namespace tessera::reports;

namespace {

Row conv_row(const char* what, const Dims& kernel, const ConvOptions& options, std::int64_t channels = 4,
             std::int64_t out = 3) {
  Dims w{out, channels / options.groups};
  for (const std::int64_t k : kernel) w.push_back(k);
  return {what, [=](const Tensors& in) { return conv2d(in[0], in[1], in[2], options); }, {w, {out}}};
}

Row transposed_row(const char* what, std::int64_t kernel, const ConvTransposeOptions& options) {
  return {what,
          [=](const Tensors& in) { return conv_transpose2d(in[0], in[1], in[2], options); },
          {{4, 3, kernel, kernel}, {3}}};
}

// Of x [2, 4, n, 6].
std::vector<Row> convolutions() {
  return {
      conv_row("3x3, padding 1", {3, 3}, {.padding = {1}}),
      conv_row("3x3, stride 2, padding 1", {3, 3}, {.stride = {2}, .padding = {1}}),
      conv_row("3x3, stride 2", {3, 3}, {.stride = {2}}),
      conv_row("3x3, stride 3", {3, 3}, {.stride = {3}}),
      conv_row("2x2 patches", {2, 2}, {.stride = {2}}),
      conv_row("4x4 patches", {4, 4}, {.stride = {4}}),
      conv_row("1x1, padding 1", {1, 1}, {.padding = {1}}),
      conv_row("3x1", {3, 1}, {.padding = {1, 0}}),
      conv_row("2x2, stride 1", {2, 2}, {}),
      conv_row("4x4, stride 2, padding 1", {4, 4}, {.stride = {2}, .padding = {1}}),
      conv_row("4x4, same size", {4, 4}, {.same = true}),
      conv_row("7x7, wider than a neighbour's shard", {7, 7}, {.padding = {3}}),
      conv_row("dilation 2", {3, 3}, {.padding = {2}, .dilation = {2}}),
      conv_row("circular", {3, 3}, {.padding = {1}, .padding_mode = PaddingMode::Circular}),
      conv_row("reflected", {3, 3}, {.padding = {1}, .padding_mode = PaddingMode::Reflect}),
      conv_row("replicated", {5, 3}, {.padding = {2, 1}, .padding_mode = PaddingMode::Replicate}),
      conv_row("two groups", {3, 3}, {.padding = {1}, .groups = 2}, 4, 6),
      conv_row("depthwise", {3, 3}, {.padding = {1}, .groups = 4}, 4, 4),
      {"of a map without a batch dim",
       [](const Tensors& in) { return conv2d(select(in[0], 0, 1), in[1], in[2], {.padding = {1}}); },
       {{3, 4, 3, 3}, {3}}},
      transposed_row("transposed 2x2, stride 2", 2, {.stride = {2}}),
      transposed_row("transposed 2x2, stride 2, one position more", 2,
                     {.stride = {2}, .output_padding = {1}}),
      transposed_row("transposed 4x4, stride 2, padding 1", 4, {.stride = {2}, .padding = {1}}),
      transposed_row("transposed 3x3", 3, {}),
      transposed_row("transposed 3x3, stride 2", 3, {.stride = {2}}),
  };
}

Row map_row(const char* what, std::function<Tensor(const Tensor&)> f) {
  return {what, [f = std::move(f)](const Tensors& in) { return f(in[0]); }};
}

Row resize_row(const char* what, const InterpolateOptions& options) {
  return map_row(what, [=](const Tensor& x) { return interpolate(x, options); });
}

std::vector<Row> pools() {
  using Mode = InterpolateMode;
  return {
      map_row("max pool 2", [](const Tensor& x) { return max_pool2d(x, {2}); }),
      map_row("max pool 2, stride written out",
              [](const Tensor& x) {
                return max_pool2d(x, {2}, {.stride = {2, 2}});
              }),
      map_row("max pool 3, stride 2, padding 1",
              [](const Tensor& x) { return max_pool2d(x, {3}, {.stride = {2}, .padding = {1}}); }),
      map_row("max pool 2, padding 1", [](const Tensor& x) { return max_pool2d(x, {2}, {.padding = {1}}); }),
      map_row("max pool with indices",
              [](const Tensor& x) {
                const MaxPoolResult r = max_pool2d_with_indices(x, {2});
                return r.values + as_float(r.indices);
              }),
      map_row("average pool 2", [](const Tensor& x) { return avg_pool2d(x, {2}); }),
      map_row("average pool 3, stride 1, padding 1",
              [](const Tensor& x) { return avg_pool2d(x, {3}, {.stride = {1}, .padding = {1}}); }),
      map_row("mean of the map", [](const Tensor& x) { return adaptive_avg_pool2d(x, {1}); }),
      map_row("means of uneven windows",
              [](const Tensor& x) {
                return adaptive_avg_pool2d(x, {3, 4});
              }),
      resize_row("nearest, twice", {.scale_factor = {2}}),
      resize_row("bilinear, twice", {.scale_factor = {2}, .mode = Mode::Bilinear}),
      resize_row("bilinear, half", {.scale_factor = {0.5}, .mode = Mode::Bilinear}),
      resize_row("bilinear, one and a half times", {.scale_factor = {1.5}, .mode = Mode::Bilinear}),
      resize_row("bicubic, twice", {.scale_factor = {2}, .mode = Mode::Bicubic}),
      resize_row("corners aligned", {.scale_factor = {2}, .mode = Mode::Bilinear, .align_corners = true}),
      resize_row("to a size", {.size = {11, 5}, .mode = Mode::Bilinear}),
      map_row("pad",
              [](const Tensor& x) {
                return pad(x, {1, 2, 2, 1});
              }),
      map_row("crop",
              [](const Tensor& x) {
                return pad(x, {-1, 0, -1, -2});
              }),
      map_row("pad circular",
              [](const Tensor& x) {
                return pad(x, {1, 2, 2, 1}, PadMode::Circular);
              }),
      map_row("pad reflected",
              [](const Tensor& x) {
                return pad(x, {1, 2, 2, 1}, PadMode::Reflect);
              }),
  };
}

std::vector<Row> norms() {
  const auto statistics = [] {
    return RunningStatistics{full({4}, 0.3, DType::F64), full({4}, 1.7, DType::F64)};
  };
  return {
      {"layer norm over the last dim",
       [](const Tensors& in) { return layer_norm(in[0], {6}, in[1], in[2]); },
       {{6}, {6}}},
      {"layer norm over maps",
       [](const Tensors& in) {
         const Dims shape{in[0].size(2), 6};
         return layer_norm(in[0], shape, expand(in[1], shape));
       },
       {{6}}},
      {"root-mean-square norm", [](const Tensors& in) { return rms_norm(in[0], {6}, in[1]); }, {{6}}},
      {"batch norm in training",
       [=](const Tensors& in) { return batch_norm(in[0], statistics(), in[1], in[2], {.training = true}); },
       {{4}, {4}}},
      {"batch norm with given statistics",
       [=](const Tensors& in) { return batch_norm(in[0], statistics(), in[1], in[2]); },
       {{4}, {4}}},
      {"instance norm", [](const Tensors& in) { return instance_norm(in[0], {}, in[1], in[2]); }, {{4}, {4}}},
      {"group norm", [](const Tensors& in) { return group_norm(in[0], 2, in[1], in[2]); }, {{4}, {4}}},
      {"a linear layer over cut features",
       [](const Tensors& in) { return linear(in[0], in[1], in[2]); },
       {{5, 6}, {5}}},
      {"mlp",
       [](const Tensors& in) { return linear(gelu(linear(in[0], in[1], in[2])), in[3]); },
       {{8, 6}, {8}, {6, 8}}},
      {"convolution, norm, activation",
       [](const Tensors& in) {
         return gelu(group_norm(conv2d(in[0], in[1], Tensor(), {.padding = {1}}), 2));
       },
       {{4, 4, 3, 3}}},
  };
}

// Two heads of three numbers from tokens x [2, n, 6], queries first.
Tensor heads(const Tensor& x) { return transpose(unflatten(x, 2, {2, 3}), 1, 2); }
Row attention_row(const char* what, const AttentionOptions& options = {}, double queries = 1.0) {
  return {what,
          [=](const Tensors& in) {
            const Tensor t = heads(in[0]);
            return scaled_dot_product_attention(t * queries, heads(linear(in[0], in[1])),
                                                heads(linear(in[0], in[2])), options);
          },
          {{6, 6}, {6, 6}}};
}

std::vector<Row> attentions(std::int64_t n) {
  Values keep;
  for (std::int64_t i = 0; i < n * n; ++i) keep.push_back(i % 3 == 0 || i % (n + 1) == 0 ? 1 : 0);
  const Tensor other = weight({2, n + 3, 6});
  return {
      attention_row("attention"),
      attention_row("causal", {.is_causal = true}),
      attention_row("with a scale", {.scale = 0.2}),
      attention_row("large scores", {}, 300.0),
      attention_row("bool mask", {.attn_mask = tensor(keep, {n, n}, DType::Bool)}),
      attention_row("added mask", {.attn_mask = weight({n, n})}),
      {"queries cut, keys whole",
       [=](const Tensors& in) {
         return scaled_dot_product_attention(heads(in[0]), heads(other), heads(other));
       }},
      {"queries whole, keys cut",
       [=](const Tensors& in) {
         return scaled_dot_product_attention(heads(other), heads(in[0]), heads(square(in[0])));
       }},
      {"grouped queries",
       [=](const Tensors& in) {
         const Tensor k = slice(heads(in[0]), 1, 0, 1);
         return scaled_dot_product_attention(heads(in[0]), k, square(k), {.enable_gqa = true});
       }},
      {"a column of zeros in the values",
       [](const Tensors& in) {
         const Tensor t = heads(in[0]);
         return scaled_dot_product_attention(t, t, t * tensor(Values{1, 0, 1}, {3}, DType::F64));
       }},
      {"a block of a transformer",
       [](const Tensors& in) {
         const Tensor& x = in[0];
         const Tensors parts =
             unbind(permute(unflatten(linear(layer_norm(x, {6}), in[1]), 2, {3, 2, 3}), {2, 0, 3, 1, 4}), 0);
         const Tensor a = scaled_dot_product_attention(parts[0], parts[1], parts[2]);
         return x + linear(flatten(transpose(a, 1, 2), 2), in[2]);
       },
       {{18, 6}, {6, 6}}},
  };
}

// The gradient of what a penalty on gradients is: all of it must reach the input and the weights.
Row penalty_row(const char* what, std::function<Tensor(const Tensors&)> f,
                const std::vector<Dims>& parameters = {}) {
  return {what,
          [f = std::move(f)](const Tensors& in) {
            const Tensor y = f(in);
            BackwardOptions recorded;
            recorded.create_graph = true;
            const Tensor slope = grad({sum(square(y))}, {in[0]}, {}, recorded)[0];
            return sum(square(slope));
          },
          parameters};
}

std::vector<Row> penalties() {
  return {
      penalty_row("penalty through gelu", [](const Tensors& in) { return gelu(in[0]); }),
      penalty_row("penalty through a linear layer",
                  [](const Tensors& in) { return tanh(linear(in[0], in[1], in[2])); }, {{5, 6}, {5}}),
      penalty_row("penalty through a convolution",
                  [](const Tensors& in) { return tanh(conv2d(in[0], in[1], in[2], {.padding = {1}})); },
                  {{3, 4, 3, 3}, {3}}),
      penalty_row("penalty through a norm", [](const Tensors& in) { return group_norm(in[0], 2, in[1]); },
                  {{4}}),
  };
}

Tensor map_of(std::int64_t n) { return affine(weight({2, 4, n, 6}), 0.5, 1.0); }
void check_maps(std::uint64_t stream, const std::vector<Row>& rows) {
  auto random = test_random(stream);
  for (const Row& row : rows) check_row(random, row, map_of(random_int(random, 8, 9)));
}

}  // namespace

TEST_CASE("reported convolutions", "[ops]") {
  for (const std::int64_t from : {std::int64_t{0}, INT64_MAX}) {
    const FramesFrom frames(from);
    check_maps(110, convolutions());
  }
}
TEST_CASE("reported pools, resizing and padding", "[ops]") { check_maps(111, pools()); }
TEST_CASE("reported norms and layers", "[ops]") { check_maps(112, norms()); }
TEST_CASE("reported second derivatives", "[ops]") {
  const FramesFrom frames(0);
  check_maps(113, penalties());
}

TEST_CASE("reported attention", "[ops]") {
  auto random = test_random(114);
  const std::int64_t n = pick(random, std::vector<std::int64_t>{8, 17});
  for (const Row& row : attentions(n)) check_row(random, row, weight({2, n, 6}));
}

TEST_CASE("NaN or an infinity in one shard only, through layers", "[ops]") {
  auto random = test_random(135);
  const FramesFrom frames(0);
  for (const double value : kNotFinite) {
    INFO(value);
    for (const std::vector<Row>& rows : {convolutions(), pools(), norms()})
      for (const Row& row : rows) check_row(random, row, with_last(map_of(5), value), 1e-9, false);
    // Weights' gradients are left out: whether padding counts as 0 times NaN or not at all is up to the
    // kernel. Of a mask PyTorch too says nothing about NaN that is masked out.
    for (const Row& row : attentions(5))
      if (row.what != std::string_view("causal") && !std::string_view(row.what).ends_with("mask"))
        check_row(random, row, with_last(weight({2, 5, 6}), value));
  }
}

// Head counts are those of the call at hand, and 7 heads over 4 ranks are 2, 2, 2 and 1.
TEST_CASE("reported: two models with different numbers of heads in one process", "[ops]") {
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  struct Model {
    std::int64_t heads;
    double out, queries, keys, values;  // sums of the output, of the absolute gradients
  };
  const auto waves = [](double f, std::int64_t heads) {
    Values v;
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t s = 0; s < 8; ++s)
        for (std::int64_t d = 0; d < 4; ++d)
          v.push_back(std::sin(f * static_cast<double>((s + 1) * (d + 1)) + static_cast<double>(h)));
    return tensor(v, {1, heads, 8, 4}, DType::F64);
  };
  for (const int dim : {1, 2})
    for (const Model& m :
         {Model{7, 13.214237014762947, 26.167717606171053, 11.983565458475884, 130.8034579268517},
          Model{12, -4.222511427094641, 49.48770620751414, 22.12428759577843, 240.2169920374272}}) {
      Tensors in;
      for (const double f : {0.7, 0.3, 0.11}) {
        const Tensor t = waves(f, m.heads);
        in.push_back(
            t.redistribute(ShardSpec::make(mesh, {Shard(dim)}, t.sizes())).detach().set_requires_grad());
      }
      const Tensor o = scaled_dot_product_attention(in[0], in[1], in[2]);
      CHECK(o.local().size(dim) ==
            default_partition(dim == 1 ? m.heads : 8, mesh.size())[static_cast<std::size_t>(mesh.rank())]
                .length());
      o.backward(waves(0.05, m.heads));
      CHECK(sum(o).item() == Approx(m.out).epsilon(1e-12));
      CHECK(sum(abs(in[0].grad())).item() == Approx(m.queries).epsilon(1e-12));
      CHECK(sum(abs(in[1].grad())).item() == Approx(m.keys).epsilon(1e-12));
      CHECK(sum(abs(in[2].grad())).item() == Approx(m.values).epsilon(1e-12));
    }
}

// A window of 5 keys is narrower than the whole and wider than a shard: neither decides by its own length.
TEST_CASE("reported: a window of keys over shards that are shorter than it", "[ops]") {
  auto random = test_random(115);
  Values window;
  Values causal;
  for (int i = 0; i < 9; ++i)
    for (int j = 0; j < 9; ++j) {
      window.push_back(j <= i && i - j < 5 ? 1 : 0);
      causal.push_back(j <= i ? 1 : 0);
    }
  const Tensor x = weight({2, 9, 6});
  const Row row = attention_row("window of 5", {.attn_mask = tensor(window, {9, 9}, DType::Bool)});
  check_row(random, row, x, 1e-12);
  const Row all = attention_row("no window", {.attn_mask = tensor(causal, {9, 9}, DType::Bool)});
  CHECK(difference(expect(row, x).out, expect(all, x).out) > 1e-3);
}

TEST_CASE("reported: causal attention over blocks that hold no key for some rows", "[ops]") {
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  auto random = test_random(116);
  std::vector<std::vector<std::int64_t>> list = cuts(random, 4);
  if (mesh.size() == 2) list.insert(list.end(), {{2, 2}, {1, 3}, {3, 1}});
  for (const auto& cut : list) {
    const auto rows = [&](const Values& v) {
      const Dims sizes{1, 1, 4, 2};
      return tensor(v, sizes, DType::F64)
          .redistribute(ShardSpec::from_lengths(mesh, {Shard(2)}, sizes, {cut}));
    };
    const Tensor o =
        scaled_dot_product_attention(rows({1, 0, 0, 1, 1, 1, 1, -1}), rows({1, 0, 0, 1, 1, 1, -1, 1}),
                                     rows({1, 0, 2, 0, 3, 0, 4, 1}), {.is_causal = true});
    check_close(o.to_vector(),
                {1, 0, 1.6697615493266569, 0, 2.255234765226831, 0, 1.8560472188397295, 0.06458483864659637},
                1e-12);
  }
}

// Samples 1, 2 and 6 on ranks that hold two, none and one of them.
TEST_CASE("reported: batch statistics over unequal shares", "[ops][norms]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_over(test_world(), {ranks});
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks), 0);
  lengths.front() = ranks == 1 ? 3 : 2;
  if (ranks > 1) lengths.back() = 1;
  const SpecPtr spec = ShardSpec::from_lengths(mesh, {Shard(0)}, {3, 1}, {lengths});
  const Tensor x =
      tensor(Values{1, 2, 6}, {3, 1}, DType::F64).redistribute(spec).detach().set_requires_grad();
  const Tensor w = ones({1}, DType::F64).set_requires_grad();
  const RunningStatistics running{zeros({1}, DType::F64), ones({1}, DType::F64)};
  const Tensor y = batch_norm(x, running, w, {}, {.training = true});
  check_close(y.to_vector(), {-0.9258191078240388, -0.4629095539120194, 1.3887286617360581}, 1e-12);
  CHECK(running.mean.item() == Approx(0.3).epsilon(1e-12));
  CHECK(running.var.item() == Approx(1.6).epsilon(1e-12));
  y.backward(tensor(Values{1, 2, 4}, {3, 1}, DType::F64));
  check_close(x.grad().to_vector(), {-0.08817438201781538, 0.11021599362843207, -0.022041611610616893},
              1e-12);
  check_close(w.grad().to_vector(), {3.703276431296155}, 1e-12);
}

// Sums of squares lose these digits in float32.
TEST_CASE("reported: group norm of float32 data with mean 1000, batch cut", "[ops][norms]") {
  auto random = test_random(117);
  const Row row{"group norm", [](const Tensors& in) { return group_norm(in[0], 2); }};
  const Tensor x = affine(weight({4, 4, 8, 6}, DType::F32), 1.0, 1000.0);
  const Values want = expect(row, to(x, DType::F64)).out;
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  for (int d = 0; d < 4; ++d)
    for (const auto& cut : cuts(random, x.size(d))) {
      const SpecPtr spec = ShardSpec::from_lengths(mesh, {Shard(d)}, x.sizes(), {cut});
      INFO(spec->str());
      check_close(group_norm(x.redistribute(spec), 2).to_vector(), want, 3e-5);
    }
}
