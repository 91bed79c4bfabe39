#include "train/netcdf_decode.h"

#include <fmt/format.h>
#include <netcdf.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/error.h"

namespace tessera::data {
namespace {

template <class F>
decltype(auto) dispatch_stored(Stored type, F&& f) {
  switch (type) {
    case Stored::I8:
      return f(TypeTag<std::int8_t>{});
    case Stored::U8:
      return f(TypeTag<std::uint8_t>{});
    case Stored::I16:
      return f(TypeTag<std::int16_t>{});
    case Stored::U16:
      return f(TypeTag<std::uint16_t>{});
    case Stored::I32:
      return f(TypeTag<std::int32_t>{});
    case Stored::U32:
      return f(TypeTag<std::uint32_t>{});
    case Stored::I64:
      return f(TypeTag<std::int64_t>{});
    case Stored::U64:
      return f(TypeTag<std::uint64_t>{});
    case Stored::F32:
      return f(TypeTag<float>{});
    case Stored::F64:
      return f(TypeTag<double>{});
  }
  __builtin_unreachable();
}

template <class T>
T get(Decoder::Value v) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(v.f);
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(v.i);
  else
    return static_cast<T>(v.u);
}

template <class T>
Decoder::Value put(T value) {
  Decoder::Value v{};
  if constexpr (std::is_floating_point_v<T>)
    v.f = value;
  else if constexpr (std::is_signed_v<T>)
    v.i = value;
  else
    v.u = value;
  return v;
}

// `x` as a T, if T can hold it.
template <class T, class X>
std::optional<T> exactly(X x) {
  if constexpr (std::is_floating_point_v<T>) {
    const T rounded = static_cast<T>(x);
    if constexpr (std::is_floating_point_v<X>)
      if (std::isinf(rounded) && !std::isinf(x)) return std::nullopt;
    return rounded;
  } else if constexpr (std::is_floating_point_v<X>) {
    // Both bounds are powers of two, so exact in double.
    const double low = static_cast<double>(std::numeric_limits<T>::min());
    const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (!(x >= low && x < high) || x != std::floor(x)) return std::nullopt;
    return static_cast<T>(x);
  } else {
    if (!std::in_range<T>(x)) return std::nullopt;
    return static_cast<T>(x);
  }
}

// With `_Unsigned`, attributes are written in the stored type and mean the same bits.
template <class T, class X>
std::optional<T> same_bits(X x, bool reinterpret) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<X>) {
    using Other = std::conditional_t<std::is_signed_v<T>, std::make_unsigned_t<T>, std::make_signed_t<T>>;
    if (reinterpret && !std::in_range<T>(x) && std::in_range<Other>(x)) return static_cast<T>(x);
  }
  return exactly<T>(x);
}

std::vector<std::optional<Decoder::Value>> values_of(const NetCdfAttribute& a, Stored type,
                                                     bool reinterpret) {
  std::vector<std::optional<Decoder::Value>> result;
  dispatch_stored(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::visit(
        [&](const auto& list) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(list)>, std::string>) {
            for (auto x : list) {
              const std::optional<T> value = same_bits<T>(x, reinterpret);
              result.push_back(value ? std::optional(put<T>(*value)) : std::nullopt);
            }
          }
        },
        a.value);
  });
  return result;
}

bool equals(const std::string& text, std::string_view word) {
  if (text.size() != word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(text[i])) != word[i]) return false;
  return true;
}

struct TypeRow {
  const char* name;
  Stored type;
  Stored other_sign;
};
constexpr TypeRow kTypes[] = {
    {"byte", Stored::I8, Stored::U8},    {"ubyte", Stored::U8, Stored::I8},
    {"short", Stored::I16, Stored::U16}, {"ushort", Stored::U16, Stored::I16},
    {"int", Stored::I32, Stored::U32},   {"uint", Stored::U32, Stored::I32},
    {"int64", Stored::I64, Stored::U64}, {"uint64", Stored::U64, Stored::I64},
    {"float", Stored::F32, Stored::F32}, {"double", Stored::F64, Stored::F64},
};

// The fill value that the library writes where nothing was written, by the type in the file.
std::optional<Decoder::Value> default_fill_of(const TypeRow& row) {
  switch (row.type) {
    case Stored::I16:
      return put<std::int16_t>(NC_FILL_SHORT);
    case Stored::U16:
      return put<std::uint16_t>(NC_FILL_USHORT);
    case Stored::I32:
      return put<std::int32_t>(NC_FILL_INT);
    case Stored::U32:
      return put<std::uint32_t>(NC_FILL_UINT);
    case Stored::I64:
      return put<std::int64_t>(NC_FILL_INT64);
    case Stored::U64:
      return put<std::uint64_t>(NC_FILL_UINT64);
    case Stored::F32:
      return put<float>(NC_FILL_FLOAT);
    case Stored::F64:
      return put<double>(NC_FILL_DOUBLE);
    default:
      return std::nullopt;  // every value of a byte may be data
  }
}

