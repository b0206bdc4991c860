#include "offload/file_tier.hpp"

#include "offload/block_checksums.hpp"
#include "runtime/base/error.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/doubles/faulty_file_system.hpp"
#include "tests/offload/blocks.hpp"
#include "tests/offload/transfers.hpp"
#include "tests/test.hpp"

#include <cerrno>
#include <future>

#include <unistd.h>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;
using ranvier::runtime::AsioLoop;
using namespace ranvier::tests;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

FileTierOptions small_requests(const TemporaryFolder& folder, int directories = 1) {
  FileTierOptions options{.rank = 3, .depth = 5, .request_bytes = 8 * 4096};
  for (int i = 0; i < directories; ++i) {
    options.directories.push_back(folder.path() / fmt::format("disk{}", i));
    std::filesystem::create_directory(options.directories.back());
  }
  return options;
}

/// The file of the only tier in the first directory of small_requests().
std::filesystem::path file_in(const TemporaryFolder& folder) {
  return std::filesystem::directory_iterator(folder.path() / "disk0")->path() / JobDirectory::file_name;
}

std::unique_ptr<FileSystem> with(Faults faults) { return std::make_unique<FaultyFileSystem>(std::move(faults)); }

/// Splits [0, bytes) into ranges of random numbers of complete blocks, in random order: start and length of each.
std::vector<std::pair<std::size_t, std::size_t>> random_ranges(std::size_t bytes, std::mt19937_64& random) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t length = std::min(bytes - at, (1 + random() % 40) * Tier::block_bytes);
    ranges.emplace_back(at, length);
    at += length;
  }
  std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

/// Checks that a tier returns what was stored in random ranges, and its refusals. Returns its description.
std::string keeps_what_was_stored(const FileTierOptions& options, const Faults& faults, std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  AsioLoop loop;
  constexpr std::size_t bytes = 250 * Tier::block_bytes;
  std::vector<std::uint64_t> sums(BlockChecksums::count(bytes));
  FileTier tier(loop, options, with(faults));
  const Blocks memory(4096);
  CHECK_THROWS_AS(tier.move(IoKind::read, 0, memory.span(), [] {}), Error);  // not started
  tier.start(bytes, sums);

  const auto move = [&](IoKind kind, const Blocks& blocks, const auto& ranges) {
    run_transfers(loop, ranges.size(), [&](const runtime::Handler& done) {
      for (const auto& [at, length] : ranges) tier.move(kind, at, blocks.span(at, length), done);
    });
  };
  const Blocks expected(bytes);  // zeros at first
  for (int round = 0; round <= 3; ++round) {
    const Blocks found(bytes, 0x5A);
    move(IoKind::read, found, random_ranges(bytes, random));
    CHECK(found == expected);
    const Blocks source = Blocks::random(bytes, random());
    auto ranges = random_ranges(bytes, random);
    ranges.resize(ranges.size() * 3 / 4);  // some ranges stay unchanged
    for (const auto& [at, length] : ranges) std::copy_n(source.data() + at, length, expected.data() + at);
    move(IoKind::write, source, ranges);
  }
  run_transfers(loop, 2, [&](const runtime::Handler& done) {  // empty transfers, too
    tier.move(IoKind::read, 0, memory.span(0, 0), done);
    tier.move(IoKind::write, 4096, memory.span(0, 0), done);
  });
  const auto refuses = [&](IoKind kind, std::uint64_t address, std::span<std::byte> part) {
    CHECK_THROWS_AS(tier.move(kind, address, part, [] {}), Error);
  };
  refuses(IoKind::read, bytes, memory.span());       // past its end
  refuses(IoKind::read, 64, memory.span());          // not aligned to a block
  refuses(IoKind::write, 0, memory.span(64, 4032));  // nor is this
  refuses(IoKind::write, 0, memory.span(0, 100));    // not complete blocks
  return tier.description();
}

/// Error of storing and fetching 1 MiB.
Error error_of_round_trip(const TemporaryFolder& folder, const Faults& faults) {
  AsioLoop loop;
  FileTier tier(loop, small_requests(folder), with(faults));
  tier.start(mib);
  const Blocks memory(mib, 1);
  return error_of([&] {
    tier.move(IoKind::write, 0, memory.span(),
              [&] { tier.move(IoKind::read, 0, memory.span(), [&] { loop.stop(); }); });
    loop.run();
  });
}

}  // namespace

TEST_CASE("a file tier returns what was stored, on io_uring and on threads, past the cache and through it") {
  Share share(1, 2);
  for (const std::uint64_t seed : test::seeds(2))
    for (const int directories : {1, 2, 3})
      for (const bool uring : {true, false})
        for (const bool direct : {true, false}) {
          if (!share.takes()) continue;
          CAPTURE_ALL(uring, direct);
          const TemporaryFolder folder;
          FileTierOptions options = small_requests(folder, directories);
          options.uring = uring;
          options.direct = direct;
          options.checksums = directories == 2;
          keeps_what_was_stored(options, {}, seed);
        }
}

