// NetCDF files, read box by box.
//
// Every rank opens the file by itself, serially and read-only, and reads just the box it owns: no rank reads
// for another, and no parallel file system is needed. (Debian's parallel NetCDF library refuses classic
// files, so the serial one is the only one that reads them all: classic, 64-bit offset, CDF-5, NetCDF-4.)
//
// What counts as missing, and when (the NetCDF Users' Guide, appendix "Attribute conventions", and what the
// common Python readers do):
//   1. stored values are compared as they are stored, before any scaling, in the variable's own type
//      (`_Unsigned = "true"` on a signed type, or "false" on an unsigned one, is applied first);
//   2. missing is: equal to `_FillValue`, or to any of the values of `missing_value`, or outside
//      `valid_min`/`valid_max`/`valid_range`; without `_FillValue` also equal to the type's default fill
//      value (not for one-byte types, and not where a NetCDF-4 variable was written without filling);
//   3. such an attribute of another type counts if the variable's type can hold its value (for floats: after
//      rounding, overflow excepted); otherwise it is left aside and `warnings` says so;
//   4. then value = stored * scale_factor + add_offset, in double; the factor may be negative;
//   5. missing values become NaN in floating outputs. Integer outputs are the stored integers, neither masked
//      nor scaled; a variable of floats has none.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "comm/communicator.h"
#include "runtime/array.h"

namespace tessera::data {

struct NetCdfDim {
  std::string name;
  std::int64_t size = 0;
  bool unlimited = false;
};

// Text, or numbers in the widest type of their kind.
struct NetCdfAttribute {
  std::string name;
  std::string type;  // "float", "short", "char", ...
  std::variant<std::string, std::vector<double>, std::vector<std::int64_t>, std::vector<std::uint64_t>> value;

  bool is_text() const { return std::holds_alternative<std::string>(value); }
  std::string text() const;             // "" if it is not text
  std::vector<double> numbers() const;  // none if it is text
};

struct NetCdfVariable {
  std::string name;  // with its groups: "group/name"
  std::string type;  // of the stored values: "byte", "short", "int", "float", "double", "ushort", ...
  std::vector<NetCdfDim> dims;
  std::vector<NetCdfAttribute> attributes;
  std::vector<std::string> warnings;  // attributes that were left aside, and why

  const NetCdfAttribute* attribute(const std::string& name) const;  // nullptr if there is none
  Dims sizes() const;                                               // at most Dims::kMax dims
};

class NetCdfFile {
 public:
  // Opens on this rank alone. Refuses (kind Io) a missing or unreadable file, one that is no NetCDF file, and
  // one that is shorter than its own header says: NetCDF would read zeros from it in silence.
  explicit NetCdfFile(const std::string& path);
  ~NetCdfFile();
  NetCdfFile(NetCdfFile&&) noexcept;
  NetCdfFile& operator=(NetCdfFile&&) noexcept;

  // Collective over `comm` (small messages): opens on every rank; if any rank cannot, or sees another file
  // (length or variables), every rank throws the same error.
  static NetCdfFile open_on_all(const Communicator& comm, const std::string& path);

  const std::string& path() const;
  const std::string& format() const;  // "classic", "64-bit offset", "CDF-5", "NetCDF-4"
  const std::vector<NetCdfVariable>& variables() const;
  const std::vector<NetCdfAttribute>& attributes() const;  // the file's own
  // Refuses an unknown name with the list of those there are.
  const NetCdfVariable& variable(const std::string& name) const;

  // The elements of `box`, row-major, on the CPU. Local: no communication. An empty box gives an empty array
  // of its shape and reads nothing; a box that leaves the variable is refused.
  Array read(const std::string& name, const Box& box, DType out = DType::F32) const;
  Array read_all(const std::string& name, DType out = DType::F32) const;

  // Payload bytes (of the stored type) that this object has asked of the file so far, header not counted.
  std::int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::data
