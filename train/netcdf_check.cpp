#include "train/netcdf_check.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

namespace tessera::data {
namespace {

constexpr std::uint32_t kTagDimension = 10;
constexpr std::uint32_t kTagVariable = 11;
constexpr std::uint32_t kTagAttribute = 12;
constexpr std::uint64_t kStreaming32 = 0xffffffffULL;  // "count the records from the file's length"

struct HeaderEnds {};  // the file ends inside its header
struct HeaderDamaged {};

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 3U) & ~std::uint64_t{3}; }

std::uint64_t type_size(std::uint32_t type) {
  // NC_BYTE, CHAR, SHORT, INT, FLOAT, DOUBLE, UBYTE, USHORT, UINT, INT64, UINT64
  constexpr std::array<std::uint64_t, 12> kSizes{0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};
  if (type == 0 || type >= kSizes.size()) throw HeaderDamaged{};
  return kSizes[type];
}

// Sizes whose product would not fit cannot be met by any file.
std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw HeaderDamaged{};
  return product;
}

class ClassicHeader {
 public:
  ClassicHeader(std::istream& in, int version, std::uint64_t length)
      : in_(in), version_(version), length_(length) {}

  // Bytes that the file must have at least.
  std::uint64_t needed() {
    const std::uint64_t records = count();
    read_dims();
    skip_attributes();
    read_variables();
    std::uint64_t end = static_cast<std::uint64_t>(in_.tellg());
    const bool streaming = version_ != 5 && records == kStreaming32;
    const std::uint64_t record = record_size();
    for (const Variable& v : variables_) {
      if (v.bytes == 0 || (v.is_record && (streaming || records == 0))) continue;
      const std::uint64_t begin = v.begin + (v.is_record ? times(records - 1, record) : 0);
      end = std::max(end, begin + v.bytes);  // the padding after the last byte may be left out
    }
    return end;
  }

 private:
  struct Variable {
    bool is_record = false;
    std::uint64_t bytes = 0;  // of the whole variable, or of one record; without padding
    std::uint64_t begin = 0;
  };

  std::uint64_t big_endian(int bytes) {
    std::array<unsigned char, 8> raw{};
    in_.read(reinterpret_cast<char*>(raw.data()), bytes);
    if (in_.gcount() != bytes) throw HeaderEnds{};
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = (value << 8U) | raw[static_cast<std::size_t>(i)];
    return value;
  }
  std::uint32_t tag() { return static_cast<std::uint32_t>(big_endian(4)); }
  std::uint64_t count() { return big_endian(version_ == 5 ? 8 : 4); }
  std::uint64_t offset() { return big_endian(version_ == 1 ? 4 : 8); }

  void skip(std::uint64_t bytes) {
    if (bytes > length_ - std::min(length_, static_cast<std::uint64_t>(in_.tellg()))) throw HeaderEnds{};
    in_.seekg(static_cast<std::streamoff>(bytes), std::ios::cur);
  }
  // Elements of a list that starts here; an absent list is two zeros.
  std::uint64_t list(std::uint32_t expected) {
    const std::uint32_t found = tag();
    const std::uint64_t n = count();
    if (found != expected && (found != 0 || n != 0)) throw HeaderDamaged{};
    if (n > length_) throw HeaderDamaged{};
    return n;
  }
  void skip_name() { skip(padded(count())); }
  void read_dims() {
    for (std::uint64_t n = list(kTagDimension); n > 0; --n) {
      skip_name();
      dims_.push_back(count());
    }
  }
  void skip_attributes() {
    for (std::uint64_t n = list(kTagAttribute); n > 0; --n) {
      skip_name();
      const std::uint64_t size = type_size(tag());
      skip(padded(times(count(), size)));
    }
  }
  void read_variables() {
    for (std::uint64_t n = list(kTagVariable); n > 0; --n) {
      skip_name();
      Variable v;
      v.bytes = 1;
      const std::uint64_t rank = count();
      if (rank > length_) throw HeaderDamaged{};
      for (std::uint64_t d = 0; d < rank; ++d) {
        const std::uint64_t id = count();
        if (id >= dims_.size()) throw HeaderDamaged{};
        if (d == 0 && dims_[id] == 0) {
          v.is_record = true;  // a dim of length 0 in the header is the unlimited one
        } else {
          v.bytes = times(v.bytes, dims_[id]);
        }
      }
      skip_attributes();
      v.bytes = times(v.bytes, type_size(tag()));
      count();  // vsize: redundant, and wrong by design for variables of 4 GiB and more
      v.begin = offset();
      variables_.push_back(v);
    }
  }
  // Records of one variable alone follow each other without padding; with several, each is padded to 4.
  std::uint64_t record_size() const {
    std::uint64_t sum = 0;
    std::uint64_t alone = 0;
    int n = 0;
    for (const Variable& v : variables_) {
      if (!v.is_record) continue;
      sum += padded(v.bytes);
      alone = v.bytes;
      ++n;
    }
    return n == 1 ? alone : sum;
  }

