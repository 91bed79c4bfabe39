// How a rank's convolution is worked out without a second copy of its input. Internal to ops/conv.
//
// Most outputs read nothing but the rank's own input. These, the inside, are computed straight from it while
// the halo travels; what others hold, and what padding takes from the map, counts as zero. Outputs that read
// some of that are the edges, at most two of each spatial dim. They are computed from small buffers that hold
// what their windows read: own elements, own elements wrapped or mirrored, and what has arrived.
//
// Where one dim alone has edges and nothing but a linear sum is wanted, an edge adds what the inside has not
// `seen`: the inside makes all outputs, as a convolution of the rank's own map would, and an edge is the
// convolution of what arrived alone, zeros around it (`added`). No product is made that one rank would not
// make, and nothing is copied.
//
// Else edges are made from all that their windows read. Rows of the first spatial dim lie in one piece: its
// edges are left out of the inside (`apart`) unless samples would have gaps between them. Other dims' edges
// would leave gaps, so the inside makes these outputs too, which are then overwritten. In gradients the
// inside gives its share, and an edge what it has not seen: everything of one that is apart, of others the
// halo.
#pragma once
#include <vector>

#include "mesh/exchange_plan.h"

namespace tessera {

// A box of an edge's buffer, and where it is taken from.
struct FrameCopy {
  int piece = -1;     // of what arrives; -1: the rank's own input
  bool seen = false;  // the inside reads it as well, for the edge's outputs too
  Dims from;
  Dims to;
  Dims extent;
};
struct FrameEdge {
  int dim = 0;  // spatial
  bool apart = false;
  std::vector<Dims> at;  // where the outputs of each side begin; in the buffer one side's samples follow the
                         // other's
  Dims outputs;          // of one side
  Dims sizes;            // of the buffer
  Dims pad_lo, pad_hi;   // zeros around the buffer; spatial, of dims that the buffer would pad
  Interval taps;         // of the kernel along `dim`: the others meet zeros only
  std::vector<FrameCopy> copies;  // the rest is zero
  bool one_piece = false;         // the buffer is a box of one piece of what arrives, as that lies,
  bool alone = false;             // which no other edge reads any of
};
// A piece of what arrives, in the order in which ExchangePlan lists them.
struct FramePiece {
  std::int64_t at = 0;  // first element
  Dims extent;
};
struct ConvFrame {
  bool used = false;   // else all at once, from one buffer for everything
  bool added = false;  // edges are added to the inside
  // The inside: boxes of the rank's input and output, and zeros around the former.
  Dims from, extent;
  Dims out_from, out_extent;
  Dims pad_lo, pad_hi;  // spatial; of dims that the buffer would pad
  std::vector<FramePiece> pieces;
  std::vector<FrameEdge> edges;
};

// What is to be planned: one entry per spatial dim. Positions are global; a whole dim is {0, n}.
struct FrameDim {
  Window window;
  std::int64_t n = 0;
  bool in_buffer = false;  // cut, or padded from the map; else the kernel pads
  Interval own;            // inputs of this rank
  Interval out;            // and outputs
};
struct FrameProblem {
  std::vector<FrameDim> dims;
  Dims x_sizes, y_sizes;               // local
  const ExchangePlan* halo = nullptr;  // input -> cut dims with their halo
  const ExchangePlan* wrap = nullptr;  // then: whole dims with what their padding takes from them
};
// `added`: edges that are added; not used where they would not be small.
ConvFrame plan_frame(const FrameProblem& problem, bool added);

}  // namespace tessera
