// Moves bytes between ranks: `send` and `receive` under a tag, completion as a handler on the loop.
// Implementations: MpiTransport, and InProcessTransport for many ranks in one process (simulation.hpp).
//
// Messages from one peer under one tag arrive in the order of the sends and meet receives in the order in
// which those were posted; nothing is said about different peers or tags. Loop thread only.
#pragma once

#include "runtime/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ranvier::runtime {

/// What a message is about. Values below `user` are Ranvier's own.
enum class Channel : std::uint8_t {
  activation,  ///< index: microbatch, and chunk of the receiver where ranks have several
  gradient,    ///< likewise
  collective,  ///< index: the operation's own number (unit and chunk)
  tied,        ///< a tied parameter's gradients; index: unit
  summary,     ///< what all ranks agree on after a step
  weights,     ///< parameters on their way to a file; index: unit
  control,     ///< liveness questions and answers
  pull,        ///< a rank asks for a piece of parameters; waited for at all times
  piece,       ///< and gets it; index: the place that it goes to
  checkpoint,  ///< what a rank wrote of one, to rank 0
  user,
};
[[nodiscard]] const char* to_string(Channel channel) noexcept;

struct Tag {
  Channel channel = Channel::user;
  std::uint32_t index = 0;  ///< below 2^20 (MPI guarantees few tags)

  friend bool operator==(const Tag&, const Tag&) = default;
};
[[nodiscard]] std::string to_string(Tag tag);

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

class Transport {
 public:
  /// An operation that was started and has not completed.
  struct Pending {
    bool receives = false;
    int peer = 0;
    Tag tag;
    std::size_t bytes = 0;
    Duration since{};  ///< loop time of the call
  };

  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int ranks() const noexcept = 0;

  /// Sends the ranges one after another as one message. They must stay as they are until `done` runs.
  /// `done` is never called before this returns. A send to oneself is allowed.
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

  /// Operations that have completed so far, but for those of Channel::control.
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_; }

 protected:
  void count_completed(Tag tag) noexcept { completed_ += tag.channel != Channel::control ? 1 : 0; }

 private:
  std::uint64_t completed_ = 0;
};

}  // namespace ranvier::runtime
