// What computes: memory with a budget, streams, events. Four kinds stand behind one interface:
//
//   cpu     a faithful asynchronous device: its own budget, a thread per stream, a pool for its kernels;
//           so order and overlap can go wrong, and be tested, without a GPU
//   inline  runs work at once on the calling thread: deterministic tests and simulation
//   cuda    a GPU
//   phantom computes nothing and takes the time that work would cost, in virtual time (phantom_device.hpp)
//
// Allocation happens before the first step (see arena.hpp); streams and events are made once, too.
#pragma once

#include "runtime/stream.hpp"

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
  pinned,  ///< host memory that the device reads and writes directly
  host,    ///< plain host memory
  nvme,    ///< files on local disks: planned, never allocated here (offload/file_tier.hpp)
};
[[nodiscard]] const char* to_string(MemorySpace space) noexcept;

/// Owns one allocation; frees it when it goes. Empty when default-constructed or moved from.
class Buffer {
 public:
  using Release = std::function<void(std::byte*, std::size_t)>;

  Buffer() = default;
  Buffer(std::byte* data, std::size_t bytes, Release release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Release release_;
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const noexcept = 0;
  /// For people: "cpu, 2 threads", "NVIDIA H200".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual int threads() const noexcept = 0;

  /// Bytes of MemorySpace::device in use, and the most that may be.
  [[nodiscard]] virtual std::size_t used_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::size_t budget_bytes() const noexcept = 0;

  /// Zeroed, aligned to 4096 bytes, on huge pages where the system has them. Loop thread only.
  /// Throws ErrorCode::memory when the budget or the system has no room for it.
  [[nodiscard]] virtual Buffer allocate(std::size_t bytes, MemorySpace space) = 0;

  /// Whether MemorySpace::device is apart from the host's memory, as a GPU's is.
  [[nodiscard]] virtual bool apart() const noexcept { return kind() == DeviceKind::cuda; }
  /// Whether the host reads and writes what lies at `address`; not so in MemorySpace::device where that is apart.
  [[nodiscard]] virtual bool host_reaches([[maybe_unused]] const void* address) const { return true; }

  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) = 0;
  [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;

  /// Called once, from any thread, with the first exception that work on a stream threw.
  virtual void on_failure(std::function<void(std::exception_ptr)> handler) = 0;

  /// A device of the host beside this one, for work that needs a processor: of so many threads. Null: this one runs
  /// its work at once, on whoever calls (`inline`).
  [[nodiscard]] virtual std::unique_ptr<Device> make_host_device(int threads) const;
};

struct CpuDeviceOptions {
  int threads = 1;                               ///< of the wide stream's kernels, at least 1
  std::optional<std::size_t> budget_bytes = {};  ///< of MemorySpace::device; none: physical memory
};
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options);
[[nodiscard]] std::unique_ptr<Device> make_inline_device(const CpuDeviceOptions& options = {});

// The next three are declared in every build and defined where with_cuda is true (cuda_build.hpp).
struct CudaDeviceOptions {
  int ordinal = 0;  ///< among the GPUs that CUDA_VISIBLE_DEVICES leaves
  int sharers = 1;  ///< ranks that use this GPU
  /// Of MemorySpace::device; none: this rank's share of what is free, but for what the driver and libraries need.
  std::optional<std::size_t> budget_bytes = {};
  bool graphs = true;  ///< Stream::repeat() keeps work as CUDA graphs
};

/// How many GPUs this process sees. Throws ErrorCode::device where there is none, or no driver for them.
[[nodiscard]] int cuda_device_count();

/// Throws ErrorCode::device where cuda_device_count() does, and for an ordinal beyond it.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options = {});

}  // namespace ranvier::runtime
