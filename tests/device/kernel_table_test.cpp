// The table of kernels, column by column: what the CPU has, the device has, too.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/device/kernel_list.h"  // made at build time

using namespace tessera;

namespace {

// Kernels that one device alone has, and why.
struct Alone {
  std::string_view kernel;
  Device device;
  std::string_view why;
};
constexpr Alone kAlone[] = {
    {"tessera::random_fill_kernel", Device::Cuda,
     "on the CPU the functions of rng.h draw by loops of their own (runtime/rng_fill.cpp)"},
};

// Collects what is not in the table as it should be.
class Table {
 public:
  template <class Signature>
  void operator()(std::string_view name, const Kernel<Signature>& kernel) {
    seen_.insert(name);
    for (const Device device : {Device::Cpu, Device::Cuda})
      if (kernel.has(device) != expected(name, device)) wrong_.push_back({name, device});
  }
  bool seen(std::string_view name) const { return seen_.count(name) == 1; }
  // "tessera::kernels::relu on cuda", sorted.
  std::vector<std::string> wrong() const {
    std::vector<std::string> lines;
    for (const auto& [name, device] : wrong_)
      lines.push_back(std::string(name) + " on " + std::string(name_of(device)));
    std::sort(lines.begin(), lines.end());
    return lines;
  }

 private:
  static bool expected(std::string_view name, Device device) {
    return std::none_of(std::begin(kAlone), std::end(kAlone),
                        [&](const Alone& a) { return a.kernel == name && a.device != device; });
  }
  struct Wrong {
    std::string_view name;
    Device device;
  };
  std::set<std::string_view> seen_;
  std::vector<Wrong> wrong_;
};

void nothing(int) {}

}  // namespace

TEST_CASE("every kernel of the CPU has an entry for the device", "[device]") {
  Table table;
  for_each_kernel(table);
  CHECK(table.wrong() == std::vector<std::string>{});
  for (const Alone& a : kAlone) CHECK(table.seen(a.kernel));
  // One of every part of the library, so that the list is what it should be.
  for (const char* name :
       {"tessera::copy_kernel", "tessera::reduce_blocks_kernel", "tessera::kernels::matmul",
        "tessera::kernels::adamw", "tessera::kernels::points::nearest"}) {
    INFO(name);
    CHECK(table.seen(name));
  }
}

TEST_CASE("a kernel without an entry for the device is told by its name", "[device]") {
  Table table;
  Kernel<void(int)> late{"late", &nothing};
  table("late", late);
  CHECK(table.wrong() == std::vector<std::string>{"late on cuda"});
  late.set(Device::Cuda, &nothing);
  Table filled;
  filled("late", late);
  CHECK(filled.wrong().empty());
}
