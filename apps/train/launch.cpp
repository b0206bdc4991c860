#include "apps/train/launch.hpp"

#include "apps/files/file_agreement.hpp"
#include "apps/files/output_files.hpp"
#include "apps/files/watched_reads.hpp"
#include "apps/files/weight_source.hpp"
#include "apps/job/stop_signals.hpp"
#include "apps/plan/start_plan.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/flag_names.hpp"
#include "apps/program/print_error.hpp"
#include "apps/train/live_page.hpp"
#include "apps/train/run.hpp"
#include "runtime/base/console.hpp"
#include "runtime/base/error.hpp"
#include "runtime/liveness/thread_watchdog.hpp"
#include "runtime/transport/mpi_transport.hpp"

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
#include <vector>

namespace ranvier::apps {

namespace {

using runtime::MpiSession;
using runtime::ThreadWatchdog;

/// Throws FailedTogether if options differ between ranks, with the first flag that differs.
void compare_options(MpiSession& session, const TrainOptions& options) {
  const auto equal_everywhere = [&](std::uint64_t value) {
    const auto comparable = static_cast<long long>(value >> 1);
    return session.smallest(comparable) == session.largest(comparable);
  };
  const bool same_request = equal_everywhere(2 * static_cast<std::uint64_t>(options.run.request));
  if (same_request && equal_everywhere(options_hash(options))) return;
  std::string difference = "the request (--help or --dry-run on some ranks only)";
  if (same_request) {
    for (const ResolvedOption& option : resolved(options)) {
      if (option.per_rank || equal_everywhere(std::hash<std::string>()(option.value))) continue;
      difference = fmt::format("--{} ('{}' on this rank)", option.name, option.value);
      break;
    }
  }
  on_all_ranks(session, [&] {
    reject("options differ between ranks, first in {}; use the same flags and --config on all ranks", difference);
  });
}

/// Throws ErrorCode::usage if the launcher started several ranks but MPI gave each its own world. Each rank would train
/// the complete model, and the last save would overwrite the others.
void check_world(const MpiSession& session, const TrainOptions& options) {
  const int launched = runtime::launched_ranks();
  if (options.run.request != Request::train || options.run.separate_ranks || session.ranks() > 1 || launched == 1)
    return;
  reject(
      "ranks are not connected: the launcher started {}, but {} found 1; use the mpirun of that MPI, or srun "
      "--mpi=pmix (--separate-ranks trains them separately)",
      launched, runtime::mpi_library());
}

/// Prints the error of this rank and ends all ranks. Destroys nothing: messages and devices may use the memory until
/// the process ends, and a destructor could wait forever for a peer.
[[noreturn]] void end_all(const char* program, MpiSession& session, ThreadWatchdog& watch,
                          const TrainOptions& options, Run* run, LivePage* page, const std::exception& error) {
  using namespace std::chrono_literals;
  watch.rests();
  const auto* known = dynamic_cast<const Error*>(&error);
  const auto is_one_of = [known](std::initializer_list<ErrorCode> codes) {
    return known != nullptr && std::ranges::find(codes, known->code()) != codes.end();
  };
  // Several ranks may report the same failure, for instance of a shared disk. Rank r waits r times long enough for the
  // ranks before it to end the job first. Messages about peers already name the ranks.
  const bool about_peers = is_one_of({ErrorCode::numeric, ErrorCode::transport});
  if (about_peers || is_one_of({ErrorCode::io, ErrorCode::data})) {
    // A numeric error occurs on all ranks: rank 0 should report it.
    const std::chrono::duration<double> apart(
        is_one_of({ErrorCode::numeric}) ? 5 : 0.25 + std::min(1.0, options.run.timeout_seconds / 8));
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(5s, session.rank() * apart));
  }
  const std::string here = describe_rank(options, session.rank());
  std::string what = message_of(error);
  if (!about_peers && !what.starts_with(here)) what = here + ": " + what;
  print_error(program, what);
  if (page != nullptr) page->fail(what);
  if (run != nullptr) run->tell_failure(what);
  session.abort(exit_code(error_code(error)));
}

/// Changes the options for a rollback. The next run resumes from a checkpoint that this run took, or else from the one
/// that it resumed from itself, even if --resume named a folder.
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
  on_rank_0(session, [&] { page.emplace(options.run.serve); });
  if (!page) return;
  fmt::print("page: {}\n\n", page->url());
  std::fflush(stdout);
}

/// Starts the watchdog, which ends this rank if it blocks for the timeout, and tells other ranks its phase.
void start_watch(MpiSession& session, std::optional<ThreadWatchdog>& watch, runtime::Duration timeout,
                 const std::function<std::string(int)>& describe) {
  using namespace std::chrono_literals;
  session.heartbeat().set({});
  watch.emplace(ThreadWatchdog::Options{.timeout = timeout,
                                        .who = describe(session.rank()),
                                        .end =
                                            [](const std::string& why) {
                                              print_error("ranvier", why);
                                              std::_Exit(exit_code(ErrorCode::device));
                                            },
                                        .tell = [&session] { session.heartbeat().send(); },
                                        .tell_every = std::clamp<runtime::Duration>(timeout / 4, 50ms, 5s)});
  session.heartbeat().set({.patience = runtime::silence_patience * timeout,
                           .why = fmt::format("ten times --timeout {:g}", runtime::seconds(timeout)),
                           .describe = describe,
                           .watch = &*watch});
}

