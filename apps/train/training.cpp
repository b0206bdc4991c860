#include "apps/train/training.hpp"

#include "actors/base/gather.hpp"
#include "apps/files/metrics_file.hpp"
#include "apps/files/output_files.hpp"
#include "apps/files/weight_source.hpp"
#include "apps/job/stop_signals.hpp"
#include "apps/memory/saved_column.hpp"
#include "apps/program/flag_names.hpp"
#include "apps/view/live_run.hpp"
#include "runtime/base/console.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/memory_limit.hpp"

#include <boost/json/serialize.hpp>
#include <fmt/chrono.h>

#include <cstdio>
#include <ctime>
#include <span>
#include <utility>

#include <unistd.h>

namespace ranvier::apps {

namespace {

/// Limit over all ranks, 128 bytes per span: rank 0 holds them in memory, and a viewer must open them.
constexpr std::size_t max_trace_spans = std::size_t{4} << 20;

}  // namespace

Training::Training(const RankRun& run, const JobPlan& plan, Devices& devices, NcclSession& nccl,
                   ResumePoint& resume_point)
    : run_(run),
      plan_(plan),
      devices_(devices),
      nccl_(nccl),
      resume_point_(resume_point),
      files_(run.loop, *devices.host),
      reports_(devices.host->make_stream("reports", runtime::StreamWidth::one)),
      step_meter_(run.session.rank(), plan.trainer.node_of) {
  if (run.speaks()) prepare_outputs(run.options);
  actors::RankPlan mine = actors::plan_rank(run.job.architecture, run.job.sample, plan.trainer, run.session.rank());
  runtime::Transport* transport = &run.transport;
  if (run.options.device.device == DeviceFlag::cuda && !plan.direct) {
    transport = &staged_.emplace(run.loop, run.transport, *devices.compute);
    for (const runtime::StagedMessages& messages : mine.staged_messages) staged_->reserve(messages);
  }
  if (auto* source = nccl.prepare(mine.column->ranks)) mine.column->source = source;
  rank_.emplace(run.loop, *transport, *devices.compute,
                actors::Rank::Samples{*run.job.source, run.job.validation.get()}, std::move(mine));
}

std::optional<Error> Training::load() {
  offload::CheckpointReader* const reader = resume_point_.reader();
  if (reader != nullptr)
    source_.emplace(*reader, run_.job.architecture, plan_.trainer.tiers, resume_point_.moments());
  const WatchedReads reads(run_.watch, run_.session.rank(), run_.timeout());
  try {
    if (reader != nullptr) {
      rank_->resume(watched_source_.emplace(*source_, reader->path().string(), reads));
    } else {
      const std::string& from = run_.options.run.init_from;
      run_.watch.about(from.empty() ? "the initial weights" : from);
      rank_->load_weights(
          watched(first_weights(run_.options, run_.job.architecture), from.empty() ? "--seed" : from, reads));
    }
    // Work on the loop, such as writes to a tier's disk, has its own limits. The loop blocks while it reads.
    const actors::Watchdog watchdog(run_.loop, run_.transport, rank_->context().trace,
                                    {.timeout = run_.timeout(),
                                     .describe = [this](int rank) { return describe_rank(run_.options, rank); },
                                     .details = [this](std::string_view part) { return rank_->details(part); },
                                     .at_work = [this] { run_.watch.moved(); }});
    rank_->load([this] { run_.loop.stop(); });
    run_.loop.run();
    watched_source_.reset();
    source_.reset();
  } catch (const Error& error) {
    if (reader == nullptr || !resume_point_.may_pass_over() || error.code() != ErrorCode::data) throw;
    return error;
  }
  return std::nullopt;
}

void Training::open_outputs() {
  if (run_.speaks()) make_reporter();
  if (run_.options.run.save_every > 0 && plan_.trainer.steps > 0) save_weights_of_steps();
}

void Training::prepare_checkpoints() {
  const CheckpointOptions& options = run_.options.checkpoint;
  if (options.folder.empty()) return;
  checkpoints_.emplace(
      run_.loop, rank_->plan(), *resume_point_.folder(),
      actors::CheckpointFiles::Options{
          .job = run_.id, .keep = options.keep, .archive_every = options.archive_every, .about = [this] {
            boost::json::object about = resume_point_.about();
            about["loss"] = last_loss_;
            about["column"] = to_json(saved_column(plan_.trainer, rank_->plan().column->choices, nccl_.chosen()));
            about["time"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
            return about;
          }});
  checkpoints_->insist_at_end(
      DiskRetry(run_.timeout(), "the last checkpoint of this run takes", checkpoints_->whole_bytes()));
  rank_->add_checkpoints({.target = &*checkpoints_,
                          .every = options.every_steps,
                          .period = options.every_time.value_or(std::chrono::seconds(0)),
                          .bytes_per_second = static_cast<double>(options.bytes_per_second.value_or(0)),
                          .result = [this](const actors::CheckpointResult& result) {
                            took_checkpoints_ |= result.failure.empty();
                            const int archive = run_.options.checkpoint.archive_every;
                            const bool archived = archive > 0 && result.step % archive == 0;
                            if (!result.failure.empty() && (result.last || archived))
                              run_.missing.push_back(
                                  fmt::format("checkpoint of step {}: {}", result.step, result.failure));
                            report([this, result] { reporter_->checkpoint(result); });
                          }});
}

void Training::make_reporter() {
  const double batch = plan_.trainer.batch_size;
  reporter_.emplace(
      actors::Reporter::Options{.trainer = plan_.trainer,
                                .item = run_.job.item,
                                .tokens_per_step = batch * static_cast<double>(run_.job.tokens_of_sample()),
                                .flops_per_step = batch * run_.job.architecture.flops_per_sample(),
                                .bytes_per_token = run_.job.bytes_per_token,
                                .lines_every = run_.options.run.quiet ? 0 : run_.options.run.log_every,
                                .configuration = boost::json::serialize(configuration()),
                                .wording = with_flags,
                                .records = records()},
      rank_->plan().memory, open_metrics(run_.options, resume_point_.place()));
}

boost::json::object Training::configuration() const {
  boost::json::object flags;
  for (const ResolvedOption& option : resolved(run_.options))
    if (!option.value.empty()) flags[option.name] = actors::printable(option.value);
  return flags;
}

std::function<void(std::string_view)> Training::records() {
  const std::string& folder = run_.options.run.tensorboard;
  if (!folder.empty()) {
    event_file_.emplace(folder, resume_point_.place().step);
    event_file_->configuration(configuration());
  }
  if (run_.live == nullptr && !event_file_) return nullptr;
  return [this](std::string_view record) {
    if (run_.live != nullptr) run_.live->take(record);
    if (event_file_) event_file_->take(record);
  };
}

void Training::save_weights_of_steps() {
  weights_of_steps_.emplace(run_.loop, *devices_.host, *rank_->plan().states,
                            weights_of_steps(run_, run_.id, resume_point_.place().init_from));
  const auto tell = [this](const actors::CheckpointResult& result) {
    const std::string folder = weights_folder(run_.options.run.save, result.step).string();
    if (!result.failure.empty()) {
      run_.missing.push_back(fmt::format("weights of step {}: {}", result.step, result.failure));
      return runtime::print_stderr(
          fmt::format("ranvier: warning: no weights of step {}: {}\n", result.step, with_flags(result.failure)));
    }
    report([folder, bytes = result.bytes, seconds = result.seconds] {
      fmt::print("weights: {} ({} in {:.1f} s)\n", folder, runtime::format_bytes(bytes), seconds);
      std::fflush(stdout);
    });
  };
  rank_->add_checkpoints(
      {.target = &*weights_of_steps_,
       .selection = {.arrays = actors::Snapshot::weights_only, .frozen = !run_.options.model.adapts()},
       .every = run_.options.run.save_every,
       .at_end = false,
       .result = tell});
}

void Training::execute(const actors::PeakRates& peak) {
  const auto describe = [this](int rank) { return describe_rank(run_.options, rank); };
  actors::Watchdog watchdog(run_.loop, run_.transport, rank_->context().trace,
                            {.timeout = run_.timeout(),
                             .peers = rank_->peers(),
                             .describe = describe,
                             .waits = [this] { return rank_->waits(); },
                             .details = [this](std::string_view part) { return rank_->details(part); },
                             .waited_for = [this] { return nccl_.waited_for(); }});
  struct Detached {
    ~Detached() { signals.detach(); }
    StopSignals& signals;
  } const detached{*run_.signals};
  run_.signals->attach({.loop = &run_.loop,
                        .transport = &run_.transport,
                        .request_stop = [this] { rank_->trainer().request_stop(); },
                        .expected = [this] { return expected_end(); },
                        .waits_for = [&watchdog] { return with_flags(watchdog.waits_for()); },
                        .report = [&watchdog] { return with_flags(watchdog.report()); },
                        .last_spans = [this] { return rank_->context().trace.tail(20); }});
  run_.session.barrier();
  run_.watch.runs_loop([this] { return run_.loop.heartbeat(); },
                       [this] { return rank_->context().trace.tail(20); });
  rank_->context().trace.restart();
  std::optional<RankWatch> watch;
  if (!run_.options.run.serve.empty()) {
    watch.emplace(run_.loop, run_.transport, rank_->context().trace, watching(watchdog));
    rank_watch_ = &*watch;
  }
  report_phase("training");
  if (reporter_) reporter_->start(run_.loop.now(), peak);
  step_clock_.start(resume_point_.place().step);
  started_ = std::chrono::steady_clock::now();
  rank_->start(hooks());
  run_.loop.run();
  run_.watch.does("ends: waits for files and the terminal", runtime::output_patience);
  files_.finish();
  reports_->synchronize();
  rank_watch_ = nullptr;
}

RankWatch::Options Training::watching(const actors::Watchdog& watchdog) {
  return {.describe =
              [this, &watchdog](RankSummary& summary) {
                summary.set_waits(with_flags(watchdog.waits_for()));
                summary.step = rank_->trainer().step();
                const std::vector<int>& nodes = run_.session.nodes();
                if (nodes[static_cast<std::size_t>(run_.session.rank())] == nodes[0]) summary.process = ::getpid();
                summary.device_bytes = devices_.compute->used_bytes();
                summary.resident_bytes = runtime::peak_resident_bytes();
                const std::vector<std::uint64_t>& sent = run_.transport.sent_bytes();
                const std::vector<int>& node_of = plan_.trainer.node_of;
                const int here = node_of[static_cast<std::size_t>(run_.session.rank())];
                for (std::size_t peer = 0; peer < sent.size(); ++peer)
                  (node_of[peer] == here ? summary.bytes_intra : summary.bytes_inter) +=
                      static_cast<double>(sent[peer]);
              },
          .wanted = [this] { return run_.live != nullptr && !snapshot_waits_ && run_.live->ranks_wanted(); },
          .heard =
              [this](RankSnapshot snapshot) {
                snapshot_waits_ = true;
                report([this, snapshot = std::move(snapshot)]() mutable {
                  run_.live->take(std::move(snapshot));
                  snapshot_waits_ = false;
                });
              },
          .failed = [this](std::string message) { run_.live->fail(std::move(message)); }};
}

void Training::report_phase(std::string phase) {
  if (run_.live == nullptr) return;
  report([this, phase = std::move(phase)] { run_.live->set_phase(phase); });
}

actors::TrainerHooks Training::hooks() {
  return {.step =
              [this](const actors::StepResult& result) {
                step_clock_.done(result.step);
                step_meter_.step(rank_->context().trace, run_.transport.sent_bytes(),
                                 rank_->context().tiers.file_bytes());
                if (result.has_losses) last_loss_ = result.loss;
                if (rank_watch_ != nullptr) rank_watch_->step_done(result.step);
                close_memory(*devices_.compute, runtime::MemorySpace::device);
                report([this, result, now = run_.loop.now()] {
                  reporter_->step(result, now);
                  if (!result.bad && result.has_losses) losses_.add(result.step, {result.loss});
                });
                // The job ends once this returns.
                if (result.bad && result.bad->action == actors::BadStepOptions::Action::stop)
                  reports_->synchronize();
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
          .checked =
              [this](const actors::ReplicaReport& done, std::optional<actors::BadStepOptions::Action> follows) {
                report([this, done, follows, now = run_.loop.now()] { reporter_->checked(done, follows, now); });
                if (follows == actors::BadStepOptions::Action::stop) reports_->synchronize();
              },
          .done = [this] { trained(); }};
}

std::string Training::expected_end() const {
  const std::string& save = run_.options.run.save;
  const std::string& folder = run_.options.checkpoint.folder;
  std::string saves = folder.empty() ? "" : "takes a checkpoint in " + folder;
  if (!save.empty())
    saves += (saves.empty() ? "saves to " : ", saves to ") + saved_path(run_.options, run_.job).string();
  if (over_) return fmt::format("training is done, and the run {}", saves.empty() ? "ends" : saves);
  if (saves.empty()) saves = "nothing is saved (no --checkpoint, no --save)";
  if (const auto& trainer = rank_->trainer(); trainer.between_steps())
    return fmt::format("the run ends after step {}, which is done, and {}", trainer.step(), saves);
  return fmt::format("the run ends after step {}, {}, and {}", step_clock_.step(), step_clock_.expectation(),
                     saves);
}

void Training::stop(const std::string& why) {
  const std::string expected = expected_end();
  runtime::print_stderr(fmt::format("ranvier: {}: {}\n", why, expected));
  if (run_.live != nullptr) run_.live->stopping(why, expected);
  rank_->trainer().request_stop();
}

void Training::report(std::function<void()> what) {
  if (reporter_) reports_->launch([what = std::move(what)](runtime::ComputePool&) { what(); });
}

void Training::finish_outputs() {
  if (!run_.speaks()) return;
  const auto finish = [this](runtime::RecordFile& file) {
    file.finish(DiskRetry(run_.timeout(), "the records held in memory take", file.held_bytes()));
    if (const std::string loss = file.loss(); !loss.empty()) run_.missing.push_back(loss);
  };
  if (reporter_ && reporter_->metrics() != nullptr) finish(*reporter_->metrics());
  if (event_file_) finish(event_file_->file());
}

void Training::trained() {
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  report([this] { reporter_->finish(); });
  report_phase("saving");
  if (rank_->trainer().rollback()) return run_.options.run.trace.empty() ? run_.loop.stop() : collect_trace();
  over_ = true;
  if (run_.options.run.save.empty()) return saved();
  saving_.emplace(run_, *devices_.host, *rank_, run_.id, resume_point_.place().init_from);
  saving_->start([this] { saved(); });
}

void Training::saved() {
  gather_totals(run_, *rank_, step_meter_, seconds_, [this](std::vector<RankTotals> all) {
    totals_ = std::move(all);
    if (run_.options.run.trace.empty()) return run_.loop.stop();
    collect_trace();
  });
}

void Training::collect_trace() {
  const std::size_t spans = max_trace_spans / static_cast<std::size_t>(run_.session.ranks());
  actors::gather(
      run_.transport, rank_->context().trace.chrome_events(spans), [this](std::vector<std::string> events) {
        if (!run_.speaks()) return run_.loop.stop();
        const std::string path = trace_path(run_.options.run.trace, resume_point_.place().step);
        files_.attempt([this, path, events = std::move(events)] { write_trace(path, events, run_.timeout()); },
                       [this, path](const std::string& failure) {
                         if (failure.empty())
                           trace_ = path;
                         else
                           run_.missing.push_back("trace: " + failure);
                         run_.loop.stop();
                       });
      });
}

}  // namespace ranvier::apps
