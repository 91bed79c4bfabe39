// Halo: what the windows of an operation read beyond its rank's own rows. For operations of one's own whose
// rule has window letters ("h~"); see docs/writing-an-op.md and examples/stencil.
//
// `halo_of` works out, from the specs alone, which input positions the windows of every rank's outputs read;
// `gather` brings them together in one buffer (one exchange, none where nothing is cut), `scatter_add` is its
// adjoint: it returns a gradient of the buffer to the owners, adding there in rank order. In the buffer,
// output o of this rank reads positions (o − first output)·stride + dilation·{0 … kernel − 1}: no padding is
// left, what lies outside the domain is filled in, and periodic dims are wrapped. Buffers and what comes back
// are row-major, however the arrays given lie.
#pragma once
#include <memory>

#include "ops/op.h"

namespace tessera {

struct BoxMap;

class Halo {
 public:
  // Collective over the mesh of the specs where a windowed dim is cut. `outside` fills what no rank holds.
  Array gather(const Array& x, double outside = 0.0) const;
  Array scatter_add(const Array& buffer) const;

 private:
  friend std::shared_ptr<const Halo> halo_of(const SpecPtr& x, const SpecPtr& y, const Dims& x_sizes,
                                             const std::vector<Window>& windows);
  std::shared_ptr<const BoxMap> map_;
};

// `windows`: one per dim of x; a default Window() reads what it writes (no halo). x and y: specs of input and
// output as `resolve` gives them (both null: plain tensors). Meant to be kept in Strategy::extra.
std::shared_ptr<const Halo> halo_of(const SpecPtr& x, const SpecPtr& y, const Dims& x_sizes,
                                    const std::vector<Window>& windows);

}  // namespace tessera
