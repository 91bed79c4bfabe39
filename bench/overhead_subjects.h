// The operations whose host cost is measured: one of each, on a few elements.
#pragma once
#include <functional>
#include <vector>

#include "autograd/tensor.h"

namespace tessera::bench {

struct Subject {
  const char* name;
  Dims local;                                 // of x on every rank
  int dim;                                    // that is cut
  std::function<Tensor(const Tensor& x)> op;  // sends nothing under that cut
};
std::vector<Subject> overhead_subjects(Device device);

}  // namespace tessera::bench
