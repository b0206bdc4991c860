// Writes files beside the loop, so that a slow disk never holds it up. Loop thread only.
#pragma once

#include "runtime/device.hpp"
#include "runtime/event_loop.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace ranvier::apps {

class FileWriter {
 public:
  /// Both outlive it.
  FileWriter(runtime::EventLoop& loop, runtime::Device& host)
      : loop_(loop), stream_(host.make_stream("files", runtime::StreamWidth::one)) {}

  /// Runs `what` after what was given before, then calls `done` on the loop. What it throws fails the device.
  void write(std::function<void()> what, runtime::Handler done) {
    ++under_way_;
    stream_->launch([what = std::move(what)](runtime::ComputePool&) { what(); });
    stream_->call_back([this, done = std::move(done)] {
      loop_.post([this, done] {
        --under_way_;
        ++written_;
        done();
      });
    });
  }

  [[nodiscard]] bool writing() const noexcept { return under_way_ > 0; }
  /// Counts what came to its end.
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  /// Waits for all of it.
  void finish() { stream_->synchronize(); }

 private:
  runtime::EventLoop& loop_;
  std::unique_ptr<runtime::Stream> stream_;
  int under_way_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace ranvier::apps
