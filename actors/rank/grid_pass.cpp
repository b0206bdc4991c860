#include "actors/rank/grid_pass.hpp"

#include <utility>

namespace ranvier::actors {

GridPass::GridPass(Parts parts, const models::SampleSource& source, std::int64_t stride)
    : parts_(std::move(parts)),
      loader_(*parts_.context, *parts_.places, source, stride),
      actor_(*parts_.context, *parts_.plan, parts_.plan->passes, loader_, parts_.resources) {}

void GridPass::run(StageActor::Batch batch, std::size_t numbers, Contribute contribute, Learned learned) {
  batch.training = false;
  actor_.run(std::move(batch),
             [this, numbers, contribute = std::move(contribute), learned = std::move(learned)](double loss) {
               agreed_.assign(numbers + 1, 0.0);
               contribute(loss, std::span(agreed_).first(numbers));
               agreed_.back() = parts_.stop_pending() ? 1 : 0;
               parts_.consensus->agree(agreed_, [this, numbers, learned] {
                 learned(std::span<const double>(agreed_).first(numbers), agreed_.back() > 0);
               });
             });
}

}  // namespace ranvier::actors
