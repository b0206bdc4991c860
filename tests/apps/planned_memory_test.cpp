// The memory that ranvier-plan plans, compared with ranks of every model family that allocate and train; and all
// families in virtual time.
#include "actors/predict/prediction.hpp"
#include "apps/plan/planned_candidate.hpp"
#include "models/images/image_set.hpp"
#include "models/images/image_source.hpp"
#include "models/text/masked_source.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/staged_transport.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/apps/plan_profiles.hpp"
#include "tests/doubles/far_device.hpp"
#include "tests/doubles/forwarding.hpp"
#include "tests/doubles/transports.hpp"
#include "tests/test.hpp"

#include <deque>

using namespace ranvier;
using runtime::MemorySpace;

namespace {

/// Current and maximum bytes by space.
struct Taken {
  std::array<std::size_t, 4> now{}, most{};

  [[nodiscard]] std::size_t of(MemorySpace space) const { return most[static_cast<std::size_t>(space)]; }
};

/// A real device that counts what is taken of it.
class CountingDevice final : public tests::ForwardingDevice {
 public:
  explicit CountingDevice(Taken& taken) : ForwardingDevice(runtime::make_inline_device()), taken_(taken) {}

  runtime::Buffer allocate(std::size_t bytes, MemorySpace space) override {
    const auto s = static_cast<std::size_t>(space);
    taken_.now[s] += bytes;
    taken_.most[s] = std::max(taken_.most[s], taken_.now[s]);
    const auto buffer = std::make_shared<runtime::Buffer>(ForwardingDevice::allocate(bytes, space));
    return {buffer->data(), bytes,
            [buffer, s, &taken = taken_](std::byte*, std::size_t size) { taken.now[s] -= size; }};
  }

 private:
  Taken& taken_;
};

struct Family {
  const char* name;
  std::vector<apps::GivenFlag> flags;
  std::function<std::unique_ptr<models::SampleSource>()> samples;
};

constexpr int words = 60, length = 16;

std::unique_ptr<models::SampleSource> tokens() { return std::make_unique<tests::RandomTokens>(length, words); }

std::vector<apps::GivenFlag> text_flags(const tests::Flags& more) {
  const tests::Flags sizes =
      fmt::format("--layers 5 --hidden 24 --vocab-size {} --sequence-length {}", words, length);
  return tests::given_flags(join(sizes, more));
}

std::vector<Family> families() {
  const auto masked = [](double share) {
    return [share]() -> std::unique_ptr<models::SampleSource> {
      return std::make_unique<models::MaskedSource>(
          std::make_unique<tests::RandomTokens>(length, words - 1),
          models::MaskingOptions{.probability = share, .mask_token = words - 1, .tokens = words - 1, .seed = 1});
    };
  };
  const auto images = []() -> std::unique_ptr<models::SampleSource> {
    return std::make_unique<models::ImageSource>(std::make_shared<const models::SyntheticSet>(8, 3), 0, 1000,
                                                 std::nullopt);
  };
  return {
      {"gpt", text_flags("--heads 3 --dropout 0.1"), tokens},
      {"gpt in tiles", text_flags("--heads 2 --tile 2"), tokens},
      {"gpt with SGD", text_flags("--heads 3 --optimizer sgd"), tokens},
      {"gpt with SGD without momentum", text_flags("--heads 3 --optimizer sgd --momentum 0"), tokens},
      {"llama", text_flags("--model llama --heads 4 --kv-heads 2 --ffn-size 40"), tokens},
      {"qwen3", text_flags("--model qwen3 --heads 2 --kv-heads 1 --head-size 8"), tokens},
      {"llama with adapters", text_flags("--model llama --heads 2 --ffn-size 40 --lora-rank 4"), tokens},
      {"bert", text_flags("--model bert --heads 2 --mlm-probability 0.3"), masked(0.3)},
      {"roberta", text_flags("--model roberta --heads 2"), masked(0.15)},
      {"residual network",
       tests::given_flags("--model wide-resnet --blocks 1,2,1,1 --hidden 4 --width 2 --image-size 8 --classes 3"),
       images}};
}

/// Bytes of a plan that a rank allocates itself: on a GPU its libraries allocate some, too.
std::size_t planned(const runtime::MemoryPlan& plan, MemorySpace space) {
  std::size_t bytes = plan.bytes(space);
  for (const runtime::MemoryItem& item : plan.items())
    if (item.elsewhere && space == MemorySpace::device && item.space == space)
      bytes -= item.slot_bytes * item.slots;
  return bytes;
}

/// Staging for chunks of collectives between a GPU and MPI, if all teams used it at once: a run's actual use depends on
/// the order of messages.
std::size_t at_most(const runtime::MemoryPlan& plan, MemorySpace space) {
  std::size_t bytes = 0;
  for (const runtime::MemoryItem& item : plan.items())
    if (item.space == space && item.name == "chunks of collectives, staged") bytes += item.slot_bytes * item.slots;
  return bytes;
}

/// Flags of a job of a family on nodes of `node_size` ranks; `nvme`: folder for its states, if not empty.
std::vector<apps::GivenFlag> job_of(const Family& family, bool gpu, int world, int node_size,
                                    const std::string& nvme, std::string_view moments) {
  tests::Flags more =
      fmt::format("--world {} --batch-size 16 --node-size {} --moment-dtype {}", world, node_size, moments);
  if (gpu) more.add("--precision bf16 --collectives plans");
  if (!nvme.empty()) more.add("--offload infinity-nvme --nvme " + nvme);
  std::vector<apps::GivenFlag> flags = family.flags;
  for (apps::GivenFlag& flag : tests::given_flags(more)) flags.push_back(std::move(flag));
  return flags;
}

std::size_t file_bytes(const std::filesystem::path& folder) {
  std::size_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

void check_taken(const Taken& taken, const runtime::MemoryPlan& plan) {
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::pinned, MemorySpace::host}) {
    CAPTURE(std::string(runtime::to_string(space)));
    const std::size_t bytes = taken.of(space), all = planned(plan, space), some = at_most(plan, space);
    if (some == 0) {
      CHECK(bytes == all);
    } else {
      CHECK(bytes <= all);
      CHECK(bytes >= all - some);
    }
  }
}

