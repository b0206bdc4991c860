// Training steps compared with their matrix multiplications alone, in turns in the same process. The share is the part
// of the machine's rate that a complete step reaches. Real trainer on one rank, synthetic tokens; one JSON line per
// case.
//
//   training_bench [--case 6x384-fp32,llama-6x384-fp32,bert-6x384-bf16,gpt2-small-bf16,…] [--threads 2]
//                  [--microbatch-size N] [--seconds 4]
#include "actors/rank/rank.hpp"
#include "apps/program/options.hpp"
#include "models/core/initialize.hpp"
#include "models/families/model.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/mpi_transport.hpp"
#include "tests/bench/bench.hpp"
#include "tests/bench/product_ceiling.hpp"
#include "tests/doubles/random_tokens.hpp"

namespace ranvier::bench {
namespace {

using runtime::DType;
using runtime::SpanKind;

struct Options {
  std::string cases = "6x384-fp32,6x384-bf16,gpt2-small-fp32,gpt2-small-bf16";
  int threads = 2;
  int microbatch_size = 0;
  double seconds = 4;
  bool products = false;
};

struct Case {
  std::string name;
  models::ModelSizes sizes;
  int batch_size;
  int microbatch_size;
  models::Precision precision = {};
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const char* suffix = dtype == DType::f32 ? "-fp32" : "-bf16";
    const auto add = [&](const char* name, models::ModelSizes sizes, int batch_size) {
      const models::Precision precision{dtype, DType::f32};
      models::set_precision(sizes, precision);
      cases.push_back({std::string(name) + suffix, std::move(sizes), batch_size, 4, precision});
    };
    add("6x384",
        models::GptOptions{.layers = 6, .hidden = 384, .heads = 6, .vocab_size = 256, .sequence_length = 256}, 16);
    add("llama-6x384",
        models::LlamaOptions{
            .layers = 6, .hidden = 384, .heads = 6, .inner = 1024, .vocab_size = 256, .sequence_length = 256},
        16);
    add("bert-6x384",
        models::BertOptions{
            .layers = 6, .hidden = 384, .heads = 6, .inner = 1536, .vocab_size = 256, .sequence_length = 256},
        16);
    models::GptOptions small = std::get<models::GptOptions>(*models::named_model("gpt2-small"));
    small.sequence_length = 256;
    add("gpt2-small", small, 4);
  }
  return cases;
}

class Run {
 public:
  Run(runtime::MpiSession& session, const Options& options, const Case& one)
      : options_(options),
        case_(one),
        architecture_(models::make_model(one.sizes)),
        tokens_(architecture_.positions, models::value_of(one.sizes, models::Size::vocab_size)),
        transport_(session, loop_),
        device_(runtime::make_cpu_device({.threads = options.threads})) {
    if (options.microbatch_size > 0) case_.microbatch_size = std::min(options.microbatch_size, case_.batch_size);
    device_->on_failure([this](std::exception_ptr error) { loop_.stop(error); });
    actors::TrainerOptions training;
    training.batch_size = case_.batch_size;
    training.microbatch_size = case_.microbatch_size;
    training.precision = case_.precision;
    training.threads = options.threads;
    training.steps = 1 << 20;
    training.learning_rate = {.peak = 1e-4};
    trainer_ = std::make_unique<actors::Rank>(
        loop_, transport_, *device_, actors::Rank::Samples{tokens_},
        actors::plan_rank(architecture_, tokens_.sample_bytes(), training, session.rank()));
    trainer_->load_weights([](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
      models::initialize(unit, 1, begin, begin + out.size(), out.data());
    });
    ceiling_ = std::make_unique<ProductCeiling>(*device_, trainer_->context().compute, case_.sizes,
                                                case_.precision.compute, case_.microbatch_size,
                                                case_.batch_size / case_.microbatch_size);
  }

  void execute() {
    trainer_->start({.step = [this](const actors::StepResult&) { step_done(); },
                     .evaluation = {},
                     .done = [this] { loop_.stop(); }});
    loop_.run();
    report();
  }

 private:
  static constexpr int warm_up_steps = 1;

