#include "apps/train/warm_up.hpp"

#include "apps/program/agreement.hpp"
#include "models/core/run_layers.hpp"

#include <algorithm>
#include <vector>

namespace ranvier::apps {

void run_layers(const RankRun& run, const JobPlan& plan, runtime::StreamView stream) {
  const actors::TrainerOptions& trainer = plan.trainer;
  // Shapes of a full microbatch, and of a smaller last one.
  const int row_samples = trainer.batch_size / trainer.grid.g_data;
  const int largest = std::min(trainer.microbatch_size, row_samples);
  const bool saves = std::ranges::any_of(plan.stages, saves_all_activations);
  std::vector<models::MicrobatchShape> shapes{
      {largest, run.job.architecture.positions, trainer.threads,
       saves ? models::SavedActivations::all : models::SavedActivations::few}};
  if (row_samples % largest != 0) {
    shapes.push_back(shapes.front());
    shapes.back().samples = row_samples % largest;
  }
  models::run_each_layer(run.job.architecture, trainer.precision, run.job.sample, shapes, stream);
}

void load_kernels(const RankRun& run, const JobPlan& plan, runtime::Device& device) {
  const auto stream = device.make_stream("loading", runtime::StreamWidth::whole);
  on_all_ranks(run.session, [&] { run_layers(run, plan, *stream); });
}

}  // namespace ranvier::apps
