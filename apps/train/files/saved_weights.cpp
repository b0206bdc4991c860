#include "apps/train/files/saved_weights.hpp"

#include "apps/train/files/output_files.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/arena.hpp"
#include "runtime/atomic_file.hpp"
#include "runtime/error.hpp"
#include "runtime/log_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace ranvier::apps {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

SavedWeights::SavedWeights(std::string save, std::vector<models::TensorToStore> tensors, Beside beside,
                           runtime::Duration patience)
    : save_(std::move(save)), beside_(std::move(beside)), patience_(patience), bytes_(bytes(tensors, beside_)) {
  or_say_what_is_lost([&] {
    writer_.emplace(weights_path(save_), std::move(tensors),
                    [this](const std::filesystem::path& path, int error) { return wait(path, error); });
  });
}

void SavedWeights::put(const models::UnitSpec& unit, std::size_t begin, std::span<const float> values) {
  or_say_what_is_lost([&] { models::write_unit(*writer_, unit, begin, begin + values.size(), values.data()); });
}

template <typename Write>
void SavedWeights::or_say_what_is_lost(const Write& write) {
  try {
    write();
  } catch (const Error& error) {
    fail(error.code(),
         "{}; the weights of this training, {}, are lost: save on a disk that has room for them, or give a "
         "--timeout that leaves time to make some",
         error.what(), runtime::format_bytes(bytes_));
  }
}

void SavedWeights::commit() {
  writer_->commit();
  const auto config = config_path(save_);
  if (!config) return;
  try {
    for (const auto& [name, content] : beside_) {
      runtime::AtomicFile file(config->parent_path() / name,
                               [this](const std::filesystem::path& at, int error) { return wait(at, error); });
      file.append(content.data(), content.size());
      file.commit();
    }
  } catch (const Error& error) {
    fail(error.code(), "the weights are saved in {}, but not all that goes beside them: {}",
         weights_path(save_).string(), error.what());
  }
}

std::size_t SavedWeights::bytes(std::span<const models::TensorToStore> tensors, const Beside& beside) {
  constexpr std::size_t header_bytes = 128;  // of a tensor, beside its name
  std::size_t sum = 0;
  for (const auto& [name, content] : beside) sum += content.size();
  for (const models::TensorToStore& tensor : tensors) {
    std::size_t elements = 1;
    for (const std::size_t size : tensor.shape) elements *= size;
    sum += elements * runtime::size_of(tensor.dtype) + tensor.name.size() + header_bytes;
  }
  return sum;
}

bool SavedWeights::wait(const std::filesystem::path& path, int error) {
  constexpr auto pause = 200ms;
  const auto now = Clock::now();
  if (now - refused_ > 5 * pause) waiting_since_.reset();  // it went on meanwhile
  refused_ = now;
  std::error_code failed;
  if (!path.parent_path().empty()) std::filesystem::create_directories(path.parent_path(), failed);
  if (!waiting_since_) {
    waiting_since_ = now;
    runtime::say_on_stderr(fmt::format(
        "ranvier: warning: {}: {}: the weights take {} and {} are free: {} within {:g} s (--timeout), or they are "
        "lost\n",
        path.string(), std::strerror(error), runtime::format_bytes(bytes_),
        runtime::format_bytes(runtime::free_bytes_beside(path)),
        error == ENOSPC || error == EDQUOT ? "make room" : "mend it",
        std::chrono::duration<double>(patience_).count()));
  }
  if (now - *waiting_since_ >= patience_) return false;
  std::this_thread::sleep_for(std::min<runtime::Duration>(pause, patience_));
  refused_ = Clock::now();
  return true;
}

}  // namespace ranvier::apps
