#include "models/weights/partial_weights.hpp"

#include "models/core/name_pattern.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/weights/safetensors.hpp"
#include "runtime/base/error.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <set>
#include <string_view>
#include <system_error>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;
using runtime::FileDescriptor;
using runtime::folder_of;
using runtime::sync_folder;

constexpr std::string_view hidden_end = ".partial";

/// .NAME.JOB.partial
bool is_hidden_name(std::string_view name) {
  static const NamePattern pattern(R"((?s)^\..*\.[0-9a-f]{16}\.partial\z)", "hidden names");
  return pattern.matches_in(name);
}

/// Opens and locks the file that stays locked while a folder is written. Returns none and sets errno if another process
/// has locked it, or if it is missing.
FileDescriptor lock_first_file(const fs::path& path, int flags) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0666));
  if (!file) return file;
  struct stat mine{}, there{};
  // Writing is allowed on a file system without locks, because remove_leftovers() then removes nothing.
  const bool locked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || (flags != 0 && errno != EWOULDBLOCK);
  if (locked && ::fstat(file.get(), &mine) == 0 && ::stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino)
    return file;
  file = FileDescriptor();  // may set errno
  errno = EBUSY;
  return file;
}

void sync_file(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0)
    fail(ErrorCode::io, "{}: cannot sync to disk: {}; check the disk", path.string(), std::strerror(errno));
}

/// Whether to retry after the error in errno, which stays.
bool may_retry(const runtime::AtomicFile::Retry& retry, const fs::path& path) {
  const int error = errno;
  const bool again = error == EINTR || ((error == ENOSPC || error == EDQUOT) && retry && retry(path, error));
  errno = error;
  return again;
}

/// Files of the index in `folder`; none if it is damaged or missing.
std::set<std::string> files_of(const fs::path& folder) {
  std::error_code unknown;
  const fs::path index = folder / WeightLayout::index_name;
  if (!fs::exists(index, unknown)) return {};
  try {
    std::set<std::string> names;
    for (const auto& [name, tensors] : files_of_index(index)) names.insert(name);
    return names;
  } catch (const Error&) {
    return {};
  }
}

/// Bytes of the values in another type.
std::vector<std::byte> exactly(runtime::DType dtype, std::span<const float> values, const UnitSpec& unit) {
  return runtime::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = runtime::from_float<T>(values[i]);
      expect(runtime::to_float(value) == values[i], "{} of '{}' is not representable as {}", values[i], unit.name,
             to_string(dtype));
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
    return bytes;
  });
}

/// Tokenizer and configuration files of the model in `folder`, except `files`. Empty if no model is stored
/// there.
std::vector<fs::path> companions(const fs::path& folder, const CompanionFiles& files) {
  std::error_code unknown;
  if (!fs::exists(folder / WeightLayout::single_name, unknown) &&
      !fs::exists(folder / WeightLayout::index_name, unknown))
    return {};
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, unknown), end; !unknown && entry != end; entry.increment(unknown)) {
    const std::string name = entry->path().filename().string();
    if ((is_tokenizer_file(name) || name == "config.json" || name == "generation_config.json") &&
        !files.contains(name))
      found.push_back(entry->path());
  }
  return found;
}

}  // namespace

fs::path partial_path(const fs::path& parent, const std::string& name, const std::string& job) {
  return parent / fmt::format(".{}.{}{}", name, job, hidden_end);
}

std::string random_job() {
  std::random_device random;
  return fmt::format("{:016x}", (std::uint64_t{random()} << 32) | random());
}

PartialWeights::PartialWeights(fs::path place, Kind kind, fs::path path, const WeightLayout& layout,
                               runtime::AtomicFile::Retry retry)
    : place_(kind == Kind::file ? runtime::target_of(place) : std::move(place)),
      kind_(kind),
      path_(std::move(path)),
      layout_(&layout),
      retry_(std::move(retry)) {
  expect(kind == Kind::folder || layout.files().size() == 1, "{}: one file for weights of {} files",
         place_.string(), layout.files().size());
  if (!place_.has_filename()) place_ = place_.parent_path();  // "model/"
  remove_leftovers(folder_of(path_));
  try {
    make_folder();
    for (std::size_t file = 0; file < layout.files().size(); ++file) make_file(file);
  } catch (...) {
    discard();
    throw;
  }
}

PartialWeights::~PartialWeights() { discard(); }