  /// Runs between two steps. No other work uses the device until this returns.
  void step_done() {
    trainer_->context().compute.synchronize();
    const double seconds = seconds_since(step_began_);
    if (++steps_ > warm_up_steps) {
      step_seconds_.push_back(seconds);
      forward_.push_back(trainer_->context().trace.seconds(SpanKind::forward));
      const runtime::Trace& trace = trainer_->context().trace;
      backward_.push_back(trace.seconds(SpanKind::backward) + trace.seconds(SpanKind::weights));
      optimizer_.push_back(trainer_->context().trace.seconds(SpanKind::optimizer));
    }
    const double products = ceiling_->measure();
    if (steps_ > warm_up_steps) product_seconds_.push_back(products);
    if (steps_ == warm_up_steps) measuring_since_ = Clock::now();
    const bool enough = steps_ >= warm_up_steps + 3 && seconds_since(measuring_since_) > options_.seconds;
    if (enough) trainer_->trainer().request_stop();
    trainer_->context().trace.restart();
    step_began_ = Clock::now();
  }

  void report() const {
    const double tokens = static_cast<double>(case_.batch_size) * architecture_.positions;
    const double flops = static_cast<double>(case_.batch_size) * architecture_.flops_per_sample();
    const double seconds = runtime::median(step_seconds_), products = runtime::median(product_seconds_);
    std::vector<double> shares;
    for (std::size_t i = 0; i < step_seconds_.size(); ++i) shares.push_back(product_seconds_[i] / step_seconds_[i]);
    const double forward = runtime::median(forward_), backward = runtime::median(backward_),
                 optimizer = runtime::median(optimizer_);
    double load = 0;
    getloadavg(&load, 1);
    print_case(
        R"("bench": "training", "case": "{}", "threads": {}, "batch": {}, "microbatch": {}, "steps": {}, )"
        R"("model_gflops": {:.1f}, "tokens_per_second": {:.0f}, "ceiling_tokens_per_second": {:.0f}, )"
        R"("share": {:.3f}, "best_step_share": {:.3f}, "ms": {:.1f}, "ms_products": {:.1f}, "ms_forward": {:.1f}, )"
        R"("ms_backward": {:.1f}, "ms_optimizer": {:.1f}, "ms_other": {:.1f}, "load": {:.1f})",
        case_.name, options_.threads, case_.batch_size, case_.microbatch_size, step_seconds_.size(),
        flops / seconds * 1e-9, tokens / seconds, tokens / products, runtime::median(shares),
        *std::min_element(product_seconds_.begin(), product_seconds_.end()) /
            *std::min_element(step_seconds_.begin(), step_seconds_.end()),
        seconds * 1e3, products * 1e3, forward * 1e3, backward * 1e3, optimizer * 1e3,
        (seconds - forward - backward - optimizer) * 1e3, load);
    if (options_.products) {
      for (const ProductCeiling::Product& product : ceiling_->products()) {
        print_case(R"("bench": "product", "case": "{}", "product": "{}", "m": {}, "n": {}, "k": {}, "times": {}, )"
                   R"("ms": {:.2f}, "gflops": {:.1f}, "tile": [{}, {}, {}], "transpose_b": {})",
                   case_.name, product.name, product.m, product.n, product.k, product.calls * product.instances,
                   product.seconds * 1e3,
                   product.flops() * static_cast<double>(product.calls) / product.seconds * 1e-9, product.tile.m,
                   product.tile.n, product.tile.k, product.tile.transpose_b);
      }
    }
  }

  const Options& options_;
  Case case_;
  models::Architecture architecture_;
  tests::RandomTokens tokens_;
  runtime::AsioLoop loop_;
  runtime::MpiTransport transport_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<actors::Rank> trainer_;
  std::unique_ptr<ProductCeiling> ceiling_;

  int steps_ = 0;
  Clock::time_point step_began_ = Clock::now(), measuring_since_;
  std::vector<double> step_seconds_, product_seconds_, forward_, backward_, optimizer_;
};

void bench_main(int argc, char** argv) {
  runtime::MpiSession session(argc, argv);
  Options options;
  apps::OptionTable table;
  table.add({"case", "NAMES", "cases, separated by commas", apps::text(options.cases)});
  table.add({"threads", "N", "of the device", apps::whole(options.threads, 1, 1024)});
  table.add({"microbatch-size", "N", "samples", apps::whole(options.microbatch_size, 0), "what is fastest"});
  table.add({"seconds", "S", "of measuring, for each case", apps::real(options.seconds, 0)});
  table.add({"products", "", "print the ceiling's products one by one", apps::switch_on(options.products)});
  table.parse(argc, argv);
  for (const Case& one : all_cases()) {
    if (("," + options.cases + ",").find("," + one.name + ",") == std::string::npos) continue;
    Run(session, options, one).execute();
  }
}

}  // namespace
}  // namespace ranvier::bench

int main(int argc, char** argv) {
  return ranvier::bench::status_of("training_bench", [&] { ranvier::bench::bench_main(argc, argv); });
}
