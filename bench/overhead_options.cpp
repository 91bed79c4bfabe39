#include <limits>

#include "bench/subject_list.h"
#include "ops/ops.h"

namespace tessera::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Along the dim that lies outermost in memory, the other one cut.
template <class F>
void add_columns(Subjects& s, const Subjects::Name& name, F f) {
  s.add(name, kRows, 1, f);
}

void add_dtypes(Subjects& s) {
  const auto of = [&](DType dtype, const char* op, auto f) {
    s.add_rows({op, std::string(name_of(dtype))}, f).dtype = dtype;
  };
  for (const DType half : {DType::BF16, DType::F16}) {
    of(half, "exp", [](const Tensor& x) { return exp(x); });
    of(half, "add", [](const Tensor& x) { return x + x; });
    of(half, "sum", [](const Tensor& x) { return sum(x, {1}); });
    of(half, "softmax", [](const Tensor& x) { return softmax(x, 1); });
    of(half, "layer_norm", [w = s.filled({8}, half)](const Tensor& x) { return layer_norm(x, {8}, w, w); });
    of(half, "linear", [w = s.filled({8, 8}, half)](const Tensor& x) { return linear(x, w); });
  }
  of(DType::F64, "exp", [](const Tensor& x) { return exp(x); });
  of(DType::F64, "add", [](const Tensor& x) { return x + x; });
  of(DType::F64, "sum", [](const Tensor& x) { return sum(x, {1}); });
  of(DType::F64, "linear", [w = s.filled({8, 8}, DType::F64)](const Tensor& x) { return linear(x, w); });
  of(DType::I64, "add", [](const Tensor& x) { return x + x; });
  of(DType::I64, "mul", [](const Tensor& x) { return x * x; });
  of(DType::I64, "sum", [](const Tensor& x) { return sum(x, {1}); });
  of(DType::I64, "amax", [](const Tensor& x) { return amax(x, {1}); });
  of(DType::I64, "prod", [](const Tensor& x) { return prod(x, {1}); });
  of(DType::I64, "cumsum", [](const Tensor& x) { return cumsum(x, 1); });
  of(DType::I64, "sort", [](const Tensor& x) { return sort(x, 1).first; });
  of(DType::I64, "argmax", [](const Tensor& x) { return argmax(x, 1); });
  of(DType::I64, "eq", [](const Tensor& x) { return eq(x, x); });
  s.add_rows({"to", "f32 of i64"}, [](const Tensor& x) { return to(x, DType::F32); }).dtype = DType::I64;
  of(DType::Bool, "any", [](const Tensor& x) { return any(x, {1}); });
}

