// GPU device. Its streams do not synchronize with CUDA's default stream.
//
// Each stream has a thread that sleeps on one event per call_back, in the order of the calls. Host functions in the
// stream (cudaLaunchHostFunc) would block later work, share one driver thread, and never run after a GPU failure. The
// thread detects a failure and passes it to on_failure.
#include "runtime/base/arithmetic.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/cpu_memory.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/graph_cache_cuda.hpp"
#include "runtime/device/memory_limit.hpp"
#include "runtime/device/ordered_worker.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace ranvier::runtime {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t registered_from_bytes = std::size_t{64} << 20;  // smaller pinned memory is cleared quickly

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Remedy, as the end of a sentence; empty if there is no general one.
const char* remedy(cudaError_t result) {
  switch (result) {
    case cudaErrorNoKernelImageForDevice:
      return "; this build has no code for this GPU: build with -DCMAKE_CUDA_ARCHITECTURES=<its compute "
             "capability>";
    case cudaErrorMemoryAllocation:
      return "; another process may use this GPU; lower `device_memory`";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "; CUDA_LAUNCH_BLOCKING=1 shows the failed call, compute-sanitizer the kernel";
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorNvlinkUncorrectable:
      return "; the GPU has failed: remove this machine from the job";
    case cudaErrorDevicesUnavailable:
      return "; another process uses this GPU exclusively: check the compute mode with nvidia-smi";
    case cudaErrorLaunchTimeout:
      return "; a kernel ran for too long on a GPU that drives a display";
    default:
      return "";
  }
}

/// `doing`: activity of this process when it received the error.
Error error_of(cudaError_t result, std::string_view doing) {
  int ordinal = -1;
  cudaGetDevice(&ordinal);
  return Error(result == cudaErrorMemoryAllocation ? ErrorCode::memory : ErrorCode::device,
               fmt::format("cuda:{}: {}: {} ({}){}", ordinal, doing, cudaGetErrorString(result),
                           cudaGetErrorName(result), remedy(result)));
}

