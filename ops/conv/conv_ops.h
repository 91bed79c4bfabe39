// A convolution and its two gradients as operations on any placement: each is differentiable by the others.
// Internal to ops/conv.
#pragma once
#include "ops/conv/conv_kept.h"

namespace tessera {

// What a backward op needs to know of the forward call it belongs to.
struct ConvLike {
  ConvSetup setup;
  Dims x_sizes, w_sizes, y_sizes;
  SpecPtr x, w;  // null: plain

  Strategy forward() const { return conv_strategy({x, w, nullptr}, y_sizes, setup); }
  std::size_t hash() const {
    return Hash()
        .add(static_cast<std::int64_t>(setup.hash()))
        .add(x_sizes)
        .add(w_sizes)
        .add(reinterpret_cast<std::int64_t>(x.get()))
        .add(reinterpret_cast<std::int64_t>(w.get()));
  }
};

// What a call's plan depends on beside its inputs' specs; plain calls have no plan to look for.
template <class Setup>
std::size_t plan_key(std::span<const Tensor> inputs, const Setup& setup) {
  const bool sharded = std::any_of(inputs.begin(), inputs.end(),
                                   [](const Tensor& t) { return t.defined() && t.is_sharded(); });
  return sharded ? setup.hash() : 0;
}

// The dims that a bias's gradient is the sum over.
inline Dims all_but_channels(int dims) {
  Dims others{0};
  for (int d = 2; d < dims; ++d) others.push_back(d);
  return others;
}

// `buffer` receives the halo'd input that the call made, or of the halo what arrived.
Tensor conv_call(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvSetup& setup,
                 Array* buffer = nullptr);
// Followed by an activation, of a result that is no sum that is owed.
Tensor conv_activated(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvKnown& known,
                      Activation activation);
Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const ConvLike& like);
// `buffer`: what the forward call made, if it is still at hand.
Tensor conv_backward_weight(const Tensor& dy, const Tensor& x, const ConvLike& like, const Array& buffer);

// The parts of conv_backward_data, which is also what a transposed convolution does. Inputs dy and w, and of
// a transposed convolution its bias, if all its channels are here. `geometry`: of plain calls.
Strategy backward_data_strategy(const SpecPtr& dy, const ConvLike& like);
void backward_data_local(LocalCall& l, const ConvLike& like, const cpu::ConvGeometry& geometry);

}  // namespace tessera
