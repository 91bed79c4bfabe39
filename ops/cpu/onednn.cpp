#include "ops/cpu/onednn.h"

#include <omp.h>

#include <cstring>

#include "ops/cpu/isa.h"
#include "runtime/error.h"

namespace tessera::cpu::onednn {

void check(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  TS_FAIL(Backend, what, "oneDNN failed with status {}{}", static_cast<int>(status),
          status == dnnl_out_of_memory ? " (out of memory)" : "");
}

namespace {

// The limit must be set before oneDNN looks at the processor; later calls are refused, which is no fault.
void limit_isa() {
  switch (active_isa()) {
    case Isa::Avx2:
      dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
      break;
    case Isa::Baseline:
      dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
      break;
    default:
      break;
  }
}

struct ThreadStream {
  dnnl_stream_t handle = nullptr;
  ThreadStream() { check(dnnl_stream_create(&handle, engine(), dnnl_stream_default_flags), "oneDNN stream"); }
  ~ThreadStream() { dnnl_stream_destroy(handle); }
  ThreadStream(const ThreadStream&) = delete;
  ThreadStream& operator=(const ThreadStream&) = delete;
};

}  // namespace

// Never destroyed: threads may still hold primitives when the process's static objects go.
dnnl_engine_t engine() {
  static dnnl_engine_t shared = [] {
    limit_isa();
    dnnl_engine_t e = nullptr;
    check(dnnl_engine_create(&e, dnnl_cpu, 0), "oneDNN engine");
    return e;
  }();
  return shared;
}

dnnl_stream_t stream() {
  thread_local ThreadStream own;
  return own.handle;
}

void use_threads(int threads) {
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

dnnl_data_type_t type_of(DType t) {
  switch (t) {
    case DType::F32:
      return dnnl_f32;
    case DType::BF16:
      return dnnl_bf16;
    default:
      TS_FAIL(Internal, "oneDNN", "type {} is not passed to oneDNN", name_of(t));
  }
}

Desc make_desc(const Dims& sizes, const Dims& strides, DType dtype) {
  dnnl_memory_desc_t d = nullptr;
  check(
      dnnl_memory_desc_create_with_strides(&d, sizes.size(), sizes.begin(), type_of(dtype), strides.begin()),
      "oneDNN memory descriptor");
  return Desc(d);
}
Desc make_any_desc(const Dims& sizes, DType dtype) {
  dnnl_memory_desc_t d = nullptr;
  check(
      dnnl_memory_desc_create_with_tag(&d, sizes.size(), sizes.begin(), type_of(dtype), dnnl_format_tag_any),
      "oneDNN memory descriptor");
  return Desc(d);
}
Desc copy_desc(const_dnnl_memory_desc_t desc) {
  dnnl_memory_desc_t d = nullptr;
  check(dnnl_memory_desc_clone(&d, desc), "oneDNN memory descriptor");
  return Desc(d);
}
Memory make_memory(const_dnnl_memory_desc_t desc) {
  dnnl_memory_t m = nullptr;
  check(dnnl_memory_create(&m, desc, engine(), DNNL_MEMORY_NONE), "oneDNN memory");
  return Memory(m);
}

PrimitiveDesc accepted(dnnl_status_t status, dnnl_primitive_desc_t desc) {
  if (status == dnnl_unimplemented || status == dnnl_invalid_arguments) return nullptr;
  check(status, "oneDNN primitive descriptor");
  PrimitiveDesc owned(desc);
  const char* name = nullptr;
  const dnnl_status_t known =
      dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, static_cast<void*>(&name));
  if (known == dnnl_success && std::strncmp(name, "ref", 3) == 0) return nullptr;
  return owned;
}

Plan::Plan(PrimitiveDesc desc) : desc_(std::move(desc)) {
  dnnl_primitive_t p = nullptr;
  check(dnnl_primitive_create(&p, desc_.get()), "oneDNN primitive");
  primitive_ = Primitive(p);
}

void Plan::add_argument(int index, const_dnnl_memory_desc_t desc) {
  memories_.push_back(make_memory(desc));
  args_.push_back({index, memories_.back().get()});
}

void Plan::run(std::initializer_list<const void*> data) {
  std::size_t i = 0;
  for (const void* p : data)
    check(dnnl_memory_set_data_handle(memories_[i++].get(), const_cast<void*>(p)), "oneDNN memory");
  check(dnnl_primitive_execute(primitive_.get(), stream(), static_cast<int>(args_.size()), args_.data()),
        "oneDNN execute");
}

}  // namespace tessera::cpu::onednn
