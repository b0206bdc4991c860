// A training program whose samples are never released: their owner hangs in its destructor, as a device, a file or a
// library may. It trains the model of its flags.
#include "apps/train/launch.hpp"
#include "runtime/base/console.hpp"

#include <unistd.h>

#include <cstring>

namespace {

using namespace ranvier;

class HeldUp final : public models::TokenSamples {
 public:
  using TokenSamples::TokenSamples;
  ~HeldUp() override {
    runtime::print_stderr("torn down\n");
    while (true) ::pause();
  }

  std::int64_t samples() const override { return 64; }
  void read_input(std::int64_t, std::byte* to) const override { std::memset(to, 0, input_bytes()); }
  void read_target(std::int64_t n, std::byte* to) const override { read_input(n, to); }
};

apps::Job make_job(const apps::TrainOptions& options) {
  apps::Job job{.architecture = models::make_gpt(options.model.gpt()),
                .source = std::make_unique<HeldUp>(options.model.gpt().sequence_length)};
  job.sample = job.source->sample_bytes();
  return job;
}

}  // namespace

int main(int argc, char** argv) { return apps::launch("ranvier-held-up", argc, argv, make_job); }
