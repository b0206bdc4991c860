// Sends and receives device memory over a transport that reaches the host's memory only: by way of pinned buffers, a
// piece at a time, so that copies of one piece overlap messages of another. What the host reaches itself goes straight.
//
//   MpiTransport mpi(session, loop);
//   StagedTransport transport(loop, mpi, device);   // for actors
//
// Both sides of a message must be staged alike: a message becomes as many as its bytes have pieces. The caller makes
// sure that what wrote the bytes of a send has finished, and queues what reads those of a receive after its handler.
//
// Where pinned memory was reserved for messages, their sends wait for a place when all are taken: peers have called for
// what is under way, or will without what waits. A receive never waits, since a peer may not send before it is there.
// Other messages take what they need. Loop thread only.
#pragma once

#include "runtime/device.hpp"
#include "runtime/pinned_pool.hpp"
#include "runtime/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace ranvier::runtime {

/// Messages of one kind that may be under way at a time, for which pinned memory is reserved.
struct StagedMessages {
  enum class Direction { send, receive };

  Channel channel = Channel::user;
  Direction direction = Direction::send;
  std::optional<std::uint32_t> index = {};  ///< of the tag; none: any that has no reservation of its own
  std::size_t bytes = 0;                    ///< of the longest one
  std::size_t count = 0;                    ///< receives: at most so many; sends: others wait
};

class StagedTransport final : public Transport {
 public:
  static constexpr std::size_t usual_piece_bytes = std::size_t{4} << 20;

  /// All outlive it, and it outlives the loop's last run.
  StagedTransport(EventLoop& loop, Transport& host, Device& device, std::size_t piece_bytes = usual_piece_bytes);

  [[nodiscard]] int rank() const noexcept override { return host_->rank(); }
  [[nodiscard]] int ranks() const noexcept override { return host_->ranks(); }
  using Transport::receive;
  using Transport::send;
  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override;
  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override;
  /// Pieces that have been handed on; copies are not waited for by anybody else.
  [[nodiscard]] std::vector<Pending> pending() const override { return host_->pending(); }

  /// Takes their pinned memory now, and not while they are sent: a system may take pinned memory when nothing runs on
  /// the GPU alone, and a kernel of NCCL's may run until a peer has got such a message.
  void reserve(const StagedMessages& messages);
  /// What reserve() takes for one message.
  [[nodiscard]] static std::size_t pinned_bytes(std::size_t message_bytes,
                                                std::size_t piece_bytes = usual_piece_bytes);

  /// Pinned memory that this took so far.
  [[nodiscard]] std::size_t staging_bytes() const;

 private:
  using Way = std::pair<int, Tag>;
  struct ByPeerAndTag {
    bool operator()(const Way& left, const Way& right) const {
      const auto key = [](const Way& way) { return std::tuple(way.first, way.second.channel, way.second.index); };
      return key(left) < key(right);
    }
  };

  /// A piece that goes by way of the stream of copies: staged, or behind one of its way that is.
  struct Sending {
    int peer = 0;
    Tag tag;
    std::vector<ConstBytes> ranges;
    bool staged = false;
    Handler done;
  };
  struct Places {
    PinnedPool pool;
    std::deque<Sending> waiting;
  };
  using Reserved = std::tuple<Channel, StagedMessages::Direction, std::optional<std::uint32_t>>;

  /// What was reserved for such messages, or what all others share.
  [[nodiscard]] Places& places(Tag tag, StagedMessages::Direction direction);
  void send_waiting(Places& at);
  void send_piece(int peer, Tag tag, std::vector<ConstBytes> ranges, Handler done);
  void receive_piece(int peer, Tag tag, std::vector<Bytes> ranges, Handler done);

  EventLoop* loop_;
  Transport* host_;
  Device* device_;
  std::size_t piece_bytes_;
  Places others_;
  std::map<Reserved, Places> reserved_;
  std::map<Way, int, ByPeerAndTag>
      copying_;  ///< pieces whose copies come before their sends; others must not overtake
  std::unique_ptr<Stream> to_host_, to_device_;
};

}  // namespace ranvier::runtime
