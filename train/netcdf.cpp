#include "train/netcdf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netcdf.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/error.h"
#include "train/netcdf_check.h"
#include "train/netcdf_decode.h"

namespace tessera::data {
namespace {

// The NetCDF library keeps global tables without locks, and ranks may be threads of one process.
std::mutex& library_lock() {
  static std::mutex lock;
  return lock;
}

constexpr const char* kOp = "NetCdfFile";

void check(int status, const std::string& path, const char* doing) {
  if (status != NC_NOERR) TS_FAIL(Io, kOp, "'{}': {}: {}", path, doing, nc_strerror(status));
}

// Where a variable lies and how its values are read.
struct Handle {
  int group = 0;
  int id = 0;
  Decoder decoder;
  bool numeric = false;
};

std::string type_name(int group, nc_type type) {
  std::array<char, NC_MAX_NAME + 1> name{};
  std::size_t size = 0;
  return nc_inq_type(group, type, name.data(), &size) == NC_NOERR ? name.data()
                                                                  : fmt::format("type {}", type);
}

template <class T, class Get>
std::vector<T> attribute_values(std::size_t n, Get get, int& status) {
  std::vector<T> values(n);
  if (n > 0) status = get(values.data());
  return values;
}

class Reader {
 public:
  Reader(int ncid, const std::string& path) : ncid_(ncid), path_(path) {}

  std::vector<NetCdfAttribute> attributes(int group, int variable) const {
    int n = 0;
    check(nc_inq_varnatts(group, variable, &n), path_, "attributes");
    std::vector<NetCdfAttribute> result;
    for (int i = 0; i < n; ++i) {
      std::array<char, NC_MAX_NAME + 1> name{};
      check(nc_inq_attname(group, variable, i, name.data()), path_, "attribute name");
      NetCdfAttribute a = attribute(group, variable, name.data());
      if (!a.type.empty()) result.push_back(std::move(a));
    }
    return result;
  }

  // Variables of a group and of the groups in it.
  void variables(int group, const std::string& prefix, std::vector<NetCdfVariable>& list,
                 std::vector<Handle>& handles) const {
    int n = 0;
    check(nc_inq_nvars(group, &n), path_, "variables");
    for (int id = 0; id < n; ++id) {
      list.push_back(variable(group, id, prefix));
      handles.push_back(handle(group, id, list.back()));
    }
    int groups = 0;
    check(nc_inq_grps(group, &groups, nullptr), path_, "groups");
    std::vector<int> ids(static_cast<std::size_t>(groups));
    if (groups > 0) check(nc_inq_grps(group, nullptr, ids.data()), path_, "groups");
    for (int child : ids) {
      std::array<char, NC_MAX_NAME + 1> name{};
      check(nc_inq_grpname(child, name.data()), path_, "group name");
      variables(child, prefix + name.data() + "/", list, handles);
    }
  }

 private:
  NetCdfAttribute attribute(int group, int variable, const char* name) const {
    NetCdfAttribute a;
    a.name = name;
    nc_type type = NC_NAT;
    std::size_t n = 0;
    check(nc_inq_att(group, variable, name, &type, &n), path_, "attribute");
    int status = NC_NOERR;
    const auto get = [&](auto f) { return [=](auto* out) { return f(group, variable, name, out); }; };
    if (type == NC_CHAR) {
      std::string text(n, '\0');
      if (n > 0) status = nc_get_att_text(group, variable, name, text.data());
      while (!text.empty() && text.back() == '\0') text.pop_back();
      a.value = std::move(text);
    } else if (type == NC_STRING) {
      std::vector<char*> strings(n);
      if (n > 0) status = nc_get_att_string(group, variable, name, strings.data());
      std::string text;
      for (const char* s : strings) text += (text.empty() ? "" : "\n") + std::string(s == nullptr ? "" : s);
      if (n > 0 && status == NC_NOERR) nc_free_string(n, strings.data());
      a.value = std::move(text);
    } else if (type == NC_FLOAT || type == NC_DOUBLE) {
      a.value = attribute_values<double>(n, get(nc_get_att_double), status);
    } else if (type == NC_UBYTE || type == NC_USHORT || type == NC_UINT || type == NC_UINT64) {
      std::vector<unsigned long long> values =
          attribute_values<unsigned long long>(n, get(nc_get_att_ulonglong), status);
      a.value = std::vector<std::uint64_t>(values.begin(), values.end());
    } else if (type == NC_BYTE || type == NC_SHORT || type == NC_INT || type == NC_INT64) {
      std::vector<long long> values = attribute_values<long long>(n, get(nc_get_att_longlong), status);
      a.value = std::vector<std::int64_t>(values.begin(), values.end());
    } else {
      return a;  // of a user's own type: says nothing about numbers
    }
    check(status, path_, "attribute value");
    a.type = type_name(group, type);
    return a;
  }

