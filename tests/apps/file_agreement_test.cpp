// Ranks with other files than rank 0 are named, for all kinds of files.
#include "apps/files/file_agreement.hpp"

#include "apps/program/agreement.hpp"
#include "tests/mpi_session.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::fingerprint;

namespace {

namespace fs = std::filesystem;

constexpr std::size_t whole = 8192;

std::string content_of(std::size_t bytes) {
  std::string content;
  for (std::size_t i = 0; i < bytes; ++i) content += static_cast<char>(i * 2654435761u >> 13);
  return content;
}

/// Error of compare_files() on the rank that reports it; empty on the others. `agreed` is set if all ranks agree.
std::string compare(const std::vector<fs::path>& files, bool& agreed) {
  agreed = true;
  try {
    apps::compare_files(test::mpi_session(), files);
  } catch (const apps::FailedTogether& failure) {
    agreed = false;
    if (failure.error) return failure.error->what();
  }
  return {};
}

}  // namespace

TEST_CASE("a fingerprint covers the size, the bytes at a file's ends and in its header, and blocks between") {
  const TemporaryFolder folder;
  const std::size_t bytes = 3'000'001;
  const auto path = folder.write("data.bin", content_of(bytes));
  const std::uint64_t print = fingerprint(path, whole);
  CHECK(fingerprint(folder.write("copy.bin", content_of(bytes)), whole) == print);
  const auto changed = [&](const fs::path& file, const std::string& content, std::size_t at) {
    const auto before = fingerprint(file, whole);
    overwrite(file, at, static_cast<char>(content[at] ^ 1));
    const bool differs = fingerprint(file, whole) != before;
    overwrite(file, at, content[at]);
    CHECK(fingerprint(file, whole) == before);
    return differs;
  };
  const std::string content = content_of(bytes);
  for (const std::size_t at : {std::size_t{0}, whole - 1, bytes - 4096, bytes - 1}) {
    CAPTURE(at);
    CHECK(changed(path, content, at));
  }
  int found = 0;
  for (std::size_t at = 10'000; at < bytes; at += 4096) found += changed(path, content, at) ? 1 : 0;
  CHECK(found >= 64);  // out of 730 blocks
  fs::resize_file(path, bytes - 1);
  CHECK(fingerprint(path, whole) != print);

  const auto small = folder.write("small.txt", content_of(5000));
  for (const std::size_t at : {0, 4095, 4096, 4999}) CHECK(changed(small, content, at));
  const auto index = folder.write("data.idx", content_of(500'000));
  for (std::size_t at = 0; at < 500'000; at += 49'999) CHECK(changed(index, content, at));
  std::string weights = content_of(1'000'000);
  const std::uint64_t header = 100'000;
  weights.replace(0, sizeof header, reinterpret_cast<const char*>(&header), sizeof header);
  const auto stored = folder.write("model.safetensors", weights);
  for (std::size_t at = 8; at < header; at += 9'999) CHECK(changed(stored, weights, at));
  CHECK(fingerprint(folder.write("empty", ""), whole) != print);
}

TEST_CASE("a configuration of special tokens next to a tokenizer's file is one of its files") {
  const TemporaryFolder folder;
  apps::TrainOptions options;
  const fs::path file = folder.write("tokenizer.json", "{}"), config = folder.write("tokenizer_config.json", "{}");
  folder.write("notes.txt", "");
  using Files = std::vector<fs::path>;
  CHECK(apps::tokenizer_files(options).empty());
  for (const fs::path& path : {file, folder.path()}) {
    options.data.gpt2 = path;
    CHECK(apps::tokenizer_files(options) == Files{file, config});
  }
}

TEST_CASE("ranks agree if their separate files are equal, or if they share the files") {
  const TemporaryFolder folder;
  const auto own = folder.write("data.txt", content_of(100'000));
  bool agreed = false;
  // The same name on every rank, as in flags.
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  CHECK(compare({"data.txt"}, agreed).empty());
  CHECK(agreed);
  fs::current_path(before);
  CHECK(compare({"/proc/self/exe"}, agreed).empty());
  CHECK(agreed);
  CHECK(compare({}, agreed).empty());
  CHECK(agreed);
}

TEST_CASE("a file that differs on one rank is reported with the rank, only by the first such rank") {
  runtime::MpiSession& session = test::mpi_session();
  const TemporaryFolder folder;
  const int rank = session.rank(), last = session.ranks() - 1;
  std::string content = content_of(100'000);
  folder.write("same.txt", content);
  if (rank == last) content[50'000] ^= 4;
  folder.write("data.txt", content);
  folder.write("more.txt", std::string(rank == 0 ? 10 : 11, 'm'));
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  bool agreed = true;
  const std::string said = compare({"same.txt", "data.txt"}, agreed);
  CHECK(!agreed);
  if (rank == last)
    check_has(said, {"input files differ between ranks: data.txt on rank " + std::to_string(last) +
                     " (100000 bytes as on rank 0, but other content); copy the same files"});
  CHECK(said.empty() == (rank != last));
  const std::string other = compare({"same.txt", "more.txt"}, agreed);
  CHECK(!agreed);
  if (rank == 1)
    check_has(other,
              {"input files differ between ranks: more.txt on ranks 1 and 2 (11 bytes, on rank 0 10); copy"});
  CHECK(other.empty() == (rank != 1));
  std::vector<fs::path> files{"same.txt"};
  if (rank == 1) files.emplace_back("more.txt");
  const std::string number = compare(files, agreed);
  CHECK(!agreed);
  if (rank == 1)
    check_has(number, {"input files differ between ranks: number of files; 2 files here, 1 on rank 0; copy"});
  CHECK(number.empty() == (rank != 1));
  fs::current_path(before);
}