void add_pointwise(Subjects& s) {
  s.add_rows({"add", "a number"}, [](const Tensor& x) { return x + 1.0; });
  s.add_rows({"mul", "a number"}, [](const Tensor& x) { return x * 2.0; });
  s.add_rows({"add", "alpha"}, [](const Tensor& x) { return add(x, x, 2.0); });
  s.add_rows({"add", "of two types"}, [b = s.filled({8}, DType::F64)](const Tensor& x) { return x + b; });
  s.add_rows({"add", "integers"}, [b = s.numbers({8}, 5)](const Tensor& x) { return x + b; });
  const Tensor row = s.filled({8});
  const Tensor one = s.filled({});
  s.add_rows({"sub", "broadcast"}, [=](const Tensor& x) { return x - row; });
  s.add_rows({"mul", "broadcast"}, [=](const Tensor& x) { return x * row; });
  s.add_rows({"mul", "one element"}, [=](const Tensor& x) { return x * one; });
  s.add_rows({"div", "broadcast"}, [=](const Tensor& x) { return x / row; });
  s.add_rows({"maximum", "broadcast"}, [=](const Tensor& x) { return maximum(x, row); });
  s.add_rows({"gt", "broadcast"}, [=](const Tensor& x) { return gt(x, row); });
  s.add_rows({"where", "one element"}, [m = s.mask({8}), one](const Tensor& x) { return where(m, x, one); });
  for (const auto& [how, exponent] : std::initializer_list<std::pair<const char*, double>>{
           {"0", 0.0}, {"1", 1.0}, {"2", 2.0}, {"3", 3.0}, {"0.5", 0.5}, {"-1", -1.0}})
    s.add_rows({"pow_scalar", how}, [e = exponent](const Tensor& x) { return pow(x, e); });
  s.add_rows({"pow", "a number's"}, [](const Tensor& x) { return pow(2.5, x); });
  s.add_rows({"pow", "broadcast"}, [=](const Tensor& x) { return pow(x, row); });
  s.add_rows({"clamp", "two tensors"}, [=](const Tensor& x) { return clamp(x, row, row); });
  s.add_rows({"clamp", "a tensor"}, [=](const Tensor& x) { return clamp(x, row); });
  s.add_rows({"clamp", "open"}, [](const Tensor& x) { return clamp(x, 0.5, kInfinity); });
  s.add_rows({"to", "as it is"}, [](const Tensor& x) { return to(x, DType::F32); });
  s.add_rows({"to", "bf16"}, [](const Tensor& x) { return to(x, DType::BF16); });
  s.add_rows({"to", "i64"}, [](const Tensor& x) { return to(x, DType::I64); });
  const auto turned = [&](const char* op, auto f) {
    s.add_rows({op, "transposed"}, [f](const Tensor& x) { return f(transpose(x, 0, 1)); }).parts = 2;
  };
  turned("exp", [](const Tensor& x) { return exp(x); });
  turned("add", [](const Tensor& x) { return x + x; });
  turned("sum", [](const Tensor& x) { return sum(x, {0}); });
  turned("softmax", [](const Tensor& x) { return softmax(x, 0); });
  s.add_rows({"dropout", "nothing dropped"},
             [g = std::make_shared<Generator>(7)](const Tensor& x) { return dropout(x, 0.0, *g); });
}

// A cast and the operation.
void add_casts(Subjects& s) {
  const auto cast = [&](const char* op, auto f) { s.add_rows({op, "dtype"}, f).parts = 2; };
  cast("sum", [](const Tensor& x) { return sum(x, {1}, false, DType::F64); });
  cast("prod", [](const Tensor& x) { return prod(x, {1}, false, DType::F64); });
  cast("mean", [](const Tensor& x) { return mean(x, {1}, false, DType::F64); });
  cast("cumsum", [](const Tensor& x) { return cumsum(x, 1, DType::F64); });
  cast("softmax", [](const Tensor& x) { return softmax(x, 1, DType::F64); });
  cast("log_softmax", [](const Tensor& x) { return log_softmax(x, 1, DType::F64); });
}

void add_reductions(Subjects& s) {
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, Tensor (*)(const Tensor&, const Dims&, bool)>>{
           {"sum", [](const Tensor&x, const Dims&d, bool k) { return sum(x, d, k); }},
           {"amax", amax},
           {"amin", amin},
           {"prod", [](const Tensor&x, const Dims&d, bool k) { return prod(x, d, k); }},
           {"any", any},
           {"all", all}}) {
    s.add_rows({name, "all dims"}, [f = f](const Tensor& x) { return f(x, {}, false); });
    s.add_rows({name, "kept dims"}, [f = f](const Tensor& x) { return f(x, {1}, true); });
    add_columns(s, {name, "dim 0"}, [f = f](const Tensor& x) { return f(x, {0}, false); });
  }
  s.add_rows({"mean", "all dims"}, [](const Tensor& x) { return mean(x); }).averages = true;
  add_columns(s, {"mean", "dim 0"}, [](const Tensor& x) { return mean(x, {0}); });
  add_columns(s, {"logsumexp", "dim 0"}, [](const Tensor& x) { return logsumexp(x, {0}); });
  s.add_asking({"logsumexp", "all dims"}, kRows, [](const Tensor& x) { return logsumexp(x); });
  s.add_rows({"var", "correction 0"}, [](const Tensor& x) { return var(x, {1}, 0.0); });
  s.add_rows({"var", "and mean"}, [](const Tensor& x) { return var_mean(x, {1}).first; });
  add_columns(s, {"var", "dim 0"}, [](const Tensor& x) { return var(x, {0}); });
  s.add_asking({"var", "all dims"}, kRows, [](const Tensor& x) { return var(x); });
  add_columns(s, {"std", "dim 0"}, [](const Tensor& x) { return std(x, {0}); });
  s.add_asking({"std", "all dims"}, kRows, [](const Tensor& x) { return std(x); });
  for (const auto& [how, p] : std::initializer_list<std::pair<const char*, double>>{
           {"p 0", 0.0}, {"p 1", 1.0}, {"p 3", 3.0}, {"infinite p", kInfinity}, {"p -infinity", -kInfinity}})
    s.add_rows({"norm", how}, [p = p](const Tensor& x) { return norm(x, p, {1}); });
  s.add_asking({"norm", "all dims"}, kRows, [](const Tensor& x) { return norm(x); });
  s.add_asking({"count_nonzero", "all dims"}, kRows, [](const Tensor& x) { return count_nonzero(x); });
  s.add_asking({"argmax", "all dims"}, kRows, [](const Tensor& x) { return argmax(x); });
  add_columns(s, {"argmax", "dim 0"}, [](const Tensor& x) { return argmax(x, 0, true); });
  add_columns(s, {"cumsum", "dim 0"}, [](const Tensor& x) { return cumsum(x, 0); });
  add_columns(s, {"softmax", "dim 0"}, [](const Tensor& x) { return softmax(x, 0); });
  add_columns(s, {"log_softmax", "dim 0"}, [](const Tensor& x) { return log_softmax(x, 0); });
  add_casts(s);
}

