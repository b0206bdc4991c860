// AdamW on host threads, over states where they lie in host memory or in pinned slots that files were read to
// (ZeRO-Infinity §5.2.1's alternative to bringing them to the device): gradients come to the host, what layers read
// goes back, and states do not move. On a `cpu` device the host is a device of its own beside it, with as many threads,
// so that a step runs beside passes. The arithmetic is that of the device. Loop thread only.
#pragma once

#include "actors/optimizer/state_tier.hpp"
#include "actors/states/unit_states.hpp"
#include "runtime/event_loop.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace ranvier::actors {

class HostStep {
 public:
  /// Pinned, one of each for each bucket that is stepped at a time.
  struct Memory {
    runtime::MemoryId gradients, parameters;
    std::size_t slots = 0;
  };
  [[nodiscard]] static Memory plan(const UnitStates& states, std::size_t slots, runtime::MemoryPlan& plan);

  /// All outlive it.
  HostStep(runtime::EventLoop& loop, runtime::Device& device, const UnitStates& states, const Memory& memory,
           const runtime::Arena& arena);
  ~HostStep();

  /// A run of a bucket, and where what belongs to it lies on the device.
  struct Piece {
    StateTier::Run states;
    const std::byte* gradient = nullptr;
    std::byte* layers_copy = nullptr;  ///< as in AdamWArrays::working
    std::vector<runtime::DecaySegment> segments;
  };
  /// One step on all runs of a bucket; `done` runs on the loop once its states are stepped and layers' copies are on
  /// the device.
  void step(std::size_t slot, std::vector<Piece> pieces, const runtime::AdamWOptions& adamw, runtime::Handler done);
  /// Only rounds separate master weights to layers' copies; needs no gradients.
  void refresh(std::size_t slot, std::vector<Piece> pieces, runtime::Handler done);

 private:
  void copy_to_layers(std::size_t slot, const std::vector<Piece>& pieces, runtime::Handler done);
  void after(runtime::Stream& stream, runtime::Handler next);

  runtime::EventLoop* loop_;
  const UnitStates* states_;
  Memory memory_;
  const runtime::Arena* arena_;
  std::unique_ptr<runtime::Device> host_;  ///< null: the device itself computes for the host
  std::unique_ptr<runtime::Stream> to_host_, steps_, to_device_;
};

}  // namespace ranvier::actors