std::unique_ptr<runtime::Device> counting_device(Taken& taken, bool gpu) {
  std::unique_ptr<runtime::Device> device = std::make_unique<CountingDevice>(taken);
  if (gpu) device = std::make_unique<tests::FarDevice>(std::move(device));
  return device;
}

/// All ranks of the job, which train for one step.
void check_memory(const apps::Planner& planner, const apps::PlannedCandidate& trial,
                  const models::SampleSource& samples, bool gpu) {
  actors::TrainerOptions options = trial.trainer;
  options.steps = 1;
  const int count = planner.world();
  std::deque<Taken> taken;  // until the last handler has released its memory
  runtime::Simulation simulation(count, {.seed = 5});
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<std::unique_ptr<runtime::StagedTransport>> staged;
  std::vector<std::unique_ptr<actors::Rank>> ranks;
  for (int r = 0; r < count; ++r) {
    std::unique_ptr<runtime::Device> device = counting_device(taken.emplace_back(), gpu);
    device->on_failure([&simulation, r](std::exception_ptr error) { simulation.loop(r).stop(std::move(error)); });
    actors::RankPlan plan = actors::plan_rank(planner.job().architecture, samples.sample_bytes(), options, r);
    runtime::Transport* transport = &simulation.transport(r);
    if (gpu) {
      staged.push_back(std::make_unique<runtime::StagedTransport>(simulation.loop(r), *transport, *device));
      for (const auto& messages : plan.staged_messages) staged.back()->reserve(messages);
      transport = staged.back().get();
    }
    ranks.push_back(std::make_unique<actors::Rank>(simulation.loop(r), *transport, *device,
                                                   actors::Rank::Samples{samples}, std::move(plan)));
    tests::load_initial_weights(*ranks.back(), options.seed);
    devices.push_back(std::move(device));
    taken.back().most = taken.back().now;  // temporary memory for weights is free
  }
  for (int r = 0; r < count; ++r)
    ranks[static_cast<std::size_t>(r)]->start(
        {.step = [](const actors::StepResult&) {}, .done = [&simulation, r] { simulation.loop(r).stop(); }});
  simulation.run();
  for (int r = 0; r < count; ++r) {
    CAPTURE(r);
    const auto rank = static_cast<std::size_t>(r);
    const int stage = ranks[rank]->plan().position.stage;
    check_taken(taken[rank], trial.plans.stage(static_cast<std::size_t>(stage)).memory);
  }
}