void add_row_norms(Subjects& s) {
  const Tensor w = s.filled({8});
  s.add_rows({"layer_norm", "bare"}, [](const Tensor& x) { return layer_norm(x, {8}); });
  s.add_rows({"layer_norm", "weight alone"}, [=](const Tensor& x) { return layer_norm(x, {8}, w); });
  s.add({"layer_norm", "over two dims"}, {2, 2, 8}, 0, [w2 = s.filled({2, 8})](const Tensor& x) {
    return layer_norm(x, {2, 8}, w2, w2);
  });
  s.add_rows({"add_layer_norm", "bare"}, [](const Tensor& x) { return add_layer_norm(x, x, {8}).norm; });
  s.add_rows({"rms_norm", "bare"}, [](const Tensor& x) { return rms_norm(x, {8}); });
  s.add_rows({"rms_norm", "eps"}, [=](const Tensor& x) { return rms_norm(x, {8}, w, 1e-5); });
}

void add_pair_losses(Subjects& s) {
  constexpr Reduction kNone = Reduction::None;
  constexpr Reduction kSum = Reduction::Sum;
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&, Reduction)>>{
           {"mse_loss", [](const Tensor&x, const Tensor&y, Reduction r) { return mse_loss(x, y, r); }},
           {"l1_loss", [](const Tensor&x, const Tensor&y, Reduction r) { return l1_loss(x, y, r); }},
           {"smooth_l1_loss",
            [](const Tensor&x, const Tensor&y, Reduction r) { return smooth_l1_loss(x, y, r, 0.3); }},
           {"huber_loss",
            [](const Tensor&x, const Tensor&y, Reduction r) { return huber_loss(x, y, r, 0.3); }},
           {"binary_cross_entropy",
            [](const Tensor&x, const Tensor&y, Reduction r) { return binary_cross_entropy(x, y, {}, r); }},
           {"binary_cross_entropy_with_logits",
            [](const Tensor&x, const Tensor&y,
               Reduction r) { return binary_cross_entropy_with_logits(x, y, {}, r); }},
           {"kl_div", [](const Tensor&x, const Tensor&y, Reduction r) { return kl_div(x, y, r, true); }}}) {
    s.add_rows({name, "mean"}, [f = f](const Tensor& x) { return f(x, x, Reduction::Mean); }).averages = true;
    s.add_rows({name, "none"}, [f = f](const Tensor& x) { return f(x, x, kNone); });
  }
  const Tensor row = s.filled({8});
  s.add_rows({"mse_loss", "broadcast"}, [=](const Tensor& x) { return mse_loss(x, row, kSum); });
  s.add_rows({"kl_div", "batchmean"}, [](const Tensor& x) {
     return kl_div(x, x, Reduction::BatchMean);
   }).averages = true;
  s.add_rows({"binary_cross_entropy", "weight"},
             [=](const Tensor& x) { return binary_cross_entropy(x, x, row, kSum); });
  s.add_rows({"binary_cross_entropy_with_logits", "both weights"},
             [=](const Tensor& x) { return binary_cross_entropy_with_logits(x, x, row, kSum, row); });
}

