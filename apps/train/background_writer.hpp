// Writes files beside the loop, so that a slow disk never holds it up. Loop thread only.
#pragma once

#include "runtime/device.hpp"
#include "runtime/event_loop.hpp"

#include <functional>
#include <memory>
#include <utility>

namespace ranvier::apps {

class BackgroundWriter {
 public:
  /// Both outlive it.
  BackgroundWriter(runtime::EventLoop& loop, runtime::Device& host)
      : loop_(loop), stream_(host.make_stream("files", runtime::StreamWidth::one)) {}

  /// Runs `what` after what was given before, then calls `done` on the loop. What it throws fails the device.
  void write(std::function<void()> what, runtime::Handler done) {
    stream_->launch([what = std::move(what)](runtime::ComputePool&) { what(); });
    // The last write of a large file may take long to reach the disk.
    loop_.after_work(*stream_, {.part = "run", .text = "a write to a file of the run", .patience = 10},
                     std::move(done));
  }

  /// Waits for all of it.
  void finish() { stream_->synchronize(); }

 private:
  runtime::EventLoop& loop_;
  std::unique_ptr<runtime::Stream> stream_;
};

}  // namespace ranvier::apps
