#include "apps/files/file_agreement.hpp"

#include "apps/program/agreement.hpp"
#include "models/families/adapter_files.hpp"
#include "models/text/mixed_source.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/weights/safetensors.hpp"
#include "offload/block_checksums.hpp"
#include "offload/tier.hpp"
#include "runtime/files/file_descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

namespace ranvier::apps {

namespace {

namespace fs = std::filesystem;
using runtime::MpiSession;

constexpr std::size_t block_bytes = offload::Tier::block_bytes;
constexpr std::uint64_t sampled_blocks = 64;
constexpr std::size_t max_whole_bytes = std::size_t{4} << 20, min_whole_bytes = std::size_t{64} << 10;
constexpr std::size_t whole_bytes_together = std::size_t{64} << 20;
constexpr std::size_t max_named = 3;

std::uint64_t join(std::uint64_t sum, std::uint64_t next) {
  return (std::rotl(sum, 23) ^ next) * 0x9E3779B97F4A7C15u;
}

class File {
 public:
  explicit File(const fs::path& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    // A pipe must not block here.
    if (!file_ || ::fstat(file_.get(), &status_) != 0 || !S_ISREG(status_.st_mode))
      fail(ErrorCode::io, "{}: cannot open: {}", path_.string(),
           file_ ? "not a regular file" : std::strerror(errno));
  }

  [[nodiscard]] std::uint64_t bytes() const { return static_cast<std::uint64_t>(status_.st_size); }
  /// Hash of size, device, inode and modification time: equal for the same file on this machine.
  [[nodiscard]] std::uint64_t identity() const {
    std::uint64_t sum = join(bytes(), status_.st_dev);
    sum = join(join(sum, status_.st_ino), static_cast<std::uint64_t>(status_.st_mtim.tv_sec));
    return join(sum, static_cast<std::uint64_t>(status_.st_mtim.tv_nsec));
  }

