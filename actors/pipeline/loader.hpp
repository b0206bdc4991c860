// Brings samples from the source to the stages that need them: inputs to the first, targets to the last, documents to
// all.
// Reading happens on a stream of its own, ahead of the computation, so that a page fault never holds up the
// loop or a kernel; and with it the system is told to fetch what the next step will read. Where the host does not
// reach the device's memory, another stream reads into pinned memory and the stream copies from there. Loop thread
// only.
#pragma once

#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"
#include "models/sample_source.hpp"
#include "runtime/pinned_pool.hpp"

#include <cstdint>
#include <memory>

namespace ranvier::actors {

struct PlanContext;

class Loader final : public Actor {
 public:
  /// Samples that are on their way at a time to a device whose memory the host does not reach.
  struct Plan {
    std::size_t input_bytes = 0, target_bytes = 0, document_bytes = 0;  ///< of a microbatch
    std::size_t inputs = 0, targets = 0, documents = 0;                 ///< microbatches
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const models::SampleBytes& sample);

  /// Pinned memory for samples on their way to a device; loaders that take turns share it.
  struct Places {
    Places(runtime::Device& device, const Plan& plan);

    runtime::PinnedPool inputs, targets, documents;
  };

  /// Samples `stride` further are those of the next step, 0: there is none.
  Loader(const RankContext& context, Places& places, const models::SampleSource& source, std::int64_t stride = 0)
      : context_(&context), places_(&places), source_(&source), stride_(stride) {}

  [[nodiscard]] const char* name() const noexcept override { return "loader"; }

  /// Reads samples first … first+count-1 to `to`, then calls `done` on the loop.
  void load_inputs(std::int64_t first, int count, std::byte* to, runtime::Handler done);
  void load_targets(std::int64_t first, int count, std::byte* to, runtime::Handler done);
  void load_documents(std::int64_t first, int count, std::byte* to, runtime::Handler done);
  /// Whether the source's samples have documents of their own.
  [[nodiscard]] bool has_documents() const { return source_->document_positions() > 0; }

 private:
  using Read = void (models::SampleSource::*)(std::int64_t, int, std::byte*) const;
  void load(Read read, runtime::PinnedPool& places, std::int64_t first, int count, std::size_t bytes, std::byte* to,
            runtime::Handler done);
  /// The stream that reads what goes to `to`.
  [[nodiscard]] runtime::StreamView reader_of(const std::byte* to);
  void launch_read(runtime::StreamView stream, Read read, std::int64_t first, int count, std::size_t bytes,
                   std::byte* to);
  void announce_next(runtime::StreamView reader, std::int64_t first, int count);
  void read_and_copy(Read read, runtime::PinnedPool& places, std::int64_t first, int count, std::size_t bytes,
                     std::byte* to, runtime::Handler done);

  const RankContext* context_;
  Places* places_;
  const models::SampleSource* source_;
  std::int64_t stride_;
  std::unique_ptr<runtime::Stream> reader_;
};

}  // namespace ranvier::actors