/// Device memory in use. Buffers may outlive the device. Any thread.
class DeviceMemory {
 public:
  void add(const std::byte* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_.emplace(data, bytes);
    used_bytes_ += bytes;
  }
  void remove(const std::byte* data) {
    const std::lock_guard lock(mutex_);
    const auto here = sizes_.find(data);
    used_bytes_ -= here->second;
    sizes_.erase(here);
  }
  [[nodiscard]] bool holds(const void* address) const {
    const std::lock_guard lock(mutex_);
    auto after = sizes_.upper_bound(static_cast<const std::byte*>(address));
    if (after == sizes_.begin()) return false;
    --after;
    return static_cast<const std::byte*>(address) < after->first + after->second;
  }
  [[nodiscard]] std::size_t used_bytes() const {
    const std::lock_guard lock(mutex_);
    return used_bytes_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> sizes_;
  std::size_t used_bytes_ = 0;
};

class CudaStream;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options);

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
  [[nodiscard]] std::string description() const override { return description_; }
  [[nodiscard]] int threads() const noexcept override { return 1; }
  [[nodiscard]] std::size_t used_bytes() const noexcept override { return memory_->used_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept override { return budget_; }
  [[nodiscard]] Buffer allocate(std::size_t bytes, MemorySpace space) override;
  [[nodiscard]] bool host_reaches(const void* address) const override { return !memory_->holds(address); }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) override;
  [[nodiscard]] std::unique_ptr<Event> make_event() override;

  [[nodiscard]] const cuda::Properties& properties() const noexcept { return properties_; }
  void close(MemorySpace space) { closed_.insert(space); }

  struct Memory {
    std::size_t free_bytes = 0, total_bytes = 0;
  };
  [[nodiscard]] Memory memory() const {
    make_current();
    Memory result;
    cuda::check(cudaMemGetInfo(&result.free_bytes, &result.total_bytes), "cudaMemGetInfo");
    return result;
  }

  /// Makes the GPU the calling thread's current one.
  void make_current() const {
    int current = -1;
    if (cudaGetDevice(&current) == cudaSuccess && current == properties_.ordinal) return;
    cuda::check(cudaSetDevice(properties_.ordinal), "cudaSetDevice");
  }

  /// Any thread.
  void failed(cudaError_t result, std::string_view doing) {
    failure_.set(std::make_exception_ptr(error_of(result, doing)));
  }

 private:
  friend class CudaStream;
  friend class CudaEvent;

  [[nodiscard]] Buffer allocate_device(std::size_t bytes);
  [[nodiscard]] Buffer allocate_pinned(std::size_t bytes);
  [[nodiscard]] Buffer register_pinned(std::size_t bytes);

  cuda::Properties properties_;
  std::string description_;
  std::size_t budget_ = 0;
  std::set<MemorySpace> closed_;
  bool graphs_ = true;
  std::shared_ptr<DeviceMemory> memory_ = std::make_shared<DeviceMemory>();
  CpuMemory host_{std::nullopt};
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(CudaDevice& device) : device_(device) {
    device.make_current();
    cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(StreamView stream) override {
    expect(&stream.device() == &device_, "an event of {} is recorded on stream {} of another device",
           device_.description(), stream.name());
    if (!device_.failure_.is_set()) cuda::check(cudaEventRecord(event_, cuda::native(stream)), "cudaEventRecord");
  }

  [[nodiscard]] bool reached() const override {
    if (device_.failure_.is_set()) return true;
    const cudaError_t result = cudaEventQuery(event_);
    if (result == cudaErrorNotReady) {
      cudaGetLastError();  // resets CUDA's last error, which the next launch would report
      return false;
    }
    if (result != cudaSuccess) device_.failed(result, "asking for an event");
    return true;
  }

  [[nodiscard]] cudaEvent_t native() const noexcept { return event_; }
  [[nodiscard]] const CudaDevice& device() const noexcept { return device_; }

 private:
  CudaDevice& device_;
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  CudaStream(CudaDevice& device, std::string name, StreamWidth width)
      : Stream(device, std::move(name), width), device_(device) {
    device.make_current();
    // Narrow streams get high priority: copies and reductions of chunks are short, and other work waits for them.
    int lowest = 0, highest = 0;
    cuda::check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    cuda::check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, whole() ? lowest : highest),
                "cudaStreamCreateWithPriority");
    if (device_.graphs_) graphs_.emplace(stream_);
    worker_ = std::make_unique<OrderedWorker<Item>>(this->name(), [this](Item& item) { handle(item); });
  }

  /// Queued work still runs.
  ~CudaStream() override {
    worker_.reset();
    cudaStreamSynchronize(stream_);  // its memory may be freed next
    graphs_.reset();
    for (cudaEvent_t event : spare_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  void launch(Work) override {
    fail(ErrorCode::internal,
         "stream {} of {}: host work is queued on a GPU: the operation has no CUDA kernel; use `device` cpu",
         name(), device_.description());
  }

  void repeat(std::span<const std::uint64_t> key, const std::function<void()>& queue) override {
    if (!graphs_ || device_.failure_.is_set()) return queue();
    device_.make_current();
    graphs_->run(key, queue);
  }

  [[nodiscard]] GraphStats graph_stats() const override { return graphs_ ? graphs_->graph_stats() : GraphStats{}; }

  void call_back(std::function<void()> function) override { enqueue({nullptr, std::move(function), false}); }

  void wait(const Event& event) override {
    const auto* of_cuda = dynamic_cast<const CudaEvent*>(&event);
    expect(of_cuda != nullptr, "stream {} waits for an event of another kind of device", name());
    if (device_.failure_.is_set()) return;
    device_.make_current();
    cuda::check(cudaStreamWaitEvent(stream_, of_cuda->native(), 0), "cudaStreamWaitEvent");
  }

  void synchronize() override {
    const auto done = std::make_shared<std::promise<void>>();
    enqueue({nullptr, [done] { done->set_value(); }, true});
    done->get_future().wait();
    device_.failure_.rethrow_if_set();
  }

  [[nodiscard]] cudaStream_t native() const {
    device_.make_current();
    return stream_;
  }

 private:
  struct Item {
    cudaEvent_t event = nullptr;  // null after a failure
    std::function<void()> function;
    bool after_failure = false;  // also called after a failure, so that no caller waits forever
  };

  void enqueue(Item item) {
    if (!device_.failure_.is_set()) {
      device_.make_current();
      cudaError_t result = take_event(item.event);
      if (result == cudaSuccess) result = cudaEventRecord(item.event, stream_);
      if (result != cudaSuccess) device_.failed(result, fmt::format("recording an event on stream {}", name()));
    }
    worker_->push(std::move(item));
  }

  /// Takes a spare event or creates one; there are as many events as callbacks outstanding at a time.
  cudaError_t take_event(cudaEvent_t& event) {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        event = spare_.back();
        spare_.pop_back();
        return cudaSuccess;
      }
    }
    return cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync);
  }

  void handle(Item& item) noexcept {
    if (item.event != nullptr) {
      if (!device_.failure_.is_set()) await(item.event);
      const std::lock_guard lock(mutex_);
      spare_.push_back(item.event);
    }
    if (device_.failure_.is_set() && !item.after_failure) return;
    try {
      item.function();
    } catch (...) {
      device_.failure_.set(std::current_exception());
    }
    count_done();
  }

  void await(cudaEvent_t event) noexcept {
    cudaError_t result = cudaSetDevice(device_.properties_.ordinal);
    if (result == cudaSuccess) result = cudaEventSynchronize(event);
    if (result != cudaSuccess) device_.failed(result, fmt::format("waiting for stream {}", name()));
  }

  CudaDevice& device_;
  cudaStream_t stream_ = nullptr;
  std::optional<cuda::GraphCache> graphs_;

  std::mutex mutex_;
  std::vector<cudaEvent_t> spare_;

  std::unique_ptr<OrderedWorker<Item>> worker_;
};

