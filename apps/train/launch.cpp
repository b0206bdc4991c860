#include "apps/train/launch.hpp"

#include "apps/plan/start_plan.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/print_error.hpp"
#include "apps/train/files/file_agreement.hpp"
#include "apps/train/files/output_files.hpp"
#include "apps/train/files/watched_reads.hpp"
#include "apps/train/files/weight_source.hpp"
#include "apps/train/live_page.hpp"
#include "apps/train/run_defaults.hpp"
#include "apps/train/run.hpp"
#include "apps/train/stop_signals.hpp"
#include "runtime/startup_watchdog.hpp"
#include "runtime/exit_code.hpp"
#include "runtime/console.hpp"
#include "runtime/mpi_transport.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ranvier::apps {

namespace {

using runtime::MpiSession;
using runtime::StartupWatchdog;

TrainOptions parse(const PlannedArguments& given, int ranks, const RunDefaults& defaults) {
  std::vector<const char*> arguments;
  for (const std::string& word : given.words) arguments.push_back(word.c_str());
  TrainOptions options = parse_train_options(static_cast<int>(arguments.size()), arguments.data(), ranks, defaults);
  if (!given.config.empty()) options.run.config = given.config;  // which no output may replace
  return options;
}

/// Fails on all ranks if some were asked for something else than others, naming the first flag that differs.
void compare_options(MpiSession& session, const TrainOptions& options) {
  const auto equal_everywhere = [&](std::uint64_t value) {
    const auto comparable = static_cast<long long>(value >> 1);
    return session.smallest(comparable) == session.largest(comparable);
  };
  const bool same_request = equal_everywhere(2 * static_cast<std::uint64_t>(options.run.request));
  if (same_request && equal_everywhere(options_hash(options))) return;
  std::string difference = "what to do (--help or --dry-run on some ranks only)";
  if (same_request) {
    for (const runtime::ResolvedOption& option : resolved(options)) {
      if (option.per_rank || equal_everywhere(std::hash<std::string>()(option.value))) continue;
      difference = fmt::format("--{} (here '{}')", option.name, option.value);
      break;
    }
  }
  on_all_ranks(session, [&] {
    fail(ErrorCode::usage,
         "the ranks were started with different options, first in {}: give every rank of mpirun the same flags and "
         "the same --config",
         difference);
  });
}

/// Throws ErrorCode::usage if the launcher started several ranks and MPI made each a world of its own: each would train
/// the complete model alone, and the last save would win.
void check_world(const MpiSession& session, const TrainOptions& options) {
  const int launched = runtime::launched_ranks();
  if (options.run.request != Request::train || options.run.separate_ranks || session.ranks() > 1 || launched == 1)
    return;
  fail(ErrorCode::usage,
       "ranks are not connected: the launcher started {}, and {} sees 1; use the mpirun of that MPI, or srun "
       "--mpi=pmix "
       "(--separate-ranks trains them separately)",
       launched, runtime::mpi_library());
}

/// Prints what ended this rank's run and ends all others. Nothing is torn down: what messages and devices are at
/// work on has to be there until the process ends, and whoever waits for a peer that will not come would wait for
/// ever.
[[noreturn]] void end_all(const char* program, MpiSession& session, StartupWatchdog& watch,
                          const TrainOptions& options, Run* run, LivePage* page, const std::exception& error) {
  using namespace std::chrono_literals;
  watch.rests();
  const auto* known = dynamic_cast<const Error*>(&error);
  const auto is_one_of = [known](std::initializer_list<ErrorCode> codes) {
    return known != nullptr && std::find(codes.begin(), codes.end(), known->code()) != codes.end();
  };
  // Several ranks may see the same failure, or share a disk that fails. Each rank waits longer than the one before
  // it could need to be heard, and is usually ended meanwhile. Messages about peers say themselves who was where.
  const bool about_peers = is_one_of({ErrorCode::numeric, ErrorCode::transport});
  if (about_peers || is_one_of({ErrorCode::io, ErrorCode::data})) {
    // What is wrong with numbers all ranks know.
    const std::chrono::duration<double> apart(
        is_one_of({ErrorCode::numeric}) ? 5 : 0.25 + std::min(1.0, options.run.timeout_seconds / 8));
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(5s, session.rank() * apart));
  }
  const std::string what = (about_peers ? "" : describe_rank(options, session.rank()) + ": ") + error.what();
  print_error(program, what);
  if (page != nullptr) page->fail(what);
  if (run != nullptr) run->tell_failure(what);
  session.abort(exit_code(error_code(error)));
}

