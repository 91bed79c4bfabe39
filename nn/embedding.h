#pragma once
#include "nn/module.h"

namespace tessera::nn {

struct EmbeddingOptions {
  // This row starts as zeros and gets no gradient. Negative: from the end; INT64_MIN: there is none.
  std::int64_t padding_idx = INT64_MIN;
  DType dtype = DType::F32;
  GeneratorPtr generator = nullptr;  // as for LinearOptions
};

// Rows of a table by number: [...] of I64 or I32 -> [..., width]. A cut index stays cut, without a message.
class Embedding : public Module {
 public:
  Embedding(std::int64_t rows, std::int64_t width, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& index) override;
  void reset_parameters(Generator& generator) override;  // normal, deviation 1

  Tensor weight;  // [rows, width]

 private:
  std::int64_t padding_;
};

}  // namespace tessera::nn
