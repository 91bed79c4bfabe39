// What the emulated CUDA runtime, cuBLASLt, cuDNN and NCCL refuse, as the real ones do, and what ends a
// process that goes on with what it has destroyed.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>
#include <catch2/catch.hpp>

#include <array>

#include "emulated/streams.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/kernel_context.h"
#include "tests/device/survives.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

cudaStream_t stream_of_test() { return cuda::compute_stream(); }

void* block(std::size_t bytes) {
  cuda::use_device();
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, bytes) == cudaSuccess);
  return p;
}

// Writes a number to an address, whatever that is.
struct Write : cuda::Independent {
  char* to = nullptr;
  TS_DEVICE void operator()(const cuda::Block&) const {
    *cuda::Ptr<double>(reinterpret_cast<double*>(to)) = 1;
  }
};
struct WriteShared : cuda::Cooperative {
  static constexpr int kThreads = 32;
  int offset = 0;
  TS_DEVICE void operator()(const cuda::Block& block) const { *block.shared<double>(offset) = 1; }
};
template <class Kernel>
bool runs(const Kernel& kernel, int shared_bytes) {
  return survives([&] {
    cuda::launch(kernel, {1, 1, shared_bytes}, stream_of_test());
    cudaStreamSynchronize(stream_of_test());
  });
}

// A product of two matrices of 4 by 4 floats, d in place of c where `in_place`.
struct Product {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;  // of a, b and c
  cublasLtMatmulHeuristicResult_t chosen{};
  float one = 1;
  float zero = 0;

  Product() {
    cublasLtMatmulPreference_t preference = nullptr;
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 4, 4, 4) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    const std::uint32_t any = 1;
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, name, &any, sizeof any) ==
              CUBLAS_STATUS_SUCCESS);
    choose(layout, preference);
  }
  void choose(cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference) {
    int found = 0;
    REQUIRE(cublasLtMatmulAlgoGetHeuristic(handle, desc, layout, layout, layout, d, preference, 1, &chosen,
                                           &found) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(found == 1);
  }
  cublasStatus_t run(const void* a, const void* c, void* d, const float* alpha) const {
    return cublasLtMatmul(handle, desc, alpha, a, layout, a, layout, &zero, c, layout, d, layout,
                          &chosen.algo, nullptr, 0, stream_of_test());
  }
};

}  // namespace

TEST_CASE("a stream, an event or a graph that was destroyed is used by nobody", "[device]") {
  cuda::use_device();
  const auto stream = [] {
    cudaStream_t s = nullptr;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    return s;
  };
  const auto event = [] {
    cudaEvent_t e = nullptr;
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    return e;
  };
  for (const bool destroyed : {false, true}) {
    CAPTURE(destroyed);
    const auto on_stream = [&](auto f) {
      return survives([&] {
        cudaStream_t s = stream();
        if (destroyed) cudaStreamDestroy(s);
        f(s);
      });
    };
    CHECK(on_stream([](cudaStream_t s) { cudaStreamSynchronize(s); }) != destroyed);
    CHECK(on_stream([](cudaStream_t s) { cudaStreamDestroy(s); }) != destroyed);
    CHECK(on_stream([](cudaStream_t s) {
            cuda::launch(Write{}, {0, 1, 0}, s), cudaStreamQuery(s);
          }) != destroyed);
    CHECK(on_stream([&](cudaStream_t s) { cudaEventRecord(event(), s); }) != destroyed);
    const auto on_event = [&](auto f) {
      return survives([&] {
        cudaEvent_t e = event();
        if (destroyed) cudaEventDestroy(e);
        f(e);
      });
    };
    CHECK(on_event([](cudaEvent_t e) { cudaEventRecord(e, stream_of_test()); }) != destroyed);
    CHECK(on_event([](cudaEvent_t e) { cudaStreamWaitEvent(stream_of_test(), e, 0); }) != destroyed);
    CHECK(on_event([](cudaEvent_t e) { cudaEventQuery(e); }) != destroyed);
    CHECK(on_event([](cudaEvent_t e) { cudaEventDestroy(e); }) != destroyed);
    CHECK(survives([&] {
            cudaStream_t s = stream();
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t executable = nullptr;
            cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed);
            cudaStreamEndCapture(s, &graph);
            cudaGraphInstantiate(&executable, graph, 0);
            if (destroyed) cudaGraphExecDestroy(executable);
            cudaGraphLaunch(executable, s);
            cudaStreamSynchronize(s);
          }) != destroyed);
  }
}