/// Throws ErrorCode::device if no GPU has this number.
cudaDeviceProp driver_properties(int ordinal) {
  const int count = cuda_device_count();
  if (ordinal < 0 || ordinal >= count) {
    fail(ErrorCode::device, "cuda:{}: this process sees {} GPU{}, numbered from 0{}", ordinal, count,
         count == 1 ? "" : "s", std::getenv("CUDA_VISIBLE_DEVICES") != nullptr ? " (CUDA_VISIBLE_DEVICES)" : "");
  }
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  return properties;
}

CudaDevice::CudaDevice(const CudaDeviceOptions& options) {
  expect(options.sharers >= 1, "a GPU is shared by {} ranks", options.sharers);
  graphs_ = options.graphs;
  const cudaDeviceProp of_driver = driver_properties(options.ordinal);
  cuda::check(cudaSetDevice(options.ordinal), "cudaSetDevice");
  properties_ = {
      .ordinal = options.ordinal, .multiprocessors = of_driver.multiProcessorCount, .name = of_driver.name};
  description_ = fmt::format("cuda:{}, {}", options.ordinal, of_driver.name);
  if (options.budget_bytes) {
    budget_ = *options.budget_bytes;
    return;
  }
  const auto [free_bytes, total_bytes] = memory();
  // Other ranks on this GPU may have allocated their part already.
  const std::size_t share = std::min(free_bytes, total_bytes / static_cast<std::size_t>(options.sharers));
  budget_ = share - std::min(share, cuda_reserve_bytes);
}

Buffer CudaDevice::allocate(std::size_t bytes, MemorySpace space) {
  if (bytes == 0) return {};
  expect(closed_.count(space) == 0,
         "{} ({} bytes) of {} memory requested during a run, which allocates all memory before the first step",
         format_bytes(bytes), bytes, to_string(space));
  failure_.rethrow_if_set();
  make_current();
  switch (space) {
    case MemorySpace::device:
      return allocate_device(bytes);
    case MemorySpace::pinned:
      return allocate_pinned(bytes);
    default:
      return host_.allocate(bytes, space);
  }
}

Buffer CudaDevice::allocate_device(std::size_t bytes) {
  const std::size_t used = used_bytes();
  if (used > budget_ || bytes > budget_ - used) refuse_allocation(bytes, used, budget_);
  const auto is_aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % page_bytes == 0; };
  void* taken = nullptr;
  cudaError_t result = cudaMalloc(&taken, bytes);
  if (result == cudaSuccess && !is_aligned(taken)) {  // small allocations are aligned to 512 bytes only
    cudaFree(taken);
    result = cudaMalloc(&taken, bytes + page_bytes);
  }
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // resets CUDA's last error: it is handled here
    std::size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    fail(ErrorCode::memory,
         "{} cannot allocate {} ({} bytes): {} of {} are free, this rank uses {} of its budget of {}; end other "
         "processes on this GPU, or lower `device_memory`",
         description_, format_bytes(bytes), bytes, format_bytes(free_bytes), format_bytes(total_bytes),
         format_bytes(used), format_bytes(budget_));
  }
  cuda::check(result, "cudaMalloc");
  const auto address = reinterpret_cast<std::uintptr_t>(taken);
  auto* data = reinterpret_cast<std::byte*>(round_up(address, page_bytes));
  memory_->add(data, bytes);
  Buffer buffer(data, bytes, [taken, memory = memory_](std::byte* released, std::size_t) {
    cudaFree(taken);
    memory->remove(released);
  });
  cuda::check(cudaMemset(data, 0, bytes), "cudaMemset");
  cuda::check(cudaStreamSynchronize(nullptr), "cudaMemset");  // other streams do not wait for the default stream
  return buffer;
}

