// Cost of a prediction: time and memory of this process for one step of a GPT on many simulated ranks.
//
//   prediction_bench [ranks=1024] [stages=16] [layers=40] [hidden=5120] [microbatches=16] [shard=zero1] [nccl|plans]
//                    [profile]
//
// Prints a JSON line.
#include "actors/predict/predicted_job.hpp"
#include "models/families/gpt.hpp"
#include "runtime/device/memory_limit.hpp"
#include "tests/bench/bench.hpp"
#include "tests/doubles/stated_layer.hpp"

namespace {

using namespace ranvier;
using namespace ranvier::bench;

void run(const std::vector<std::string>& words) {
  const auto word = [&](std::size_t place, const char* otherwise) {
    return place < words.size() ? words[place] : std::string(otherwise);
  };
  const auto number = [&](std::size_t place, const char* otherwise) { return std::stoi(word(place, otherwise)); };
  const int ranks = number(0, "1024"), stages = number(1, "16"), microbatches = number(4, "16");
  models::GptOptions gpt{.layers = number(2, "40"),
                         .hidden = number(3, "5120"),
                         .heads = std::stoi(word(3, "5120")) / 128,
                         .vocab_size = 50257,
                         .sequence_length = 2048};
  gpt.precision = {runtime::DType::bf16, runtime::DType::f32};
  actors::TrainerOptions options;
  options.grid = {.g_inter = stages, .g_data = ranks / stages};
  options.batch_size = ranks / stages * microbatches;
  options.precision = gpt.precision;
  options.gpu = actors::TrainerOptions::GpuMemory{.nccl = word(6, "nccl") == "nccl"};
  options.sharding = collectives::parse_sharding(word(5, "zero1"));
  options.policy = options.gpu->nccl ? actors::Policy::one_f_one_b : actors::Policy::message_driven;
  options.recompute_auto = true;
  for (int rank = 0; rank < ranks; ++rank) options.node_of.push_back(rank / 8);
  const runtime::MachineProfile profile = runtime::read_machine_profile(word(7, "a100-40g-p4d"));
  const auto began = Clock::now();
  const tests::NoSamples samples(gpt.sequence_length);
  const runtime::ProfileCosts device(profile), host(profile, runtime::ProfileCosts::Where::host);
  const models::Architecture architecture = make_gpt(gpt);
  actors::PredictedJob job(architecture, samples, options, profile, {.costs = &device, .host_costs = &host}, {});
  const double planned = seconds_since(began);
  const actors::Prediction prediction = job.run();
  print_case(
      R"("ranks": {}, "stages": {}, "parameters": {}, "step_seconds": {:.4f}, "bubble": {:.3f}, "messages": {}, )"
      R"("handlers": {}, "seconds_to_plan": {:.2f}, "seconds_in_all": {:.2f}, "resident_bytes": {})",
      ranks, stages, architecture.parameters(), prediction.step_seconds, prediction.bubble, prediction.messages,
      prediction.handlers, planned, seconds_since(began), runtime::peak_resident_bytes());
}

}  // namespace

int main(int argc, char** argv) {
  return status_of("prediction_bench", [&] { run({argv + 1, argv + argc}); });
}
