// Device that computes nothing: memory is reserved address space, streams are queues in virtual time, and work takes
// the time of its cost. Order, waits and overlap match a real device, so actors run unchanged. Work without a
// cost throws ErrorCode::internal. Copies between device and host run one at a time per direction, on all streams
// together. Memory reads as zeros; if the device is apart, the host must not read it at all. One thread.
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/simulation/virtual_cores.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

namespace ranvier::runtime {

/// Addresses, without physical memory, for all phantom devices whose memory the host cannot reach: they share one
/// range, since their pointers never meet.
class PhantomSpace {
 public:
  PhantomSpace() = default;
  ~PhantomSpace();
  PhantomSpace(const PhantomSpace&) = delete;
  PhantomSpace& operator=(const PhantomSpace&) = delete;

  /// Start of the range, reserved at the first call. Throws ErrorCode::memory.
  [[nodiscard]] std::byte* unreachable();
  static constexpr std::size_t unreachable_bytes = std::size_t{1} << 39;

 private:
  std::byte* unreachable_ = nullptr;
};

struct PhantomDeviceOptions {
  bool apart = false;  ///< separate memory, as on a GPU; its work then needs no cores of the node
  int threads = 1;     ///< threads of the wide stream, if not apart
  std::size_t budget_bytes = std::numeric_limits<std::size_t>::max();  ///< limit of MemorySpace::device
  const CostModel* costs = nullptr;                                    ///< costs of its work
  const CostModel* host_costs = nullptr;                               ///< costs of work on make_host_device()
  const CostModel* narrow_costs = nullptr;  ///< costs on narrow streams, if one thread has other rates
  /// Slowdown of work if all cores of the node are busy; none: 1.
  std::function<double(const WorkCost&)> crowding = {};
  double slowness = 1;     ///< factor on the duration of all work
  double jitter = 0;       ///< coefficient of variation of a lognormal factor on each piece of work
  std::uint64_t seed = 0;  ///< seed of the jitter
};

/// Smallest factor that `jitter` can draw: three standard deviations below the median, in logarithms; smaller draws
/// are raised to it.
[[nodiscard]] double min_jitter(double jitter);

/// Bytes of all copies between a device and its host so far, queued ones included.
struct HostLinkBytes {
  double to_device = 0, to_host = 0;
};

class PhantomDevice : public Device {
 public:
  /// Time in which the wide stream had work under way, without the time of hold().
  [[nodiscard]] virtual Duration busy() const noexcept = 0;
  [[nodiscard]] virtual HostLinkBytes host_link_bytes() const noexcept = 0;
  /// Stops the wide stream from computing until then: work under way ends later by this time, new work starts later.
  /// Overlapping times count once.
  virtual void hold(Duration until) = 0;
};

/// All arguments outlive the device.
[[nodiscard]] std::unique_ptr<PhantomDevice> make_phantom_device(VirtualTime& time, VirtualCores& cores,
                                                                 PhantomSpace& space,
                                                                 const PhantomDeviceOptions& options);

/// Device properties that the cost of work depends on.
struct RecordedDevice {
  bool apart = false;
  int threads = 1;
  std::function<bool(const void* address)> host_reaches = [](const void*) { return true; };
};

/// Costs of all launches of `queue` on the given stream, which executes nothing. Throws ErrorCode::internal for work
/// without a stated cost.
[[nodiscard]] std::vector<WorkCost> costs_of(const RecordedDevice& device,
                                             const std::function<void(StreamView)>& queue);

}  // namespace ranvier::runtime