/// One rank with real files, and therefore a real loop.
void check_files(const apps::Planner& planner, const apps::PlannedCandidate& trial,
                 const models::SampleSource& samples, bool gpu, const std::filesystem::path& folder) {
  actors::TrainerOptions options = trial.trainer;
  options.steps = 1;
  Taken taken;
  runtime::AsioLoop loop;
  tests::LoneTransport transport;
  const std::unique_ptr<runtime::Device> device = counting_device(taken, gpu);
  device->on_failure([&loop](std::exception_ptr error) { loop.stop(std::move(error)); });
  actors::Rank rank(loop, transport, *device, actors::Rank::Samples{samples},
                    actors::plan_rank(planner.job().architecture, samples.sample_bytes(), options, 0));
  tests::load_initial_weights(rank, options.seed);
  taken.most = taken.now;
  rank.start({.step = [](const actors::StepResult&) {}, .done = [&loop] { loop.stop(); }});
  loop.run();
  const runtime::MemoryPlan& plan = trial.plans.stage(0).memory;
  CHECK(plan.bytes(MemorySpace::nvme) > 0);
  CHECK(file_bytes(folder) == plan.bytes(MemorySpace::nvme));
  check_taken(taken, plan);
}

struct Drawn {
  const apps::Planner& planner;
  const apps::Candidate& candidate;
  const models::SampleSource& samples;
  const runtime::MachineProfile& profile;
};

/// Draws `count` candidates of every family on each kind of device, on nodes of `node_size` ranks.
template <typename Check>
void for_candidates(std::mt19937& draw, int count, int world, int node_size, const std::string& nvme,
                    const Check& check) {
  for (const Family& family : families()) {
    CAPTURE(std::string(family.name));
    const auto samples = family.samples();
    for (const bool gpu : {false, true}) {
      CAPTURE(gpu);
      const runtime::MachineProfile profile = tests::plan_profile(gpu);
      const char* const moments = draw() % 3 == 0 ? "int8" : "fp32";
      CAPTURE(moments);
      const apps::Planner planner(job_of(family, gpu, world, node_size, nvme, moments), profile);
      const auto candidates = make_space(planner.space()).candidates;
      for (int n = 0; n < count; ++n) {
        const apps::Candidate& candidate = candidates[draw() % candidates.size()];
        CAPTURE(candidate.text());
        check(Drawn{planner, candidate, *samples, profile});
      }
    }
  }
}

}  // namespace

TEST_CASE("ranvier-plan's memory is exactly the memory that training ranks allocate, for every model family") {
  constexpr int of_each = 7;  // with and without a GPU, of ten families: 140
  std::mt19937 draw(7);
  tests::Share share(4, 28);
  int trained = 0;
  for_candidates(draw, of_each, 8, 4, {}, [&](const Drawn& one) {
    if (!share.takes()) return;
    check_memory(one.planner, one.planner.plan(one.candidate), one.samples, one.profile.gpu);
    ++trained;
  });
  CHECK(trained > 1);
  if (tests::long_run()) CHECK(trained == 140);
}

TEST_CASE("files of states are as long as ranvier-plan plans them, for every model family") {
  std::mt19937 draw(11);
  tests::Share share(1, 4);
  const tests::TemporaryFolder nvme;
  for_candidates(draw, 1, 1, 1, nvme.path().string(), [&](const Drawn& one) {
    if (!share.takes()) return;
    check_files(one.planner, one.planner.plan(one.candidate), one.samples, one.profile.gpu, nvme.path());
  });
}

TEST_CASE("every model family completes in virtual time on both kinds of devices, in its planned memory") {
  std::mt19937 draw(13);
  for (const std::string nvme : {"", "/nvme"}) {
    for_candidates(draw, 1, 4, 2, nvme, [&](const Drawn& one) {
      const apps::PlannedCandidate trial = one.planner.plan(one.candidate);
      const actors::Prediction prediction =
          actors::predict(one.planner.job().architecture, one.samples, trial.trainer, one.profile);
      CHECK(prediction.step_seconds > 0);
      std::size_t device = 0, host = 0, files = 0;
      for (const std::size_t distinct : trial.plans.of_stage) {
        const runtime::MemoryPlan& plan = trial.plans.distinct[distinct].memory;
        device = std::max(device, plan.bytes(MemorySpace::device));
        host = std::max(host, plan.bytes(MemorySpace::pinned) + plan.bytes(MemorySpace::host));
        files = std::max(files, plan.bytes(MemorySpace::nvme));
      }
      CHECK(prediction.device_bytes == device);
      CHECK(prediction.host_bytes == host);
      CHECK(prediction.file_bytes == files);
      CHECK((files > 0) == !nvme.empty());
      // Every pass of every stage has a cost.
      for (const actors::StagePrediction& stage : prediction.stages) {
        CHECK(stage.forward_seconds > 0);
        CHECK(stage.backward_seconds > 0);
        CHECK(stage.optimizer_seconds > 0);
      }
    });
  }
}