TEST_CASE("memory that nobody gave, and devices that are not there, are refused", "[device]") {
  auto* p = static_cast<char*>(block(64));
  std::array<char, 64> here{};
  const auto copy = [](void* to, const void* from) {
    return cudaMemcpyAsync(to, from, 64, cudaMemcpyDefault, stream_of_test());
  };
  CHECK(cudaMemsetAsync(here.data(), 0, 64, stream_of_test()) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(nullptr, 0, 64, stream_of_test()) == cudaErrorInvalidValue);
  CHECK(copy(p, nullptr) == cudaErrorInvalidValue);
  CHECK(copy(nullptr, p) == cudaErrorInvalidValue);
  cudaDeviceProp properties{};
  CHECK(cudaGetDeviceProperties(&properties, 64) == cudaErrorInvalidDevice);
  CHECK(cudaGetDeviceProperties(&properties, -1) == cudaErrorInvalidDevice);
  std::array<char, 32> id{};
  CHECK(cudaDeviceGetPCIBusId(id.data(), 32, 64) == cudaErrorInvalidDevice);
  CHECK(cudaDeviceGetPCIBusId(id.data(), 12, 0) == cudaErrorInvalidValue);
  CHECK(cudaDeviceGetPCIBusId(id.data(), 32, 0) == cudaSuccess);
  cudaGetLastError();
  cudaFree(p);
}

TEST_CASE("an event stays on its device", "[device]") {
  cuda::use_device();
  cudaEvent_t event = nullptr;
  const int own = emulated::current_device();
  emulated::current_device() = own + 1;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  emulated::current_device() = own;
  CHECK(cudaEventRecord(event, stream_of_test()) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("kernels go to memory at multiples of what they read there", "[device]") {
  auto* p = static_cast<char*>(block(64));
  CHECK(runs(Write{{}, p + 8}, 0));
  CHECK_FALSE(runs(Write{{}, p + 4}, 0));
  CHECK(runs(WriteShared{{}, 8}, 64));
  CHECK_FALSE(runs(WriteShared{{}, 4}, 64));
  cudaFree(p);
}

TEST_CASE("products are refused whose operands lie wrong", "[device]") {
  auto* p = static_cast<char*>(block(256));
  const Product product;
  CHECK(product.run(p, p + 64, p + 64, &product.one) == CUBLAS_STATUS_SUCCESS);
  // Whatever alignment was asked for, elements are whole.
  CHECK(product.run(p + 2, p + 64, p + 64, &product.one) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(product.run(p, p + 66, p + 128, &product.one) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(product.run(p, p + 64, p + 64, nullptr) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cudaStreamSynchronize(stream_of_test()) == cudaSuccess);
  cudaFree(p);
}

TEST_CASE("cuDNN's descriptors are complete before others hold them, and streams are of its device",
          "[device]") {
  cuda::use_device();
  cudnnBackendDescriptor_t tensor = nullptr;
  cudnnBackendDescriptor_t operation = nullptr;
  REQUIRE(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor) == CUDNN_STATUS_SUCCESS);
  REQUIRE(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &operation) ==
          CUDNN_STATUS_SUCCESS);
  const auto put = [&] {
    return cudnnBackendSetAttribute(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor);
  };
  CHECK(put() == CUDNN_STATUS_BAD_PARAM);
  REQUIRE(cudnnBackendFinalize(tensor) == CUDNN_STATUS_SUCCESS);
  CHECK(put() == CUDNN_STATUS_SUCCESS);
  cudnnBackendDestroyDescriptor(operation);
  cudnnBackendDestroyDescriptor(tensor);

  cudnnHandle_t handle = nullptr;
  const int own = emulated::current_device();
  emulated::current_device() = own + 1;
  REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
  emulated::current_device() = own;
  CHECK(cudnnSetStream(handle, stream_of_test()) == CUDNN_STATUS_BAD_PARAM);
  cudnnDestroy(handle);
}

TEST_CASE("a communicator that was ended takes no message", "[nccl]") {
  auto* p = static_cast<char*>(block(64));
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, nullptr) == ncclSuccess);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclSend(p, 1, static_cast<ncclDataType_t>(99), 0, comm, stream_of_test()) == ncclInvalidArgument);
  const auto exchange = [&] {
    ncclGroupStart();
    const ncclResult_t sent = ncclSend(p, 8, ncclInt8, 0, comm, stream_of_test());
    const ncclResult_t taken = ncclRecv(p + 32, 8, ncclInt8, 0, comm, stream_of_test());
    ncclGroupEnd();
    return sent == taken ? sent : ncclSystemError;
  };
  CHECK(exchange() == ncclSuccess);
  CHECK(cudaStreamSynchronize(stream_of_test()) == cudaSuccess);
  const int own = emulated::current_device();
  emulated::current_device() = own + 1;
  cudaStream_t elsewhere = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(ncclSend(p, 8, ncclInt8, 0, comm, elsewhere) == ncclInvalidArgument);
  CHECK(cudaStreamDestroy(elsewhere) == cudaSuccess);
  emulated::current_device() = own;
  CHECK(ncclCommFinalize(comm) == ncclSuccess);
  CHECK(exchange() == ncclInvalidUsage);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(exchange() == ncclInvalidArgument);
  CHECK(ncclCommGetAsyncError(comm, &state) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
  CHECK(ncclCommAbort(comm) == ncclInvalidArgument);
  cudaFree(p);
}