void add_class_losses(Subjects& s) {
  const Tensor w = s.filled({8});
  const auto add = [&](const char* op, const char* how, const Tensor& weight, const ClassLossOptions& o) {
    const auto f = std::string_view(op) == "cross_entropy" ? &cross_entropy : &nll_loss;
    s.add_numbered({op, how}, {4}, [=](const Tensor& x, const Tensor& t) { return f(x, t, weight, o); });
  };
  for (const char* op : {"cross_entropy", "nll_loss"}) {
    add(op, "none", {}, {.reduction = Reduction::None});
    add(op, "weight", w, {.reduction = Reduction::Sum});
    add(op, "ignored", {}, {.reduction = Reduction::Sum, .ignore_index = 1});
  }
  add("cross_entropy", "smoothing", {}, {.reduction = Reduction::Sum, .label_smoothing = 0.1});
  s.add_rows({"cross_entropy", "probabilities"},
             [](const Tensor& x) { return cross_entropy(x, x, {}, {.reduction = Reduction::Sum}); });
  s.add_asking({"cross_entropy", "mean"}, kRows,
               [t = s.numbers({4}, 8)](const Tensor& x) { return cross_entropy(x, t); });
  s.add_asking({"nll_loss", "mean"}, kRows,
               [t = s.numbers({4}, 8)](const Tensor& x) { return nll_loss(x, t); });
  s.add_asking({"cross_entropy", "positions"}, {2, 4, 4},
               [t = s.numbers({2, 4}, 4)](const Tensor& x) { return cross_entropy(x, t); });
}

void add_shapes(Subjects& s) {
  s.add_rows({"reshape", "as it is"}, [](const Tensor& x) { return reshape(x, {x.size(0), 8}); });
  s.add({"reshape", "split"}, kRows, 0, [](const Tensor& x) { return reshape(x, {-1, 2, 4}); });
  s.add_rows({"reshape", "transposed"}, [](const Tensor& x) {
     return reshape(transpose(x, 0, 1), {2, 4, -1});
   }).parts = 2;
  s.add_rows({"flatten", "all dims"}, [](const Tensor& x) { return flatten(x); });
  s.add_rows({"unflatten", "-1"}, [](const Tensor& x) { return unflatten(x, 1, {2, -1}); });
  s.add({"permute", "three dims"}, {4, 2, 4}, 0, [](const Tensor& x) { return permute(x, {2, 0, 1}); });
  s.add({"movedim", "two dims"}, {4, 2, 4}, 0, [](const Tensor& x) { return movedim(x, {0, 1}, {1, 2}); });
  s.add({"squeeze", "all dims"}, {4, 1, 8}, 0, [](const Tensor& x) { return squeeze(x); });
  s.add({"squeeze", "two dims"}, {4, 1, 8, 1}, 0, [](const Tensor& x) { return squeeze(x, {1, 3}); });
  s.add_rows({"expand", "a new dim"}, [](const Tensor& x) { return expand(x, {2, -1, -1}); });
  s.add_rows({"slice", "step 2"}, [](const Tensor& x) { return slice(x, 1, 1, 8, 2); });
  add_columns(s, {"slice", "dim 0"}, [](const Tensor& x) { return slice(x, 0, 1, 3); });
  s.add_rows({"slice_scatter", "step 2"}, [](const Tensor& x) {
     return slice_scatter(x, slice(x, 1, 0, 4), 1, 0, 8, 2);
   }).parts = 2;
  add_columns(s, {"split", "in two, dim 0"}, [](const Tensor& x) { return split(x, {1, 3}, 0)[0]; });
  s.add_rows({"diagonal", "offset"}, [](const Tensor& x) {
     return diagonal(unsqueeze(x, 0), 1, 0, 2);
   }).parts = 2;
  add_columns(s, {"cat", "dim 0"}, [](const Tensor& x) { return cat({x, x}, 0); });
  s.add_rows({"cat", "of four"}, [](const Tensor& x) { return cat({x, x, x, x}, 1); });
  add_columns(s, {"stack", "dim 0"}, [](const Tensor& x) { return stack({x, x}, 0); });
  s.add({"flip", "two dims"}, {4, 2, 4}, 0, [](const Tensor& x) { return flip(x, {1, 2}); });
  s.add({"roll", "two dims"}, {4, 2, 4}, 0, [](const Tensor& x) { return roll(x, {1, -1}, {1, 2}); });
  s.add_rows({"repeat", "a new dim"}, [](const Tensor& x) { return repeat(x, {2, 1, 1}); });
  add_columns(s, {"repeat_interleave", "dim 0"}, [](const Tensor& x) { return repeat_interleave(x, 2, 0); });
  s.add_rows({"repeat_interleave", "all dims"}, [](const Tensor& x) { return repeat_interleave(x, 2); });
  s.add_rows({"pad", "a value"}, [](const Tensor& x) { return pad(x, {1, 1}, PadMode::Constant, 0.5); });
  s.add_rows({"pad", "cropped"}, [](const Tensor& x) { return pad(x, {-1, 2}); });
  for (const auto& [name, mode] : std::initializer_list<std::pair<const char*, PadMode>>{
           {"circular", PadMode::Circular}, {"reflect", PadMode::Reflect}, {"replicate", PadMode::Replicate}})
    s.add({"pad", name}, kMap, 0, [mode = mode](const Tensor& x) { return pad(x, {1, 1, 1, 1}, mode); });
}