/// Makes the options those of a run that goes back to a checkpoint of this training: one that it took itself, or else
/// the one that it went on from, even if --resume named a folder of several.
void go_back(TrainOptions& options, const Run& run) {
  CheckpointOptions& checkpoint = options.checkpoint;
  options.trainer.rollback = run.rollback();
  if (run.took_checkpoints() || checkpoint.resume == "none") {
    if (!checkpoint.folder.empty()) checkpoint.resume = "auto";
  } else if (checkpoint.resume != "auto") {
    checkpoint.resume = run.resumed_from();
  }
}

void open_page(MpiSession& session, const TrainOptions& options, std::optional<LivePage>& page) {
  if (options.run.serve.empty() || options.run.request != Request::train) return;
  on_all_ranks(session, [&] {
    if (session.rank() == 0) page.emplace(options.run.serve);
  });
  if (!page) return;
  fmt::print("page: {}\n\n", page->url());
  std::fflush(stdout);
}

/// From now on whatever keeps this rank from getting on for the timeout ends it, and other ranks know what it does.
void watch_set_up(MpiSession& session, std::optional<StartupWatchdog>& watch, runtime::Duration timeout,
                  const std::function<std::string(int)>& describe) {
  using namespace std::chrono_literals;
  session.set_waiting({});
  watch.emplace(StartupWatchdog::Options{.timeout = timeout,
                                         .who = describe(session.rank()),
                                         .end =
                                             [](const std::string& why) {
                                               runtime::print_stderr(fmt::format("ranvier: error: {}\n", why));
                                               std::_Exit(exit_code(ErrorCode::device));
                                             },
                                         .tell = [&session] { session.tell(); },
                                         .tell_every = std::clamp<runtime::Duration>(timeout / 4, 50ms, 5s)});
  session.set_waiting({.patience = 10 * timeout,
                       .why = fmt::format("ten times --timeout {:g}", runtime::seconds(timeout)),
                       .describe = describe,
                       .watch = &*watch});
}

/// With the flags' timeout, and the ranks' places in the grid.
void watch_set_up(MpiSession& session, std::optional<StartupWatchdog>& watch, const TrainOptions& options) {
  const std::chrono::duration<double> timeout(options.run.timeout_seconds);
  watch_set_up(session, watch, std::chrono::duration_cast<runtime::Duration>(timeout), [&options](int rank) {
    return options.run.request == Request::train ? describe_rank(options, rank) : fmt::format("rank {}", rank);
  });
}

/// Whoever opens data says which files it reads.
void tell_reads(const MpiSession& session, StartupWatchdog& watch, TrainOptions& options) {
  const std::chrono::duration<double> timeout(options.run.timeout_seconds);
  const FaultyReads faulty(read_fault_from_environment(), session.rank(),
                           std::chrono::duration_cast<runtime::Duration>(timeout));
  if (!options.data.data.empty()) watch.about(options.data.data);
  options.data.reads = [&watch, faulty](const std::filesystem::path& file) {
    watch.about(file.string());
    faulty.data();
  };
}

/// What a run that was asked to end tells those who look. Who ends all ranks as one of them is gone asks the others by
/// the same signal as a user.
void tell_stopping(LiveRun& run, const TrainOptions& options, const std::string& cause,
                   const std::string& expected) {
  std::string lost;
  for (const int rank : run.lost_ranks()) lost += (lost.empty() ? "" : ", ") + describe_rank(options, rank);
  if (lost.empty()) return run.stopping(cause, expected);
  // Unless its last words are on their way.
  run.fail(lost + " is gone: its process was killed, by somebody or for want of memory, or ended without a word",
           false);
}