TEST_CASE("a file tier completes transfers despite short transfers, interruptions and temporary refusals") {
  Share share(1, 3);
  for (const std::uint64_t seed : test::seeds(6))
    for (const bool uring : {true, false}) {
      if (!share.takes()) continue;
      const TemporaryFolder folder;
      FileTierOptions options = small_requests(folder, 2);
      options.uring = uring;
      options.checksums = true;
      QueueLog log;
      std::mt19937_64 random(seed);
      const auto fault = [&](const IoRequest& request) -> Fault {
        switch (random() % 6) {
          case 0:
            return {.result = -EINTR};
          case 1:
            return {.result = -EAGAIN};
          case 2:  // complete sectors, so that O_DIRECT accepts it; sometimes less than a block
            return {.shortened_to = (1 + random() % (request.bytes / 512)) * 512};
          default:
            return {};
        }
      };
      keeps_what_was_stored(options, {.on_request = fault, .log = &log}, seed);
      CHECK(log.faults > 20);
      CHECK(log.outstanding == 0);
    }
}

TEST_CASE_FIXTURE(InFolder, "a file tier keeps its depth of requests in flight, never more, while there is work") {
  QueueLog log;
  {
    AsioLoop loop;
    FileTier tier(loop, small_requests(folder), with({.log = &log}));
    tier.start(4 * mib);
    const Blocks memory(4 * mib);
    run_transfers(loop, 1, [&](const runtime::Handler& done) { tier.move(IoKind::write, 0, memory.span(), done); });
  }
  CHECK(log.requests == 4 * mib / (8 * 4096));
  CHECK(log.max_outstanding == 5);
}

TEST_CASE_FIXTURE(InFolder, "starting a transfer does not wait until the system accepts it") {
  AsioLoop loop;
  std::promise<void> taken;
  FileTier tier(loop, small_requests(folder),
                with({.on_submit = [future = taken.get_future().share()] { future.wait(); }}));
  tier.start(4096);
  const Blocks memory(4096);
  bool stored = false;
  tier.move(IoKind::write, 0, memory.span(), [&] {
    stored = true;
    loop.stop();
  });
  loop.post([&] {
    CHECK(!stored);
    taken.set_value();
  });
  loop.run();
  CHECK(stored);
}

TEST_CASE_FIXTURE(InFolder, "a failed read or write ends the loop with file, offset and cause") {
  const auto fail_at = [](IoKind kind, std::uint64_t offset, int error) {
    return Faults{.on_request = [=](const IoRequest& request) -> Fault {
      return request.kind == kind && request.offset == offset ? Fault{.result = -error} : Fault{};
    }};
  };
  {
    const Error error = error_of_round_trip(folder, fail_at(IoKind::read, 4 * 8 * 4096, EIO));
    CHECK(says(error, ErrorCode::io, "/disk0/ranvier-offload.", ".rank3.",
               "/states: cannot read 32768 bytes at offset 131072: Input/output error"));
  }
  std::filesystem::remove_all(folder.path() / "disk0");
  const Error error = error_of_round_trip(folder, fail_at(IoKind::write, 8 * 4096, ENOSPC));
  CHECK(says(error, "cannot write 32768 bytes at offset 32768: No space left on device"));
  CHECK(std::filesystem::is_empty(folder.path() / "disk0"));  // removed with the tier, also after a failure
}

TEST_CASE_FIXTURE(InFolder, "a transfer that is always postponed fails in the end") {
  CHECK(says(error_of_round_trip(folder, {.on_request = [](const IoRequest&) { return Fault{.result = -EAGAIN}; }}),
             "Resource temporarily unavailable"));
  std::filesystem::remove_all(folder.path() / "disk0");
  CHECK(
      says(error_of_round_trip(folder, {.on_request = [](const IoRequest&) { return Fault{.shortened_to = 512}; }}),
           "less than a block"));
}

TEST_CASE_FIXTURE(InFolder, "a truncated file is detected, not read as zeros") {
  AsioLoop loop;
  FileTier tier(loop, small_requests(folder));
  tier.start(mib);
  std::filesystem::resize_file(file_in(folder), mib / 2);
  const Blocks memory(mib);
  const Error error = error_of([&] {
    tier.move(IoKind::read, 0, memory.span(), [&] { loop.stop(); });
    loop.run();
  });
  CHECK(says(error, "truncated by another process"));
}

