// MPI's non-blocking collectives among some ranks of the job, in place, with completion as a handler on the loop: the
// baseline for Ranvier's plans. MPI chooses the order of its sums. Loop thread only.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/loop/event_loop.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace ranvier::runtime {

class MpiCollectives final : public PollSource {
 public:
  /// `ranks` of the job, in the order of the shards that they own. Collective call of these ranks with equal
  /// arguments, before the loop runs. Adds itself to the loop's sources. Session and loop outlive it.
  MpiCollectives(MpiSession& session, EventLoop& loop, const std::vector<int>& ranks);
  ~MpiCollectives() override;

  /// Whether MPI can add this type: not half precision.
  [[nodiscard]] static bool adds(DType dtype) noexcept;

  // `data` is the whole buffer of `elements`, divisible by the number of ranks. All ranks make the same calls in the
  // same order. `done` is never called before these return. After a reduce-scatter, shards of other ranks are
  // undefined.
  void all_gather(std::byte* data, std::size_t elements, DType dtype, Handler done);
  void reduce_scatter(std::byte* data, std::size_t elements, DType dtype, Handler done);
  void all_reduce(std::byte* data, std::size_t elements, DType dtype, Handler done);

  bool poll() override;
  [[nodiscard]] bool active() const noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
