// Bases of doubles for devices, streams and transports: calls go on to the real one, so that a double defines only what
// it changes. Costs of work, recorded graphs, counts of messages and host devices are not passed on.
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/transport/transport.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

class ForwardingDevice : public runtime::Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<runtime::Device> inner) : inner_(std::move(inner)) {}

  runtime::DeviceKind kind() const noexcept override { return inner_->kind(); }
  std::string description() const override { return inner_->description(); }
  int threads() const noexcept override { return inner_->threads(); }
  std::size_t used_bytes() const noexcept override { return inner_->used_bytes(); }
  std::size_t budget_bytes() const noexcept override { return inner_->budget_bytes(); }
  runtime::Buffer allocate(std::size_t bytes, runtime::MemorySpace space) override {
    return inner_->allocate(bytes, space);
  }
  bool host_reaches(const void* address) const override { return inner_->host_reaches(address); }
  std::unique_ptr<runtime::Stream> make_stream(std::string name, runtime::StreamWidth width) override {
    return inner_->make_stream(std::move(name), width);
  }
  std::unique_ptr<runtime::Event> make_event() override { return inner_->make_event(); }
  void on_failure(std::function<void(std::exception_ptr)> handler) override {
    inner_->on_failure(std::move(handler));
  }

 private:
  std::unique_ptr<runtime::Device> inner_;
};

/// A stream of `device` whose work is done by `inner`.
class ForwardingStream : public runtime::Stream {
 public:
  ForwardingStream(runtime::Device& device, std::unique_ptr<runtime::Stream> inner)
      : Stream(device, inner->name(), runtime::StreamWidth::one), inner_(std::move(inner)) {}

  void launch(Work work) override { inner_->launch(std::move(work)); }
  void call_back(std::function<void()> function) override { inner_->call_back(std::move(function)); }
  void wait(const runtime::Event& event) override { inner_->wait(event); }
  void synchronize() override { inner_->synchronize(); }
  std::uint64_t done() const noexcept override { return inner_->done(); }

 protected:
  [[nodiscard]] runtime::Stream& inner() const noexcept { return *inner_; }

 private:
  std::unique_ptr<runtime::Stream> inner_;
};

class ForwardingTransport : public runtime::Transport {
 public:
  explicit ForwardingTransport(runtime::Transport& inner)
      : Transport(inner.rank(), inner.ranks()), inner_(&inner) {}

  using Transport::receive;
  using Transport::send;
  void send(int peer, runtime::Tag tag, std::span<const runtime::ConstBytes> ranges,
            runtime::Handler done) override {
    inner_->send(peer, tag, ranges, std::move(done));
  }
  void receive(int peer, runtime::Tag tag, std::span<const runtime::Bytes> ranges, runtime::Handler done) override {
    inner_->receive(peer, tag, ranges, std::move(done));
  }
  std::vector<Pending> pending() const override { return inner_->pending(); }

 private:
  runtime::Transport* inner_;
};

}  // namespace ranvier::tests
