// Transport for device memory over a transport that reaches only host memory: messages go through pinned buffers in
// pieces, so that copies overlap messages. Host memory is passed on directly. Both sides of a message must stage it,
// with the same piece size. Before a send, its bytes must be complete. Loop thread only.
//
//   MpiTransport mpi(session, loop);
//   StagedTransport transport(loop, mpi, device);   // for actors
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/device/pinned_pool.hpp"
#include "runtime/transport/transport.hpp"

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

/// Messages of one kind that may be in flight at a time, for which pinned memory is reserved.
struct StagedMessages {
  enum class Direction { send, receive };

  Channel channel = Channel::user;
  Direction direction = Direction::send;
  std::optional<std::uint32_t> index = {};  ///< tag index; none: all without their own reservation
  std::size_t bytes = 0;                    ///< bytes of the longest message
  std::size_t count = 0;  ///< number in flight; receives: an upper bound; sends: further ones wait
};

class StagedTransport final : public Transport {
 public:
  static constexpr std::size_t usual_piece_bytes = std::size_t{4} << 20;

  /// All arguments outlive it, and it outlives the loop's last run.
  StagedTransport(EventLoop& loop, Transport& host, Device& device, std::size_t piece_bytes = usual_piece_bytes);

  using Transport::receive;
  using Transport::send;
  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override;
  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override;
  /// Operations of the underlying transport; copies in progress are listed as local work (pending_work.hpp).
  [[nodiscard]] std::vector<Pending> pending() const override { return host_->pending(); }

  /// Allocates pinned memory for these messages, before they are sent. Later allocation could deadlock: a system may
  /// delay pinning until the GPU is idle, and an NCCL kernel may run until a peer has such a message. Reserved sends
  /// wait for a free buffer. Receives never wait, since a peer may not send before the receive is posted.
  void reserve(const StagedMessages& messages);
  /// Pinned bytes that reserve() allocates per message.
  [[nodiscard]] static std::size_t pinned_bytes(std::size_t message_bytes,
                                                std::size_t piece_bytes = usual_piece_bytes);

  /// Bytes of pinned memory allocated so far.
  [[nodiscard]] std::size_t staging_bytes() const;

 private:
  using Way = std::pair<int, Tag>;

  /// Piece of a message on the copy stream: staged, or queued behind a staged one of the same peer and tag.
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

  /// Buffers reserved for such messages, or those that all others share.
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
  std::map<Way, int> copying_;  ///< pieces whose copies precede their sends; later pieces must not overtake
  std::unique_ptr<Stream> to_host_, to_device_;
};

}  // namespace ranvier::runtime
