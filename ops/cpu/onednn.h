// oneDNN: engine, streams and our own store of primitives.
//
// Creating a primitive costs up to 300 us and finding one in oneDNN's cache over 1 us, so we keep them ready
// to run, with their memory objects, under a key of our own (shapes, strides, types, threads). Keys and
// values belong to one thread: a lookup takes no lock, and oneDNN's scratch memory is per thread as well.
#pragma once
#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/array.h"

namespace tessera::cpu::onednn {

dnnl_engine_t engine();
dnnl_stream_t stream();  // this thread's
// Makes the next primitives of this thread use so many threads.
void use_threads(int threads);

void check(dnnl_status_t status, const char* what);

struct DescDeleter {
  void operator()(dnnl_memory_desc_t d) const { dnnl_memory_desc_destroy(d); }
};
struct MemoryDeleter {
  void operator()(dnnl_memory_t m) const { dnnl_memory_destroy(m); }
};
struct PrimitiveDescDeleter {
  void operator()(dnnl_primitive_desc_t p) const { dnnl_primitive_desc_destroy(p); }
};
struct PrimitiveDeleter {
  void operator()(dnnl_primitive_t p) const { dnnl_primitive_destroy(p); }
};
using Desc = std::unique_ptr<dnnl_memory_desc, DescDeleter>;
using Memory = std::unique_ptr<dnnl_memory, MemoryDeleter>;
using PrimitiveDesc = std::unique_ptr<dnnl_primitive_desc, PrimitiveDescDeleter>;
using Primitive = std::unique_ptr<dnnl_primitive, PrimitiveDeleter>;

dnnl_data_type_t type_of(DType t);
Desc make_desc(const Dims& sizes, const Dims& strides, DType dtype);
Desc make_any_desc(const Dims& sizes, DType dtype);
Desc copy_desc(const_dnnl_memory_desc_t desc);
Memory make_memory(const_dnnl_memory_desc_t desc);  // no data yet

// A primitive, its memory objects and the order in which callers give their pointers.
class Plan {
 public:
  explicit Plan(PrimitiveDesc desc);
  void add_argument(int index, const_dnnl_memory_desc_t desc);
  // Pointers in the order of add_argument.
  void run(std::initializer_list<const void*> data);
  const_dnnl_primitive_desc_t desc() const { return desc_.get(); }

 private:
  PrimitiveDesc desc_;
  Primitive primitive_;
  std::vector<Memory> memories_;
  std::vector<dnnl_exec_arg_t> args_;
};

// The primitive descriptor that a create function gave, with `status`; null where oneDNN has no
// implementation or only its reference loops, which are a hundred times slower than ours.
PrimitiveDesc accepted(dnnl_status_t status, dnnl_primitive_desc_t desc);

// Integers that say everything about a primitive.
class Key {
 public:
  void add(std::int64_t value) { values_[n_++] = value; }
  void add(const Dims& dims) {
    add(dims.size());
    for (std::int64_t d : dims) add(d);
  }
  bool operator==(const Key& o) const {
    return n_ == o.n_ &&
           std::equal(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(n_), o.values_.begin());
  }
  std::size_t hash() const {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL;
    for (std::size_t i = 0; i < n_; ++i) {
      h = (h ^ static_cast<std::uint64_t>(values_[i])) * 0xff51afd7ed558ccdULL;
      h ^= h >> 32U;
    }
    return h;
  }

 private:
  std::array<std::int64_t, 64> values_;  // eight dims, seven lists
  std::size_t n_ = 0;
};

// Two generations: when the young one is full it becomes the old one, and the old one goes. What is used
// stays.
template <class Value, std::size_t capacity = 256>
class Cache {
 public:
  // make() is called once per key; its result may be null and is then kept as null.
  template <class Make>
  Value* get(const Key& key, const Make& make) {
    const auto found = young_.find(key);
    if (found != young_.end()) return found->second.get();
    std::unique_ptr<Value> value;
    const auto old = old_.find(key);
    if (old != old_.end()) {
      value = std::move(old->second);
      old_.erase(old);
    } else {
      value = make();
    }
    if (young_.size() >= capacity) {
      old_ = std::move(young_);
      young_.clear();
    }
    return young_.emplace(key, std::move(value)).first->second.get();
  }

 private:
  struct Hash {
    std::size_t operator()(const Key& k) const { return k.hash(); }
  };
  using Map = std::unordered_map<Key, std::unique_ptr<Value>, Hash>;
  Map young_;
  Map old_;
};

}  // namespace tessera::cpu::onednn
