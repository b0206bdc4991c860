// Sends and receives device memory over a transport that reaches the host's memory only: by way of pinned buffers, a
// piece at a time, so that copies of one piece overlap messages of another. What the host reaches itself goes straight.
//
//   MpiTransport mpi(session, loop);
//   StagedTransport transport(loop, mpi, device);   // for actors
//
// Both sides of a message must be staged alike: a message becomes as many as its bytes have pieces. The caller makes
// sure that what wrote the bytes of a send has finished, and queues what reads those of a receive after its handler.
// Loop thread only.
#pragma once

#include "runtime/device.hpp"
#include "runtime/pinned_pool.hpp"
#include "runtime/transport.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

namespace ranvier::runtime {

class StagedTransport final : public Transport {
 public:
  /// All outlive it, and it outlives the loop's last run.
  StagedTransport(EventLoop& loop, Transport& host, Device& device, std::size_t piece_bytes = std::size_t{4} << 20);

  [[nodiscard]] int rank() const noexcept override { return host_->rank(); }
  [[nodiscard]] int ranks() const noexcept override { return host_->ranks(); }
  using Transport::receive;
  using Transport::send;
  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override;
  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override;
  /// Pieces that have been handed on; copies are not waited for by anybody else.
  [[nodiscard]] std::vector<Pending> pending() const override { return host_->pending(); }

  /// Takes the pinned memory for so many messages under way at a time now, and not while they are sent: a system takes
  /// pinned memory when nothing runs on the GPU, and a kernel of NCCL's may run until a peer has got such a message.
  void prepare(std::size_t message_bytes, std::size_t messages);

  /// Pinned memory that this took so far.
  [[nodiscard]] std::size_t staging_bytes() const { return pool_.allocated_bytes(); }

 private:
  using Way = std::pair<int, Tag>;
  struct ByPeerAndTag {
    bool operator()(const Way& left, const Way& right) const {
      const auto key = [](const Way& way) { return std::tuple(way.first, way.second.channel, way.second.index); };
      return key(left) < key(right);
    }
  };

  void send_piece(int peer, Tag tag, std::vector<ConstBytes> ranges, Handler done);
  void receive_piece(int peer, Tag tag, std::vector<Bytes> ranges, Handler done);

  EventLoop* loop_;
  Transport* host_;
  Device* device_;
  std::size_t piece_bytes_;
  PinnedPool pool_;
  std::map<Way, int, ByPeerAndTag> copying_;  ///< pieces whose copies come before their sends; others must not overtake
  std::unique_ptr<Stream> to_host_, to_device_;
};

}  // namespace ranvier::runtime
