#include "collectives/nccl/nccl_library.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/device/device.hpp"

#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

namespace ranvier::collectives {
namespace {

static_assert(static_cast<int>(ncclSuccess) == NcclLibrary::success);
static_assert(static_cast<int>(ncclUnhandledCudaError) == NcclLibrary::cuda_error);
static_assert(static_cast<int>(ncclSystemError) == NcclLibrary::system_error);
static_assert(static_cast<int>(ncclRemoteError) == NcclLibrary::remote_error);
static_assert(static_cast<int>(ncclInProgress) == NcclLibrary::in_progress);
static_assert(sizeof(ncclUniqueId) == sizeof(NcclLibrary::Id));

/// Makes NCCL start kernels of several communicators on a GPU in the order of the calls; ignored before NCCL 2.26. With
/// CUDA before 12.3, such kernels do not overlap.
constexpr const char* launch_order = "NCCL_LAUNCH_ORDER_IMPLICIT";
constexpr int first_with_launch_order = 22600;

/// Maximum time that close() waits for peers that still read data of this rank.
constexpr auto longest_close = std::chrono::seconds(2);

NcclLibrary::Result result_of(ncclResult_t result) { return static_cast<NcclLibrary::Result>(result); }

ncclDataType_t type_of(runtime::DType dtype) {
  switch (dtype) {
    case runtime::DType::f32:
      return ncclFloat32;
    case runtime::DType::f64:
      return ncclFloat64;
    case runtime::DType::bf16:
      return ncclBfloat16;
    case runtime::DType::f16:
      return ncclFloat16;
    case runtime::DType::i32:
      return ncclInt32;
    default:
      fail(ErrorCode::internal, "NCCL does not support collectives on {}", to_string(dtype));
  }
}

class OpenedNccl final : public NcclLibrary {
 private:
  using DType = runtime::DType;

  static void* library() {
    static void* const opened = [] {
      setenv(launch_order, "1", 0);  // NCCL reads it once, at its first launch
      const std::string name = "libnccl.so." + std::to_string(NCCL_MAJOR);
      void* found = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (found == nullptr) found = dlopen(RANVIER_NCCL, RTLD_NOW | RTLD_LOCAL);
      if (found == nullptr) {
        fail(ErrorCode::device, "cannot open {} or {}: {}; install NCCL {} or add its folder to LD_LIBRARY_PATH",
             name, RANVIER_NCCL, dlerror(), NCCL_MAJOR);
      }
      return found;
    }();
    return opened;
  }
  template <typename Function>
  static Function find(const char* name) {
    void* const found = dlsym(library(), name);
    if (found == nullptr)
      fail(ErrorCode::device, "the NCCL library has no function {}: {}; install the NCCL version of this build",
           name, dlerror());
    return reinterpret_cast<Function>(found);
  }

#define RANVIER_NCCL_FUNCTION(name) decltype(&::name) name = find<decltype(&::name)>(#name)
  RANVIER_NCCL_FUNCTION(ncclGetVersion);
  RANVIER_NCCL_FUNCTION(ncclGetUniqueId);
  RANVIER_NCCL_FUNCTION(ncclCommInitRankConfig);
  RANVIER_NCCL_FUNCTION(ncclCommGetAsyncError);
  RANVIER_NCCL_FUNCTION(ncclCommFinalize);
  RANVIER_NCCL_FUNCTION(ncclCommDestroy);
  RANVIER_NCCL_FUNCTION(ncclCommAbort);
  RANVIER_NCCL_FUNCTION(ncclGetErrorString);
  RANVIER_NCCL_FUNCTION(ncclGetLastError);
  RANVIER_NCCL_FUNCTION(ncclGroupStart);
  RANVIER_NCCL_FUNCTION(ncclGroupEnd);
  RANVIER_NCCL_FUNCTION(ncclAllGather);
  RANVIER_NCCL_FUNCTION(ncclReduceScatter);
  RANVIER_NCCL_FUNCTION(ncclAllReduce);
  RANVIER_NCCL_FUNCTION(ncclBroadcast);
  RANVIER_NCCL_FUNCTION(ncclReduce);
  RANVIER_NCCL_FUNCTION(ncclSend);
  RANVIER_NCCL_FUNCTION(ncclRecv);
#undef RANVIER_NCCL_FUNCTION

