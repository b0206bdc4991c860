// Test transports: for a rank without peers, and with callbacks for messages.
#pragma once

#include "runtime/base/error.hpp"
#include "tests/doubles/forwarding.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::tests {

/// For a job of one rank: every message is an error.
class LoneTransport final : public runtime::Transport {
 public:
  LoneTransport() : Transport(0, 1) {}
  void send(int, runtime::Tag, std::span<const runtime::ConstBytes>, runtime::Handler) override {
    fail(ErrorCode::internal, "a lone rank sent a message");
  }
  void receive(int, runtime::Tag, std::span<const runtime::Bytes>, runtime::Handler) override {
    fail(ErrorCode::internal, "a lone rank waits for a message");
  }
  std::vector<Pending> pending() const override { return {}; }
};

/// Calls `sends` and `receives`, if set, with peer, tag and bytes of each message before it is handed on.
class WatchedTransport final : public ForwardingTransport {
 public:
  using Seen = std::function<void(int peer, runtime::Tag tag, std::size_t bytes)>;

  explicit WatchedTransport(runtime::Transport& transport, Seen sends = nullptr, Seen receives = nullptr)
      : ForwardingTransport(transport), sends_(std::move(sends)), receives_(std::move(receives)) {}

  using Transport::receive;
  using Transport::send;
  void send(int peer, runtime::Tag tag, std::span<const runtime::ConstBytes> ranges,
            runtime::Handler done) override {
    if (sends_) sends_(peer, tag, runtime::bytes_of(ranges));
    ForwardingTransport::send(peer, tag, ranges, std::move(done));
  }
  void receive(int peer, runtime::Tag tag, std::span<const runtime::Bytes> ranges, runtime::Handler done) override {
    if (receives_) receives_(peer, tag, runtime::bytes_of(ranges));
    ForwardingTransport::receive(peer, tag, ranges, std::move(done));
  }

 private:
  Seen sends_, receives_;
};

}  // namespace ranvier::tests
