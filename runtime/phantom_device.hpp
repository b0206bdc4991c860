// A device that computes nothing: its memory is address space that nobody may touch for long, its streams are queues in
// virtual time, and work on them takes what its cost says. Order, waits and overlap are those of a real device, so the
// actors that run on it take the steps of a real run. Work that states no cost is refused (ErrorCode::internal). Copies
// between it and its host share the link between the two: one at a time each way, whatever streams they are on.
//
// Memory is zeros to whoever reads it, as on any device; of a device that is apart, the host must not even look. One
// thread.
#pragma once

#include "runtime/device.hpp"
#include "runtime/virtual_cores.hpp"
#include "runtime/work_cost.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

namespace ranvier::runtime {

/// Addresses for the memory of phantom devices: reserved, and given to nothing. Many devices use one range that the
/// host does not reach, as their pointers never meet.
class PhantomSpace {
 public:
  PhantomSpace() = default;
  ~PhantomSpace();
  PhantomSpace(const PhantomSpace&) = delete;
  PhantomSpace& operator=(const PhantomSpace&) = delete;

  /// The range for what the host does not reach, reserved at the first call: more than any device has.
  [[nodiscard]] std::byte* unreachable();
  static constexpr std::size_t unreachable_bytes = std::size_t{1} << 39;

  /// Zeros that take memory where they are written only. Throws ErrorCode::memory.
  [[nodiscard]] Buffer reachable(std::size_t bytes);

 private:
  std::byte* unreachable_ = nullptr;
};

struct PhantomDeviceOptions {
  bool apart = false;  ///< its memory is, as a GPU's; its work needs no cores of the node then
  int threads = 1;     ///< of the wide stream, where it is not
  std::size_t budget_bytes = std::numeric_limits<std::size_t>::max();  ///< of MemorySpace::device
  const CostModel* costs = nullptr;                                    ///< of its work
  const CostModel* host_costs = nullptr;                               ///< of work on make_host_device()
  const CostModel* narrow_costs = nullptr;  ///< of work on narrow streams, where one thread has other rates
  /// How many times as long work takes while all cores of the node are busy; none: no longer.
  std::function<double(const WorkCost&)> crowding = {};
  double slowness = 1;     ///< how many times as long its work takes
  double jitter = 0;       ///< of every piece of work: lognormal, its standard deviation by its mean
  std::uint64_t seed = 0;  ///< of that
};

/// The least factor of a jitter: three standard deviations below what is usual, and what is drawn below counts as that.
[[nodiscard]] double least_jitter(double jitter);

/// Bytes of all copies between a device and its host so far, with those that are queued.
struct HostLinkBytes {
  double to_device = 0, to_host = 0;
};

class PhantomDevice : public Device {
 public:
  /// How long its wide stream has had work under way, without the time that it was held.
  [[nodiscard]] virtual Duration busy() const noexcept = 0;
  [[nodiscard]] virtual HostLinkBytes host_link_bytes() const noexcept = 0;
  /// Its wide stream computes nothing from now until then: what is under way ends later by that, what comes begins
  /// later. Times that overlap count once.
  virtual void hold(Duration until) = 0;
};

/// All outlive the device.
[[nodiscard]] std::unique_ptr<PhantomDevice> make_phantom_device(VirtualTime& time, VirtualCores& cores,
                                                                 PhantomSpace& space,
                                                                 const PhantomDeviceOptions& options);

}  // namespace ranvier::runtime