void add_indexing(Subjects& s) {
  const auto rows = s.numbers({3}, 4);
  add_columns(s, {"index_select", "dim 0"}, [=](const Tensor& x) { return index_select(x, 0, rows); });
  add_columns(s, {"embedding", "padding_idx"},
              [=](const Tensor& x) { return embedding(x, rows, {.padding_idx = 1}); });
  add_columns(s, {"embedding", "scale_grad_by_freq"},
              [=](const Tensor& x) { return embedding(x, rows, {.scale_grad_by_freq = true}); });
  s.add_asking({"embedding", "max_norm"}, kRows,
               [=](const Tensor& x) { return embedding(x, rows, {.max_norm = 100.0}); });
  add_columns(s, {"embedding", "two dims"},
              [words = s.numbers({2, 2}, 4)](const Tensor& x) { return embedding(x, words); });
  s.add_asking({"take_along_dim", "all elements"}, kRows,
               [=](const Tensor& x) { return take_along_dim(x, rows); });
  s.add_numbered({"take_along_dim", "broadcast"}, {4, 1},
                 [](const Tensor& x, const Tensor& n) { return take_along_dim(x, n, 1); });
  s.add_rows({"masked_fill", "broadcast"},
             [m = s.mask({1, 1})](const Tensor& x) { return masked_fill(x, m, 0.5); });
  s.add_rows({"sort", "descending"}, [](const Tensor& x) { return sort(x, 1, true).first; });
  add_columns(s, {"sort", "dim 0"}, [](const Tensor& x) { return sort(x, 0).first; });
  s.add_rows({"argsort", "descending"}, [](const Tensor& x) { return argsort(x, 1, true); });
  s.add_rows({"topk", "smallest"}, [](const Tensor& x) { return topk(x, 2, {.largest = false}).first; });
  add_columns(s, {"topk", "dim 0"}, [](const Tensor& x) { return topk(x, 2, {.dim = 0}).first; });
  add_columns(s, {"median", "dim 0"}, [](const Tensor& x) { return median(x, 0, true).first; });
  s.add_asking({"median", "all elements"}, kRows, [](const Tensor& x) { return median(x); });
}

}  // namespace

void add_row_options(Subjects& s) {
  add_dtypes(s);
  add_pointwise(s);
  add_reductions(s);
  add_row_norms(s);
  add_pair_losses(s);
  add_class_losses(s);
  add_shapes(s);
  add_indexing(s);
}

}  // namespace tessera::bench