void hear_signals(const MpiSession& session, const StartupWatchdog& watch, const TrainOptions& options,
                  LivePage* page, std::optional<StopSignals>& signals) {
  signals.emplace(session.rank(),
                  StopSignals::Options{.describe = [&options](int rank) { return describe_rank(options, rank); },
                                       .blocked = [&watch] { return watch.doing(); },
                                       .say = runtime::print_stderr,
                                       .stopping =
                                           [&options, page](const std::string& cause, const std::string& expected) {
                                             if (page != nullptr)
                                               tell_stopping(page->run(), options, cause, expected);
                                           },
                                       .end = [](int status) { std::_Exit(status); }});
}

}  // namespace

int launch(const char* program, int argc, char** argv, const JobBuilder& build) {
  const auto began = Run::Clock::now();
  const runtime::StandardOutput output;
  // These outlive the report of an error: handlers of exceptions come before destructors of what is declared here.
  std::optional<MpiSession> session;
  std::optional<StartupWatchdog> watch;
  TrainOptions options;
  Job job;
  std::optional<LivePage> page;  // on rank 0, with --serve
  std::optional<StopSignals> signals;
  std::optional<Run> run;
  try {
    session.emplace(argc, argv);
    watch_set_up(*session, watch, StartupWatchdog::Options().timeout,
                 [](int rank) { return fmt::format("rank {}", rank); });
    watch->does("reads its flags");
    std::vector<GivenFlag> given;
    on_all_ranks(*session, [&] { given = given_train_flags(argc, argv); });
    const RunDefaults defaults = run_defaults(*session, given);
    const PlannedArguments arguments = planned_arguments(*session, argc, argv, given, defaults, build);
    on_all_ranks(*session, [&] { options = parse(arguments, session->ranks(), defaults); });
    compare_options(*session, options);
    if (options.run.request == Request::info) {
      if (session->rank() == 0)
        fmt::print("{}\n", answer(options.run.info, train_manual(program), runtime::mpi_library()));
      return EXIT_SUCCESS;
    }
    watch_set_up(*session, watch, options);
    on_all_ranks(*session, [&] { check_world(*session, options); });
    watch->does("looks at what it is to write", output_patience);
    on_all_ranks(*session, [&] {
      if (session->rank() == 0) check_outputs(options);
    });
    open_page(*session, options, page);
    if (options.run.request == Request::train)
      hear_signals(*session, *watch, options, page ? &*page : nullptr, signals);
    watch->does("opens its data");
    tell_reads(*session, *watch, options);
    std::vector<std::filesystem::path> files;
    on_all_ranks(*session, [&] {
      job = build(options);
      job.untrained = untrained_weights(options, job.architecture);
      if (options.run.request == Request::train) files = deciding_files(options, job);
    });
    watch->does("compares its files with those of other ranks");
    compare_files(*session, files, options.data.reads);
    int status = 0;
    std::vector<std::string> missing;
    do {
      run.emplace(*session, *watch, options, job, signals ? &*signals : nullptr, page ? &page->run() : nullptr,
                  missing, began);
      status = run->execute();
      if (run->rollback()) go_back(options, *run);
    } while (run->rollback());
    watch->does("ends", output_patience);
    on_all_ranks(*session, [&] {
      if (missing.empty()) return;
      std::fflush(stdout);
      fail(ErrorCode::io, "outputs are missing: {}; free space there or use other paths, then run again",
           fmt::join(missing, "; "));
    });
    if (page) page->end(status == stopped_exit_code);
    std::fflush(stdout);
    if (const std::string loss = output.loss(); !loss.empty())
      runtime::print_stderr(fmt::format("{}: warning: {}\n", program, loss));
    return status;
  } catch (const FailedTogether& failure) {
    if (watch) watch->rests();
    if (failure.error) print_error(program, failure.error->what());
    if (page)
      page->fail(failure.error ? failure.error->what()
                               : "another rank, which has said why where the run was started");
    return exit_code(failure.code);
  } catch (const std::exception& error) {
    if (session && watch)
      end_all(program, *session, *watch, options, run ? &*run : nullptr, page ? &*page : nullptr, error);
    print_error(program, error.what());
    return exit_code(error_code(error));
  }
}

}  // namespace ranvier::apps
