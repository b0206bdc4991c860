#include "offload/checkpoint/file_writer.hpp"

#include "runtime/base/error.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/doubles/memory_storage.hpp"
#include "tests/offload/blocks.hpp"
#include "tests/test.hpp"

#include <future>
#include <stdexcept>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;
using ranvier::runtime::AsioLoop;
using namespace ranvier::tests;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// Results of all calls for one file: open, the writes in the order of their completion, close.
struct Told {
  std::string open, close;
  std::vector<std::string> writes;
};

/// Writes a file in writes of `step` bytes, last offset first.
Told write_file(AsioLoop& loop, CheckpointFileWriter& writer, const std::filesystem::path& path,
                const Blocks& content, std::size_t step) {
  Told told;
  const auto all = content.span();
  writer.open(path, all.size(), [&](const std::string& failure) {
    told.open = failure;
    for (std::size_t end = all.size(); end > 0; end -= std::min(step, end)) {
      const std::size_t begin = end - std::min(step, end);
      writer.write(begin, all.subspan(begin, end - begin),
                   [&](const std::string& why) { told.writes.push_back(why); });
    }
    writer.close([&](const std::string& why) {
      told.close = why;
      loop.stop();
    });
  });
  loop.run();
  return told;
}

bool holds(const FileSystem& storage, const std::filesystem::path& path, const Blocks& content) {
  if (storage.size(path) != static_cast<std::int64_t>(content.span().size())) return false;
  const Blocks read(content.span().size());
  const int file = storage.open_to_read(path, false);
  const int result = storage.read_all(file, 0, read.span());
  storage.close(file);
  return result == 0 && read == content;
}

}  // namespace

TEST_CASE(
    "files of a checkpoint are written completely, one after the other, regardless of what the system supports") {
  for (const bool uring : {true, false})
    for (const bool direct : {true, false}) {
      const TemporaryFolder folder;
      const FaultyFileSystem storage(
          {.uring_refused = uring ? 0 : EPERM, .direct_open_refused = direct ? 0 : EINVAL});
      AsioLoop loop;
      CheckpointFileWriter writer(loop, storage, 4);
      for (const std::size_t bytes : {5 * mib + 4096, std::size_t{4096}, std::size_t{0}}) {
        const Blocks content = bytes == 0 ? Blocks(0) : Blocks::random(bytes, bytes);
        const auto path = folder.path() / std::to_string(bytes);
        const Told told = write_file(loop, writer, path, content, 2 * mib);
        CHECK(told.open.empty());
        CHECK(told.close.empty());
        CHECK(told.writes == std::vector<std::string>((bytes + 2 * mib - 1) / (2 * mib)));
        CHECK(holds(storage, path, content));
      }
      CHECK(!loop.pending_work().any());
      if (!uring) CHECK(writer.description().starts_with("pwrite on threads (io_uring refused: Operation not"));
      if (!direct) CHECK(writer.description().ends_with("(O_DIRECT refused)"));
    }
}

TEST_CASE("short, interrupted and postponed writes of a checkpoint add up to a complete file") {
  for (const std::uint64_t seed : test::seeds(4)) {
    MemoryStorage storage;
    std::mt19937_64 random(seed);
    QueueLog log;
    storage.faults.log = &log;
    storage.faults.on_request = [&](const IoRequest& request) -> Fault {
      switch (random() % 8) {
        case 0:
          return {.result = -EAGAIN};
        case 1:
          return {.result = -EINTR};
        case 2:
        case 3:
          return {.shortened_to = random() % request.bytes};
        default:
          return {};
      }
    };
    AsioLoop loop;
    const Blocks content = Blocks::random(3 * mib + 5 * 4096, seed);
    {
      CheckpointFileWriter writer(loop, storage, 3);
      const Told told = write_file(loop, writer, "/file", content, 300 * 4096);
      CHECK(told.close.empty());
    }
    CHECK(log.faults > 0);
    CHECK(log.max_outstanding <= 3);
    CHECK(holds(storage, "/file", content));
  }
}