TEST_CASE("with checksums a damaged file is detected before its contents are used") {
  for (const std::uint64_t offset : {0u, 5u * 4096 + 77, 255u * 4096 + 4095}) {
    const TemporaryFolder folder;
    AsioLoop loop;
    FileTierOptions options = small_requests(folder);
    options.checksums = true;
    std::vector<std::uint64_t> sums(BlockChecksums::count(mib));
    FileTier tier(loop, options);
    tier.start(mib, sums);
    const Blocks memory = Blocks::random(mib, offset);
    run_transfers(loop, 1, [&](const runtime::Handler& done) { tier.move(IoKind::write, 0, memory.span(), done); });
    run_transfers(loop, 1, [&](const runtime::Handler& done) { tier.move(IoKind::read, 0, memory.span(), done); });
    const auto changed = static_cast<char>(std::to_integer<int>(memory.data()[offset]) ^ 1);
    ranvier::tests::overwrite(file_in(folder), offset, changed);
    const Error error = error_of([&] {
      tier.move(IoKind::read, 0, memory.span(), [&] { loop.stop(); });
      loop.run();
    });
    CHECK(says(error, ErrorCode::data, file_in(folder).c_str(),
               fmt::format("at offset {} have changed", offset / 4096 * 4096)));
  }
}

TEST_CASE("if io_uring is refused, threads do its work, and the description gives the reason") {
  for (const int error : {EPERM, ENOSYS, ENOMEM}) {
    const TemporaryFolder folder;
    const std::string description = keeps_what_was_stored(small_requests(folder), {.uring_refused = error}, 1);
    CHECK(description.find("io_uring refused: ") != std::string::npos);
    CHECK(description.find(std::strerror(error)) != std::string::npos);
  }
}

TEST_CASE("if O_DIRECT is refused, a file tier uses the system's cache and reports it") {
  for (const bool at_open : {true, false}) {
    const TemporaryFolder folder;
    const Faults faults = at_open ? Faults{.direct_open_refused = EINVAL} : Faults{.direct_write_refused = EINVAL};
    CHECK(keeps_what_was_stored(small_requests(folder, 2), faults, 2).find("O_DIRECT refused") !=
          std::string::npos);
  }
}

TEST_CASE("a disk without space is refused at startup with folder, needed and free bytes, and leaves no file") {
  for (const bool only_when_taken : {false, true}) {
    const TemporaryFolder folder;
    AsioLoop loop;
    {
      Faults faults{.free_bytes = 3 << 20};
      if (only_when_taken) faults = {.free_bytes = 100 << 20, .allocate_refused = ENOSPC};
      FileTier tier(loop, small_requests(folder), with(faults));
      const Error error = error_of([&] { tier.start(7 * mib); });
      CHECK(says(error, ErrorCode::io, (folder.path() / "disk0").c_str(), "rank 3: 7.0 MiB",
                 only_when_taken ? "100.0 MiB free" : "3.0 MiB free", "`nvme`"));
    }
    CHECK(std::filesystem::is_empty(folder.path() / "disk0"));
  }
}

TEST_CASE_FIXTURE(InFolder, "a real disk with too little space is refused") {
  AsioLoop loop;
  FileTier tier(loop, small_requests(folder));
  CHECK(says(error_of([&] { tier.start(std::uint64_t{1} << 50); }), "1.0 PiB needed"));
}

TEST_CASE_FIXTURE(InFolder, "folders that are missing, are files, or cannot be written are refused by name") {
  folder.write("file", "");
  std::filesystem::create_directory(file("locked"));
  std::filesystem::permissions(file("locked"),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  for (const auto& [bad, reason] : {std::pair{file("none"), "No such file or directory; create the folder"},
                                    {file("locked"), ": cannot create a folder for rank 0: Permission denied"},
                                    {file("file"), "not a folder; create the folder"},
                                    {std::string("/proc/self"), ": cannot create a folder for rank 0: "}}) {
    if (bad == file("locked") && geteuid() == 0) continue;  // root may write everywhere
    AsioLoop loop;
    FileTier tier(loop, {.directories = {bad}});
    CHECK(says(error_of([&] { tier.start(4096); }), ErrorCode::io, bad, reason, "`nvme`"));
  }
}

TEST_CASE("invalid options of a file tier are refused") {
  AsioLoop loop;
  for (const FileTierOptions& options :
       {FileTierOptions{}, FileTierOptions{.directories = {"/tmp"}, .depth = 0},
        FileTierOptions{.directories = {"/tmp"}, .request_bytes = 5000},
        FileTierOptions{.directories = {"/tmp"}, .request_bytes = std::size_t{1} << 31}})
    CHECK(error_of([&] { FileTier tier(loop, options); }).code() == ErrorCode::usage);
}

TEST_CASE("a tier that is destroyed during transfers waits for those in flight and calls no handler") {
  for (const bool uring : {true, false}) {
    const TemporaryFolder folder;
    AsioLoop loop;
    bool called = false;
    const Blocks memory(8 * mib);
    {
      FileTierOptions options = small_requests(folder);
      options.uring = uring;
      FileTier tier(loop, options);
      tier.start(16 * mib);
      for (int i = 0; i < 2; ++i) tier.move(IoKind::write, i * 8 * mib, memory.span(), [&] { called = true; });
    }
    CHECK(!called);  // the loop has not run
    CHECK(std::filesystem::is_empty(folder.path() / "disk0"));
  }
}
