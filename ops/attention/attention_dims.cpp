// Attention of any number of leading dims: batches, and above two dims heads, are put into the four dims that
// attention has.
#include "ops/attention/attention.h"
#include "ops/attention/attention_call.h"
#include "ops/op.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

constexpr const char* kName = "scaled_dot_product_attention";

[[noreturn]] void refuse(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  TS_FAIL(Usage, kName, "q {}, k {} and v {} do not go together{}", q.sizes().str(), k.sizes().str(),
          v.sizes().str(), o.enable_gqa ? "" : " (enable_gqa is off)");
}

// Size `d` from the end; dims that are missing in front are 1.
std::int64_t from_end(const Dims& sizes, int d) { return d <= sizes.size() ? sizes[sizes.size() - d] : 1; }

// What the three broadcast to in dim `d` from the end, or -1.
std::int64_t common_size(const std::array<const Tensor*, 3>& inputs, int d) {
  std::int64_t common = 1;
  for (const Tensor* t : inputs) {
    const std::int64_t n = from_end(t->sizes(), d);
    if (n != 1 && common != 1 && n != common) return -1;
    if (n != 1) common = n;
  }
  return common;
}

// The leading dims of the result, batch and heads: those of q, k and v broadcast. Heads of k and v that are
// fewer than q's are left to enable_gqa.
Dims leading_dims(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const int dims = std::max({q.dim(), k.dim(), v.dim()});
  Dims lead;
  for (int d = dims; d > 2; --d) {
    const bool grouped = o.enable_gqa && d == 3;
    lead.push_back(grouped ? from_end(q.sizes(), 3) : common_size({&q, &k, &v}, d));
    if (lead[lead.size() - 1] < 0) refuse(q, k, v, o);
  }
  return lead;
}

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  TS_CHECK(q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2, kName,
           "q, k and v need two dims [..., L, D] or more, given {}, {} and {}", q.sizes().str(),
           k.sizes().str(), v.sizes().str());
  check_attention_options(q, k, v, o);
  if (q.size(-1) != k.size(-1) || k.size(-2) != v.size(-2)) refuse(q, k, v, o);
  if (o.enable_gqa) {
    const std::int64_t heads = from_end(q.sizes(), 3);
    const std::int64_t own = from_end(k.sizes(), 3);
    if (own != from_end(v.sizes(), 3) || own == 0 || heads % own != 0) refuse(q, k, v, o);
  }
}

void check_mask(const Tensor& mask, const Dims& scores) {
  TS_CHECK(broadcasts_to(mask.sizes(), scores), kName, "the mask {} does not broadcast to the scores {}",
           mask.sizes().str(), scores.str());
}

// Four dims, the leading ones expanded to `lead`.
Tensor in_four_dims(const Tensor& t, const Dims& lead) {
  Dims sizes = lead;
  sizes.push_back(t.size(-2));
  sizes.push_back(t.size(-1));
  Tensor y = t.sizes() == sizes ? t : expand(t, sizes);
  while (y.dim() < 4) y = unsqueeze(y, 0);
  return y.dim() == 4 ? y : flatten(y, 0, y.dim() - 4);
}

Tensor mask_in_four_dims(const Tensor& mask, const Dims& lead) {
  if (!mask.defined() || mask.dim() < 4) return mask;
  bool one = true;
  Dims sizes = lead;
  sizes[sizes.size() - 1] = mask.size(-3);
  for (int d = 4; d <= mask.dim(); ++d) one = one && from_end(mask.sizes(), d) == 1;
  if (one)
    for (int d = 0; d + 1 < sizes.size(); ++d) sizes[d] = 1;
  return in_four_dims(mask, sizes);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& o) {
  TS_CHECK(q.defined() && k.defined() && v.defined(), kName, "an input is undefined");
  const bool four = q.dim() == 4 && k.dim() == 4 && v.dim() == 4;
  if (four && q.size(0) == k.size(0) && k.size(0) == v.size(0) &&
      (o.enable_gqa || (q.size(1) == k.size(1) && k.size(1) == v.size(1))))
    return attention_in_four_dims(q, k, v, o, q.size(0));
  check_inputs(q, k, v, o);
  check_together(kName, {&q, &k, &v, &o.attn_mask});
  const Dims lead = leading_dims(q, k, v, o);
  Dims scores = lead;
  scores.push_back(q.size(-2));
  scores.push_back(k.size(-2));
  if (o.attn_mask.defined()) check_mask(o.attn_mask, scores);
  Dims key_lead = lead;
  if (o.enable_gqa && !lead.empty()) key_lead[lead.size() - 1] = from_end(k.sizes(), 3);
  AttentionOptions inner = o;
  inner.attn_mask = mask_in_four_dims(o.attn_mask, lead);
  Tensor y = attention_in_four_dims(in_four_dims(q, lead), in_four_dims(k, key_lead),
                                    in_four_dims(v, key_lead), inner, scores[0]);
  if (lead.size() == 2) return y;
  if (lead.size() < 2) return squeeze(lead.empty() ? squeeze(y, 0) : y, 0);
  Dims batch = lead;
  batch.erase(lead.size() - 1);
  return unflatten(y, 0, batch);
}

}  // namespace tessera