  NetCdfVariable variable(int group, int id, const std::string& prefix) const {
    NetCdfVariable v;
    std::array<char, NC_MAX_NAME + 1> name{};
    nc_type type = NC_NAT;
    int rank = 0;
    check(nc_inq_var(group, id, name.data(), &type, &rank, nullptr, nullptr), path_, "variable");
    std::vector<int> dims(static_cast<std::size_t>(rank));
    if (rank > 0) check(nc_inq_vardimid(group, id, dims.data()), path_, "dims");
    v.name = prefix + name.data();
    v.type = type_name(group, type);
    const std::vector<int> unlimited = unlimited_dims(group);
    for (int dim : dims) {
      std::array<char, NC_MAX_NAME + 1> dim_name{};
      std::size_t length = 0;
      check(nc_inq_dim(group, dim, dim_name.data(), &length), path_, "dim");
      const bool grows = std::find(unlimited.begin(), unlimited.end(), dim) != unlimited.end();
      v.dims.push_back({dim_name.data(), static_cast<std::int64_t>(length), grows});
    }
    v.attributes = attributes(group, id);
    return v;
  }

  // Those of the group and of the groups around it, whose dims its variables may use.
  std::vector<int> unlimited_dims(int group) const {
    std::vector<int> all;
    for (int at = group, parent = 0;; at = parent) {
      int n = 0;
      check(nc_inq_unlimdims(at, &n, nullptr), path_, "unlimited dims");
      std::vector<int> here(static_cast<std::size_t>(n));
      if (n > 0) check(nc_inq_unlimdims(at, &n, here.data()), path_, "unlimited dims");
      all.insert(all.end(), here.begin(), here.end());
      if (nc_inq_grp_parent(at, &parent) != NC_NOERR) return all;
    }
  }

  Handle handle(int group, int id, NetCdfVariable& v) const {
    Handle h;
    h.group = group;
    h.id = id;
    nc_type type = NC_NAT;
    check(nc_inq_vartype(group, id, &type), path_, "type");
    h.numeric = type >= NC_BYTE && type <= NC_UINT64 && type != NC_CHAR;
    if (!h.numeric) return h;
    int format = 0;
    int no_fill = 0;
    check(nc_inq_format(ncid_, &format), path_, "format");
    if (format == NC_FORMAT_NETCDF4 || format == NC_FORMAT_NETCDF4_CLASSIC)
      check(nc_inq_var_fill(group, id, &no_fill, nullptr), path_, "fill mode");
    h.decoder = make_decoder(v, no_fill == 0);
    return h;
  }

  int ncid_;
  const std::string& path_;
};

// "op: message" without the op.
std::string bare_message(const Error& e) {
  const std::string prefix = e.op() + ": ";
  return e.message().rfind(prefix, 0) == 0 ? e.message().substr(prefix.size()) : e.message();
}

}  // namespace

std::string NetCdfAttribute::text() const {
  const std::string* s = std::get_if<std::string>(&value);
  return s != nullptr ? *s : std::string();
}

std::vector<double> NetCdfAttribute::numbers() const {
  return std::visit(
      [](const auto& list) {
        std::vector<double> result;
        if constexpr (!std::is_same_v<std::decay_t<decltype(list)>, std::string>)
          for (auto x : list) result.push_back(static_cast<double>(x));
        return result;
      },
      value);
}

const NetCdfAttribute* NetCdfVariable::attribute(const std::string& wanted) const {
  for (const NetCdfAttribute& a : attributes)
    if (a.name == wanted) return &a;
  return nullptr;
}

Dims NetCdfVariable::sizes() const {
  TS_CHECK(dims.size() <= Dims::kMax, kOp, "variable '{}' has {} dims, at most {} are allowed", name,
           dims.size(), Dims::kMax);
  Dims result;
  for (const NetCdfDim& d : dims) result.push_back(d.size);
  return result;
}

struct NetCdfFile::State {
  std::string path;
  std::string format;
  std::int64_t length = 0;
  int ncid = -1;
  std::vector<NetCdfVariable> variables;
  std::vector<NetCdfAttribute> attributes;
  std::vector<Handle> handles;  // beside `variables`
  std::int64_t bytes_read = 0;

