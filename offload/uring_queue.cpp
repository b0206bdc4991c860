#include "offload/io_queue.hpp"

#include "runtime/base/error.hpp"
#include "runtime/files/file_descriptor.hpp"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ranvier::offload {
namespace {

using runtime::FileDescriptor;

constexpr std::uint64_t wake_id = ~std::uint64_t{0};

/// Returns whether plain reads and writes are supported: io_uring came with Linux 5.1, these with 5.6.
bool has_plain_transfers(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;
  const bool has = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  return has;
}

class UringQueue final : public IoQueue {
 public:
  /// Takes ownership of `wake_file`, an eventfd.
  UringQueue(const io_uring& ring, FileDescriptor wake_file) : ring_(ring), wake_file_(std::move(wake_file)) {
    listen();
  }

  ~UringQueue() override { io_uring_queue_exit(&ring_); }

  void submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      io_uring_sqe* entry = next_entry();
      const auto bytes = static_cast<unsigned>(request.bytes);
      if (request.kind == IoKind::read) {
        io_uring_prep_read(entry, request.file, request.data, bytes, request.offset);
      } else {
        io_uring_prep_write(entry, request.file, request.data, bytes, request.offset);
      }
      io_uring_sqe_set_data64(entry, request.id);
    }
    flush();
  }

  void wait(std::vector<IoCompletion>& completed) override {
    for (bool woken = false; !woken && completed.empty();) {
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
        fail(ErrorCode::io, "io_uring: waiting for completions: {}", std::strerror(-result));
      io_uring_cqe* entry = nullptr;
      unsigned head = 0, seen = 0;
      io_uring_for_each_cqe(&ring_, head, entry) {
        ++seen;
        if (const std::uint64_t id = io_uring_cqe_get_data64(entry); id == wake_id) {
          woken = true;
        } else {
          completed.push_back({id, entry->res});
        }
      }
      io_uring_cq_advance(&ring_, seen);
      if (woken) listen();
    }
  }

  void wake() override {
    const std::uint64_t one = 1;
    while (::write(wake_file_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

 private:
  /// Never fails: the ring has entries for `depth` requests and for listen(), and all are submitted at once.
  io_uring_sqe* next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    expect(entry != nullptr, "io_uring: more requests in flight than its depth");
    return entry;
  }

  void listen() {
    io_uring_sqe* entry = next_entry();
    io_uring_prep_read(entry, wake_file_.get(), &wakes_, sizeof wakes_, 0);
    io_uring_sqe_set_data64(entry, wake_id);
    flush();
  }

  void flush() {
    for (;;) {
      const int result = io_uring_submit(&ring_);
      if (result >= 0 && io_uring_sq_ready(&ring_) == 0) return;
      // Memory or completion entries are temporarily exhausted; running requests will free some.
      if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
        fail(ErrorCode::io, "io_uring: submitting requests: {}", std::strerror(-result));
      if (result == -EBUSY) return;  // wait() takes completions and submits the rest
    }
  }

  io_uring ring_;
  FileDescriptor wake_file_;
  std::uint64_t wakes_ = 0;
};

}  // namespace

UringOutcome make_uring_queue(int depth) {
  FileDescriptor wake_file(::eventfd(0, EFD_CLOEXEC));
  if (!wake_file) return {nullptr, errno};
  io_uring ring;
  // Twice the entries: if all requests are in the queue, listen() still needs one.
  if (const int result = io_uring_queue_init(2 * static_cast<unsigned>(depth) + 2, &ring, 0); result < 0)
    return {nullptr, -result};
  if (!has_plain_transfers(ring)) {
    io_uring_queue_exit(&ring);
    return {nullptr, ENOSYS};
  }
  return {std::make_unique<UringQueue>(ring, std::move(wake_file)), 0};
}

}  // namespace ranvier::offload
