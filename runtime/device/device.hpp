// Device: memory with a budget, streams and events. Loop thread unless stated otherwise. Kinds:
//
//   cpu     asynchronous: own budget, a thread per stream, a pool for kernels; shows errors of order without a GPU
//   inline  runs work at once on the calling thread: deterministic tests and simulation
//   cuda    a GPU
//   phantom computes nothing; work takes its estimated time, in virtual time (phantom_device.hpp)
//
// Memory, streams and events are made before the first step (arena.hpp).
#pragma once

#include "runtime/device/failure_latch.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace ranvier::runtime {

enum class DeviceKind { cpu, inline_, cuda, phantom };

enum class MemorySpace {
  device,  ///< counts against the device's budget
  pinned,  ///< host memory that the device accesses directly
  host,    ///< pageable host memory
  nvme,    ///< files on local disks: planned, never allocated here (offload/file_tier.hpp)
};
[[nodiscard]] const char* to_string(MemorySpace space) noexcept;

/// Owner of one allocation, freed by the destructor. Empty if default-constructed or moved from.
class Buffer {
 public:
  using Release = std::function<void(std::byte*, std::size_t)>;

  Buffer() = default;
  Buffer(std::byte* data, std::size_t bytes, Release release) : data_(data, {std::move(release), bytes}) {}

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return data_ ? data_.get_deleter().bytes : 0; }

 private:
  struct Deleter {
    Release release;
    std::size_t bytes;
    void operator()(std::byte* data) const { release(data, bytes); }
  };
  std::unique_ptr<std::byte, Deleter> data_;
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const noexcept = 0;
  /// Text for users: "cpu, 2 threads", "NVIDIA H200".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual int threads() const noexcept = 0;

  /// Bytes of MemorySpace::device in use, and their limit.
  [[nodiscard]] virtual std::size_t used_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::size_t budget_bytes() const noexcept = 0;

  /// Memory zeroed and aligned to 4096 bytes, on huge pages if the system has them. Loop thread only. Throws
  /// ErrorCode::memory if it does not fit the budget or the system.
  [[nodiscard]] virtual Buffer allocate(std::size_t bytes, MemorySpace space) = 0;

  /// Whether MemorySpace::device is separate from host memory, as on a GPU.
  [[nodiscard]] virtual bool apart() const noexcept { return kind() == DeviceKind::cuda; }
  /// Whether the host can access `address`; false for MemorySpace::device if that is separate.
  [[nodiscard]] virtual bool host_reaches([[maybe_unused]] const void* address) const { return true; }

  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) = 0;
  [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;

  /// Sets the handler of the first exception that work on a stream throws. Called once, from any thread.
  virtual void on_failure(std::function<void(std::exception_ptr)> handler) {
    failure_.on_failure(std::move(handler));
  }

  /// New host device with `threads` threads, for work that needs a CPU next to this device. Null if this device runs
  /// its work at once on the caller (`inline`).
  [[nodiscard]] virtual std::unique_ptr<Device> make_host_device(int threads) const;

 protected:
  FailureLatch failure_;

 private:
  friend class Stream;
  bool has_whole_stream_ = false;
};

struct CpuDeviceOptions {
  int threads = 1;                               ///< threads of the wide stream's kernels, at least 1
  std::optional<std::size_t> budget_bytes = {};  ///< limit of MemorySpace::device; none: physical memory
};
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options);
[[nodiscard]] std::unique_ptr<Device> make_inline_device(const CpuDeviceOptions& options = {});

// Declared in every build and defined if with_cuda is true (cuda_build.hpp).
struct CudaDeviceOptions {
  int ordinal = 0;  ///< index among the GPUs that CUDA_VISIBLE_DEVICES lists
  int sharers = 1;  ///< ranks that use this GPU
  /// Limit of MemorySpace::device; none: an equal share of the GPU, at most its free memory, minus cuda_reserve_bytes.
  std::optional<std::size_t> budget_bytes = {};
  bool graphs = true;  ///< whether Stream::repeat() records work as CUDA graphs
};

/// Number of visible GPUs. Throws ErrorCode::device if there is no GPU or no driver.
[[nodiscard]] int cuda_device_count();

/// Throws ErrorCode::device if there is no GPU or `ordinal` is out of range.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options = {});

}  // namespace ranvier::runtime