  ~State() {
    const std::scoped_lock lock(library_lock());
    if (ncid >= 0) nc_close(ncid);
  }
};

NetCdfFile::NetCdfFile(const std::string& path) : state_(std::make_unique<State>()) {
  const FileCheck found = check_netcdf_file(path);
  if (!found.problem.empty()) TS_FAIL(Io, kOp, "file '{}' {}", path, found.problem);
  state_->path = path;
  state_->format = found.format;
  state_->length = found.length;
  const std::scoped_lock lock(library_lock());
  const int status = nc_open(path.c_str(), NC_NOWRITE, &state_->ncid);
  if (status != NC_NOERR) {
    state_->ncid = -1;
    TS_FAIL(Io, kOp, "file '{}' cannot be opened as NetCDF: {}", path, nc_strerror(status));
  }
  const Reader reader(state_->ncid, state_->path);
  state_->attributes = reader.attributes(state_->ncid, NC_GLOBAL);
  reader.variables(state_->ncid, "", state_->variables, state_->handles);
}

NetCdfFile::~NetCdfFile() = default;
NetCdfFile::NetCdfFile(NetCdfFile&&) noexcept = default;
NetCdfFile& NetCdfFile::operator=(NetCdfFile&&) noexcept = default;

NetCdfFile NetCdfFile::open_on_all(const Communicator& comm, const std::string& path) {
  std::optional<NetCdfFile> file;
  std::string failure;
  try {
    file.emplace(path);
  } catch (const Error& e) {
    failure = bare_message(e);
  }
  agree(comm, kOp, failure);
  std::string content = fmt::format("{} bytes", file->state_->length);
  for (const NetCdfVariable& v : file->variables()) {
    content += fmt::format(", {}", v.name);
    for (const NetCdfDim& d : v.dims) content += fmt::format(" {}", d.size);
  }
  const std::vector<std::string> seen = comm.all_gather_bytes(content);
  for (std::size_t r = 1; r < seen.size(); ++r)
    if (seen[r] != seen[0])
      TS_FAIL(Io, kOp, "file '{}' is not the same on all ranks: rank 0 sees {}; rank {} sees {}", path,
              seen[0], r, seen[r]);
  return std::move(*file);
}

const std::string& NetCdfFile::path() const { return state_->path; }
const std::string& NetCdfFile::format() const { return state_->format; }
const std::vector<NetCdfVariable>& NetCdfFile::variables() const { return state_->variables; }
const std::vector<NetCdfAttribute>& NetCdfFile::attributes() const { return state_->attributes; }
std::int64_t NetCdfFile::bytes_read() const { return state_->bytes_read; }

const NetCdfVariable& NetCdfFile::variable(const std::string& name) const {
  std::vector<std::string> names;
  for (const NetCdfVariable& v : state_->variables) {
    if (v.name == name) return v;
    names.push_back(v.name);
  }
  TS_FAIL(Usage, kOp, "file '{}' has no variable '{}'; it has {}", state_->path, name,
          names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", ")));
}

Array NetCdfFile::read(const std::string& name, const Box& box, DType out) const {
  const NetCdfVariable& v = variable(name);
  const Handle& h = state_->handles[static_cast<std::size_t>(&v - state_->variables.data())];
  TS_CHECK(h.numeric, kOp, "variable '{}' of '{}' holds {} values, numbers are needed", name, state_->path,
           v.type);
  const Dims sizes = v.sizes();
  TS_CHECK(box.lo.size() == sizes.size() && box.extent.size() == sizes.size(), kOp,
           "variable '{}' has sizes {}, the box has {} dims", name, sizes.str(), box.extent.size());
  std::vector<std::size_t> start(1);  // never empty: a scalar's are not looked at, but must be there
  std::vector<std::size_t> count(1);
  for (int d = 0; d < sizes.size(); ++d) {
    TS_CHECK(box.lo[d] >= 0 && box.extent[d] >= 0 && box.lo[d] <= sizes[d] - box.extent[d], kOp,
             "box at {} of extent {} leaves variable '{}' of sizes {} in dim {} ('{}')", box.lo.str(),
             box.extent.str(), name, sizes.str(), d, v.dims[static_cast<std::size_t>(d)].name);
    start.resize(static_cast<std::size_t>(d) + 1);
    count.resize(static_cast<std::size_t>(d) + 1);
    start.back() = static_cast<std::size_t>(box.lo[d]);
    count.back() = static_cast<std::size_t>(box.extent[d]);
  }
  const bool stored_floats = h.decoder.type == Stored::F32 || h.decoder.type == Stored::F64;
  TS_CHECK(is_floating(out) || (!stored_floats && (out == DType::I32 || out == DType::I64)), kOp,
           "variable '{}' holds {} values and cannot be read as {}; allowed are {}", name, v.type,
           name_of(out), stored_floats ? "f32, f64, bf16, f16" : "f32, f64, bf16, f16, i32, i64");
  Array result = Array::empty(box.extent, out);
  if (box.numel() == 0) return result;
  const std::int64_t bytes = box.numel() * size_of(h.decoder.type);
  std::vector<std::uint64_t> stored(static_cast<std::size_t>((bytes + 7) / 8));  // aligned for every type
  {
    const std::scoped_lock lock(library_lock());
    const int status = nc_get_vara(h.group, h.id, start.data(), count.data(), stored.data());
    if (status != NC_NOERR)
      TS_FAIL(Io, kOp, "variable '{}' of '{}': {}", name, state_->path, nc_strerror(status));
  }
  state_->bytes_read += bytes;
  decode(h.decoder, stored.data(), result);
  return result;
}

Array NetCdfFile::read_all(const std::string& name, DType out) const {
  const Dims sizes = variable(name).sizes();
  return read(name, {Dims::filled(sizes.size(), 0), sizes}, out);
}

}  // namespace tessera::data
