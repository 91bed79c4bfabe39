#include "bench/subject_list.h"
#include "ops/ops.h"

namespace tessera::bench {
namespace {

void add_products(Subjects& s) {
  const Tensor w = s.filled({8, 8});
  const Tensor b = s.filled({8});
  s.add_rows({"matmul", "by a vector"}, [=](const Tensor& x) { return matmul(x, b); });
  s.add({"matmul", "of a vector"}, {8}, 0, [](const Tensor& x) { return matmul(x, x); });
  s.add({"matmul", "batches"}, {2, 4, 4}, 0, [](const Tensor& x) { return matmul(x, x); });
  s.add({"matmul", "batches, broadcast"}, {2, 2, 8}, 0, [=](const Tensor& x) { return matmul(x, w); });
  s.add_rows({"matmul", "by a transposed one"},
             [t = transpose(w, 0, 1)](const Tensor& x) { return matmul(x, t); });
  s.add_rows({"linear", "no bias"}, [=](const Tensor& x) { return linear(x, w); });
  s.add({"linear", "three dims"}, {2, 2, 8}, 0, [=](const Tensor& x) { return linear(x, w, b); });
  s.add_rows({"linear", "to one feature"}, [=](const Tensor& x) { return linear(x, b); });
  for (const auto& [how, a] : std::initializer_list<std::pair<const char*, Activation>>{
           {"relu", Activation::Relu}, {"gelu", Activation::Gelu}})
    s.add_rows({"linear", how}, [=, a = a](const Tensor& x) { return linear(x, w, b, a); });
}

void add_sums_of_products(Subjects& s) {
  const Tensor w = s.filled({8, 8});
  const auto add = [&](const char* how, const Dims& local, const char* equation, const Tensors& others) {
    Subject& made = s.add({"einsum", how}, local, 0, [=](const Tensor& x) {
      Tensors operands{x};
      operands.insert(operands.end(), others.begin(), others.end());
      return einsum(equation, operands);
    });
    made.parts = std::max<int>(1, static_cast<int>(others.size()));  // products
  };
  add("of four", kRows, "nc,cd,de,ef->nf", {w, w, w});
  add("of three", kRows, "nc,cd,de->ne", {w, w});
  s.add({"einsum", "batches"}, {2, 4, 4}, 0, [](const Tensor& x) { return einsum("bij,bjk->bik", {x, x}); });
  add("outer", kRows, "nc,d->ncd", {s.filled({4})});
  add("any dims", kRows, "...c,dc->...d", {w});
  add("of one, a trace", {2, 4, 4}, "bii->b", {});
  add("of one, a diagonal", {2, 4, 4}, "bii->bi", {});
  add("of one, a sum", kRows, "nc->n", {});
  add("of one, turned", kRows, "nc->cn", {});
}

void add_attention(Subjects& s) {
  const Dims heads{1, 2, 4, 8};
  const auto add = [&](const char* how, const AttentionOptions& o) {
    s.add({"scaled_dot_product_attention", how}, heads, 0,
          [o](const Tensor& x) { return scaled_dot_product_attention(x, x, x, o); });
  };
  add("causal", {.is_causal = true});
  add("scale", {.scale = 0.5});
  add("bool mask", {.attn_mask = s.mask({4, 4})});
  add("added mask", {.attn_mask = s.filled({4, 4})});
  s.add({"scaled_dot_product_attention", "dropout"}, heads, 0,
        [generator = std::make_shared<Generator>(7)](const Tensor& x) {
          generator->set_stream(0);
          return scaled_dot_product_attention(x, x, x, {.dropout_p = 0.3, .generator = generator});
        })
      .draws = true;
  s.add({"scaled_dot_product_attention", "fewer keys' heads"}, heads, 0, [](const Tensor& x) {
     const Tensor k = narrow(x, 1, 0, 1);
     return scaled_dot_product_attention(x, k, k, {.enable_gqa = true});
   }).parts = 2;
}

// Maps whose batch is cut: no halo is asked for.
void add_convolutions(Subjects& s) {
  const Tensor w = s.filled({4, 4, 3, 3});
  const Tensor c = s.filled({4});
  const auto add = [&](const char* how, const Tensor& weight, const Tensor& bias, const ConvOptions& o) {
    s.add({"conv2d", how}, kMap, 0, [=](const Tensor& x) { return conv2d(x, weight, bias, o); });
  };
  add("no bias", w, {}, {.padding = {1}});
  add("stride 2", w, c, {.stride = {2}, .padding = {1}});
  add("dilated", w, c, {.padding = {2}, .dilation = {2}});
  add("two groups", s.filled({4, 2, 3, 3}), c, {.padding = {1}, .groups = 2});
  add("depthwise", s.filled({4, 1, 3, 3}), c, {.padding = {1}, .groups = 4});
  add("same", w, c, {.same = true});
  add("periodic columns", w, c, {.padding = {1}, .periodic = {1}});
  for (const auto& [how, mode] :
       std::initializer_list<std::pair<const char*, PaddingMode>>{{"circular", PaddingMode::Circular},
                                                                  {"reflect", PaddingMode::Reflect},
                                                                  {"replicate", PaddingMode::Replicate}})
    add(how, w, c, {.padding = {1}, .padding_mode = mode});
  for (const auto& [how, a] : std::initializer_list<std::pair<const char*, Activation>>{
           {"relu", Activation::Relu}, {"gelu", Activation::Gelu}, {"silu", Activation::Silu}})
    add(how, w, c, {.padding = {1}, .activation = a});
  s.add({"conv2d", "bf16"}, kMap, 0,
        [w = s.filled({4, 4, 3, 3}, DType::BF16), c = s.filled({4}, DType::BF16)](const Tensor& x) {
          return conv2d(x, w, c, {.padding = {1}});
        })
      .dtype = DType::BF16;
  s.add({"conv2d", "f64"}, kMap, 0,
        [w = s.filled({4, 4, 3, 3}, DType::F64), c = s.filled({4}, DType::F64)](const Tensor& x) {
          return conv2d(x, w, c, {.padding = {1}});
        })
      .dtype = DType::F64;
  const ConvOptions circular{.padding = {1}, .padding_mode = PaddingMode::Circular};
  for (const auto& [how, o] : std::initializer_list<std::pair<const char*, ConvOptions>>{
           {"3", {.padding = {1}}}, {"circular", circular}}) {
    s.add({"conv1d", how}, kLine, 0,
          [=, w1 = s.filled({4, 4, 3}), o = o](const Tensor& x) { return conv1d(x, w1, c, o); });
    s.add({"conv3d", how}, kVolume, 0,
          [=, w3 = s.filled({4, 4, 3, 3, 3}), o = o](const Tensor& x) { return conv3d(x, w3, c, o); });
  }
}

void add_transposed(Subjects& s) {
  const Tensor c = s.filled({4});
  const auto add = [&](const char* how, const Tensor& w, const Tensor& bias, const ConvTransposeOptions& o) {
    s.add({"conv_transpose2d", how}, kMap, 0,
          [=](const Tensor& x) { return conv_transpose2d(x, w, bias, o); });
  };
  const Tensor w = s.filled({4, 4, 3, 3});
  add("no bias", w, {}, {});
  add("padding", w, c, {.stride = {2}, .padding = {1}, .output_padding = {1}});
  add("dilated", w, c, {.dilation = {2}});
  add("two groups", s.filled({4, 2, 3, 3}), c, {.groups = 2});
  add("depthwise", s.filled({4, 1, 3, 3}), c, {.groups = 4});
}

// Kept by the channels, cut as they are, so that nobody asks for them: those of a plain tensor, and those on
// the mesh that was met last.
class Running {
 public:
  explicit Running(const Subjects& s) : plain_{s.filled({4}), s.filled({4})} {}
  RunningStatistics of(const Tensor& x) const {
    if (!x.is_sharded()) return plain_;
    if (!cut_->mean.defined() || cut_->mean.spec()->mesh_core() != x.spec()->mesh_core()) {
      const SpecPtr spec = ShardSpec::make(x.spec()->mesh(), {Shard(0)}, {x.size(1)});
      *cut_ = {Tensor(plain_.mean.local().clone(), spec), Tensor(plain_.var.local().clone(), spec)};
    }
    return *cut_;
  }

