#include "offload/file_tier.hpp"

#include "offload/block_checksums.hpp"
#include "offload/job_directory.hpp"
#include "offload/stripes.hpp"
#include "offload/transfer_engine.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/file_descriptor.hpp"

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

/// A directory and the file in it.
struct Store {
  std::unique_ptr<JobDirectory> folder;  // removed after the file was closed
  runtime::FileDescriptor file;
  std::uint64_t bytes = 0;
  int direct_refused = 0;  ///< errno
};

struct FileTier::State {
  State(runtime::EventLoop& event_loop, FileTierOptions file_options, std::unique_ptr<FileSystem> file_system)
      : loop(event_loop),
        options(std::move(file_options)),
        system(std::move(file_system)),
        stripes(options.directories.size(), options.request_bytes) {}

  Store make_store(const std::filesystem::path& directory, std::uint64_t bytes) const;
  [[noreturn]] void refuse_space(const std::filesystem::path& directory, std::uint64_t bytes,
                                 std::int64_t free) const;

  runtime::EventLoop& loop;
  const FileTierOptions options;
  const std::unique_ptr<FileSystem> system;
  const Stripes stripes;
  std::vector<std::uint64_t> begins;  // start of each region in the striped address space
  std::vector<Store> stores;
  int uring_refused = 0;                   // errno
  std::unique_ptr<TransferEngine> engine;  // destroyed before the stores close
};

void FileTier::State::refuse_space(const std::filesystem::path& directory, std::uint64_t bytes,
                                   std::int64_t free) const {
  fail(ErrorCode::io,
       "{}: not enough space for rank {}: {} needed, {} free; remove files, add a directory on another disk to "
       "`nvme`, or store fewer states there",
       directory.string(), options.rank, format_bytes(bytes), format_bytes(free < 0 ? 0 : free));
}

Store FileTier::State::make_store(const std::filesystem::path& directory, std::uint64_t bytes) const {
  Store store;
  store.folder = std::make_unique<JobDirectory>(directory, options.rank);
  store.bytes = bytes;
  const std::int64_t free = system->free_bytes(directory);
  if (free >= 0 && static_cast<std::uint64_t>(free) < bytes) refuse_space(directory, bytes, free);

  const auto path = store.folder->file();
  const OpenedFile opened = open_blocks(*system, path, bytes, options.direct);
  store.file = runtime::FileDescriptor(opened.file);
  store.direct_refused = opened.direct_refused;
  if (opened.error == ENOSPC || opened.error == EDQUOT)
    refuse_space(directory, bytes, system->free_bytes(directory));
  if (opened.error != 0)
    fail(ErrorCode::io, "cannot {1} {0}: {2}; use `nvme` with a folder that is writable and has space",
         path.string(), opened.failed, std::strerror(opened.error));
  return store;
}

FileTier::FileTier(runtime::EventLoop& loop, FileTierOptions options, std::unique_ptr<FileSystem> system) {
  check_options(options);
  state_ = std::make_unique<State>(loop, std::move(options), std::move(system));
}

FileTier::~FileTier() = default;

std::size_t FileTier::checksum_bytes(std::span<const std::size_t> regions, std::size_t request_bytes) {
  // The files of all directories together have as many blocks as a single file.
  return BlockChecksums::count(Stripes(1, request_bytes).begins(regions).back()) * sizeof(std::uint64_t);
}

std::vector<std::size_t> FileTier::region_bytes() const {
  std::vector<std::size_t> sizes;
  for (const Reserved& region : regions()) sizes.push_back(region.bytes);
  return sizes;
}

void FileTier::start(const runtime::Arena& arena, runtime::MemoryId sums) {
  if (!state_->options.checksums) return start();
  const std::size_t bytes = checksum_bytes(region_bytes(), state_->options.request_bytes);
  start(std::span(arena.slot_as<std::uint64_t>(sums), bytes / sizeof(std::uint64_t)));
}

void FileTier::start() {
  expect(!state_->options.checksums, "a file tier with checksums starts without memory for them");
  start(std::span<std::uint64_t>());
}

void FileTier::start(std::span<std::uint64_t> sums) {
  close_reservations();
  State& state = *state_;
  state.begins = state.stripes.begins(region_bytes());
  const std::uint64_t end = state.begins.back();
  for (std::size_t i = 0; i < state.options.directories.size(); ++i)
    state.stores.push_back(state.make_store(state.options.directories[i], state.stripes.file_bytes(i, end)));

  UringOutcome queue = make_queue(*state.system, state.options.depth, state.options.uring);
  state.uring_refused = queue.error;
  std::vector<TransferEngine::File> files;
  for (const Store& store : state.stores) {
    files.push_back({store.file.get(), store.folder->file(), {}});
    if (!state.options.checksums) continue;
    const std::size_t count = BlockChecksums::count(store.bytes);
    files.back().sums.emplace(sums.first(count));
    sums = sums.subspan(count);
  }
  state.engine = std::make_unique<TransferEngine>(state.loop, std::move(queue.queue), std::move(files),
                                                  state.stripes, state.options.depth);
}

std::string FileTier::description() const {
  const State& state = *state_;
  std::string text = "io_uring";
  if (state.uring_refused != 0) {
    text = fmt::format("pread and pwrite on threads (io_uring refused: {})", std::strerror(state.uring_refused));
  } else if (!state.options.uring) {
    text = "pread and pwrite on threads";
  }
  text += fmt::format(", {} × {}{}", state.options.depth, format_bytes(state.options.request_bytes),
                      state.options.checksums ? ", checksums" : "");
  for (std::size_t i = 0; i < state.stores.size(); ++i) {
    const Store& store = state.stores[i];
    const char* how = store.direct_refused != 0 ? "through the page cache (O_DIRECT refused)"
                      : state.options.direct    ? "O_DIRECT"
                                                : "through the page cache";
    text += fmt::format(", {} ({}, {})", state.options.directories[i].string(), format_bytes(store.bytes), how);
  }
  return text;
}

int FileTier::cleared() const {
  int cleared = 0;
  for (const Store& store : state_->stores) cleared += store.folder->cleared();
  return cleared;
}

void FileTier::lose_next_request() noexcept { state_->engine->lose_next(); }

std::string FileTier::place() const { return state_->engine ? state_->engine->oldest() : "files"; }
std::uint64_t FileTier::done() const noexcept { return state_->engine ? state_->engine->done() : 0; }

std::vector<std::filesystem::path> FileTier::files() const {
  std::vector<std::filesystem::path> paths;
  for (const Store& store : state_->stores) paths.push_back(store.folder->file());
  return paths;
}

void FileTier::fetch_blocks(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) {
  state_->engine->start(
      {IoKind::read, state_->begins[region.index] + offset, to.data(), to.size(), std::move(done)});
}

void FileTier::store_blocks(Region region, std::size_t offset, std::span<const std::byte> from,
                            runtime::Handler done) {
  // Requests have one pointer type for both directions; a write only reads the memory.
  state_->engine->start({IoKind::write, state_->begins[region.index] + offset, const_cast<std::byte*>(from.data()),
                         from.size(), std::move(done)});
}

}  // namespace ranvier::offload
