#include "apps/train/training.hpp"

#include "actors/exchange/gather.hpp"
#include "actors/watch/watchdog.hpp"
#include "apps/train/files/output_files.hpp"
#include "apps/train/files/trace_file.hpp"
#include "apps/train/files/weight_source.hpp"
#include "apps/train/stop_signals.hpp"
#include "runtime/log_file.hpp"

#include <cstdlib>
#include <span>
#include <utility>

namespace ranvier::apps {

Training::Training(const RankRun& run, const JobPlan& plan, Devices& devices, NcclConnection& nccl)
    : run_(run),
      plan_(plan),
      devices_(devices),
      nccl_(nccl),
      files_(run.loop, *devices.host),
      reports_(devices.host->make_stream("reports", runtime::StreamWidth::one)) {
  if (run.speaks()) prepare_outputs(run.options);
  const actors::WeightSource weights = first_weights(run.options, run.job.architecture);
  actors::RankPlan mine = actors::plan_rank(run.job.architecture, run.job.sample, plan.trainer, run.session.rank());
  runtime::Transport* transport = &run.transport;
  if (run.options.device.device == DeviceChoice::cuda && !plan.direct) {
    transport = &staged_.emplace(run.loop, run.transport, *devices.compute);
    for (const runtime::StagedMessages& messages : mine.staged_messages) staged_->reserve(messages);
  }
  if (auto* source = nccl.prepare(mine.column->ranks)) mine.column->source = source;
  rank_.emplace(run.loop, *transport, *devices.compute,
                actors::Rank::Samples{*run.job.source, run.job.validation.get()}, std::move(mine));
  rank_->load_weights(weights);
  if (run.speaks()) make_reporter();
}

Training::~Training() = default;

void Training::make_reporter() {
  const double batch = plan_.trainer.batch_size;
  reporter_.emplace(actors::Reporter::Options{.steps = plan_.trainer.steps,
                                              .tokens_per_step =
                                                  batch * static_cast<double>(run_.job.source->losses_per_sample()),
                                              .flops_per_step = batch * run_.job.architecture.flops_per_sample(),
                                              .shows_loss_scale = plan_.trainer.loss_scale.dynamic,
                                              .bytes_per_token = run_.job.bytes_per_token},
                    rank_->plan().memory, open_metrics(run_.options));
}

void Training::execute(double peak) {
  const auto describe = [this](int rank) { return describe_rank(run_.options, rank); };
  actors::Watchdog watchdog(run_.loop, run_.transport, rank_->context().trace,
                            {.timeout = run_.timeout(),
                             .peers = rank_->peers(),
                             .describe = describe,
                             .waits = [this] { return rank_->waits(); },
                             .details = [this](std::string_view part) { return rank_->details(part); },
                             .waited_for = [this] { return nccl_.waited_for(); },
                             .heartbeat = [this] { return run_.loop.heartbeat(); }});
  const StopSignals signals(run_.loop, run_.transport,
                            {.request_stop = [this] { rank_->trainer().request_stop(); },
                             .expected = [this] { return expected_end(); },
                             .waits_for = [&watchdog] { return watchdog.waits_for(); },
                             .report = [&watchdog] { return watchdog.report(); },
                             .last_spans = [this] { return rank_->context().trace.tail(20); },
                             .describe = describe,
                             .say = runtime::say_on_stderr,
                             .end = [](int status) { std::_Exit(status); }});
  run_.session.barrier();
  rank_->context().trace.restart();
  if (reporter_) reporter_->start(run_.loop.now(), peak);
  step_clock_.start();
  started_ = std::chrono::steady_clock::now();
  rank_->start(hooks());
  run_.loop.run();
  files_.finish();
  reports_->synchronize();
}

actors::TrainerHooks Training::hooks() {
  return {.step =
              [this](const actors::StepResult& result) {
                step_clock_.done(result.step);
                close_memory(*devices_.compute, runtime::MemorySpace::device);
                report([this, result, now = run_.loop.now()] { reporter_->step(result, now); });
              },
          .evaluation =
              [this](const actors::EvaluationResult& result) {
                report([this, result, now = run_.loop.now()] { reporter_->evaluation(result, now); });
              },
          .sample =
              [this](std::int64_t step, std::span<const std::int32_t> tokens) {
                std::string text;
                for (const std::int32_t token : tokens) run_.job.tokenizer->decode(token, text);
                report([this, step, text = std::move(text), now = run_.loop.now()] {
                  reporter_->sample(step, text, now);
                });
              },
          .done = [this] { trained(); }};
}

std::string Training::expected_end() const {
  const std::string& save = run_.options.run.save;
  const std::string saves =
      save.empty() ? "nothing is saved, as there is no --save" : "saves to " + weights_path(save).string();
  if (over_) return fmt::format("the training is over, and the run {}", save.empty() ? "ends" : saves);
  const StepClock::Expectation step = step_clock_.expectation();
  return fmt::format("the run ends after step {}, {}, and {}", step.step, to_string(step), saves);
}

void Training::report(std::function<void()> what) {
  if (reporter_) reports_->launch([what = std::move(what)](runtime::ComputePool&) { what(); });
}

void Training::trained() {
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  report([this] { reporter_->finish(); });
  over_ = true;
  if (run_.options.run.save.empty()) return saved();
  saving_.emplace(run_, files_, *rank_);
  saving_->start([this] { saved(); });
}

void Training::saved() {
  gather_totals(run_, *rank_, seconds_, [this](std::vector<RankTotals> all) {
    totals_ = std::move(all);
    if (run_.options.run.trace.empty()) return run_.loop.stop();
    collect_trace();
  });
}

void Training::collect_trace() {
  actors::gather(run_.transport, rank_->context().trace.chrome_events(), [this](std::vector<std::string> events) {
    if (!run_.speaks()) return run_.loop.stop();
    files_.write([this, events = std::move(events)] { lost_trace_ = write_trace(run_.options.run.trace, events); },
                 [this] { run_.loop.stop(); });
  });
}

}  // namespace ranvier::apps
