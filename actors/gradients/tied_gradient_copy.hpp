// Sums of a tied unit's gradients on their way from one stage to the other, where columns that reduce equal numbers may
// round differently (CommunicatorFactory::sums_alike()): the rank of the first stage sends what its column left of a
// bucket, and the rank of the same row on the other stage takes it instead of its own. So both have the same bits.
// Loop thread only.
#pragma once

#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::actors {

class TiedGradientCopy {
 public:
  struct Options {
    std::string unit;  ///< for people
    int partner = 0;
    bool sends = false;             ///< otherwise it receives
    runtime::Tag tag;               ///< of the unit
    std::size_t message_bytes = 0;  ///< at most
    std::size_t depth = 1;          ///< messages under way at a time
  };

  /// All outlive it.
  TiedGradientCopy(const RankContext& context, Options options);

  /// `runs` is what this rank has of a bucket, not nothing; both ranks call this for the same buckets in one order.
  /// What wrote the bytes has finished, and nothing changes them before `done`, which runs on the loop after this
  /// returned.
  void run(const std::vector<runtime::Bytes>& runs, runtime::Handler done);

  [[nodiscard]] std::vector<Wait> waits() const;

 private:
  struct Bucket {
    std::size_t missing = 0;  // messages
    runtime::Handler done;
  };
  struct Message {
    std::vector<runtime::Bytes> ranges;
    std::shared_ptr<Bucket> bucket;
  };

  void begin_next();

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  Options options_;
  std::deque<Message> waiting_;
  std::size_t under_way_ = 0;
  runtime::Duration since_{};  // of the oldest of them, no later
};

}  // namespace ranvier::actors
