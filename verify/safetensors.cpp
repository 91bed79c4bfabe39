#include "verify/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/error.h"

namespace tessera::verify {
namespace {

using nlohmann::json;

constexpr const char* kOp = "safetensors";
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

struct NamedType {
  const char* name;
  std::int64_t bytes;
};
// All types of the format whose size is a whole number of bytes.
constexpr NamedType kTypes[] = {
    {"F32", 4}, {"F64", 8}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"BOOL", 1},    {"F16", 2},     {"U8", 1},
    {"I8", 1},  {"I16", 2}, {"U16", 2},  {"U32", 4}, {"U64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"C64", 8}};

std::int64_t bytes_of(const std::string& dtype) {
  for (const NamedType& t : kTypes) {
    if (dtype == t.name) return t.bytes;
  }
  return 0;
}

const char* file_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return "F32";
    case DType::F64:
      return "F64";
    case DType::BF16:
      return "BF16";
    case DType::F16:
      return "F16";
    case DType::I64:
      return "I64";
    case DType::I32:
      return "I32";
    case DType::Bool:
      return "BOOL";
  }
  return "?";
}

// The JSON library keeps the last of two equal keys; the format forbids them.
json parse_header(const std::string& name, const char* first, std::size_t length) {
  std::set<std::string> seen;
  std::string twice;
  auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 && !seen.insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  json header;
  try {
    header = json::parse(first, first + length, watch);
  } catch (const json::exception& e) {
    TS_FAIL(Io, kOp, "{}: the header is not JSON ({})", name, e.what());
  }
  if (!header.is_object()) TS_FAIL(Io, kOp, "{}: the header is not a JSON object", name);
  if (!twice.empty()) TS_FAIL(Io, kOp, "{}: the header names \"{}\" twice", name, twice);
  return header;
}

std::int64_t whole_number(const std::string& where, const json& value, const char* what) {
  const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <=
                                                     std::uint64_t{std::numeric_limits<std::int64_t>::max()}
                                               : value.is_number_integer() && value.get<std::int64_t>() >= 0;
  if (!fits) TS_FAIL(Io, kOp, "{}: {} holds {}, not a whole number >= 0", where, what, value.dump());
  return value.get<std::int64_t>();
}

// The number of bytes that the sizes ask for; refuses what does not fit 63 bits.
std::int64_t bytes_needed(const std::string& where, const TensorEntry& entry) {
  std::int64_t total = bytes_of(entry.dtype);
  bool zero = false;
  for (std::int64_t n : entry.sizes) zero = zero || n == 0;
  if (zero) return 0;
  for (std::int64_t n : entry.sizes) {
    if (__builtin_mul_overflow(total, n, &total)) {
      TS_FAIL(Io, kOp, "{}: sizes {} are too large to count", where, entry.sizes.str());
    }
  }
  return total;
}

TensorEntry read_entry(const std::string& where, const json& value) {
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.is_object() || !value.contains(key)) TS_FAIL(Io, kOp, "{}: \"{}\" is missing", where, key);
  }
  const json& shape = value["shape"];
  const json& offsets = value["data_offsets"];
  TensorEntry entry;
  if (!value["dtype"].is_string() || bytes_of(value["dtype"].get<std::string>()) == 0) {
    TS_FAIL(Io, kOp, "{}: unknown dtype {}", where, value["dtype"].dump());
  }
  entry.dtype = value["dtype"].get<std::string>();
  if (!shape.is_array() || shape.size() > static_cast<std::size_t>(Dims::kMax)) {
    TS_FAIL(Io, kOp, "{}: shape is {}, allowed is a list of up to {} sizes", where, shape.dump(), Dims::kMax);
  }
  for (const json& n : shape) entry.sizes.push_back(whole_number(where, n, "shape"));
  if (!offsets.is_array() || offsets.size() != 2) {
    TS_FAIL(Io, kOp, "{}: data_offsets is {}, allowed is [begin, end]", where, offsets.dump());
  }
  entry.begin = whole_number(where, offsets[0], "data_offsets");
  entry.end = whole_number(where, offsets[1], "data_offsets");
  const std::int64_t needed = bytes_needed(where, entry);
  if (entry.end < entry.begin || entry.end - entry.begin != needed) {
    TS_FAIL(Io, kOp, "{}: data_offsets [{}, {}] do not hold the {} bytes of {} {}", where, entry.begin,
            entry.end, needed, entry.dtype, entry.sizes.str());
  }
  return entry;
}

}  // namespace

SafetensorsFile SafetensorsFile::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) TS_FAIL(Io, kOp, "cannot open {}", path);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (in.bad() || bytes.fail()) TS_FAIL(Io, kOp, "cannot read {}", path);
  return parse(std::move(bytes).str(), path);
}

