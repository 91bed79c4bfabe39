#include "comm/check.h"

#include <algorithm>
#include <cstring>

#include "comm/gather_blocks.h"

namespace tessera {

namespace {

// Compared byte by byte, so it is made of zeroed memory and fixed-size fields only.
struct Fingerprint {
  char op[24];
  char file[112];
  std::int64_t sizes[Dims::kMax];
  std::uint64_t counts;
  std::uint32_t line;
  std::int32_t ndim;  // -1: no array
  std::int32_t dtype;
  std::int32_t reduce;
  std::int32_t root;
  std::uint32_t call_number;
};

constexpr std::int64_t kAnyRows = -1;

void copy_text(char* to, std::size_t capacity, std::string_view text) {
  if (text.size() >= capacity) text.remove_prefix(text.size() - capacity + 1);
  std::memcpy(to, text.data(), text.size());
}

Fingerprint fingerprint_of(const Group& group, const Call& call, const CallFacts& facts) {
  Fingerprint f;
  std::memset(&f, 0, sizeof f);
  copy_text(f.op, sizeof f.op, call.op);
  copy_text(f.file, sizeof f.file, call.site.file_name());
  f.line = call.site.line();
  f.call_number = group.sequence();
  f.ndim = -1;
  f.root = facts.root;
  f.reduce = facts.reduce != nullptr ? static_cast<std::int32_t>(*facts.reduce) : -1;
  std::size_t hash = facts.counts.size();
  for (const std::int64_t count : facts.counts) hash_combine(hash, static_cast<std::size_t>(count));
  f.counts = hash;
  if (facts.array != nullptr && facts.array->defined()) {
    f.ndim = facts.array->dim();
    f.dtype = static_cast<std::int32_t>(facts.array->dtype());
    for (int d = 0; d < f.ndim; ++d) f.sizes[d] = d == 0 && facts.any_rows ? kAnyRows : facts.array->size(d);
  }
  return f;
}

std::string describe(const Fingerprint& f) {
  std::string text = f.op;
  if (f.ndim >= 0) {
    text += fmt::format(" of {} [", name_of(static_cast<DType>(f.dtype)));
    for (int d = 0; d < f.ndim; ++d) {
      if (d > 0) text += ", ";
      text += f.sizes[d] == kAnyRows ? "*" : fmt::format("{}", f.sizes[d]);
    }
    text += "]";
  }
  if (f.reduce >= 0) text += fmt::format(" with {}", name_of(static_cast<ReduceOp>(f.reduce)));
  if (f.root >= 0) text += fmt::format(" with root {}", f.root);
  if (f.counts != 0) text += fmt::format(" with counts #{:x}", f.counts & 0xffffU);
  return text + fmt::format(" at {}:{}", f.file, f.line);
}

bool same(const Fingerprint& a, const Fingerprint& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// The call that most ranks make; of equally common ones that of the lowest rank.
std::size_t most_common(const std::vector<Fingerprint>& all) {
  std::size_t best = 0;
  std::ptrdiff_t best_count = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto count =
        std::count_if(all.begin(), all.end(), [&](const Fingerprint& f) { return same(f, all[r]); });
    if (count > best_count) {
      best = r;
      best_count = count;
    }
  }
  return best;
}

}  // namespace

void check_same_call(const std::shared_ptr<Group>& group, const Call& call, const CallFacts& facts) {
  if (!group->endpoint().check_calls || group->size() == 1 || group->records_only()) return;
  const Fingerprint mine = fingerprint_of(*group, call, facts);
  group->record_check(call, sizeof mine);
  const std::string gathered =
      gather_blocks(group, call, std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
  std::vector<Fingerprint> all(static_cast<std::size_t>(group->size()));
  std::memcpy(all.data(), gathered.data(), gathered.size());
  const std::size_t usual = most_common(all);
  std::string differing;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!same(all[r], all[usual])) differing += fmt::format("; rank {} calls {}", r, describe(all[r]));
  }
  if (differing.empty()) return;
  TS_FAIL(Comm, "check_calls", "call {} of this group of {} ranks differs: rank {} calls {}{}",
          mine.call_number, group->size(), usual, describe(all[usual]), differing);
}

}  // namespace tessera
