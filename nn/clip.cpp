#include "nn/clip.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "nn/optimizer_kernels.h"
#include "runtime/copy.h"
#include "runtime/error.h"

namespace tessera::optim {
namespace {

// Gradients on one device that are cut over the same axes of the same mesh: every element is held once per
// group of ranks.
struct Part {
  SpecPtr spec;  // null: whole on every rank
  Device device;
  std::vector<Array> grads;
};

Array squares_of(const Part& part) {
  // Kernels want dense f32 or f64.
  std::vector<Array> dense;
  for (const Array& g : part.grads) {
    Array a = is_half(g.dtype()) ? g.to(DType::F32) : g;
    dense.push_back(a.is_dense() ? a : a.contiguous());
  }
  Array sum = Array::empty({1}, DType::F64, part.device);
  kernels::sum_of_squares(part.device, dense, sum);
  return sum;
}

bool same_ranks(const SpecPtr& a, const SpecPtr& b) {
  if (!a || !b) return !a && !b;
  return a->mesh_core() == b->mesh_core() && a->shard_mask() == b->shard_mask();
}

std::vector<Part> parts_of(const Tensors& params) {
  std::vector<Part> parts;
  for (const Tensor& p : params) {
    const Tensor g = p.grad();
    if (!g.defined()) continue;
    const SpecPtr spec = g.is_sharded() && g.spec()->is_cut() ? g.spec() : nullptr;
    auto it = std::find_if(parts.begin(), parts.end(),
                           [&](const Part& x) { return x.device == g.device() && same_ranks(x.spec, spec); });
    if (it == parts.end()) it = parts.insert(parts.end(), Part{spec, g.device(), {}});
    it->grads.push_back(g.local());
  }
  return parts;
}

// Arrays that may be scaled where they lie. Two gradients may be one array (both terms of a sum get the
// same), or an expanded one: these are replaced by copies of their own first.
std::vector<Array> own_arrays(const Tensors& params) {
  struct Held {
    Tensor param;
    Array array;
  };
  std::vector<Held> held;
  for (const Tensor& p : params)
    if (const Tensor g = p.grad(); g.defined()) held.push_back({p, g.local()});
  std::stable_sort(held.begin(), held.end(),
                   [](const Held& a, const Held& b) { return a.array.raw() < b.array.raw(); });
  std::vector<Array> arrays;
  const char* end = nullptr;  // of the memory that is spoken for
  for (Held& h : held) {
    const char* begin = static_cast<const char*>(h.array.raw());
    if (!h.array.is_dense() || is_half(h.array.dtype()) || (end != nullptr && begin < end)) {
      const Array copy = h.array.clone();
      h.param.set_grad(h.param.grad().is_sharded() ? Tensor(copy, h.param.grad().spec()) : Tensor(copy));
      h.array = copy;
    } else {
      end = begin + h.array.nbytes();
    }
    arrays.push_back(h.array);
  }
  return arrays;
}

void scale(const std::vector<Array>& arrays, const Array& factor) {
  std::array<std::vector<Array>, kDeviceCount> kernel;
  for (const Array& a : arrays) {
    if (is_half(a.dtype())) {
      const Array wide = a.to(DType::F32);
      kernels::scale_all(a.device(), std::span(&wide, 1), factor.to(a.device()));
      a.copy_(wide);
    } else {
      kernel[static_cast<std::size_t>(a.device())].push_back(a);
    }
  }
  for (const std::vector<Array>& list : kernel) {
    if (!list.empty()) kernels::scale_all(list.front().device(), list, factor.to(list.front().device()));
    for (const Array& a : list) a.bump_version();
  }
}

// F64, one element, where the first gradient is.
Array all_squares(const Tensors& params) {
  const CommScope scope("grad_norm");
  Array total;
  for (const Part& part : parts_of(params)) {
    const Array sum = squares_of(part);
    if (part.spec) part.spec->mesh().group(part.spec->shard_mask()).all_reduce(sum, ReduceOp::Sum).wait();
    if (total.defined()) {
      add_into(total, sum.to(total.device()));
    } else {
      total = sum;
    }
  }
  return total.defined() ? total : Array::zeros({1}, DType::F64);
}

}  // namespace

double grad_norm(const Tensors& params) { return std::sqrt(all_squares(params).at(0)); }

ClipFactor clip_factor(const char* op, const Tensors& params, double max_norm) {
  TS_CHECK(max_norm > 0, op, "max_norm is {}, it must be positive", max_norm);
  const NoGrad guard;
  const Array norm = all_squares(params);
  const Array factor = Array::empty({1}, DType::F64, norm.device());
  kernels::clip_factor(norm.device(), norm, factor, max_norm);
  return {GradNorm(norm), factor};
}

GradNorm clip_grad_norm_(const Tensors& params, double max_norm) {
  const NoGrad guard;
  const ClipFactor clip = clip_factor("clip_grad_norm_", params, max_norm);
  // Whether anything is to be done, only the host's own memory can tell at once.
  const bool nothing = clip.factor.device() == Device::Cpu && clip.factor.at(0) == 1.0;
  if (!nothing) scale(own_arrays(params), clip.factor);
  return clip.norm;
}

}  // namespace tessera::optim