void PartialWeights::discard() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void PartialWeights::remove_leftovers(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    if (is_hidden_name(entry->path().filename().string()) && entry->is_directory(ignored) &&
        !entry->is_symlink(ignored))
      found.push_back(entry->path());
  }
  for (const fs::path& leftover : found) {
    if (::rmdir(leftover.c_str()) == 0) continue;
    std::set<fs::path> files;
    for (fs::directory_iterator entry(leftover, ignored), end; !ignored && entry != end; entry.increment(ignored))
      files.insert(entry->path());
    const auto first = std::find_if(files.begin(), files.end(),
                                    [](const fs::path& file) { return file.extension() == ".safetensors"; });
    const FileDescriptor lock = first == files.end() ? FileDescriptor() : lock_first_file(*first, 0);
    if (lock) fs::remove_all(leftover, ignored);
  }
}

void PartialWeights::make_folder() {
  constexpr int attempts = 100;  // fails if another process removes the folder as a leftover before it is locked
  for (int attempt = 0; attempt < attempts; ++attempt) {
    while (::mkdir(path_.c_str(), 0777) != 0 && errno != EEXIST) {
      const int error = errno;
      if (!retry_ || !retry_(place_, error)) refuse("make", path_, error);
    }
    lock_ = lock_first_file(path_ / layout_->name(0), O_CREAT);
    if (lock_) return;
    if (errno != ENOENT && errno != EBUSY) break;
  }
  refuse("make", path_ / layout_->name(0), errno);
}

void PartialWeights::make_file(std::size_t file) {
  const WeightLayout::File& wanted = layout_->files()[file];
  const fs::path path = path_ / layout_->name(file);
  const FileDescriptor later(
      file == 0 ? -1 : ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  const int descriptor = file == 0 ? lock_.get() : later.get();
  if (descriptor < 0) refuse("make", path, errno);
  const auto check = [&](bool fine) {
    if (!fine && !may_retry(retry_, place_)) refuse("write", path, errno);
    return fine;
  };
  const auto size = static_cast<off_t>(wanted.bytes);
  // Allocates all space now, while one process can still wait for free space.
  while (!check(::fallocate(descriptor, 0, 0, size) == 0 || errno == EOPNOTSUPP || errno == ENOSYS)) {
  }
  check(::ftruncate(descriptor, size) == 0);
  for (std::size_t done = 0; done < wanted.header.size();) {
    const ssize_t count =
        ::pwrite(descriptor, wanted.header.data() + done, wanted.header.size() - done, static_cast<off_t>(done));
    if (check(count > 0)) done += static_cast<std::size_t>(count);
  }
}

void PartialWeights::refuse(const char* what, const fs::path& path, int error) const {
  fail(ErrorCode::io, "{}: cannot {} {}: {}; check the folder's space and permissions", place_.string(), what,
       path.filename().string(), std::strerror(error));
}

void PartialWeights::sync() const {
  for (std::size_t file = 0; file < layout_->files().size(); ++file) sync_file(path_ / layout_->name(file));
  sync_folder(path_);
}

void PartialWeights::write_companions(const fs::path& folder, const CompanionFiles& files) const {
  try {
    for (const auto& [name, content] : files) {
      runtime::AtomicFile file(folder / name, retry_);
      file.append(content.data(), content.size());
      file.commit();
    }
  } catch (const Error& error) {
    if (folder == path_) throw;
    fail(error.code(), "the weights are saved in {}, but other files of the model are not: {}", folder.string(),
         error.what());
  }
}

void PartialWeights::commit(const CompanionFiles& files) {
  std::error_code unknown;
  const bool is_new = kind_ == Kind::folder && !fs::is_directory(place_, unknown);
  if (is_new) {
    if (layout_->files().size() > 1) write_companions(path_, {{WeightLayout::index_name, layout_->index()}});
    write_companions(path_, files);
    sync();
    if (::rename(path_.c_str(), place_.c_str()) == 0) {
      path_.clear();
      return sync_folder(folder_of(place_));
    }
    const int error = errno;
    if (!fs::is_directory(place_, unknown)) keep(place_, error);  // otherwise another process created the folder
  } else {
    sync();
  }
  const fs::path folder = kind_ == Kind::folder ? place_ : folder_of(place_);
  if (kind_ == Kind::file) {
    rename_all({{layout_->name(0), place_}});
    write_companions(folder, files);
  } else {
    const std::vector<fs::path> outdated = companions(place_, files);
    const std::vector<fs::path> replaced = replace_weights();
    sync_folder(folder);
    std::error_code ignored;
    for (const auto& paths : {replaced, outdated})
      for (const fs::path& path : paths) fs::remove(path, ignored);
    write_companions(folder, files);
  }
  sync_folder(folder);
}

std::vector<fs::path> PartialWeights::replace_weights() {
  const std::size_t files = layout_->files().size();
  const std::set<std::string> known = files_of(place_);
  std::vector<fs::path> replaced;
  for (const std::string& name : known) replaced.push_back(place_ / name);
  if (files == 1) {
    const fs::path single = place_ / layout_->name(0);
    rename_all({{layout_->name(0), runtime::target_of(single)}});
    std::erase(replaced, single);
    replaced.insert(replaced.begin(), place_ / WeightLayout::index_name);  // first: it names the others
    return replaced;
  }
  // An existing index names the old files until the new index replaces it.
  const auto taken = [&](const std::string& stem) {
    std::error_code ignored;
    for (std::size_t file = 0; file < files; ++file)
      if (fs::exists(fs::symlink_status(place_ / layout_->name(file, stem), ignored))) return true;
    return false;
  };
  std::string stem = "model";
  for (int i = 2; taken(stem); ++i) stem = fmt::format("model.{}", i);
  write_companions(path_, {{WeightLayout::index_name, layout_->index(stem)}});
  std::vector<std::pair<std::string, fs::path>> names;
  for (std::size_t file = 0; file < files; ++file)
    names.emplace_back(layout_->name(file), place_ / layout_->name(file, stem));
  names.emplace_back(WeightLayout::index_name, place_ / WeightLayout::index_name);
  rename_all(names);
  replaced.insert(replaced.begin(),
                  place_ / WeightLayout::single_name);  // first: readers look for it before an index
  return replaced;
}

void PartialWeights::rename_all(const std::vector<std::pair<std::string, fs::path>>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& [name, to] = names[i];
    if (::rename((path_ / name).c_str(), to.c_str()) == 0) continue;
    const int error = errno;
    for (std::size_t done = 0; done < i; ++done)
      static_cast<void>(::rename(names[done].second.c_str(), (path_ / names[done].first).c_str()));
    keep(to, error);
  }
}