  static ncclComm_t comm(Handle handle) { return static_cast<ncclComm_t>(handle); }

 public:
  OpenedNccl() {
    const ncclResult_t result = ncclGetVersion(&version_);
    if (result != ncclSuccess) fail(ErrorCode::device, "ncclGetVersion: {}", ncclGetErrorString(result));
  }

  int version() const override { return version_; }

  bool keeps_launch_order() const override {
    const char* const wanted = std::getenv(launch_order);
    return version_ >= first_with_launch_order && wanted != nullptr && std::string_view(wanted) == "1";
  }

  Result make_id(Id& id) override {
    ncclUniqueId made;
    const ncclResult_t result = ncclGetUniqueId(&made);
    if (result == ncclSuccess) std::memcpy(id.bytes.data(), &made, sizeof made);
    return result_of(result);
  }

  Result connect(Handle& handle, const Id& id, int ranks, int rank, runtime::StreamView stream) override {
    (void)runtime::cuda::native(stream);  // makes the stream's GPU current, as NCCL requires
    ncclUniqueId known;
    std::memcpy(&known, id.bytes.data(), sizeof known);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&made, ranks, known, rank, &config);
    handle = made;
    return result_of(result);
  }

  Result status(Handle handle) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm(handle), &state);
    return result_of(result == ncclSuccess ? state : result);
  }

  void close(Handle handle) noexcept override {
    ncclResult_t state = ncclCommFinalize(comm(handle));
    const auto end = std::chrono::steady_clock::now() + longest_close;
    while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (ncclCommGetAsyncError(comm(handle), &state) != ncclSuccess) state = ncclInternalError;
    }
    if (state == ncclSuccess) {
      ncclCommDestroy(comm(handle));
    } else {
      ncclCommAbort(comm(handle));
    }
  }

  void abort(Handle handle) noexcept override { ncclCommAbort(comm(handle)); }

  std::string describe(Result result, Handle handle) const override {
    std::string text = ncclGetErrorString(static_cast<ncclResult_t>(result));
    const char* const more = ncclGetLastError(comm(handle));
    if (more != nullptr && *more != '\0') text += fmt::format(" ({})", more);
    return text;
  }

  Result group_start() override { return result_of(ncclGroupStart()); }
  Result group_end() override { return result_of(ncclGroupEnd()); }

  Result run(const NcclCall& call, DType dtype, Handle handle, runtime::StreamView stream) override {
    using Kind = NcclCall::Kind;
    const auto& [kind, from, to, count, peer] = call;
    const ncclDataType_t type = type_of(dtype);
    const ncclComm_t used = comm(handle);
    const cudaStream_t queue = runtime::cuda::native(stream);
    switch (kind) {
      case Kind::all_gather:
        return result_of(ncclAllGather(from, to, count, type, used, queue));
      case Kind::reduce_scatter:
        return result_of(ncclReduceScatter(from, to, count, type, ncclSum, used, queue));
      case Kind::all_reduce:
        return result_of(ncclAllReduce(from, to, count, type, ncclSum, used, queue));
      case Kind::broadcast:
        return result_of(ncclBroadcast(from, to, count, type, peer, used, queue));
      case Kind::reduce:
        return result_of(ncclReduce(from, to, count, type, ncclSum, peer, used, queue));
      case Kind::send:
        return result_of(ncclSend(from, count, type, peer, used, queue));
      case Kind::receive:
        return result_of(ncclRecv(to, count, type, peer, used, queue));
    }
    fail(ErrorCode::internal, "unknown NCCL call: number {}", static_cast<int>(kind));
  }

 private:
  int version_ = 0;
};

}  // namespace

std::unique_ptr<NcclLibrary> open_nccl() { return std::make_unique<OpenedNccl>(); }

std::int64_t gpu_identity(const runtime::Device& device) {
  cudaDeviceProp of_driver{};
  runtime::cuda::check(cudaGetDeviceProperties(&of_driver, runtime::cuda::properties(device).ordinal),
                       "cudaGetDeviceProperties");
  std::int64_t half[2];
  static_assert(sizeof half == sizeof of_driver.uuid);
  std::memcpy(half, &of_driver.uuid, sizeof half);
  return half[0] ^ half[1];
}

}  // namespace ranvier::collectives
