#include "offload/file_tier.hpp"

#include "offload/block_checksums.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace ranvier::offload {
namespace {

using runtime::format_bytes;

void check_options(const FileTierOptions& options) {
  if (options.directories.empty())
    fail(ErrorCode::usage, "`nvme` has no directory; use one per disk, separated by commas");
  if (options.depth < 1 || options.depth > 4096)
    fail(ErrorCode::usage, "requests in flight are out of range: {}; use 1 to 4096", options.depth);
  if (options.request_bytes == 0 || options.request_bytes % Tier::block_bytes != 0 ||
      options.request_bytes > (std::size_t{1} << 30))
    fail(ErrorCode::usage, "request size is invalid: {}; use a multiple of {}, at most 1 GiB",
         options.request_bytes, Tier::block_bytes);
}

}  // namespace

FileTier::Store FileTier::make_store(const std::filesystem::path& directory, std::uint64_t bytes) const {
  Store store;
  store.folder = std::make_unique<JobDirectory>(directory, options_.rank);
  store.bytes = bytes;
  const auto path = store.folder->file();
  const OpenedFile opened = open_blocks(*system_, path, bytes, options_.direct);
  store.file = runtime::FileDescriptor(opened.file);
  store.direct_refused = opened.direct_refused;
  if (opened.full())
    fail(ErrorCode::io,
         "{}: not enough space for rank {}: {} needed, {} free; remove files, add a directory on another disk to "
         "`nvme`, or store fewer states there",
         directory.string(), options_.rank, format_bytes(bytes), format_bytes(opened.free));
  if (opened.error != 0)
    fail(ErrorCode::io, "cannot {1} {0}: {2}; use `nvme` with a folder that is writable and has space",
         path.string(), opened.failed, std::strerror(opened.error));
  return store;
}

FileTier::FileTier(runtime::EventLoop& loop, FileTierOptions options, std::unique_ptr<FileSystem> system)
    : loop_(loop),
      options_(std::move(options)),
      system_(std::move(system)),
      stripes_(options_.directories.size(), options_.request_bytes) {
  check_options(options_);
}

void FileTier::allocate(std::uint64_t bytes, std::span<std::uint64_t> sums) {
  // The files of all directories together have as many blocks as a single file.
  expect(!options_.checksums || sums.size() == BlockChecksums::count(bytes),
         "a file tier with checksums starts without memory for them");
  for (std::size_t i = 0; i < options_.directories.size(); ++i)
    stores_.push_back(make_store(options_.directories[i], stripes_.file_bytes(i, bytes)));

  UringOutcome queue = system_->make_queue(options_.depth, options_.uring);
  uring_refused_ = queue.error;
  std::vector<TransferEngine::File> files;
  for (const Store& store : stores_) {
    files.push_back({store.file.get(), store.folder->file(), {}});
    if (!options_.checksums) continue;
    const std::size_t count = BlockChecksums::count(store.bytes);
    files.back().sums.emplace(sums.first(count));
    sums = sums.subspan(count);
  }
  engine_ =
      std::make_unique<TransferEngine>(loop_, std::move(queue.queue), std::move(files), stripes_, options_.depth);
}

std::string FileTier::description() const {
  std::string text = "io_uring";
  if (uring_refused_ != 0) {
    text = fmt::format("pread and pwrite on threads (io_uring refused: {})", std::strerror(uring_refused_));
  } else if (!options_.uring) {
    text = "pread and pwrite on threads";
  }
  text += fmt::format(", {} × {}{}", options_.depth, format_bytes(options_.request_bytes),
                      options_.checksums ? ", checksums" : "");
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const Store& store = stores_[i];
    const char* how = store.direct_refused != 0 ? "through the page cache (O_DIRECT refused)"
                      : options_.direct         ? "O_DIRECT"
                                                : "through the page cache";
    text += fmt::format(", {} ({}, {})", options_.directories[i].string(), format_bytes(store.bytes), how);
  }
  return text;
}

int FileTier::cleared() const {
  int cleared = 0;
  for (const Store& store : stores_) cleared += store.folder->cleared();
  return cleared;
}

void FileTier::move_blocks(IoKind kind, std::uint64_t address, std::span<std::byte> memory, runtime::Handler done) {
  engine_->start({kind, address, memory.data(), memory.size(), std::move(done)});
}

}  // namespace ranvier::offload
