// The seams of runtime/copy.h on the device.
#include "runtime/copy.h"

#include "runtime/cuda/array_walk.h"
#include "runtime/cuda/copy_kernels.h"
#include "runtime/cuda/register.h"
#include "runtime/cuda/staging.h"
#include "runtime/graph_capture.h"

namespace tessera::cuda {
namespace {

void copy_within(const Array& dst, const Array& src) {
  if (dst.is_contiguous() && src.is_contiguous() && dst.dtype() == src.dtype())
    return copy_on_device(dst.raw(), src.raw(), dst.nbytes(), current_stream());
  copy_elements(walk_of(dst, src), elements_of(dst), elements_of(src), current_stream());
  check_launch("copy");
}

// By way of dense memory of the source's type, converted where the data arrives.
void copy_from_host(const Array& dst, const Array& src) {
  refuse_in_capture("copy",
                    "values of the host would be copied to the device, the same ones at every replay,",
                    "copy them before replay(), into a tensor that the graph reads");
  const Array packed = src.contiguous();
  if (dst.is_contiguous() && dst.dtype() == src.dtype())
    return copy_to_device(dst.raw(), packed.raw(), dst.nbytes(), current_stream());
  const Array there = Array::empty(src.sizes(), src.dtype(), Device::Cuda);
  copy_to_device(there.raw(), packed.raw(), there.nbytes(), current_stream());
  copy_within(dst, there);
}

void copy_from_device(const Array& dst, const Array& src) {
  Array packed = src;
  if (!src.is_contiguous() || src.dtype() != dst.dtype()) {
    packed = Array::empty(src.sizes(), dst.dtype(), Device::Cuda);
    copy_within(packed, src);
  }
  if (dst.is_contiguous()) return copy_to_host(dst.raw(), packed.raw(), dst.nbytes(), current_stream());
  const Array here = Array::empty(dst.sizes(), dst.dtype());
  copy_to_host(here.raw(), packed.raw(), here.nbytes(), current_stream());
  copy_strided(dst, here);
}

void copy_cuda(const Array& dst, const Array& src) {
  if (src.device() == Device::Cpu) return copy_from_host(dst, src);
  if (dst.device() == Device::Cpu) return copy_from_device(dst, src);
  copy_within(dst, src);
}

void fill_cuda(const Array& dst, double value) {
  fill_elements(walk_of(dst), elements_of(dst), value, current_stream());
  check_launch("fill");
}

void add_into_cuda(const Array& dst, const Array& src) {
  const Array to = dst.to(Device::Cuda);
  const Array from = src.to(Device::Cuda);
  add_elements(walk_of(to, from), elements_of(to), elements_of(from), current_stream());
  check_launch("add_into");
  if (dst.device() != Device::Cuda) copy_from_device(dst, to);
}

}  // namespace

void register_copies() {
  copy_kernel.set(Device::Cuda, &copy_cuda);
  fill_kernel.set(Device::Cuda, &fill_cuda);
  add_into_kernel.set(Device::Cuda, &add_into_cuda);
}

}  // namespace tessera::cuda
