// Gradient reduction and optimizer step of a batch without its passes (Myelin §V-C, Figure 8): all gradients are ready
// at once. Each alone, and both in chunks of k buckets, with and without waiting for the norm.
//
//   mpirun -n 2 chunk_bench [DIR[,DIR…]|- [layers [hidden [bucket elements [repeats [step [precision]]]]]]]
//
// DIR keeps states of the nvme cases, "-": none; step: device or host; precision: fp32 or bf16. bf16 adds cases with
// --optimizer-commit flip, clipped or not. Rank 0 prints one JSON line per case; seconds are medians of the slowest
// rank, in turns. `over_longer`: both over the longer one alone; `after_answer_seconds`: time after the norm;
// `tier_bytes`: tier memory per rank.
#include "actors/rank/rank.hpp"
#include "models/core/pass_order.hpp"
#include "models/families/gpt.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/mpi_transport.hpp"
#include "tests/bench/bench.hpp"

#include <sstream>

using namespace ranvier;
using namespace ranvier::actors;
using namespace ranvier::bench;

namespace {

/// Parts of a trainer that the reduction and the optimizer step need.
class Phase {
 public:
  Phase(runtime::MpiSession& session, runtime::AsioLoop& loop, runtime::MpiTransport& transport,
        runtime::Device& device, const models::Architecture& architecture, const TrainerOptions& options)
      : session_(&session),
        loop_(&loop),
        plan_(plan_rank(architecture, {}, options, transport.rank())),
        trace_(transport.rank(), loop),
        compute_(device.make_stream("compute", runtime::StreamWidth::whole)),
        reduce_(device.make_stream("reduce", runtime::StreamWidth::one)),
        gather_(device.make_stream("gather", runtime::StreamWidth::one)),
        load_(device.make_stream("load", runtime::StreamWidth::one)),
        arena_(device, plan_.memory),
        tiers_(loop, device, plan_.tiers, options.tiers.files, arena_, transport.rank()),
        executor_(loop, transport, *reduce_),
        context_{loop,   transport, device,    device,   trace_,   arena_,
                 tiers_, executor_, *compute_, *reduce_, *gather_, *load_} {
    plan_.stage->bind(arena_);
    plan_.states->bind(arena_);
    parameters_ = std::make_unique<ParameterStore>(context_, plan_, plan_.parameters, nullptr);
    sync_ = std::make_unique<GradientSync>(context_, plan_, plan_.gradients, nullptr);
    optimizer_ = std::make_unique<Optimizer>(context_, plan_, plan_.optimizer, *parameters_, nullptr, nullptr);
    sync_->when_reduced([this](std::size_t chunk) {
      if (steps_) optimizer_->reduced(chunk);
    });
  }
  ~Phase() {
    for (auto* stream : {gather_.get(), reduce_.get(), compute_.get()}) stream->synchronize();
  }

  [[nodiscard]] std::size_t chunks() const { return plan_.chunks.chunks.size(); }
  [[nodiscard]] std::size_t buckets() const { return plan_.chunks.bundles.size(); }

  [[nodiscard]] std::size_t tier_bytes(TierKind kind) const { return plan_.tiers.bytes(kind); }

  /// Returns seconds on this rank; afterwards the optimizer states are back in their tier.
  double run(bool reduces, bool steps, bool clipped) {
    steps_ = steps;
    missing_ = (reduces ? 1 : 0) + (steps ? 1 : 0);
    ++step_;
    session_->barrier();
    const auto begin = Clock::now();
    const runtime::UpdateOptions adamw{.learning_rate = 1e-6, .step = step_};
    if (steps) optimizer_->begin(adamw);
    const auto part_done = [this] {
      if (--missing_ == 0) loop_->stop();
    };
    const auto conclude = [this, adamw, clipped, part_done] {
      runtime::UpdateOptions answered = adamw;
      if (clipped) answered.gradient_scale = 0.5;
      if (steps_) optimizer_->step(answered, part_done);
    };
    const double after_answers = optimizer_->answers().seconds;
    if (reduces) {
      sync_->start(1, [conclude, part_done] {
        conclude();
        part_done();
      });
      const models::Stage::Pass pass = models::backward_pass(plan_.stage->slice(0), 0, {}).steps;
      std::uint64_t number = sync_->microbatches().announce({.steps = pass, .backward = true});
      for (const models::Stage::PassStep& step : pass) {
        if (step.kind == models::Stage::PassStep::Kind::backward_weight) sync_->microbatches().done(number++);
      }
    } else {
      for (std::size_t c = 0; c < chunks(); ++c) optimizer_->reduced(c);
      conclude();
    }
    loop_->run();
    after_answer_ = optimizer_->answers().seconds - after_answers;
    return seconds_since(begin);
  }

  /// Seconds after the norm in the last run().
  [[nodiscard]] double after_answer() const { return after_answer_; }

