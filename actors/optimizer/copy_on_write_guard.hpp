// Delays the optimizer's update of a bucket until the running snapshot has copied it (checkpoint/snapshot.hpp). Loop
// thread only.
#pragma once

#include "actors/schedule/chunk_schedule.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstddef>

namespace ranvier::actors {

class CopyOnWriteGuard {
 public:
  virtual ~CopyOnWriteGuard() = default;

  /// Calls `go` when this copy of the bucket's states (StateRecords::number_of) may change: at once, or after it was
  /// copied.
  virtual void before_change(const ChunkSchedule::Bucket& bucket, std::size_t copy, runtime::Handler go) = 0;
};

}  // namespace ranvier::actors