  /// Reads bytes starting at offset `from`. Returns their number, which is less than requested only at the end.
  std::size_t read(std::uint64_t from, std::span<std::byte> to) const {
    std::size_t done = 0;
    while (done < to.size()) {
      const ssize_t count =
          ::pread(file_.get(), to.data() + done, to.size() - done, static_cast<off_t>(from + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0)
        fail(ErrorCode::io, "{}: cannot read at offset {}: {}", path_.string(), from, std::strerror(errno));
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }

 private:
  const fs::path& path_;
  runtime::FileDescriptor file_;
  struct stat status_{};
};

/// Bytes of the header, which is read completely.
std::uint64_t header_bytes(const fs::path& path, const File& file) {
  if (path.extension() == ".idx") return file.bytes();
  std::uint64_t length = 0;
  if (path.extension() != ".safetensors") return 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  return length > file.bytes() ? 0 : sizeof length + length;
}

/// A weights file, or an index and the files in it.
std::vector<fs::path> weight_files(const fs::path& weights) {
  std::vector<fs::path> files{weights};
  if (weights.extension() != ".json") return files;
  for (const auto& [name, tensors] : models::files_of_index(weights)) files.push_back(weights.parent_path() / name);
  return files;
}

/// "2, 3 and 5".
std::string listed(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "), ranks.back());
}

/// Finds the differing files on all ranks. The first rank whose files differ from rank 0's throws the message.
[[noreturn]] void name_differences(MpiSession& session, std::span<const fs::path> files, std::size_t whole_bytes) {
  const auto all = [&](std::uint64_t mine) { return session.all(std::bit_cast<long long>(mine)); };
  const long long common = session.smallest(static_cast<long long>(files.size()));
  std::vector<std::string> named;
  std::set<int> others;
  std::size_t differing = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(common); ++i) {
    std::uint64_t print = 0, bytes = 0;
    on_all_ranks(session, [&] {
      print = fingerprint(files[i], whole_bytes);
      bytes = File(files[i]).bytes();
    });
    const auto prints = all(join(print, std::hash<std::string>()(files[i].string()))), sizes = all(bytes);
    std::vector<int> ranks;
    for (int rank = 0; rank < session.ranks(); ++rank)
      if (prints[static_cast<std::size_t>(rank)] != prints[0]) ranks.push_back(rank);
    if (ranks.empty()) continue;
    others.insert(ranks.begin(), ranks.end());
    if (++differing > max_named) continue;
    const bool same_size = sizes[static_cast<std::size_t>(ranks[0])] == sizes[0];
    named.push_back(fmt::format(
        "{} on {} ({})", files[i].string(), listed(ranks),
        same_size ? fmt::format("{} bytes as on rank 0, but other content", sizes[0])
                  : fmt::format("{} bytes, on rank 0 {}", sizes[static_cast<std::size_t>(ranks[0])], sizes[0])));
  }
  const auto counts = session.all(static_cast<long long>(files.size()));
  for (int rank = 0; rank < session.ranks(); ++rank)
    if (counts[static_cast<std::size_t>(rank)] != counts[0]) others.insert(rank);
  if (differing > max_named) named.push_back(fmt::format("{} more", differing - max_named));
  if (named.empty()) named.push_back("number of files");
  on_all_ranks(session, [&] {
    if (session.rank() != *others.begin()) return;
    fail(ErrorCode::data, "input files differ between ranks: {}{}; copy the same files to every node",
         fmt::join(named, "; "),
         files.size() == static_cast<std::size_t>(counts[0])
             ? ""
             : fmt::format("; {} files here, {} on rank 0", files.size(), counts[0]));
  });
  throw FailedTogether{ErrorCode::data, {}};
}

}  // namespace

std::vector<fs::path> tokenizer_files(const TrainOptions& options) {
  std::vector<fs::path> found;
  if (options.data.gpt2.empty()) return found;
  for (const auto& [name, path] : models::tokenizer_files(options.data.gpt2)) found.push_back(path);
  return found;
}

std::vector<fs::path> deciding_files(const TrainOptions& options, const Job& job) {
  std::vector<fs::path> files = job.files;
  if (!options.data.hellaswag.empty()) files.emplace_back(options.data.hellaswag);
  const std::vector<fs::path> tokenizer = tokenizer_files(options);
  files.insert(files.end(), tokenizer.begin(), tokenizer.end());
  if (const fs::path adapter = options.run.init_adapter; !adapter.empty())
    for (const char* name : {models::adapter_config_name, models::adapter_weights_name})
      files.push_back(adapter / name);
  if (options.run.init_from.empty()) return files;
  const fs::path weights = models::find_weights(options.run.init_from, "--init-from");
  std::error_code unknown;
  if (const fs::path config = weights.parent_path() / "config.json"; fs::exists(config, unknown))
    files.push_back(config);
  const std::vector<fs::path> tensors = weight_files(weights);
  files.insert(files.end(), tensors.begin(), tensors.end());
  return files;
}

std::string content_of_weights(const fs::path& weights) {
  std::uint64_t sum = 0;
  for (const fs::path& file : weight_files(weights)) sum = join(sum, fingerprint(file, max_whole_bytes));
  return fmt::format("{:016x}", sum);
}

std::uint64_t fingerprint(const fs::path& path, std::size_t whole_bytes) {
  const File file(path);
  const std::uint64_t bytes = file.bytes();
  std::vector<std::byte> buffer(std::size_t{64} * block_bytes);
  std::uint64_t sum = bytes;
  const auto add = [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t at = begin; at < end; at += buffer.size()) {
      const std::span<std::byte> part(buffer.data(), std::min<std::uint64_t>(buffer.size(), end - at));
      const std::size_t read = file.read(at, part);
      std::fill(buffer.begin() + static_cast<std::ptrdiff_t>(read), buffer.end(), std::byte{0});
      for (std::size_t block = 0; block < part.size(); block += block_bytes)
        sum = join(sum, offload::BlockChecksums::sum_of((at + block) / block_bytes, buffer.data() + block));
    }
  };
  const std::uint64_t whole = std::min(bytes, std::max<std::uint64_t>(whole_bytes, header_bytes(path, file)));
  add(0, whole);
  const std::uint64_t blocks = (bytes - whole) / block_bytes, sampled = std::min(blocks, sampled_blocks);
  for (std::uint64_t i = 0; i < sampled; ++i) {
    const std::uint64_t at = whole + i * blocks / sampled * block_bytes;
    add(at, at + block_bytes);
  }
  if (bytes > whole) add(bytes - std::min<std::uint64_t>(block_bytes, bytes - whole), bytes);
  return sum;
}

void compare_files(MpiSession& session, std::span<const fs::path> files,
                   const std::function<void(const fs::path&)>& reads) {
  const auto most = static_cast<std::size_t>(session.largest(static_cast<long long>(files.size())));
  if (session.ranks() == 1 || most == 0) return;
  const std::size_t whole_bytes = std::clamp(whole_bytes_together / most, min_whole_bytes, max_whole_bytes);
  std::uint64_t identity = files.size();
  on_all_ranks(session, [&] {
    for (const fs::path& path : files) identity = join(identity, File(path).identity());
  });
  const auto identities = session.all(std::bit_cast<long long>(identity));
  const auto first_of_node = [&](int rank) { return session.nodes()[static_cast<std::size_t>(rank)]; };
  const auto shares = [&](int rank) {
    return identities[static_cast<std::size_t>(rank)] == identities[static_cast<std::size_t>(first_of_node(rank))];
  };
  std::uint64_t print = files.size();
  const bool is_to_read = session.rank() == first_of_node(session.rank()) || !shares(session.rank());
  on_all_ranks(session, [&] {
    if (!is_to_read) return;
    for (const fs::path& path : files) {
      if (reads) reads(path);
      print = join(join(print, std::hash<std::string>()(path.string())), fingerprint(path, whole_bytes));
    }
  });
  const auto prints = session.all(std::bit_cast<long long>(print));
  for (int rank = 0; rank < session.ranks(); ++rank) {
    const int from = shares(rank) ? first_of_node(rank) : rank;
    if (prints[static_cast<std::size_t>(from)] != prints[0]) name_differences(session, files, whole_bytes);
  }
}

std::string data_content(const TrainOptions& options, const Job& job) {
  constexpr std::size_t whole_bytes = std::size_t{256} << 10;  // per file, since a folder may have many
  std::string content;
  for (const models::WeightedPath& data : models::parse_weighted_paths(options.data.data))
    content += fmt::format("{}:", data.weight);
  // Names count only through the order of files in a folder.
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (const auto& file : job.files) sum = (sum ^ fingerprint(file, whole_bytes)) * 0x100000001b3u;
  for (const auto& file : tokenizer_files(options)) sum = (sum ^ fingerprint(file, whole_bytes)) * 0x100000001b3u;
  return fmt::format("{}{}:{:016x}", content, static_cast<int>(options.data.tokenizer), sum);
}

}  // namespace ranvier::apps
