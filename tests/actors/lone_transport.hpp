// The transport of a job of one rank, which has no peers.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/transport/transport.hpp"

#include <span>
#include <vector>

namespace ranvier::tests {

class LoneTransport final : public runtime::Transport {
 public:
  int rank() const noexcept override { return 0; }
  int ranks() const noexcept override { return 1; }
  void send(int, runtime::Tag, std::span<const runtime::ConstBytes>, runtime::Handler) override {
    fail(ErrorCode::internal, "a lone rank sent a message");
  }
  void receive(int, runtime::Tag, std::span<const runtime::Bytes>, runtime::Handler) override {
    fail(ErrorCode::internal, "a lone rank waits for a message");
  }
  std::vector<Pending> pending() const override { return {}; }
};

}  // namespace ranvier::tests
