#include "models/text/token_output.hpp"

#include "models/text/data_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_counted = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t min_wide_vocabulary = 65500;  // from here on Megatron's own tools write int32
constexpr const char* progress_magic = "ranvier-tokens-1";

fs::path with(const fs::path& name, const char* extension) {
  fs::path path = name;
  path += extension;
  return path;
}

[[noreturn]] void refuse(const fs::path& name, const char* what) {
  fail(ErrorCode::io,
       "cannot {1} {0}: {2}; check the folder's space and permissions, then restart: progress that was saved is "
       "kept",
       name.string(), what, std::strerror(errno));
}

runtime::FileDescriptor open_file(const fs::path& name) {
  runtime::FileDescriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file) refuse(name, "create");
  return file;
}

/// Whether this process has locked the file, and the path still names it.
bool owns(int file, const fs::path& name) {
  struct stat opened{}, named{};
  return ::flock(file, LOCK_EX | LOCK_NB) == 0 && ::fstat(file, &opened) == 0 &&
         ::stat(name.c_str(), &named) == 0 && opened.st_ino == named.st_ino;
}

void rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) refuse(to, "replace");
}

}  // namespace

fs::path token_file_path(const fs::path& name) {
  const bool complete = name.extension() == ".bin" || name.extension() == ".idx";
  return complete ? fs::path(name).replace_extension(".bin") : with(name, ".bin");
}

TokenOutput::TokenOutput(const TokenOutputOptions& options) : options_(options) {
  const bool megatron = options.format == TokenOutputFormat::megatron;
  tokens_path_ = token_file_path(options.path);
  fs::path name = tokens_path_;
  name.replace_extension();
  tokens_partial_ = with(name, ".bin.partial");
  progress_path_ = with(name, ".bin.progress");
  if (megatron) {
    index_path_ = with(name, ".idx");
    index_partial_ = with(name, ".idx.partial");
    sizes_partial_ = with(name, ".sizes.partial");
    if (options.vocab_size >= min_wide_vocabulary) token_bytes_ = 4;
  } else if (options.vocab_size > 1 << 16) {
    fail(ErrorCode::usage, "{}: a vocabulary of {} does not fit llm.c's uint16; use `output_format` megatron",
         tokens_path_.string(), options.vocab_size);
  }
  tokens_file_ = open_file(tokens_partial_);
  if (!owns(tokens_file_.get(), tokens_partial_))
    fail(ErrorCode::io, "{}: another process writes this file; wait until that process ends, or use another path",
         tokens_path_.string());
  if (megatron) sizes_file_ = open_file(sizes_partial_);
  go_on_or_begin();
}

void TokenOutput::go_on_or_begin() {
  const std::size_t header = options_.format == TokenOutputFormat::llmc ? llmc_header_bytes : 0;
  std::string magic;
  std::uint64_t job = 0;
  Position position;
  std::int64_t tokens = 0, documents = 0, open = 0;
  std::ifstream progress(progress_path_);
  progress >> magic >> job >> position.file >> position.offset >> tokens >> documents >> open;
  std::error_code no_tokens, no_sizes;
  const auto length = static_cast<std::int64_t>(fs::file_size(tokens_partial_, no_tokens));
  const auto sizes = !sizes_file_ ? 0 : static_cast<std::int64_t>(fs::file_size(sizes_partial_, no_sizes));
  const auto needed = static_cast<std::int64_t>(header) + tokens * static_cast<std::int64_t>(token_bytes_);
  const bool goes_on = progress && magic == progress_magic && job == options_.job && !no_tokens && !no_sizes &&
                       tokens >= 0 && documents >= 0 && open >= 0 && length >= needed &&
                       (!sizes_file_ || sizes / 4 >= documents);
  if (goes_on) {
    start_ = position;
    tokens_ = tokens;
    documents_ = documents;
    document_tokens_ = open;
  } else {
    std::error_code ignored;
    fs::remove(progress_path_, ignored);
  }
  const std::size_t kept = header + static_cast<std::size_t>(tokens_) * token_bytes_;
  const auto cut = [](const runtime::FileDescriptor& file, std::size_t bytes, const fs::path& name) {
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 || ::lseek(file.get(), 0, SEEK_END) < 0)
      refuse(name, "write");
  };
  cut(tokens_file_, kept, tokens_partial_);
  if (sizes_file_) cut(sizes_file_, static_cast<std::size_t>(documents_) * 4, sizes_partial_);
}

