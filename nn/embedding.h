#pragma once
#include "nn/module.h"
#include "ops/indexing/indexing.h"

namespace tessera::nn {

struct EmbeddingOptions {
  // This row starts as zeros and gets no gradient. Negative: from the end; INT64_MIN: there is none.
  std::int64_t padding_idx = INT64_MIN;
  std::optional<double> max_norm = {};  // these as in tessera::EmbeddingOptions: max_norm changes the weight
  double norm_type = 2.0;
  bool scale_grad_by_freq = false;
  DType dtype = DType::F32;
  GeneratorPtr generator = nullptr;  // as for LinearOptions
};

// Rows of a table by number: [...] of I64 or I32 -> [..., embedding_dim]. A cut index stays cut, without a
// message.
class Embedding : public Module {
 public:
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& index) override;
  void reset_parameters(Generator& generator) override;  // normal, deviation 1

  Tensor weight;  // [num_embeddings, embedding_dim]

 private:
  tessera::EmbeddingOptions options_;
};

}  // namespace tessera::nn
