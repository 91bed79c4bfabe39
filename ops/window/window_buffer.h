// The buffer that a rank's windows read: its own elements and what it needs of others. Internal to ops/.
#pragma once
#include "ops/shape/layout_ops.h"

namespace tessera {

class WindowBuffer {
 public:
  WindowBuffer() = default;  // the local input is the buffer
  // `order`: of the dims in messages (see start_exchange).
  explicit WindowBuffer(BoxMap map, const Dims& order = {});

  // One exchange; a view where nothing moves.
  Array fetch(const Array& x) const;
  // Whether `fill` does the same, into memory that is given: any strides, nothing is sent.
  bool fills() const;
  void fill(const Array& buffer, const Array& x) const;
  // The adjoint: consumes the gradient of the buffer, gives the input's.
  Array give_back(const Array& buffer) const;
  // Sizes of the buffer, given the local input's.
  Dims buffer_sizes(const Dims& local) const;
  // Null: the local input is the buffer.
  const BoxMap* map() const;

 private:
  struct Exchange;
  std::shared_ptr<const Exchange> exchange_;  // null: none
};

// Of the dims in messages: channels last, as in memory.
Dims message_order(int dims);
// The box of these sizes that begins at element `at` of a flat message, where it is dense in that order.
Array box_of_message(const Array& flat, std::int64_t at, const Dims& extent);

// Inputs of fewer elements on a rank are copied with their halo: that costs less than many small calls do.
// Each rank decides by itself, messages are the same. May be set while no graph is kept.
std::int64_t frames_from();
void set_frames_from(std::int64_t elements);

// The map's exchange and its adjoint; what comes out lies in memory as what went in.
// `outside` fills what no rank holds.
Array fetch_in_order(const BoxMap& map, const Array& x, double outside = 0.0, const Dims& order = {});
Array give_back_in_order(const BoxMap& map, const Array& gradient, const Dims& order = {});

}  // namespace tessera
