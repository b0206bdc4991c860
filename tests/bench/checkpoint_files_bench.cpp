// Rate of writing and reading a rank's checkpoint file, compared with plain io_uring requests for the same bytes on the
// same disk: O_DIRECT, new files, fsync at the end.
//
//   checkpoint_files_bench DIR [mebibytes [rounds]]
//
// One JSON line per pass, in turns, then the medians and their shares of the plain requests' rate.
#include "offload/checkpoint/file_writer.hpp"
#include "offload/checkpoint/folder.hpp"
#include "offload/checkpoint/reader.hpp"
#include "offload/io_queue.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/files/xxh3.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/bench/bench.hpp"
#include "tests/offload/blocks.hpp"

#include <unistd.h>

#include <filesystem>
#include <map>

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::offload;
using ranvier::offload::tests::Blocks;

namespace {

constexpr int depth = 32;
constexpr std::size_t request_bytes = std::size_t{1} << 20;
constexpr std::size_t slots = 16;  // requests in flight, as in a staging pool
constexpr std::uint64_t floats = checkpoint_segment_bytes / sizeof(float);

class FilesBench {
 public:
  FilesBench(std::filesystem::path folder, std::size_t pieces)
      : folder_(std::move(folder)), pieces_(pieces), memory_(Blocks::random(slots * checkpoint_segment_bytes, 1)) {}

  void run(int rounds) {
    CheckpointFolder checkpoints(folder_);
    checkpoints.lock("bench");
    for (int round = 0; round < rounds; ++round) {
      const auto plain = folder_ / "plain";
      const auto write_plain = [&] { time("plain write", [&] { request_all(plain, IoKind::write); }); };
      if (round % 2 == 0) write_plain();  // the second writer may find a slower disk
      time("checkpoint write", [&] { write(checkpoints); });
      if (round % 2 != 0) write_plain();
      time("plain read", [&] { request_all(plain, IoKind::read); });
      time("checkpoint read", [&] { read(); });
      time("checkpoint verify", [&] { verify(); });
      std::filesystem::remove(plain);
      std::filesystem::remove_all(whole());
    }
    for (const char* what : {"write", "read", "verify"}) {
      const double mine = median(fmt::format("checkpoint {}", what));
      const double plain = median(std::string_view(what) == "write" ? "plain write" : "plain read");
      print_case(R"("bench":"checkpoint {}, medians","mb_per_second":{:.0f},"plain_mb_per_second":{:.0f},)"
                 R"("of_plain":{:.3f})",
                 what, mine, plain, mine / plain);
    }
  }

 private:
  [[nodiscard]] std::filesystem::path whole() const { return folder_ / "step-00000001"; }

  template <typename Pass>
  void time(const std::string& name, const Pass& pass) {
    const double seconds = seconds_of(pass);
    const auto bytes = static_cast<double>(pieces_ * checkpoint_segment_bytes);
    rates_[name].push_back(bytes / seconds * 1e-6);
    print_case(R"("bench":"{}","mebibytes":{},"seconds":{:.3f},"mb_per_second":{:.0f})", name,
               pieces_ * checkpoint_segment_bytes >> 20, seconds, rates_[name].back());
  }

  [[nodiscard]] double median(const std::string& name) { return runtime::median(rates_[name]); }

  /// Writes or reads the complete file with the fewest instructions.
  void request_all(const std::filesystem::path& path, IoKind kind) {
    const OpenedFile opened = kind == IoKind::write
                                  ? open_blocks(system_storage(), path, pieces_ * checkpoint_segment_bytes, true)
                                  : OpenedFile{.file = system_storage().open_to_read(path, true)};
    if (opened.error != 0 || opened.file < 0 || opened.direct_refused != 0)
      fail(ErrorCode::io, "{}: it cannot be opened with O_DIRECT", path.string());
    const UringOutcome queue = system_storage().make_queue(depth, true);
    const std::size_t requests = pieces_ * checkpoint_segment_bytes / request_bytes;
    std::vector<IoCompletion> completed;
    for (std::size_t begun = 0, done = 0; done < requests;) {
      std::vector<IoRequest> batch;
      for (; begun < requests && begun - done < depth; ++begun)
        batch.push_back({kind, opened.file,
                         memory_.data() + begun % (memory_.span().size() / request_bytes) * request_bytes,
                         request_bytes, begun * request_bytes, begun});
      if (!batch.empty()) queue.queue->submit(batch);
      completed.clear();
      queue.queue->wait(completed);
      for (const IoCompletion& completion : completed)
        if (completion.result != request_bytes) fail(ErrorCode::io, "{}: a request fails", path.string());
      done += completed.size();
    }
    if (kind == IoKind::write) ::fsync(opened.file);
    ::close(opened.file);
  }

  void write(CheckpointFolder& checkpoints) {
    const std::uint64_t bytes = pieces_ * checkpoint_segment_bytes;
    Manifest manifest;
    manifest.step = 1;
    manifest.arrays = {{"unit", "weights", runtime::DType::f32, pieces_ * floats}};
    manifest.files = {{"rank-0000.data", bytes}};
    runtime::AsioLoop loop;
    CheckpointFileWriter writer(loop, system_storage(), depth);
    const auto check = [](const std::string& failure) {
      if (!failure.empty()) throw Error(ErrorCode::io, failure);
    };
    std::size_t next = 0, done = 0;
    const std::function<void(std::size_t)> put = [&](std::size_t slot) {
      if (next == pieces_) return;
      const std::size_t piece = next++;
      const auto blocks = memory_.span(slot * checkpoint_segment_bytes, checkpoint_segment_bytes);
      const std::uint64_t offset = piece * checkpoint_segment_bytes;
      manifest.pieces.push_back({0, 0, piece * floats, floats, offset, runtime::xxh3(blocks)});
      writer.write(offset, blocks, [&, slot](const std::string& failure) {
        check(failure);
        put(slot);
        if (++done < pieces_) return;
        writer.close([&](const std::string& closing) {
          check(closing);
          loop.stop();
        });
      });
    };
    writer.open(checkpoints.prepare(1, "bench") / "rank-0000.data", bytes, [&](const std::string& failure) {
      check(failure);
      for (std::size_t slot = 0; slot < slots; ++slot) put(slot);
    });
    loop.run();
    checkpoints.commit(1, "bench", manifest);
  }

  void read() {
    CheckpointReader reader(whole());
    std::vector<float> values(std::size_t{1} << 24);  // the size of a loading rank's requests
    for (std::uint64_t begin = 0; begin < pieces_ * floats; begin += values.size())
      reader.read("unit", "weights", begin,
                  std::span(values).first(std::min<std::uint64_t>(values.size(), pieces_ * floats - begin)));
  }

  void verify() {
    if (!verify_checkpoint(whole(), 4).empty()) fail(ErrorCode::data, "{}: it is damaged", whole().string());
  }

  const std::filesystem::path folder_;
  const std::size_t pieces_;
  const Blocks memory_;
  std::map<std::string, std::vector<double>> rates_;
};

}  // namespace

int main(int argc, char** argv) {
  return status_of("checkpoint_files_bench", [&] {
    if (argc < 2) fail(ErrorCode::usage, "usage: checkpoint_files_bench DIR [mebibytes [rounds]]");
    const auto number = [&](int index, int otherwise) { return argc > index ? std::atoi(argv[index]) : otherwise; };
    const std::size_t pieces =
        (static_cast<std::size_t>(std::max(2, number(2, 1024))) << 20) / checkpoint_segment_bytes;
    FilesBench(argv[1], pieces).run(std::max(1, number(3, 5)));
  });
}