/// Pinned memory from pages that CpuMemory touched on several threads: cudaHostAlloc() clears them on one thread.
/// Empty if the driver refuses, or if the GPU needs another address for them.
Buffer CudaDevice::register_pinned(std::size_t bytes) {
  const auto pages = std::make_shared<Buffer>(host_.allocate(bytes, MemorySpace::pinned));
  std::byte* const data = pages->data();
  if (cudaHostRegister(data, bytes, cudaHostRegisterPortable) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  Buffer buffer(data, bytes, [pages](std::byte* released, std::size_t) { cudaHostUnregister(released); });
  void* seen_by_gpu = nullptr;
  if (cudaHostGetDevicePointer(&seen_by_gpu, data, 0) == cudaSuccess && seen_by_gpu == data) return buffer;
  cudaGetLastError();
  return {};
}

Buffer CudaDevice::allocate_pinned(std::size_t bytes) {
  if (bytes >= registered_from_bytes) {
    if (Buffer buffer = register_pinned(bytes); buffer.data() != nullptr) return buffer;
  }
  void* data = nullptr;
  const cudaError_t result = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (result == cudaErrorMemoryAllocation || result == cudaErrorInvalidValue) {
    cudaGetLastError();
    fail(ErrorCode::memory,
         "the system refused {} ({} bytes) of pinned memory, which cannot be swapped out; use fewer ranks per "
         "machine, or less host memory",
         format_bytes(bytes), bytes);
  }
  cuda::check(result, "cudaHostAlloc");
  Buffer buffer(static_cast<std::byte*>(data), bytes,
                [](std::byte* released, std::size_t) { cudaFreeHost(released); });
  expect(reinterpret_cast<std::uintptr_t>(data) % page_bytes == 0, "pinned memory does not begin on a page");
  std::memset(data, 0, bytes);
  return buffer;
}

std::unique_ptr<Stream> CudaDevice::make_stream(std::string name, StreamWidth width) {
  return std::make_unique<CudaStream>(*this, std::move(name), width);
}

std::unique_ptr<Event> CudaDevice::make_event() { return std::make_unique<CudaEvent>(*this); }

const CudaDevice& cuda_device(const Device& device) {
  const auto* of_cuda = dynamic_cast<const CudaDevice*>(&device);
  expect(of_cuda != nullptr, "{} is asked for what a GPU has", device.description());
  return *of_cuda;
}

}  // namespace

namespace cuda {

cudaStream_t native(StreamView stream) {
  const auto* of_cuda = dynamic_cast<const CudaStream*>(&stream.stream());
  expect(of_cuda != nullptr, "a CUDA kernel is launched on stream {} of another kind of device", stream.name());
  return of_cuda->native();
}

const Properties& properties(const Device& device) { return cuda_device(device).properties(); }

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw error_of(result, call);
}

void check_launch(const char* kernel) {
  const cudaError_t result = cudaGetLastError();
  if (result != cudaSuccess) throw error_of(result, fmt::format("launching {}", kernel));
}

}  // namespace cuda

int cuda_device_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  if (result == cudaSuccess || result == cudaErrorNoDevice) {
    fail(ErrorCode::device, "no GPU is visible to this process{}; run on a machine with a GPU, or use `device` cpu",
         std::getenv("CUDA_VISIBLE_DEVICES") != nullptr ? " (see CUDA_VISIBLE_DEVICES)" : "");
  }
  int of_driver = 0, of_runtime = 0;
  cudaDriverGetVersion(&of_driver);
  cudaRuntimeGetVersion(&of_runtime);
  if (of_driver == 0) {
    fail(ErrorCode::device,
         "this machine has no NVIDIA driver (libcuda.so.1 was not found); run on a machine with a GPU, or use "
         "`device` cpu");
  }
  if (result == cudaErrorInsufficientDriver || result == cudaErrorCompatNotSupportedOnDevice) {
    fail(ErrorCode::device,
         "the NVIDIA driver supports CUDA {}, but this build needs CUDA {}; install a newer driver, or build with "
         "an older toolkit",
         version_text(of_driver), version_text(of_runtime));
  }
  fail(ErrorCode::device, "the NVIDIA driver (for CUDA {}) does not start: {} ({})", version_text(of_driver),
       cudaGetErrorString(result), cudaGetErrorName(result));
}

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

void close_cuda_memory(Device& device, MemorySpace space) {
  (void)cuda_device(device);
  dynamic_cast<CudaDevice&>(device).close(space);
}

CudaGpu cuda_gpu(int ordinal) {
  const cudaDeviceProp properties = driver_properties(ordinal);
  return {.name = properties.name, .compute_capability = 10 * properties.major + properties.minor};
}

std::size_t cuda_free_bytes(const Device& device) { return cuda_device(device).memory().free_bytes; }

}  // namespace ranvier::runtime
