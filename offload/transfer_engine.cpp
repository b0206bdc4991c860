#include "offload/transfer_engine.hpp"

#include "offload/io_queue.hpp"
#include "offload/tier.hpp"
#include "runtime/base/error.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

namespace ranvier::offload {
struct TransferEngine::State {
  struct Running {
    Transfer transfer;
    std::size_t begun = 0;       ///< bytes with requests
    std::size_t unfinished = 0;  ///< unfinished requests
    std::string failure;         ///< first error of a transfer with `failed`, whose errors do not end the run
  };

  /// A request in flight or to be submitted again.
  struct Request {
    std::shared_ptr<Running> of;
    StripeRange piece;
    std::byte* data = nullptr;
    std::size_t moved = 0;
    int attempts = 0;
    std::uint64_t order = 0;  // position in the order of creation; 0: not in flight
  };

  State(runtime::EventLoop& event_loop, std::unique_ptr<IoQueue> io_queue, std::vector<File> all_files,
        Stripes all_stripes, int depth)
      : loop(event_loop),
        queue(std::move(io_queue)),
        stripes(all_stripes),
        files(std::move(all_files)),
        requests(static_cast<std::size_t>(depth)) {
    for (std::size_t id = requests.size(); id-- > 0;) free_ids.push_back(id);
    thread = std::thread([this] { serve(); });
    pthread_setname_np(thread.native_handle(), "file transfers");
  }

  void serve();
  [[nodiscard]] bool take_arrived();
  void submit();
  void complete(const IoCompletion& completion);
  void finish(std::size_t id);
  [[nodiscard]] bool is_as_written(const Request& request);
  void fail_with(std::size_t id, std::string_view cause);
  void break_off(const std::string& why);
  void give_up(Transfer transfer, const std::string& why);

  // Any thread, guarded by `mutex`.
  std::mutex mutex;
  std::vector<Transfer> arrived;
  bool closing = false;
  std::string broken;  // why the queue stopped working
  std::atomic<std::uint64_t> moves = 0;
  std::atomic<bool> loses_next = false;

  // Constant after construction.
  runtime::EventLoop& loop;
  const std::unique_ptr<IoQueue> queue;
  const Stripes stripes;

  // Engine's thread; others take `table`.
  std::vector<File> files;
  std::mutex table;                              // guards `files` and `requests` from other threads
  std::vector<Request> requests;                 // by id
  std::deque<std::shared_ptr<Running>> waiting;  // transfers that need more requests
  std::uint64_t made = 0;                        // requests created so far
  std::vector<std::size_t> free_ids;
  std::vector<std::size_t> again;  // ids of requests to submit again
  std::vector<IoRequest> batch;
  std::size_t in_flight = 0;
  std::chrono::microseconds pause{};  // delay before the next submission
  bool failed = false;

  std::thread thread;
};

void TransferEngine::State::serve() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // the loop's thread handles signals
  std::vector<IoCompletion> completed;
  try {
    while (take_arrived()) {
      submit();
      completed.clear();
      queue->wait(completed);
      in_flight -= completed.size();
      pause = {};
      for (const IoCompletion& completion : completed) complete(completion);
      if (pause.count() != 0) std::this_thread::sleep_for(pause);
    }
  } catch (const std::exception& error) {  // thrown by the queue
    break_off(error.what());
  }
}

/// Fails all transfers, pending and future.
void TransferEngine::State::break_off(const std::string& why) {
  std::vector<Transfer> lost;
  {
    const std::lock_guard lock(mutex);
    broken = why;
    lost = std::exchange(arrived, {});
  }
  const std::lock_guard lock(table);
  for (const Request& request : requests)
    if (request.of) waiting.push_back(request.of);
  for (const auto& running : waiting)
    if (running->transfer.done) lost.push_back(std::exchange(running->transfer, {}));  // a repeated entry is empty
  for (Transfer& transfer : lost) give_up(std::move(transfer), why);
}

void TransferEngine::State::give_up(Transfer transfer, const std::string& why) {
  if (transfer.failed) return loop.post([failed = std::move(transfer.failed), why] { failed(why); });
  loop.stop(std::make_exception_ptr(Error(ErrorCode::io, why)));
}

/// Takes new transfers. Returns false if the engine is closing and nothing is in flight.
bool TransferEngine::State::take_arrived() {
  const std::lock_guard lock(mutex);
  if (closing || failed) {
    arrived.clear();
    waiting.clear();
    again.clear();
  }
  for (Transfer& transfer : arrived) waiting.push_back(std::make_shared<Running>(Running{std::move(transfer)}));
  arrived.clear();
  return !closing || in_flight != 0;
}

void TransferEngine::State::submit() {
  batch.clear();
  const std::lock_guard lock(table);
  const auto add = [this](std::size_t id) {
    const Request& request = requests[id];
    batch.push_back({request.of->transfer.kind, files[request.piece.directory].descriptor,
                     request.data + request.moved, request.piece.bytes - request.moved,
                     request.piece.offset + request.moved, id});
  };
  for (const std::size_t id : std::exchange(again, {})) add(id);
  while (!waiting.empty() && !free_ids.empty()) {
    Running& running = *waiting.front();
    if (!running.failure.empty()) {
      waiting.pop_front();
      continue;
    }
    const Transfer& transfer = running.transfer;
    const std::size_t id = free_ids.back();
    free_ids.pop_back();
    const StripeRange piece = stripes.first_piece(transfer.address + running.begun, transfer.bytes - running.begun);
    requests[id] = {waiting.front(), piece, transfer.data + running.begun, 0, 0, ++made};
    ++running.unfinished;
    running.begun += piece.bytes;
    if (running.begun == transfer.bytes) waiting.pop_front();
    if (!loses_next.exchange(false, std::memory_order_relaxed)) add(id);
  }
  if (batch.empty()) return;
  in_flight += batch.size();
  queue->submit(batch);
}

