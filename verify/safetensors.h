// The safetensors file format, read and written.
//
// A file is: 8 bytes, little-endian, the length of a JSON header; the header; then one block of bytes. The
// header gives each tensor's type, sizes and its [begin, end) within the block, and under "__metadata__" a
// map of strings. Tensors are row-major and tile the block without gaps. The header may have any length, so a
// tensor may start at any address: values are copied out byte by byte, never read in place.
//
// Everything that a damaged file may claim (lengths, offsets, sizes that overflow) is checked before it is
// used; a refusal is an Error of kind Io that names the file and what is wrong with it. Nothing communicates.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runtime/array.h"

namespace tessera::verify {

struct TensorEntry {
  std::string dtype;  // as the file spells it: F32, F64, BF16, I64, I32, BOOL, F16, U8 ...
  Dims sizes;
  std::int64_t begin = 0;  // bytes within the block
  std::int64_t end = 0;
};

class SafetensorsFile {
 public:
  // Reads the whole file into memory (case files are small) and checks its header.
  static SafetensorsFile read(const std::string& path);
  // The same for bytes in memory; `name` is what errors call them.
  static SafetensorsFile parse(std::string bytes, const std::string& name);

  const std::string& name() const { return name_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, TensorEntry>& entries() const { return entries_; }
  bool has(const std::string& tensor) const { return entries_.count(tensor) != 0; }
  // A new host array of the tensor's sizes and type; types that Array lacks are refused
  // here, so that a file with one of them beside others can still be used.
  Array load(const std::string& tensor) const;

 private:
  void read_header(std::size_t header_bytes);
  void check_tiling() const;

  std::string name_;
  std::string bytes_;
  std::size_t block_ = 0;  // where the block starts in bytes_
  std::map<std::string, TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Writes host arrays (any strides), the block aligned to 8 bytes. The file appears whole or not at all: it is
// written beside its place and renamed.
void write_safetensors(const std::string& path, const std::map<std::string, Array>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::verify
