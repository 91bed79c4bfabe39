// How the list of subjects grows, by file. Internal to bench/overhead*.
#pragma once
#include <initializer_list>
#include <memory>
#include <utility>

#include "bench/overhead_subjects.h"
#include "ops/random/random.h"

namespace tessera::bench {

inline const Dims kRows{4, 8};
inline const Dims kLine{1, 4, 4};
inline const Dims kMap{1, 4, 4, 4};
inline const Dims kVolume{1, 4, 2, 2, 2};

// The list as it grows, and the other operands, on one device. What `add` returns is good until the next one.
class Subjects {
 public:
  explicit Subjects(Device device) : device_(device) {}
  Device device() const { return device_; }

  Tensor filled(const Dims& sizes, DType dtype = DType::F32) const;
  Tensor numbers(const Dims& sizes, std::int64_t below) const;
  Tensor mask(const Dims& sizes) const;

  struct Name {
    std::string op;
    std::string how = {};
  };
  // Of x of `local` sizes, cut along `dim`.
  template <class F>
  Subject& add(const Name& name, const Dims& local, int dim, F f) {
    return list_.emplace_back(
        Subject{name.op, name.how, local, dim, [f](const Tensor& x, const Tensor&) { return f(x); }});
  }
  template <class F>
  Subject& add_rows(const Name& name, F f) {
    return add(name, kRows, 0, f);
  }
  // Of rows cut along dim 0 and numbers of `sizes`.
  template <class F>
  Subject& add_numbered(const Name& name, const Dims& sizes, F f) {
    return list_.emplace_back(Subject{name.op, name.how, kRows, 0, f, sizes});
  }
  // Sends something under every cut, so that it is measured plain alone. Left out on a device where the host
  // works on it, and would wait.
  template <class F>
  void add_asking(const Name& name, const Dims& local, F f, bool on_host = false) {
    if (on_host && device_ != Device::Cpu) return;
    add(name, local, 0, f).asks = true;
  }
  // Of x and a generator that begins anew in every call.
  template <class F>
  void add_drawn(const Name& name, F f) {
    const auto generator = std::make_shared<Generator>(7);
    add_rows(name, [f, generator](const Tensor& x) {
      generator->set_stream(0);
      return f(x, *generator);
    }).draws = true;
  }
  std::vector<Subject> take() { return std::move(list_); }

 private:
  Device device_;
  std::vector<Subject> list_;
};

// The ways through an operation that its plain call does not take.
void add_row_options(Subjects& s);  // overhead_options.cpp
void add_map_options(Subjects& s);  // overhead_map_options.cpp

}  // namespace tessera::bench