TEST_CASE("a failed write is reported in the results of its file, and the next file is written") {
  MemoryStorage storage;
  bool fails = true;
  storage.faults.on_request = [&](const IoRequest& request) -> Fault {
    return fails && request.offset == 2 * mib ? Fault{.result = -EIO} : Fault{};
  };
  AsioLoop loop;
  CheckpointFileWriter writer(loop, storage, 2);
  const Blocks content = Blocks::random(6 * mib, 1);
  const Told told = write_file(loop, writer, "/file", content, 2 * mib);
  const std::string failure =
      "/file: cannot write 1048576 bytes at offset 2097152: Input/output error; check the disk's "
      "health and free space";
  CHECK(told.open.empty());
  CHECK(told.writes == std::vector<std::string>{"", failure, failure});
  CHECK(told.close == failure);
  fails = false;
  CHECK(write_file(loop, writer, "/next", content, 2 * mib).close.empty());
  CHECK(holds(storage, "/next", content));
}

TEST_CASE("a full disk or a failed call is reported with file and cause") {
  struct Case {
    const char* call;
    int error;
    const char* words;
  };
  for (const Case& each : {Case{"open", EACCES, "cannot open /part/file: Permission denied"},
                           Case{"allocate", ENOSPC, "/part/file: not enough space: 1.0 MiB needed, 3.0 MiB free"},
                           Case{"allocate", EIO, "cannot allocate space for /part/file: Input/output error"},
                           Case{"sync", EIO, "/part/file: cannot sync to disk: Input/output error"},
                           Case{"close", EDQUOT, "/part/file: cannot sync to disk: Disk quota exceeded"}}) {
    MemoryStorage storage;
    storage.faults.free_bytes = 3 * mib;
    REQUIRE(storage.make_folder("/part") == 0);
    AsioLoop loop;
    CheckpointFileWriter writer(loop, storage, 2);
    storage.refuse = [&](const std::string& call, const std::filesystem::path&) {
      return call == each.call ? -each.error : 0;
    };
    const Blocks content(mib, 7);
    const Told told = write_file(loop, writer, "/part/file", content, mib);
    CHECK_MESSAGE(told.close.starts_with(each.words), told.close);
    const bool at_open = told.close == told.open;
    CHECK(at_open == (std::string_view(each.call) == "open" || std::string_view(each.call) == "allocate"));
    CHECK(told.writes == std::vector<std::string>{at_open ? told.open : ""});
    storage.refuse = nullptr;
    CHECK(write_file(loop, writer, "/part/file", content, mib).close.empty());
  }
}

TEST_CASE("insist() asks its callback whether to retry a file that cannot be created, and only then") {
  MemoryStorage storage;
  storage.faults.free_bytes = 0;
  AsioLoop loop;
  CheckpointFileWriter writer(loop, storage, 2);
  const Blocks content(mib, 7);
  CHECK(write_file(loop, writer, "/file", content, mib).open.find("0 B free") != std::string::npos);
  std::vector<int> errors;
  int allocations = 0;
  storage.refuse = [&](const std::string& call, const std::filesystem::path&) {
    return call == "allocate" && ++allocations == 1 ? -EDQUOT : 0;
  };
  writer.insist([&](const std::filesystem::path& path, int error) {
    CHECK(path == "/file");
    errors.push_back(error);
    if (errors.size() == 3) storage.faults.free_bytes = 2 * mib;
    return true;
  });
  CHECK(write_file(loop, writer, "/file", content, mib).close.empty());
  CHECK(errors == std::vector<int>{ENOSPC, ENOSPC, ENOSPC, EDQUOT});
  CHECK(holds(storage, "/file", content));
  storage.faults.free_bytes = 0;
  writer.insist(
      [&](const std::filesystem::path&, int) { return errors.size() > 4 ? false : (errors.push_back(0), true); });
  CHECK(write_file(loop, writer, "/next", content, mib)
            .close.starts_with("/next: not enough space: 1.0 MiB needed, 0 B free"));
  CHECK(errors.size() == 5);
}

