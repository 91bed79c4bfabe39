#include "nn/embedding.h"

#include "nn/init.h"
#include "runtime/error.h"

namespace tessera::nn {

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options)
    : options_{options.padding_idx, options.max_norm, options.norm_type, options.scale_grad_by_freq} {
  std::int64_t& padding = options_.padding_idx;
  TS_CHECK(num_embeddings >= 0 && embedding_dim >= 0, "Embedding",
           "num_embeddings {} and embedding_dim {} given; neither may be negative", num_embeddings,
           embedding_dim);
  TS_CHECK(padding == INT64_MIN || (padding >= -num_embeddings && padding < num_embeddings), "Embedding",
           "padding_idx {} is out of range for {} rows", padding, num_embeddings);
  if (padding < 0 && padding != INT64_MIN) padding += num_embeddings;
  weight = register_parameter("weight", zeros({num_embeddings, embedding_dim}, options.dtype));
  Generator first(0);
  Embedding::reset_parameters(options.generator ? *options.generator : first);
}

void Embedding::reset_parameters(Generator& generator) {
  init::normal(weight, generator);
  if (options_.padding_idx != INT64_MIN) weight.local().slice(0, options_.padding_idx, 1).zero_();
}

Tensor Embedding::forward(const Tensor& index) { return embedding(weight, index, options_); }

}  // namespace tessera::nn
