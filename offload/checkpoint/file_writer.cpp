#include "offload/checkpoint/file_writer.hpp"

#include "offload/tier.hpp"
#include "offload/transfer_engine.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/ordered_worker.hpp"
#include "runtime/liveness/time_limits.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

namespace ranvier::offload {
namespace {

/// Size of a request. A checkpoint segment has two, so that a slow one delays little.
constexpr std::size_t request_bytes = std::size_t{1} << 20;

}  // namespace

struct CheckpointFileWriter::State : std::enable_shared_from_this<State> {
  enum class Stage { closed, opening, open, closing };

  State(CheckpointFileWriter& writer, runtime::EventLoop& event_loop, const FileSystem& system, int queue_depth)
      : place(writer), loop(event_loop), storage(system), depth(queue_depth) {
    UringOutcome queue = storage.make_queue(depth, true);
    uring_refused = queue.error;
    engine.emplace(loop, std::move(queue.queue), std::vector<TransferEngine::File>(1), Stripes(1, request_bytes),
                   depth);
    worker.emplace("checkpoint file", [](std::function<void()>& job) { job(); });
  }

  ~State() {
    leaving = true;
    engine.reset();
    worker.reset();
    if (opened.file >= 0) storage.close(opened.file);
  }

  /// Runs `job` on the worker, then `then` with its result on the loop.
  template <typename Job, typename Then>
  void beside(const char* doing, Job&& job, Then&& then);
  [[nodiscard]] std::function<void(std::string)> begin(const char* what, Outcome done);
  [[nodiscard]] std::string make_file(const runtime::AtomicFile::Retry& again);
  [[nodiscard]] std::string bring_to_disk();
  void finish_close();

  // Constant after construction.
  const runtime::ProgressSource& place;
  runtime::EventLoop& loop;
  const FileSystem& storage;
  const int depth;
  int uring_refused = 0;  // errno

  // Loop thread only.
  Stage stage = Stage::closed;
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::string failure;                      // first failure of this file
  std::optional<int> direct_refused;        // errno for the last created file
  std::size_t writes = 0;                   // unfinished writes
  runtime::AtomicFile::Retry retry;         // for future files
  std::function<void(std::string)> closed;  // outcome of close()

  OpenedFile opened;  // used by the worker while opening or closing, otherwise by the loop

  // Any thread.
  mutable std::mutex mutex;
  std::string busy_with;  // current job of the worker; empty: none
  std::atomic<std::uint64_t> jobs = 0;
  std::atomic<bool> leaving = false;

