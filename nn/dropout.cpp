#include "nn/activation.h"
#include "runtime/error.h"

namespace tessera::nn {

Dropout::Dropout(double p, GeneratorPtr generator) : p_(p), generator_(std::move(generator)) {
  TS_CHECK(p >= 0.0 && p <= 1.0, "Dropout", "p is {}, 0 <= p <= 1 is allowed", p);
  TS_CHECK(p == 0.0 || generator_ != nullptr, "Dropout",
           "p = {} needs a generator, shared by all dropouts of the model", p);
}

Tensor Dropout::forward(const Tensor& x) { return training() && p_ > 0.0 ? dropout(x, p_, *generator_) : x; }

}  // namespace tessera::nn