 private:
  RunningStatistics plain_;
  std::shared_ptr<RunningStatistics> cut_ = std::make_shared<RunningStatistics>();
};

constexpr std::pair<const char*, NormActivation> kActivations[] = {
    {"relu", NormActivation::Relu}, {"silu", NormActivation::Silu}, {"gelu", NormActivation::Gelu}};

void add_group_norms(Subjects& s) {
  const Tensor c = s.filled({4});
  s.add({"group_norm", "bare"}, kMap, 0, [](const Tensor& x) { return group_norm(x, 2); });
  s.add({"group_norm", "lines"}, kLine, 0, [=](const Tensor& x) { return group_norm(x, 2, c, c); });
  s.add({"instance_norm", "bare"}, kMap, 0, [](const Tensor& x) { return instance_norm(x); });
  for (const auto& [how, a] : kActivations) {
    s.add({"group_norm", how}, kMap, 0,
          [=, a = a](const Tensor& x) { return group_norm(x, 2, c, c, {.activation = a}); });
    s.add({"instance_norm", how}, kMap, 0,
          [=, a = a](const Tensor& x) { return instance_norm(x, {}, c, c, {.activation = a}); });
  }
}

void add_running_norms(Subjects& s) {
  const Tensor c = s.filled({4});
  const Running r(s);
  const Running w(s);
  s.add({"instance_norm", "statistics kept"}, kMap, 1,
        [r](const Tensor& x) { return instance_norm(x, r.of(x)); });
  s.add({"instance_norm", "running statistics"}, kMap, 0, [=](const Tensor& x) {
    return instance_norm(x, {c, c}, c, c, {.use_input_stats = false});
  });
  s.add({"batch_norm", "statistics kept"}, kMap, 1,
        [r](const Tensor& x) { return batch_norm(x, r.of(x), {}, {}, {.training = true}); });
  s.add({"batch_norm", "statistics kept, weight and bias"}, kMap, 1, [r, w](const Tensor& x) {
    const RunningStatistics kept = r.of(x);
    const RunningStatistics scale = w.of(x);
    return batch_norm(x, kept, scale.mean, scale.var, {.training = true});
  });
  s.add({"batch_norm", "running statistics, bare"}, kMap, 0, [=](const Tensor& x) {
    return batch_norm(x, {c, c});
  });
  s.add({"batch_norm", "rows, training"}, {8, 4}, 1,
        [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {.training = true}); });
  for (const auto& [how, a] : kActivations) {
    s.add({"batch_norm", std::string("training, ") + how}, kMap, 1, [a = a](const Tensor& x) {
      return batch_norm(x, {}, {}, {}, {.training = true, .activation = a});
    });
    s.add({"batch_norm", std::string("running statistics, ") + how}, kMap, 0, [=, a = a](const Tensor& x) {
      return batch_norm(x, {c, c}, c, c, {.activation = a});
    });
  }
}

void add_pools(Subjects& s) {
  const auto avg = [&](const char* how, const Dims& kernel, const AvgPoolOptions& o) {
    s.add({"avg_pool2d", how}, kMap, 0, [=](const Tensor& x) { return avg_pool2d(x, kernel, o); });
  };
  avg("padding", {3}, {.stride = {1}, .padding = {1}});
  avg("padding not counted", {3}, {.stride = {1}, .padding = {1}, .count_include_pad = false});
  avg("ceil", {3}, {.stride = {2}, .ceil_mode = true});
  avg("divisor", {2}, {.divisor_override = 3});
  const auto max = [&](const char* how, const Dims& kernel, const MaxPoolOptions& o) {
    s.add({"max_pool2d", how}, kMap, 0, [=](const Tensor& x) { return max_pool2d(x, kernel, o); });
  };
  max("padding", {3}, {.stride = {1}, .padding = {1}});
  max("dilated", {2}, {.stride = {1}, .dilation = {2}});
  max("ceil", {3}, {.stride = {2}, .ceil_mode = true});
  s.add({"max_pool2d", "with indices"}, kMap, 0,
        [](const Tensor& x) { return max_pool2d_with_indices(x, {2}).values; });
  s.add({"avg_pool1d", "padding"}, kLine, 0,
        [](const Tensor& x) { return avg_pool1d(x, {3}, {.stride = {1}, .padding = {1}}); });
  s.add({"max_pool1d", "padding"}, kLine, 0,
        [](const Tensor& x) { return max_pool1d(x, {3}, {.stride = {1}, .padding = {1}}); });
  s.add({"avg_pool3d", "padding"}, kVolume, 0,
        [](const Tensor& x) { return avg_pool3d(x, {3}, {.stride = {1}, .padding = {1}}); });
  s.add({"max_pool3d", "padding"}, kVolume, 0,
        [](const Tensor& x) { return max_pool3d(x, {3}, {.stride = {1}, .padding = {1}}); });
  s.add({"adaptive_avg_pool2d", "one"}, kMap, 0, [](const Tensor& x) { return adaptive_avg_pool2d(x, {1}); });
  s.add({"adaptive_avg_pool2d", "uneven"}, kMap, 0, [](const Tensor& x) {
    return adaptive_avg_pool2d(x, {3, 1});
  });
}

void add_resizing(Subjects& s) {
  const auto add = [&](const char* how, const Dims& local, const InterpolateOptions& o) {
    s.add({"interpolate", how}, local, 0, [o](const Tensor& x) { return interpolate(x, o); });
  };
  using enum InterpolateMode;
  add("nearest-exact", kMap, {.size = {8, 8}, .mode = NearestExact});
  add("bilinear, corners", kMap, {.size = {8, 8}, .mode = Bilinear, .align_corners = true});
  add("bilinear, smaller", kMap, {.size = {3, 3}, .mode = Bilinear});
  add("bicubic", kMap, {.size = {8, 8}, .mode = Bicubic});
  add("area", kMap, {.size = {2, 2}, .mode = Area});
  add("linear", kLine, {.size = {8}, .mode = Linear});
  add("trilinear", kVolume, {.size = {4, 4, 4}, .mode = Trilinear});
  add("by a factor", kMap, {.scale_factor = {2.0}, .mode = Bilinear});
  add("by a factor, recomputed", kMap,
      {.scale_factor = {1.6}, .mode = Bilinear, .recompute_scale_factor = true});
}

}  // namespace

void add_map_options(Subjects& s) {
  add_products(s);
  add_sums_of_products(s);
  add_attention(s);
  add_convolutions(s);
  add_transposed(s);
  add_group_norms(s);
  add_running_norms(s);
  add_pools(s);
  add_resizing(s);
}

}  // namespace tessera::bench