TEST_CASE_FIXTURE(InFolder, "too little space on a real disk is detected when the file is created") {
  AsioLoop loop;
  CheckpointFileWriter writer(loop, system_storage(), 2);
  std::string opening, closing;
  writer.open(folder.path() / "file", std::uint64_t{1} << 50, [&](const std::string& failure) {
    opening = failure;
    writer.close([&](const std::string& why) {
      closing = why;
      loop.stop();
    });
  });
  loop.run();
  CHECK_MESSAGE(opening.find("/file: not enough space: 1.0 PiB needed, ") != std::string::npos, opening);
  CHECK(closing == opening);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a slow disk does not block the loop, and its current operation is reported") {
  for (const char* slow : {"allocate", "sync"}) {
    MemoryStorage storage;
    std::promise<void> goes_on;
    auto wait = goes_on.get_future().share();
    storage.refuse = [&](const std::string& call, const std::filesystem::path&) {
      if (call == slow) wait.wait();
      return 0;
    };
    AsioLoop loop;
    CheckpointFileWriter writer(loop, storage, 2);
    std::string place;
    const std::string expected = std::string_view(slow) == "sync" ? "fsync of /file" : "the making of /file";
    const std::function<void()> look = [&] {
      place = writer.place();
      if (place != expected) return loop.after(std::chrono::milliseconds(1), look);
      CHECK(loop.pending_work().any());
      CHECK(loop.pending_work().under_way().front().where == &writer);
      goes_on.set_value();
    };
    loop.post(look);
    CHECK(write_file(loop, writer, "/file", Blocks(4096, 1), 4096).close.empty());
    CHECK(place == expected);
    CHECK(writer.done() >= 3);
  }
}

TEST_CASE("a broken queue is a failure of the file and not of the loop") {
  class Broken final : public FileSystem {
   public:
    UringOutcome make_queue(int, bool) const override {
      class Queue final : public IoQueue {
       public:
        void submit(std::span<const IoRequest>) override { throw Error(ErrorCode::io, "io_uring: it is broken"); }
        void wait(std::vector<IoCompletion>&) override { arrived_.get_future().wait(); }
        void wake() override {
          if (!std::exchange(woken_, true)) arrived_.set_value();
        }

       private:
        std::promise<void> arrived_;
        bool woken_ = false;
      };
      return {std::make_unique<Queue>(), 0};
    }
  };
  const TemporaryFolder folder;
  const Broken storage;
  AsioLoop loop;
  CheckpointFileWriter writer(loop, storage, 2);
  for (int round = 0; round < 2; ++round) {
    const Told told = write_file(loop, writer, folder.path() / "file", Blocks(3 * mib), mib);
    CHECK(told.open.empty());
    CHECK(told.writes == std::vector<std::string>(3, "io_uring: it is broken"));
    CHECK(told.close == "io_uring: it is broken");
  }
}

TEST_CASE("a writer that is destroyed in the middle of a file calls no handler") {
  AsioLoop loop;
  bool called = false;
  const Blocks content(4 * mib, 3);
  MemoryStorage storage;
  {
    CheckpointFileWriter writer(loop, storage, 2);
    writer.open("/file", 4 * mib, [&](const std::string&) {
      writer.write(0, content.span(), [&](const std::string&) { called = true; });
      writer.close([&](const std::string&) { called = true; });
      loop.stop();
    });
    loop.run();
  }
  loop.post([&] { loop.stop(); });
  loop.run();
  CHECK(!called);
  {
    const CheckpointFileWriter unused(loop, storage, 2);
  }
}

TEST_CASE("calls that cannot be intended are refused") {
  MemoryStorage storage;
  AsioLoop loop;
  CheckpointFileWriter writer(loop, storage, 2);
  const Blocks content(8192);
  const auto ignore = [](const std::string&) {};
  CHECK(says(error_of([&] { writer.write(0, content.span(), ignore); }), "file that is not open"));
  CHECK(says(error_of([&] { writer.close(ignore); }), "is not open"));
  writer.open("/file", 8192, [&](const std::string&) { loop.stop(); });
  CHECK(says(error_of([&] { writer.open("/other", 0, ignore); }), "opened before /file was closed"));
  loop.run();
  CHECK(says(error_of([&] { writer.write(100, content.span(), ignore); }), "not aligned"));
  CHECK(says(error_of([&] { writer.write(0, content.span().first(100), ignore); }), "not aligned"));
  CHECK(says(error_of([&] { writer.write(4096, content.span(), ignore); }),
             "8192 bytes at offset 4096 exceeds the file of 8192"));
}
