#include "nn/embedding.h"

#include "nn/init.h"
#include "ops/indexing/indexing.h"
#include "runtime/error.h"

namespace tessera::nn {

Embedding::Embedding(std::int64_t rows, std::int64_t width, const EmbeddingOptions& options)
    : padding_(options.padding_idx) {
  TS_CHECK(rows >= 0 && width >= 0, "Embedding", "{} rows of width {} given; neither may be negative", rows,
           width);
  TS_CHECK(padding_ == INT64_MIN || (padding_ >= -rows && padding_ < rows), "Embedding",
           "padding_idx {} is out of range for {} rows", padding_, rows);
  if (padding_ < 0 && padding_ != INT64_MIN) padding_ += rows;
  weight = register_parameter("weight", zeros({rows, width}, options.dtype));
  Generator first(0);
  Embedding::reset_parameters(options.generator ? *options.generator : first);
}

void Embedding::reset_parameters(Generator& generator) {
  init::normal(weight, generator);
  if (padding_ != INT64_MIN) weight.local().slice(0, padding_, 1).zero_();
}

Tensor Embedding::forward(const Tensor& index) { return embedding(weight, index, padding_); }

}  // namespace tessera::nn
