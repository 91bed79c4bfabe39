// The operations whose host cost is measured: every one of the library, on a few elements.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/tensor.h"

namespace tessera::bench {

struct Subject {
  std::string op;   // as case files name it
  std::string how;  // which of its calls, where there are several: "broadcast"
  Dims local;       // of x on every rank, values between 0 and 1
  int dim;          // that is cut
  // Sends nothing under that cut. `numbers`: int64, below 8, cut like x along dim 0.
  std::function<Tensor(const Tensor& x, const Tensor& numbers)> call;
  Dims numbers = {};  // their sizes on every rank; none are made
  // Asks the other ranks under every cut (where neighbours are): measured plain alone.
  bool asks = false;
  bool draws = false;        // numbers that depend on the place in the whole tensor
  DType dtype = DType::F32;  // of x
  // A mean over all ranks' elements: what is local is a share, smaller than a plain call's result by their
  // number.
  bool averages = false;
  int parts = 1;  // calls that it is made of, of which each has its time

  std::string name() const { return how.empty() ? op : op + ", " + how; }
};
std::vector<Subject> overhead_subjects(Device device);

}  // namespace tessera::bench
