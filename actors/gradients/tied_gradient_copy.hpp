// Copies a tied unit's reduced gradients from the first stage to the other one, if columns may round differently
// (CommunicatorFactory::sums_alike()), so that both stages have the same bits. Ranks of the same row exchange buckets.
// Loop thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::actors {

class TiedGradientCopy {
 public:
  struct Options {
    std::string unit;  ///< name for messages
    int partner = 0;
    bool sends = false;             ///< false: receives
    runtime::Tag tag;               ///< tag of the unit
    std::size_t message_bytes = 0;  ///< maximum message size
    std::size_t depth = 1;          ///< maximum number of messages in flight
  };

  /// All arguments must outlive this object.
  TiedGradientCopy(const RankContext& context, Options options);

  /// Sends or receives this rank's part of a bucket, `runs` (not empty). Both ranks call this for the same buckets in
  /// the same order. The bytes must be complete, and stay unchanged until `done`, which runs on the loop after this
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
  runtime::Duration since_{};  // start of the oldest pending message, or earlier
};

}  // namespace ranvier::actors