void TransferEngine::State::complete(const IoCompletion& completion) {
  const std::lock_guard lock(table);
  Request& request = requests[completion.id];
  moves.fetch_add(completion.result > 0 ? 1 : 0, std::memory_order_relaxed);
  const std::size_t asked = request.piece.bytes - request.moved;
  if (completion.result == static_cast<std::int64_t>(asked)) {
    if (!failed && !is_as_written(request)) return;
    return finish(completion.id);
  }
  if (failed) return;
  if (!request.of->failure.empty()) return finish(completion.id);
  if (completion.result < 0) {
    const auto error = static_cast<int>(-completion.result);
    if ((error != EINTR && error != EAGAIN) || ++request.attempts == max_attempts)
      return fail_with(completion.id, std::strerror(error));
    if (error == EAGAIN) pause = std::max(pause, pause_before(request.attempts));
  } else {
    // Short transfer: the rest starts on a block, as O_DIRECT requires. A read of 0 bytes is the end of the file.
    const std::size_t moved = static_cast<std::size_t>(completion.result) / Tier::block_bytes * Tier::block_bytes;
    request.attempts = moved == 0 ? request.attempts + 1 : 0;
    if (completion.result == 0 && request.of->transfer.kind == IoKind::read)
      return fail_with(completion.id, "the file was truncated by another process");
    if (request.attempts == max_attempts)
      return fail_with(completion.id, "the system transfers less than a block per call");
    request.moved += moved;
  }
  again.push_back(completion.id);
}

/// Frees a request; after the last one, completes or fails its transfer.
void TransferEngine::State::finish(std::size_t id) {
  Request& request = requests[id];
  Running& running = *request.of;
  --running.unfinished;
  if (running.unfinished == 0 && !running.failure.empty()) {
    give_up(std::move(running.transfer), running.failure);
  } else if (running.unfinished == 0 && running.begun == running.transfer.bytes && !failed) {
    loop.post(std::move(running.transfer.done));
  }
  request.of.reset();
  request.order = 0;
  free_ids.push_back(id);
}

/// Records checksums of a completed write, or checks a completed read; returns false after a mismatch.
bool TransferEngine::State::is_as_written(const Request& request) {
  File& file = files[request.piece.directory];
  if (!file.sums) return true;
  const std::span<const std::byte> blocks(request.data, request.piece.bytes);
  if (request.of->transfer.kind == IoKind::write) {
    file.sums->record(request.piece.offset, blocks);
  } else if (const auto damaged = file.sums->first_damaged(request.piece.offset, blocks)) {
    failed = true;
    loop.stop(std::make_exception_ptr(
        Error(ErrorCode::data,
              fmt::format("{}: the {} bytes at offset {} have changed since they were written, by the disk "
                          "or another process; check the disk's health",
                          file.path.string(), Tier::block_bytes, *damaged))));
    return false;
  }
  return true;
}

void TransferEngine::State::fail_with(std::size_t id, std::string_view cause) {
  Request& request = requests[id];
  Running& running = *request.of;
  const bool reads = running.transfer.kind == IoKind::read;
  const std::string failure =
      fmt::format("{}: cannot {} {} bytes at offset {}: {}; check the disk's health and free space",
                  files[request.piece.directory].path.string(), reads ? "read" : "write",
                  request.piece.bytes - request.moved, request.piece.offset + request.moved, cause);
  if (running.transfer.failed) {
    running.failure = failure;
    return finish(id);
  }
  failed = true;
  give_up({}, failure);
}

TransferEngine::TransferEngine(runtime::EventLoop& loop, std::unique_ptr<IoQueue> queue, std::vector<File> files,
                               Stripes stripes, int depth)
    : state_(std::make_unique<State>(loop, std::move(queue), std::move(files), stripes, depth)) {}

TransferEngine::~TransferEngine() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->queue->wake();
  state_->thread.join();
}

void TransferEngine::start(Transfer transfer) {
  if (transfer.bytes == 0) return state_->loop.post(std::move(transfer.done));
  bool first = false;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->broken.empty()) return state_->give_up(std::move(transfer), state_->broken);
    first = state_->arrived.empty();
    state_->arrived.push_back(std::move(transfer));
  }
  if (first) state_->queue->wake();
}

void TransferEngine::reopen(std::vector<File> files) {
  const std::lock_guard lock(state_->table);
  state_->files = std::move(files);
}

void TransferEngine::lose_next() noexcept { state_->loses_next = true; }

std::string TransferEngine::oldest() const {
  const std::lock_guard lock(state_->table);
  const State::Request* oldest = nullptr;
  for (const State::Request& request : state_->requests) {
    if (request.order > 0 && (oldest == nullptr || request.order < oldest->order)) oldest = &request;
  }
  if (oldest == nullptr) return "files, nothing in flight";
  return fmt::format("a {} of {} bytes at offset {} of {}",
                     oldest->of->transfer.kind == IoKind::read ? "read" : "write",
                     oldest->piece.bytes - oldest->moved, oldest->piece.offset + oldest->moved,
                     state_->files[oldest->piece.directory].path.string());
}

std::uint64_t TransferEngine::done() const noexcept { return state_->moves.load(std::memory_order_relaxed); }

}  // namespace ranvier::offload