/// Shows on the live page why the run stops. If a rank is lost, the launcher sends the others the same signal as a user
/// would: the page then names the lost ranks.
void tell_stopping(LiveRun& run, const TrainOptions& options, const std::string& cause,
                   const std::string& expected) {
  std::string lost;
  for (const int rank : run.lost_ranks()) lost += (lost.empty() ? "" : ", ") + describe_rank(options, rank);
  if (lost.empty()) return run.stopping(cause, expected);
  // `false`: an error message of the lost rank may still arrive.
  run.fail(lost + " exited without an error message: crashed or killed, possibly out of memory", false);
}

void handle_signals(const MpiSession& session, const ThreadWatchdog& watch, const TrainOptions& options,
                    LivePage* page, std::optional<StopSignals>& signals) {
  signals.emplace(session.rank(),
                  StopSignals::Options{.describe = [&options](int rank) { return describe_rank(options, rank); },
                                       .blocked = [&watch] { return watch.doing(); },
                                       .print = runtime::print_stderr,
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
  // Declared outside of the try block: they outlive the error report in the handlers.
  std::optional<MpiSession> session;
  std::optional<ThreadWatchdog> watch;
  TrainOptions options;
  Job job;
  std::optional<LivePage> page;  // on rank 0, with --serve
  std::optional<StopSignals> signals;
  std::optional<Run> run;
  try {
    session.emplace(argc, argv);
    start_watch(*session, watch, ThreadWatchdog::Options().timeout,
                [](int rank) { return fmt::format("rank {}", rank); });
    watch->does("reads its flags");
    std::vector<GivenFlag> given;
    on_all_ranks(*session, [&] { given = given_train_flags(argc, argv); });
    const RunDefaults defaults = run_defaults(*session, given);
    const std::vector<GivenFlag> chosen = plan_start(*session, given, defaults, build);
    on_all_ranks(*session, [&] { options = parse_train_options(argc, argv, session->ranks(), defaults, chosen); });
    compare_options(*session, options);
    if (options.run.request == Request::info) {
      if (session->rank() == 0)
        fmt::print("{}\n", answer(options.run.info, train_manual(program), runtime::mpi_library()));
      return EXIT_SUCCESS;
    }
    const runtime::Duration timeout = timeout_of(options);
    start_watch(*session, watch, timeout, [&options](int rank) {
      return options.run.request == Request::train ? describe_rank(options, rank) : fmt::format("rank {}", rank);
    });
    on_all_ranks(*session, [&] { check_world(*session, options); });
    watch->does("checks its outputs", runtime::output_patience);
    on_rank_0(*session, [&] { check_outputs(options); });
    open_page(*session, options, page);
    if (options.run.request == Request::train)
      handle_signals(*session, *watch, options, page ? &*page : nullptr, signals);
    watch->does("opens its data");
    if (!options.data.data.empty()) watch->about(options.data.data);
    options.data.reading.reads = [reads = WatchedReads(*watch, session->rank(), timeout)](
                                     const std::filesystem::path& file) { reads.data(file); };
    std::vector<std::filesystem::path> files;
    on_all_ranks(*session, [&] {
      job = build(options);
      job.untrained = untrained_weights(options, job.architecture);
      if (options.run.request == Request::train) files = deciding_files(options, job);
    });
    watch->does("compares its files with other ranks");
    compare_files(*session, files, options.data.reading.reads);
    int status = 0;
    std::vector<std::string> missing;
    const Run::Program shared{.session = *session,
                              .watch = *watch,
                              .job = job,
                              .build = build,
                              .signals = signals ? &*signals : nullptr,
                              .live = page ? &page->run() : nullptr,
                              .missing = missing,
                              .began = began};
    do {
      run.emplace(shared, options);
      status = run->execute();
      if (run->rollback()) go_back(options, *run);
    } while (run->rollback());
    watch->does("ends", runtime::output_patience);
    on_all_ranks(*session, [&] {
      if (missing.empty()) return;
      std::fflush(stdout);
      fail(ErrorCode::io, "outputs are missing: {}; free space on these disks or use other paths, then run again",
           fmt::join(missing, "; "));
    });
    if (page) page->end(status == stopped_exit_code);
    std::fflush(stdout);
    if (const std::string loss = output.loss(); !loss.empty())
      runtime::print_stderr(fmt::format("{}: warning: {}\n", program, loss));
    return status;
  } catch (const FailedTogether& failure) {
    if (watch) watch->does("ends", runtime::output_patience);  // a destructor may wait for a disk that hangs
    if (failure.error) print_error(program, failure.error->what());
    if (page)
      page->fail(failure.error ? message_of(*failure.error)
                               : "error on another rank, printed on the console that started the run");
    return exit_code(failure.code);
  } catch (const std::exception& error) {
    if (session && watch)
      end_all(program, *session, *watch, options, run ? &*run : nullptr, page ? &*page : nullptr, error);
    print_error(program, error.what());
    return exit_code(error_code(error));
  }
}

}  // namespace ranvier::apps
