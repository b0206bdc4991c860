// Transport: moves bytes between ranks under a tag, with completion as a handler on the loop. Implementations:
// MpiTransport, StagedTransport, and the transports of a Simulation. Loop thread only.
//
// Messages from one peer under one tag arrive in the order of the sends and match receives in the order in which
// those were posted. Different peers or tags have no order.
#pragma once

#include "runtime/base/names.hpp"
#include "runtime/loop/event_loop.hpp"

#include <fmt/core.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ranvier::runtime {

/// Subject of a message. Values below `user` are reserved for Ranvier.
enum class Channel : std::uint8_t {
  activation,  ///< index: microbatch; with several model chunks per rank, also the receiver's chunk
  gradient,    ///< index: same as activation
  collective,  ///< index: number of the operation (unit and chunk)
  tied,        ///< gradients of a tied parameter; index: unit
  matrix,      ///< Muon's updates of matrices; index: unit
  summary,     ///< agreement of all ranks after a step
  weights,     ///< parameters for a file, index: unit; blocks gathered at the end of a run
  control,     ///< watchdog, NCCL setup and order, stop and failure notices
  pull,        ///< request for a shard of parameters; always received
  piece,       ///< reply with the shard; index: target buffer
  checkpoint,  ///< a rank's part of a checkpoint's summary, sent to rank 0 on its request
  user,
};
[[nodiscard]] inline const char* to_string(Channel channel) noexcept {
  return enum_name<Channel::user>(channel, {"activation", "gradient", "collective", "tied", "matrix", "summary",
                                            "weights", "control", "pull", "piece", "checkpoint", "user"});
}

struct Tag {
  Channel channel = Channel::user;
  std::uint32_t index = 0;  ///< less than 2^20 (MPI guarantees few tags)

  friend auto operator<=>(const Tag&, const Tag&) = default;
};
[[nodiscard]] inline std::string to_string(Tag tag) {
  return fmt::format("{} {}", to_string(tag.channel), tag.index);
}

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// Bytes of all ranges together.
[[nodiscard]] std::size_t bytes_of(const auto& ranges) {
  std::size_t bytes = 0;
  for (const auto& range : ranges) bytes += range.size();
  return bytes;
}

class Transport {
 public:
  /// Operation that was started and has not completed.
  struct Pending {
    bool receives = false;
    int peer = 0;
    Tag tag;
    std::size_t bytes = 0;
    Duration since{};  ///< loop time of the call
  };

  virtual ~Transport() = default;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  /// Sends the ranges, concatenated, as one message. They must not change until `done` runs. `done` is never called
  /// before this returns. A rank may send to itself.
  virtual void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) = 0;

  /// Fills the ranges from one message of the same total length; another length is ErrorCode::transport.
  virtual void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) = 0;

  void send(int peer, Tag tag, ConstBytes range, Handler done) {
    send(peer, tag, std::span<const ConstBytes>(&range, 1), std::move(done));
  }
  void receive(int peer, Tag tag, Bytes range, Handler done) {
    receive(peer, tag, std::span<const Bytes>(&range, 1), std::move(done));
  }

  [[nodiscard]] virtual std::vector<Pending> pending() const = 0;

  /// Number of operations completed so far, without Channel::control.
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_; }

 protected:
  Transport(int rank, int ranks) noexcept : rank_(rank), ranks_(ranks) {}
  void count_completed(Tag tag) noexcept { completed_ += tag.channel != Channel::control ? 1 : 0; }

 private:
  int rank_, ranks_;
  std::uint64_t completed_ = 0;
};

}  // namespace ranvier::runtime