SafetensorsFile SafetensorsFile::parse(std::string bytes, const std::string& name) {
  SafetensorsFile file;
  file.name_ = name;
  file.bytes_ = std::move(bytes);
  if (file.bytes_.size() < kLengthBytes) {
    TS_FAIL(Io, kOp, "{}: only {} bytes, a file has at least {} for the header's length", name,
            file.bytes_.size(), kLengthBytes);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(file.bytes_[i])} << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    TS_FAIL(Io, kOp, "{}: a header of {} bytes is announced, allowed are {}", name, length, kMaxHeaderBytes);
  }
  if (length > file.bytes_.size() - kLengthBytes) {
    TS_FAIL(Io, kOp, "{}: truncated, the header has {} bytes but only {} follow", name, length,
            file.bytes_.size() - kLengthBytes);
  }
  file.read_header(static_cast<std::size_t>(length));
  file.check_tiling();
  return file;
}

void SafetensorsFile::read_header(std::size_t header_bytes) {
  block_ = kLengthBytes + header_bytes;
  const json header = parse_header(name_, bytes_.data() + kLengthBytes, header_bytes);
  for (const auto& [key, value] : header.items()) {
    if (key != "__metadata__") {
      entries_.emplace(key, read_entry(fmt::format("{}: tensor \"{}\"", name_, key), value));
      continue;
    }
    if (!value.is_object()) TS_FAIL(Io, kOp, "{}: __metadata__ is not a map of strings", name_);
    for (const auto& [k, v] : value.items()) {
      if (!v.is_string()) TS_FAIL(Io, kOp, "{}: __metadata__ \"{}\" is not a string", name_, k);
      metadata_.emplace(k, v.get<std::string>());
    }
  }
}

void SafetensorsFile::check_tiling() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  for (const auto& [key, entry] : entries_) spans.emplace_back(entry.begin, entry.end);
  std::sort(spans.begin(), spans.end());
  std::int64_t reached = 0;
  for (const auto& [begin, end] : spans) {
    if (begin != reached) {
      TS_FAIL(Io, kOp, "{}: tensors leave a gap or overlap at byte {} of the data (next starts at {})", name_,
              reached, begin);
    }
    reached = end;
  }
  const auto held = static_cast<std::int64_t>(bytes_.size() - block_);
  if (reached > held) {
    TS_FAIL(Io, kOp, "{}: truncated, the tensors need {} bytes of data but only {} follow", name_, reached,
            held);
  }
  if (reached < held) TS_FAIL(Io, kOp, "{}: {} bytes after the last tensor", name_, held - reached);
}

Array SafetensorsFile::load(const std::string& tensor) const {
  const auto found = entries_.find(tensor);
  if (found == entries_.end()) TS_FAIL(Io, kOp, "{}: has no tensor \"{}\"", name_, tensor);
  const TensorEntry& entry = found->second;
  const char* source = bytes_.data() + block_ + entry.begin;
  const auto bytes = static_cast<std::size_t>(entry.end - entry.begin);

  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::Bool}) {
    if (entry.dtype != file_type(dtype)) continue;
    Array out = Array::empty(entry.sizes, dtype);
    if (dtype == DType::Bool) {  // a bool that is neither 0 nor 1 would be undefined behaviour
      for (std::size_t i = 0; i < bytes; ++i) out.data<bool>()[i] = source[i] != 0;
    } else if (bytes != 0) {
      std::memcpy(out.raw(), source, bytes);
    }
    return out;
  }
  TS_FAIL(Io, kOp, "{}: tensor \"{}\" is {}, allowed are F32, F64, BF16, F16, I64, I32 and BOOL", name_,
          tensor, entry.dtype);
}

void write_safetensors(const std::string& path, const std::map<std::string, Array>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::pair<std::string, Array>> ordered(tensors.begin(), tensors.end());
  // Wide types first, as the reference writer does: then each tensor is aligned to its own type.
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return size_of(a.second.dtype()) > size_of(b.second.dtype());
  });
  std::int64_t offset = 0;
  for (auto& [name, array] : ordered) {
    TS_CHECK(name != "__metadata__", kOp, "a tensor may not be called __metadata__");
    header[name] = {{"dtype", file_type(array.dtype())},
                    {"shape", array.sizes().vec()},
                    {"data_offsets", {offset, offset + array.nbytes()}}};
    offset += array.nbytes();
    array = array.contiguous();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');

  const std::string beside = path + ".part";
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  for (std::size_t i = 0; i < kLengthBytes; ++i) out.put(static_cast<char>((text.size() >> (8 * i)) & 0xffU));
  out << text;
  for (const auto& [name, array] : ordered) {
    if (array.numel() != 0) out.write(static_cast<const char*>(array.raw()), array.nbytes());
  }
  out.close();
  if (!out || std::rename(beside.c_str(), path.c_str()) != 0) {
    std::remove(beside.c_str());
    TS_FAIL(Io, kOp, "cannot write {}", path);
  }
}

}  // namespace tessera::verify