/// Renames complete weights to NAME.whole, which is not removed as a leftover.
void PartialWeights::keep(const fs::path& refused, int error) {
  const std::string name = path_.filename().string();
  fs::path kept = path_.parent_path() /
                  fmt::format("{}.whole", std::string_view(name).substr(1, name.size() - 1 - hidden_end.size()));
  if (::rename(path_.c_str(), kept.c_str()) != 0) kept = path_;
  path_.clear();
  fail(ErrorCode::io,
       "cannot rename the new weights to {}: {}; they are complete in {}; move them from there to {}",
       refused.string(), std::strerror(error), kept.string(), place_.string());
}

WeightWriter::WeightWriter(const WeightLayout& layout, fs::path path, runtime::AtomicFile::Retry retry)
    : layout_(&layout), path_(std::move(path)), retry_(std::move(retry)), files_(layout.files().size()) {}

int WeightWriter::open(std::size_t file) {
  if (!files_[file]) {
    const fs::path path = path_ / layout_->name(file);
    files_[file] = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!files_[file] && errno == ENOENT)
      fail(ErrorCode::io,
           "{}: not found, because the folder is missing or not shared: weights are written by all "
           "ranks; use a folder that all nodes share",
           path.string());
    if (!files_[file]) refuse("open", file);
  }
  return files_[file].get();
}

void WeightWriter::refuse(const char* what, std::size_t file) const {
  fail(ErrorCode::io, "cannot {1} {0}: {2}; check the folder's space and permissions",
       (path_ / layout_->name(file)).string(), what, std::strerror(errno));
}

void WeightWriter::put(const UnitSpec& unit, std::size_t begin, std::span<const float> values) {
  for (const WeightLayout::Run& run : layout_->runs(unit, begin, begin + values.size())) {
    const auto of_run = values.subspan(run.begin - begin, run.count);
    const std::vector<std::byte> narrowed =
        run.dtype == runtime::DType::f32 ? std::vector<std::byte>() : exactly(run.dtype, of_run, unit);
    auto left = narrowed.empty() ? std::as_bytes(of_run) : std::span(narrowed);
    const int descriptor = open(run.file);
    for (std::uint64_t offset = run.offset; !left.empty();) {
      const ssize_t count = ::pwrite(descriptor, left.data(), left.size(), static_cast<off_t>(offset));
      if (count < 0 && may_retry(retry_, path_)) continue;
      if (count <= 0) refuse("write", run.file);
      offset += static_cast<std::uint64_t>(count);
      bytes_ += static_cast<std::uint64_t>(count);
      left = left.subspan(static_cast<std::size_t>(count));
    }
  }
}

void WeightWriter::close() {
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (!files_[file]) continue;
    if (::fsync(files_[file].get()) != 0) refuse("write", file);
    if (::close(files_[file].release()) != 0) refuse("close", file);
  }
}

}  // namespace ranvier::models
