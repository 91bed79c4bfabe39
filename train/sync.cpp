#include "train/sync.h"

#include <cstring>
#include <map>
#include <sstream>

#include "runtime/copy.h"
#include "runtime/error.h"

namespace tessera::train {
namespace {

constexpr std::int64_t kMessageBytes = std::int64_t{64} << 20U;

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29U);
}

std::uint64_t hash_bytes(const void* data, std::int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  std::uint64_t hash = mix(0x243f6a8885a308d3ULL, static_cast<std::uint64_t>(bytes));
  std::uint64_t word = 0;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    std::memcpy(&word, p, 8);
    hash = mix(hash, word);
  }
  word = 0;
  if (bytes > 0) std::memcpy(&word, p, static_cast<std::size_t>(bytes));
  return mix(hash, word);
}

// One line per parameter and buffer: a rank's view of the model.
std::vector<std::string> describe(const std::vector<nn::NamedTensor>& state) {
  std::vector<std::string> lines;
  for (const nn::NamedTensor& n : state)
    lines.push_back(fmt::format("{} {} {}{}", n.name, name_of(n.tensor.dtype()), n.tensor.sizes().str(),
                                n.tensor.is_sharded() ? " sharded" : ""));
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The first line in which some rank differs from rank 0.
[[noreturn]] void refuse_first_difference(const std::vector<std::string>& texts) {
  std::vector<std::vector<std::string>> all;
  for (const std::string& t : texts) all.push_back(split_lines(t));
  const auto line = [&](std::size_t rank, std::size_t i) {
    return i < all[rank].size() ? "'" + all[rank][i] + "'" : std::string("nothing more");
  };
  std::size_t longest = 0;
  for (const auto& lines : all) longest = std::max(longest, lines.size());
  for (std::size_t i = 0; i < longest; ++i)
    for (std::size_t r = 1; r < all.size(); ++r)
      TS_CHECK(line(r, i) == line(0, i), "sync_module",
               "the model must be the same on every rank; entry {} is {} on rank 0 and {} on rank {}", i,
               line(0, i), line(r, i), r);
  TS_FAIL(Internal, "sync_module", "the ranks' models differ in no entry");
}

// Broadcasts `tensors` (of one dtype) from rank 0 as one flat message.
void broadcast_flat(const std::vector<Tensor>& tensors, std::int64_t elements, const DeviceMesh& mesh) {
  const Array first = tensors.front().local();
  const Array flat = Array::empty({elements}, first.dtype(), first.device());
  const auto each = [&](auto&& f) {
    std::int64_t at = 0;
    for (const Tensor& t : tensors) {
      f(flat.slice(0, at, t.numel()).reshape(t.sizes()), t.local());
      at += t.numel();
    }
  };
  if (mesh.rank() == 0) each([](const Array& piece, const Array& value) { copy_strided(piece, value); });
  mesh.comm().broadcast(flat, 0).wait();
  if (mesh.rank() != 0) each([](const Array& piece, const Array& value) { value.copy_(piece); });
}

std::string rank_text(const std::vector<int>& ranks) {
  std::string text;
  for (int r : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  return text;
}

}  // namespace

void check_same_state(const nn::Module& module, const DeviceMesh& mesh) {
  const CommScope scope("sync_module");
  const std::vector<nn::NamedTensor> state = module.state();
  const std::string mine = joined(describe(state));
  const std::uint64_t hash = hash_bytes(mine.data(), static_cast<std::int64_t>(mine.size()));
  bool same = true;  // the same verdict everywhere: if hashes differ, every rank sees one unlike its own
  for (const std::string& theirs : mesh.comm().all_gather_bytes(std::to_string(hash)))
    same = same && theirs == std::to_string(hash);
  if (!same) refuse_first_difference(mesh.comm().all_gather_bytes(mine));
  for (const nn::NamedTensor& n : state)
    TS_CHECK(!n.tensor.is_sharded(), "sync_module", "'{}' is sharded; plain parameters are needed", n.name);
}

void sync_module(const nn::Module& module, const DeviceMesh& mesh) {
  check_same_state(module, mesh);
  const CommScope scope("sync_module");
  std::map<DType, std::vector<Tensor>> by_dtype;
  for (const nn::NamedTensor& n : module.state()) by_dtype[n.tensor.dtype()].push_back(n.tensor);
  for (const auto& [dtype, tensors] : by_dtype) {
    std::vector<Tensor> message;
    std::int64_t elements = 0;
    for (const Tensor& t : tensors) {
      if (!message.empty() && (elements + t.numel()) * size_of(dtype) > kMessageBytes) {
        broadcast_flat(message, elements, mesh);
        message.clear();
        elements = 0;
      }
      message.push_back(t);
      elements += t.numel();
    }
    broadcast_flat(message, elements, mesh);
  }
}

void check_replicas(const nn::Module& module, const DeviceMesh& mesh) {
  check_same_state(module, mesh);
  const CommScope scope("check_replicas");
  const std::vector<nn::NamedTensor> state = module.state();
  const auto count = static_cast<std::int64_t>(state.size());
  const Array mine = Array::empty({1, count}, DType::I64);
  for (std::int64_t i = 0; i < count; ++i) {
    const Array value = state[static_cast<std::size_t>(i)].tensor.local().to(Device::Cpu).contiguous();
    mine.data<std::int64_t>()[i] = static_cast<std::int64_t>(hash_bytes(value.raw(), value.nbytes()));
  }
  const Array all = Array::empty({mesh.size(), count}, DType::I64);
  mesh.comm().all_gather(all, mine).wait();
  const std::int64_t* hash = all.data<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<int> different;
    for (int r = 1; r < mesh.size(); ++r)
      if (hash[r * count + i] != hash[i]) different.push_back(r);
    TS_CHECK(different.empty(), "check_replicas", "'{}' on rank {} has other bits than on rank 0",
             state[static_cast<std::size_t>(i)].name, rank_text(different));
  }
}

}  // namespace tessera::train
