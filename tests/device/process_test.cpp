// What a process and its threads do with devices of their host before they use one, and in a process whose
// environment asks for checks (TESSERA_CHECK_CALLS=1). On an emulated host of two devices; the order of the
// cases matters.
#include <catch2/catch.hpp>
#include <thread>

#include "emulated/streams.h"
#include "ops/ops.h"
#include "runtime/device.h"
#include "tests/support/world.h"

using namespace tessera;

TEST_CASE("who uses the CPU only opens no context on a device", "[device]") {
  test_world();  // says which device is this rank's
  select_device(Device::Cuda, 1);
  const Tensor x(Array::full({3}, 2, DType::F64));
  CHECK((x * x).to_vector() == std::vector<double>(3, 4.0));
  synchronize(Device::Cuda);
  CHECK(is_available(Device::Cuda));
  CHECK(emulated::counters().contexts == 0);
}

TEST_CASE("every thread works on the device of its process", "[device]") {
  const Tensor x(Array::full({3}, 2, DType::F64, Device::Cuda));
  std::vector<double> seen;
  std::thread([&] { seen = (x * x).to_vector(); }).join();
  CHECK(seen == std::vector<double>(3, 4.0));
  CHECK((x + x).to_vector() == std::vector<double>(3, 4.0));
  CHECK(emulated::counters().contexts == 0b10);
}

TEST_CASE("a process keeps to the device that it uses", "[device]") {
  select_device(Device::Cuda, 3);  // of two devices the same one
  CHECK_THROWS_WITH(select_device(Device::Cuda, 0),
                    Catch::Contains("device 0 was given, but this process uses device 1 already"));
}

TEST_CASE("checks that the environment asks for hold for plain tensors", "[device]") {
  const Tensor x(Array::full({2, 3}, 1, DType::F32, Device::Cuda));
  const Tensor target(Array::full({2}, 3, DType::I64, Device::Cuda));
  CHECK_THROWS_WITH(cross_entropy(x, target), Catch::Contains("target 3 is out of range for 3 classes"));
}