  [[nodiscard]] double slowest(double seconds) const {
    return static_cast<double>(session_->largest(static_cast<long long>(seconds * 1e9))) * 1e-9;
  }

 private:
  runtime::MpiSession* session_;
  runtime::AsioLoop* loop_;
  RankPlan plan_;
  runtime::Trace trace_;
  std::unique_ptr<runtime::Stream> compute_, reduce_, gather_, load_;
  runtime::Arena arena_;
  offload::Tiers tiers_;
  collectives::Executor executor_;
  RankContext context_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t step_ = 0;
  bool steps_ = false;
  int missing_ = 0;
  double after_answer_ = 0;
};

/// A mode of committing the optimizer step, with its name in the output.
struct Case {
  const char* counts;
  double clip = 0;
  Commit commit = Commit::wait;
  bool clipped = false;
};

void run(runtime::MpiSession& session, const std::vector<std::string>& arguments) {
  const auto number = [&](std::size_t index, int otherwise) {
    return arguments.size() > index ? std::atoi(arguments[index].c_str()) : otherwise;
  };
  const std::string directories = arguments.empty() ? "-" : arguments[0];
  const int repeats = number(4, 5);
  models::GptOptions gpt{
      .layers = number(1, 4), .hidden = number(2, 512), .heads = 8, .vocab_size = 512, .sequence_length = 8};
  const bool half = arguments.size() > 6 && arguments[6] == "bf16";
  if (half) gpt.precision.compute = runtime::DType::bf16;
  std::vector<Case> cases{{"always"}, {"after the norm", 1}};
  if (half) cases.insert(cases.end(), {{"by flip", 1, Commit::flip}, {"by flip, clipped", 1, Commit::flip, true}});
  const auto architecture = models::make_gpt(gpt);
  TrainerOptions options;
  options.grid = {1, session.ranks()};
  options.batch_size = session.ranks();
  options.precision = gpt.precision;
  options.node_of = session.nodes();
  options.tiers.bucket_elements = static_cast<std::size_t>(number(3, 1 << 18));
  options.tiers.step = arguments.size() > 5 && arguments[5] == "host" ? StepLocation::host : StepLocation::device;
  std::istringstream list(directories);
  for (std::string directory; directories != "-" && std::getline(list, directory, ',');) {
    options.tiers.files.directories.emplace_back(directory);
  }
  for (const auto kind : {TierKind::host, TierKind::nvme}) {
    if (kind == TierKind::nvme && directories == "-") continue;
    options.tiers.optimizer = kind;
    for (const auto& [counts, clip, commit, clipped] : cases) {
      options.clip = clip;
      options.tiers.commit = commit;
      for (const std::size_t k : {1, 2, 4, 8, 0}) {
        options.tiers.chunk_buckets = k;
        runtime::AsioLoop loop;
        runtime::MpiTransport transport(session, loop);
        const auto device = runtime::make_cpu_device({.threads = 1});
        device->on_failure([&](std::exception_ptr error) { loop.stop(error); });
        Phase phase(session, loop, transport, *device, architecture, options);
        std::vector<double> reduction, step, both, after_answer;
        for (int r = 0; r <= repeats; ++r) {
          const double seconds[] = {
              phase.slowest(phase.run(true, false, false)), phase.slowest(phase.run(false, true, clipped)),
              phase.slowest(phase.run(true, true, clipped)), phase.slowest(phase.after_answer())};
          if (r == 0) continue;  // warm-up
          reduction.push_back(seconds[0]);
          step.push_back(seconds[1]);
          both.push_back(seconds[2]);
          after_answer.push_back(seconds[3]);
        }
        if (session.rank() != 0) continue;
        const double longer = std::max(runtime::median(reduction), runtime::median(step));
        print_case(
            R"("bench":"chunks","precision":"{}","tier":"{}","step":"{}","counts":"{}","k":"{}","chunks":{},)"
            R"("buckets":{},"tier_bytes":{},"after_answer_seconds":{:.4f},)"
            R"("reduction_seconds":{:.4f},"optimizer_seconds":{:.4f},"both_seconds":{:.4f},)"
            R"("over_longer":{:.3f},"one_after_the_other":{:.3f})",
            half ? "bf16" : "fp32", to_string(kind), options.tiers.step == StepLocation::host ? "host" : "device",
            counts, k == 0 ? "all" : std::to_string(k), phase.chunks(), phase.buckets(), phase.tier_bytes(kind),
            runtime::median(after_answer), runtime::median(reduction), runtime::median(step), runtime::median(both),
            runtime::median(both) / longer, (runtime::median(reduction) + runtime::median(step)) / longer);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  runtime::MpiSession session(argc, argv);
  try {
    run(session, {argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "chunk_bench: {}\n", error.what());
    session.abort(1);
  }
  return 0;
}