class DecoderBuilder {
 public:
  explicit DecoderBuilder(NetCdfVariable& variable) : variable_(variable) {
    for (const TypeRow& row : kTypes)
      if (variable.type == row.name) row_ = &row;
    TS_CHECK(row_ != nullptr, "NetCdfFile", "variable '{}' holds {} values, which are no numbers",
             variable.name, variable.type);
    result_.type = row_->type;
    if (const NetCdfAttribute* a = variable.attribute("_Unsigned")) {
      const bool to_unsigned = equals(a->text(), "true") && variable.type[0] != 'u';
      const bool to_signed = equals(a->text(), "false") && variable.type[0] == 'u';
      if (to_unsigned || to_signed) result_.type = row_->other_sign;
    }
  }

  Decoder build(bool default_fill) {
    const bool has_fill = !numbers("_FillValue", 1).empty();
    for (const char* name : {"_FillValue", "missing_value"})
      for (const auto& value : numbers(name, 0)) result_.missing.push_back(value);
    if (!has_fill && default_fill) {
      if (const auto fill = default_fill_of(*row_)) result_.missing.push_back(*fill);
    }
    if (const auto range = numbers("valid_range", 2); !range.empty()) {
      set_min(range[0]);
      set_max(range[1]);
    }
    if (const auto low = numbers("valid_min", 1); !low.empty()) set_min(low[0]);
    if (const auto high = numbers("valid_max", 1); !high.empty()) set_max(high[0]);
    result_.scale = factor("scale_factor", 1.0);
    result_.offset = factor("add_offset", 0.0);
    return std::move(result_);
  }

 private:
  void warn(const std::string& name, const std::string& why) {
    for (const std::string& w : variable_.warnings)
      if (w.rfind("'" + name + "'", 0) == 0) return;
    variable_.warnings.push_back(
        fmt::format("'{}' of variable '{}' is left aside: {}", name, variable_.name, why));
  }
  // The usable values of an attribute; `wanted` > 0: just so many, and all of them, or none.
  std::vector<Decoder::Value> numbers(const std::string& name, std::size_t wanted) {
    std::vector<Decoder::Value> usable;
    const NetCdfAttribute* a = variable_.attribute(name);
    if (a == nullptr) return usable;
    const auto all = values_of(*a, result_.type, result_.type != row_->type);
    for (const auto& value : all)
      if (value) usable.push_back(*value);
    if (a->is_text()) {
      warn(name, "it is text");
    } else if (usable.size() != all.size()) {
      warn(name, fmt::format("its {} value does not fit the variable's type {}", a->type, variable_.type));
      if (wanted > 0) usable.clear();
    } else if (wanted > 0 && usable.size() != wanted) {
      warn(name, fmt::format("it has {} values where {} is meant", usable.size(), wanted));
      usable.clear();
    }
    return usable;
  }
  double factor(const std::string& name, double otherwise) {
    const NetCdfAttribute* a = variable_.attribute(name);
    if (a == nullptr) return otherwise;
    const std::vector<double> values = a->numbers();
    if (values.size() == 1) return values[0];
    warn(name, "it is not one number");
    return otherwise;
  }
  void set_min(Decoder::Value v) { result_.has_min = true, result_.min = v; }
  void set_max(Decoder::Value v) { result_.has_max = true, result_.max = v; }

  NetCdfVariable& variable_;
  const TypeRow* row_ = nullptr;
  Decoder result_;
};

template <class T, class Out>
void decode_values(const Decoder& d, const T* in, Out* out, std::int64_t n) {
  std::vector<T> missing;
  for (const Decoder::Value& v : d.missing) missing.push_back(get<T>(v));
  const T low = get<T>(d.min);
  const T high = get<T>(d.max);
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = in[i];
    bool gone = (d.has_min && x < low) || (d.has_max && x > high);
    for (const T m : missing) gone = gone || x == m;
    const double value = static_cast<double>(x) * d.scale + d.offset;
    out[i] = gone ? Out(std::numeric_limits<float>::quiet_NaN()) : Out(static_cast<float>(value));
    if constexpr (std::is_same_v<Out, double>)
      out[i] = gone ? std::numeric_limits<double>::quiet_NaN() : value;
  }
}

}  // namespace

std::int64_t size_of(Stored type) {
  return dispatch_stored(
      type, [](auto tag) { return static_cast<std::int64_t>(sizeof(typename decltype(tag)::type)); });
}

Decoder make_decoder(NetCdfVariable& variable, bool default_fill) {
  return DecoderBuilder(variable).build(default_fill);
}

void decode(const Decoder& decoder, const void* stored, const Array& out) {
  dispatch_stored(decoder.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = static_cast<const T*>(stored);
    if (is_floating(out.dtype())) {
      dispatch_floating(out.dtype(), [&](auto out_tag) {
        using Out = typename decltype(out_tag)::type;
        decode_values<T, Out>(decoder, in, out.data<Out>(), out.numel());
      });
      return;
    }
    dispatch(out.dtype(), [&](auto out_tag) {
      using Out = typename decltype(out_tag)::type;
      if constexpr (std::is_integral_v<Out>)
        for (std::int64_t i = 0; i < out.numel(); ++i) out.data<Out>()[i] = static_cast<Out>(in[i]);
    });
  });
}

}  // namespace tessera::data