  std::optional<TransferEngine> engine;
  std::optional<runtime::OrderedWorker<std::function<void()>>> worker;
};

/// Registers work that has started. Call the result on the loop to end it and report its outcome.
std::function<void(std::string)> CheckpointFileWriter::State::begin(const char* what, Outcome done) {
  auto failed = std::make_shared<std::string>();
  auto end = loop.ends({.part = "checkpoint", .text = what, .patience = runtime::checkpoint_patience}, place,
                       [failed, done = std::move(done)] { done(*failed); });
  return [failed, end = std::move(end)](std::string why) {
    *failed = std::move(why);
    end();
  };
}

template <typename Job, typename Then>
void CheckpointFileWriter::State::beside(const char* doing, Job&& job, Then&& then) {
  worker->push([weak = weak_from_this(), this, text = fmt::format("{} {}", doing, path.string()),
                job = std::forward<Job>(job), then = std::forward<Then>(then)] {
    {
      const std::lock_guard lock(mutex);
      busy_with = text;
    }
    auto result = job();
    {
      const std::lock_guard lock(mutex);
      busy_with.clear();
    }
    jobs.fetch_add(1, std::memory_order_relaxed);
    loop.post([weak, then, result = std::move(result)]() mutable {
      if (const auto alive = weak.lock()) then(std::move(result));
    });
  });
}

CheckpointFileWriter::CheckpointFileWriter(runtime::EventLoop& loop, const FileSystem& storage, int depth)
    : state_(std::make_shared<State>(*this, loop, storage, depth)) {}

CheckpointFileWriter::~CheckpointFileWriter() = default;

void CheckpointFileWriter::insist(runtime::AtomicFile::Retry retry) { state_->retry = std::move(retry); }

void CheckpointFileWriter::open(const std::filesystem::path& file, std::uint64_t bytes, Outcome done) {
  State& state = *state_;
  expect(state.stage == State::Stage::closed, "{}: opened before {} was closed", file.string(),
         state.path.string());
  state.stage = State::Stage::opening;
  state.path = file;
  state.bytes = bytes;
  state.failure.clear();
  state.beside(
      "the making of", [&state, again = state.retry] { return state.make_file(again); },
      [&state, end = state.begin("the making of its file", std::move(done))](std::string why) {
        state.failure = std::move(why);
        if (state.failure.empty()) state.direct_refused = state.opened.direct_refused;
        state.stage = State::Stage::open;
        std::vector<TransferEngine::File> files(1);
        files.front() = {state.opened.file, state.path, {}};
        state.engine->reopen(std::move(files));
        end(state.failure);
      });
}

std::string CheckpointFileWriter::State::make_file(const runtime::AtomicFile::Retry& again) {
  for (;;) {
    opened = open_blocks(storage, path, bytes, true);
    if (opened.error == 0) return {};
    if (again && !leaving && again(path, opened.error)) {
      if (opened.file >= 0) storage.close(std::exchange(opened.file, -1));
      continue;
    }
    if (!opened.full())
      return fmt::format("cannot {1} {0}: {2}", path.string(), opened.failed, std::strerror(opened.error));
    return fmt::format("{}: not enough space: {} needed, {} free; remove files there or keep fewer checkpoints",
                       path.string(), runtime::format_bytes(bytes), runtime::format_bytes(opened.free));
  }
}

std::string CheckpointFileWriter::State::bring_to_disk() {
  int result = failure.empty() ? storage.sync(opened.file) : 0;
  if (opened.file >= 0) {
    const int closing = storage.close(std::exchange(opened.file, -1));
    if (result == 0) result = closing;
  }
  return result == 0 ? std::string()
                     : fmt::format("{}: cannot sync to disk: {}", path.string(), std::strerror(-result));
}

void CheckpointFileWriter::write(std::uint64_t offset, std::span<const std::byte> blocks, Outcome done) {
  State& state = *state_;
  expect(state.stage == State::Stage::open, "write to a file that is not open: {}", state.path.string());
  expect(offset % Tier::block_bytes == 0 && blocks.size() % Tier::block_bytes == 0 &&
             reinterpret_cast<std::uintptr_t>(blocks.data()) % Tier::block_bytes == 0,
         "{}: a write of {} bytes at offset {} is not aligned to blocks", state.path.string(), blocks.size(),
         offset);
  expect(offset <= state.bytes && blocks.size() <= state.bytes - offset,
         "{}: a write of {} bytes at offset {} exceeds the file of {}", state.path.string(), blocks.size(), offset,
         state.bytes);
  ++state.writes;
  const auto ended = [weak = state.weak_from_this(),
                      end = state.begin("a part of its file", std::move(done))](std::string why) {
    const auto alive = weak.lock();
    if (!alive) return;
    --alive->writes;
    if (alive->failure.empty()) alive->failure = std::move(why);
    const bool last = alive->writes == 0 && alive->stage == State::Stage::closing;
    end(alive->failure);
    if (last) alive->finish_close();
  };
  if (!state.failure.empty()) return state.loop.post([ended] { ended({}); });
  // Requests have one pointer type for both directions; a write only reads the memory.
  state.engine->start({IoKind::write, offset, const_cast<std::byte*>(blocks.data()), blocks.size(),
                       [ended] { ended({}); }, [ended](const std::string& why) { ended(why); }});
}

void CheckpointFileWriter::close(Outcome done) {
  State& state = *state_;
  expect(state.stage == State::Stage::open, "{} is not open and cannot be closed", state.path.string());
  state.stage = State::Stage::closing;
  state.closed = state.begin("bringing its file to the disk", std::move(done));
  if (state.writes == 0) state.finish_close();
}

void CheckpointFileWriter::State::finish_close() {
  beside(
      "fsync of", [this] { return bring_to_disk(); },
      [this](std::string why) {
        if (failure.empty()) failure = std::move(why);
        stage = Stage::closed;
        std::exchange(closed, nullptr)(failure);
      });
}

std::string CheckpointFileWriter::description() const {
  const State& state = *state_;
  return fmt::format("{}, {} × {}{}",
                     state.uring_refused == 0 ? std::string("io_uring")
                                              : fmt::format("pwrite on threads (io_uring refused: {})",
                                                            std::strerror(state.uring_refused)),
                     state.depth, runtime::format_bytes(request_bytes),
                     !state.direct_refused        ? ""
                     : *state.direct_refused != 0 ? ", through the page cache (O_DIRECT refused)"
                                                  : ", O_DIRECT");
}

std::string CheckpointFileWriter::place() const {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->busy_with.empty()) return state_->busy_with;
  }
  return state_->engine->oldest();
}

std::uint64_t CheckpointFileWriter::done() const noexcept {
  return state_->engine->done() + state_->jobs.load(std::memory_order_relaxed);
}

}  // namespace ranvier::offload
