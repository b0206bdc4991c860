// Gradients of a tied unit, summed over its two uses (two layers or two stages) after the last microbatch, and copied
// to the other stage if columns may round differently (CommunicatorFactory::sums_alike()). Ranks of the same row
// exchange messages of limited size. All arguments must outlive these objects. Loop thread only.
#pragma once

#include "actors/gradients/gradient_records.hpp"
#include "runtime/loop/in_order.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::actors {

/// Sum of the two uses, one stretch after another: fetch if offloaded, exchange or fetch, add, store if offloaded. Both
/// stages have the same stretches in the same order.
class TiedGradientSum {
 public:
  struct Options {
    std::size_t unit = 0;            ///< index in the stage
    std::optional<int> partner;      ///< rank of the other use; none: it is use 1 of this stage
    std::size_t message_bytes = 0;   ///< maximum message size, in whole blocks
    std::vector<std::byte*> places;  ///< device buffers of place_bytes() each, one per stretch in progress
  };
  [[nodiscard]] static std::size_t place_bytes(std::size_t message_bytes, bool offloaded) noexcept {
    return offloaded ? 2 * message_bytes : message_bytes;
  }

  /// `records` is null if accumulated gradients are on the device.
  TiedGradientSum(const RankContext& context, const UnitStates& states, GradientRecords* records, Options options);

  /// Adds the uses into use 0; `done` runs on the loop, after this returned. This stage's uses must be complete.
  void run(runtime::Handler done);
  [[nodiscard]] std::vector<Wait> waits() const;

 private:
  /// A stretch in progress.
  struct Exchange {
    std::byte* place = nullptr;
    std::byte* mine = nullptr;   // this stage's use 0, which receives the sum
    std::byte* other = nullptr;  // the other use
    int missing = 2;             // pending transfers before the addition, one per tied use
  };

  void begin_next(std::byte* place);
  void send(std::size_t number);
  void one_there(std::size_t number);

  const RankContext* context_;
  const UnitState* unit_;
  GradientRecords* records_;
  Options options_;
  runtime::Tag tag_;
  runtime::DType dtype_;
  std::vector<GradientRecords::Stretch> stretches_;
  std::vector<Exchange> exchanges_;  // by stretch
  std::size_t begun_ = 0, summed_ = 0;
  runtime::InOrder sends_;
  runtime::Duration since_{};
  runtime::Handler done_;
};

/// Copies reduced gradients from the first stage to the other one, so that both have the same bits.
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
  TiedGradientCopy(const RankContext& context, Options options)
      : context_(&context), options_(std::move(options)) {}

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

  const RankContext* context_;
  Options options_;
  std::deque<Message> waiting_;
  std::size_t under_way_ = 0;
  runtime::Duration since_{};  // start of the oldest pending message, or earlier
};

}  // namespace ranvier::actors
