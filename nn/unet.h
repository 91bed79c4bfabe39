// UNet: down a ladder of ever coarser maps and up again, each level beside what it was on the way down
// (Ronneberger et al. 2015).
//
//   nn::UNet model({.in_channels = 4, .out_channels = 1, .widths = {16, 32, 64}, .periodic = {1}});
//
// On every level two convolutions of kernel 3, each followed by a group norm with SiLU in one pass. A
// convolution of kernel 2 and stride 2 leads down, a transposed one up, so that a cell of a coarse map lies
// over exactly 2 x 2 cells of the finer one and nothing shifts. On the way up, a level sees what came from
// below and what it gave on the way down, as channels side by side.
//
// A map may be cut along any of its dims. What travels is one row of cells around a rank's part for each
// convolution of kernel 3, the sums of the group norms, and nothing else where every cut is at a multiple of
// 2^(levels - 1) cells.
#pragma once
#include "nn/container.h"
#include "nn/conv.h"
#include "nn/norm.h"

namespace tessera::nn {

struct UNetOptions {
  int spatial_dims = 2;
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;
  std::vector<std::int64_t> widths{16, 32, 64};  // channels of each level, the finest first
  std::int64_t groups = 4;                       // of the norms; divides every width
  Dims periodic{};                               // spatial dims that wrap; the others are padded with zeros
  bool zero_head = false;                        // the model starts by giving zeros
  std::uint64_t seed = 0;                        // of the initial values
  DType dtype = DType::F32;
};

// Two convolutions of kernel 3 with norm and activation: [N, in, spatial…] -> [N, width, spatial…].
class UNetLevel : public Module {
 public:
  UNetLevel(std::int64_t in, std::int64_t width, const UNetOptions& options);
  Tensor forward(const Tensor& x) override;

  Conv conv1;
  GroupNorm norm1;
  Conv conv2;
  GroupNorm norm2;
};

class UNet : public Module {
 public:
  explicit UNet(const UNetOptions& options);
  // x [N, in_channels, spatial…], sizes multiples of 2^(levels - 1) -> [N, out_channels, spatial…].
  Tensor forward(const Tensor& x) override;
  void reset_parameters(Generator& generator) override;

  const UNetOptions& options() const { return options_; }

  ModuleList<UNetLevel> down;       // the last one is the coarsest level
  ModuleList<Conv> shrink;          // from level i to i + 1
  ModuleList<ConvTranspose> widen;  // from level i + 1 to i
  ModuleList<UNetLevel> up;         // level i
  Conv head;

 private:
  void check_input(const Tensor& x) const;
  UNetOptions options_;
};

}  // namespace tessera::nn