  std::istream& in_;
  int version_;
  std::uint64_t length_;
  std::vector<std::uint64_t> dims_;
  std::vector<Variable> variables_;
};

void check_classic(std::istream& in, int version, FileCheck& check) {
  check.format = version == 1 ? "classic" : version == 2 ? "64-bit offset" : "CDF-5";
  in.seekg(4);
  try {
    const std::uint64_t needed =
        ClassicHeader(in, version, static_cast<std::uint64_t>(check.length)).needed();
    if (static_cast<std::uint64_t>(check.length) < needed)
      check.problem =
          fmt::format("is truncated: {} bytes, but its header describes {} bytes", check.length, needed);
  } catch (const HeaderEnds&) {
    check.problem = fmt::format("is truncated: it ends inside its header ({} bytes)", check.length);
  } catch (const HeaderDamaged&) {
    check.problem = fmt::format("is damaged: its {} NetCDF header makes no sense", check.format);
  }
}

std::uint64_t little_endian(const std::string& bytes, std::size_t at, std::size_t n) {
  std::uint64_t value = 0;
  for (std::size_t i = n; i-- > 0;) value = (value << 8U) | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// `block`: the superblock from its signature on.
void check_hdf5(const std::string& block, FileCheck& check) {
  check.format = "NetCDF-4";
  const int version = block.size() > 8 ? block[8] : -1;
  const bool old = version == 0 || version == 1;
  const std::size_t size_at = old ? 13 : 9;
  const auto width = block.size() > size_at ? static_cast<std::size_t>(block[size_at]) : 0U;
  // Base address, then two more addresses (free space or extension; end of file) in either layout.
  const std::size_t end_at = (old ? (version == 1 ? 28U : 24U) : 12U) + 2 * width;
  if (version < 0 || version > 3 || width == 0 || width > 8 || block.size() < end_at + width) {
    check.problem =
        fmt::format("is truncated or damaged: no whole HDF5 superblock in {} bytes", check.length);
    return;
  }
  const std::uint64_t needed = little_endian(block, end_at, width);  // absolute, user block included
  const std::uint64_t undefined = width == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * width)) - 1;
  if (needed != undefined && static_cast<std::uint64_t>(check.length) < needed)
    check.problem =
        fmt::format("is truncated: {} bytes, but its HDF5 superblock says {} bytes", check.length, needed);
}

}  // namespace

FileCheck check_netcdf_file(const std::string& path) {
  FileCheck check;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    check.problem =
        errno == ENOENT ? "does not exist" : fmt::format("cannot be read: {}", std::strerror(errno));
    return check;
  }
  if (!S_ISREG(info.st_mode)) {
    check.problem = S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file";
    return check;
  }
  check.length = info.st_size;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    check.problem = fmt::format("cannot be read: {}", std::strerror(errno));
    return check;
  }
  std::array<char, 4> magic{};
  in.read(magic.data(), magic.size());
  if (in.gcount() == 4 && std::memcmp(magic.data(), "CDF", 3) == 0 &&
      (magic[3] == 1 || magic[3] == 2 || magic[3] == 5)) {
    check_classic(in, magic[3], check);
    return check;
  }
  // The HDF5 signature may lie behind a user block of 512, 1024, 2048, ... bytes.
  for (std::int64_t at = 0; at < check.length; at = at == 0 ? 512 : at * 2) {
    std::string block(96, '\0');
    in.clear();
    in.seekg(at);
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    block.resize(static_cast<std::size_t>(in.gcount()));
    if (block.compare(0, 8, "\x89HDF\r\n\x1a\n") != 0) continue;
    check_hdf5(block, check);
    return check;
  }
  check.problem = check.length == 0 ? "is empty" : "is not a NetCDF file (neither classic nor NetCDF-4)";
  return check;
}

}  // namespace tessera::data
