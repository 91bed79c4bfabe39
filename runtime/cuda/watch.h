// What kernels find wrong with the values they are given, without the host waiting to hear of it.
//
//   ValueWatch watch("embedding", [](std::int64_t wrong) { return fmt::format(...); });
//   launch(... watch.slot() ...);         // a kernel that meets a wrong value writes it to slot()[1], then,
//                                         // after fence_for_host(), 1 to slot()[0]
//   watch.launched(stream);
//
// The host looks when it next waits for the device (reading a value, Array::at, a copy to the host,
// synchronize): that call refuses, under the name and with the text given here. Until then the work goes on
// with whatever the kernel put in place of the wrong value. A host that is dozens of such kernels ahead of
// the device waits for one of them (counted), and hears nothing then.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "runtime/cuda/staging.h"

namespace tessera::cuda {

class ValueWatch {
 public:
  ValueWatch(const char* op, std::function<std::string(std::int64_t)> refusal);
  // Two numbers in page-locked memory, both 0.
  std::int64_t* slot() const { return static_cast<std::int64_t*>(buffer_->data()); }
  void launched(StreamHandle stream);

 private:
  const char* op_;
  std::function<std::string(std::int64_t)> refusal_;
  std::unique_ptr<StagingBuffer> buffer_;
};

// After the host has waited: refuses what has been found since the last time.
void check_watches();

}  // namespace tessera::cuda
