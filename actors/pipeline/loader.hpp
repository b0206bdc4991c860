// Loads samples: inputs on the first stage, targets on the last, documents on all. A separate stream reads ahead, so
// that page faults stall neither the loop nor kernels, and announces the next step's reads to the operating system. For
// GPU memory another stream reads into pinned memory first. Loop thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"
#include "models/core/sample_source.hpp"
#include "runtime/device/pinned_pool.hpp"

#include <cstdint>
#include <memory>

namespace ranvier::actors {

struct PlanContext;

class Loader final : public Actor {
 public:
  /// Sizes of the pinned buffers for samples in transfer to a GPU.
  struct Plan {
    struct Buffers {
      std::size_t bytes = 0, count = 0;  ///< bytes per microbatch, number of microbatches
    };
    Buffers inputs, targets, documents;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const models::SampleBytes& sample);

  /// Pinned memory for samples in transfer; shared by loaders that do not run at the same time.
  struct Places {
    Places(runtime::Device& device, const Plan& plan);

    runtime::PinnedPool inputs, targets, documents;
  };

  /// `stride`: distance to the next step's samples, for reading ahead; 0: no next step.
  Loader(const RankContext& context, Places& places, const models::SampleSource& source, std::int64_t stride = 0)
      : context_(&context), places_(&places), source_(&source), stride_(stride) {}

  [[nodiscard]] const char* name() const noexcept override { return "loader"; }

  enum class Data { inputs, targets, documents };
  /// Reads samples first … first+count-1 to `to`, then calls `done` on the loop.
  void load(Data data, std::int64_t first, int count, std::byte* to, runtime::Handler done);
  /// Returns whether the source provides document boundaries.
  [[nodiscard]] bool has_documents() const { return source_->document_positions() > 0; }

 private:
  const RankContext* context_;
  Places* places_;
  const models::SampleSource* source_;
  std::int64_t stride_;
  std::unique_ptr<runtime::Stream> reader_;  // reads data for memory that the host cannot access; made when needed
};

}  // namespace ranvier::actors
