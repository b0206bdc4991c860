// Writes files on a host stream, so that a slow disk never blocks the loop. Loop thread only.
#pragma once

#include "apps/program/flag_names.hpp"
#include "runtime/device/device.hpp"
#include "runtime/liveness/time_limits.hpp"
#include "runtime/loop/event_loop.hpp"

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace ranvier::apps {

class BackgroundWriter {
 public:
  /// Both arguments outlive this object.
  BackgroundWriter(runtime::EventLoop& loop, runtime::Device& host)
      : loop_(loop), stream_(host.make_stream("files", runtime::StreamWidth::one)) {}

  /// Runs `what` after all earlier writes, then calls `done` on the loop. An exception in `what` fails the device.
  void write(std::function<void()> what, runtime::Handler done) {
    stream_->launch([what = std::move(what)](runtime::ComputePool&) { what(); });
    constexpr runtime::WorkName name{
        .part = "run", .text = "a write to a file of the run", .patience = runtime::output_patience};
    loop_.after_work(*stream_, name, std::move(done));
  }

  /// The same, but an exception in `what` does not fail the device: `done` gets its text; empty: none.
  void attempt(std::function<void()> what, std::function<void(const std::string& failure)> done) {
    const auto failure = std::make_shared<std::string>();
    write(
        [what = std::move(what), failure] {
          try {
            what();
          } catch (const std::exception& error) {
            *failure = message_of(error);
          }
        },
        [failure, done = std::move(done)] { done(*failure); });
  }

  /// Blocks until all writes are done.
  void finish() { stream_->synchronize(); }

 private:
  runtime::EventLoop& loop_;
  std::unique_ptr<runtime::Stream> stream_;
};

}  // namespace ranvier::apps