void TokenOutput::write(const runtime::FileDescriptor& file, const void* data, std::size_t bytes,
                        const fs::path& name) const {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(file.get(), from, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse(name, "write");
    from += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

void TokenOutput::append(std::span<const std::int32_t> tokens) {
  tokens_ += std::ssize(tokens);
  document_tokens_ += std::ssize(tokens);
  if (options_.format == TokenOutputFormat::llmc && tokens_ > max_counted)
    fail(ErrorCode::data,
         "{}: more than the {} tokens that llm.c's header can count; use fewer files per run, or "
         "use `output_format` megatron",
         tokens_path_.string(), max_counted);
  if (token_bytes_ == 4) return write(tokens_file_, tokens.data(), tokens.size_bytes(), tokens_partial_);
  narrow_.assign(tokens.begin(), tokens.end());
  write(tokens_file_, narrow_.data(), narrow_.size() * sizeof narrow_[0], tokens_partial_);
}

void TokenOutput::end_document() {
  if (document_tokens_ > max_counted)
    fail(ErrorCode::data,
         "{}: a document has {} tokens, more than the {} that Megatron's index can count; split the document",
         tokens_path_.string(), document_tokens_, max_counted);
  const auto size = static_cast<std::int32_t>(document_tokens_);
  if (sizes_file_) write(sizes_file_, &size, sizeof size, sizes_partial_);
  ++documents_;
  document_tokens_ = 0;
}

void TokenOutput::checkpoint(Position position) {
  if (::fdatasync(tokens_file_.get()) != 0) refuse(tokens_partial_, "write");
  if (sizes_file_ && ::fdatasync(sizes_file_.get()) != 0) refuse(sizes_partial_, "write");
  const std::string line = fmt::format("{} {} {} {} {} {} {}\n", progress_magic, options_.job, position.file,
                                       position.offset, tokens_, documents_, document_tokens_);
  runtime::AtomicFile file(progress_path_);
  file.append(line.data(), line.size());
  file.commit();
}

void TokenOutput::write_index() const {
  runtime::AtomicFile index(index_partial_);
  const auto put = [&index](const auto& value) { index.append(&value, sizeof value); };
  index.append(megatron_magic.data(), megatron_magic.size());
  put(megatron_version);
  put(token_bytes_ == 2 ? megatron_uint16 : megatron_int32);
  put(static_cast<std::uint64_t>(documents_));      // sequences: one to a document
  put(static_cast<std::uint64_t>(documents_ + 1));  // their bounds
  constexpr std::int64_t block = 1 << 14;
  std::vector<std::int32_t> sizes(block);
  std::vector<std::int64_t> numbers(block);
  const auto for_each_block = [&](auto&& f) {
    for (std::int64_t done = 0; done < documents_; done += block) {
      const auto count = static_cast<std::size_t>(std::min(block, documents_ - done));
      const auto bytes = static_cast<ssize_t>(count * sizeof sizes[0]);
      if (::pread(sizes_file_.get(), sizes.data(), count * sizeof sizes[0], done * 4) != bytes)
        refuse(sizes_partial_, "read");
      f(count);
    }
  };
  for_each_block([&](std::size_t count) { index.append(sizes.data(), count * sizeof sizes[0]); });
  std::int64_t at = 0;
  for_each_block([&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      numbers[i] = at;
      at += sizes[i] * static_cast<std::int64_t>(token_bytes_);
    }
    index.append(numbers.data(), count * sizeof numbers[0]);
  });
  for (std::int64_t document = 0; document <= documents_;) {
    std::size_t count = 0;
    while (count < numbers.size() && document <= documents_) numbers[count++] = document++;
    index.append(numbers.data(), count * sizeof numbers[0]);
  }
  index.commit();
}

void TokenOutput::commit() {
  if (tokens_ == 0)
    fail(ErrorCode::data, "{}: the text has no tokens; use files that are not empty", tokens_path_.string());
  if (sizes_file_) {
    write_index();
  } else {
    std::array<std::int32_t, 256> header{llmc_magic, llmc_version, static_cast<std::int32_t>(tokens_)};
    if (::pwrite(tokens_file_.get(), header.data(), sizeof header, 0) != static_cast<ssize_t>(sizeof header))
      refuse(tokens_partial_, "write");
  }
  if (::fsync(tokens_file_.get()) != 0) refuse(tokens_partial_, "write");
  std::error_code ignored;
  if (sizes_file_) fs::remove(index_path_, ignored);  // an old index must not describe new tokens
  rename_file(tokens_partial_, tokens_path_);
  if (sizes_file_) rename_file(index_partial_, index_path_);
  runtime::sync_folder(runtime::folder_of(tokens_path_));
  fs::remove(progress_path_, ignored);
  if (sizes_file_) fs::remove(sizes_partial_, ignored);
}

}  // namespace ranvier::models
