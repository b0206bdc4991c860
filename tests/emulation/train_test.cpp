// Complete training jobs on the emulated GPU, one per rank: transfers between device and host use pinned memory and
// streams as on a real one.
#include "runtime/device/cuda_build.hpp"
#include "tests/apps/small_run.hpp"

namespace runtime = ranvier::runtime;
using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

// Enough for scratch, which takes 129 MiB, and the model, but too little for the large product that measures the GPU's
// rate.
constexpr const char* room = "140MiB";

struct Result {
  std::vector<double> losses, norms;

  std::string output = {};

  friend bool operator==(const Result& a, const Result& b) { return a.losses == b.losses && a.norms == b.norms; }
};

struct Fixture : SmallText {
  [[nodiscard]] Outcome start(int ranks, const Flags& more, const Environment& environment = {}) const {
    const Flags flags =
        join(fmt::format("--metrics {} --device-memory {} --products first --precision fp32", metrics, room), more);
    std::filesystem::remove(metrics);
    return run(ranks, small_run(text, flags), 120s, environment);
  }

  [[nodiscard]] Result train(int ranks, const Flags& more, const Environment& environment = {}) const {
    const Outcome outcome = require_status(0, start(ranks, more, environment));
    Result result{.output = outcome.output};
    for (const std::string& loss : metric(metrics, "loss")) result.losses.push_back(std::stod(loss));
    for (const std::string& norm : metric(metrics, "grad_norm")) result.norms.push_back(std::stod(norm));
    REQUIRE(result.losses.size() == 4);
    return result;
  }
};

void check_close(const Result& a, const Result& b, double relative) {
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(relative));
    CHECK(a.norms[i] == doctest::Approx(b.norms[i]).epsilon(10 * relative));
  }
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a GPU trains GPT-2, LLaMA and related families, and BERT, as the cpu device does") {
  for (const auto& [relative, flags] :
       {std::pair{1e-6, "--dropout 0.1"},
        {3e-3, "--dropout 0.1 --precision bf16"},
        {1e-6, "--model llama --tile 2 --ffn-size 48 --layers 1"},
        {3e-3, "--model mistral --window 5 --ffn-size 48 --layers 1 --precision bf16"},
        {1e-6, "--model qwen3 --kv-heads 1 --documents mask --ffn-size 48 --layers 1"},
        {1e-6, "--model bert --vocab-size 257 --dropout 0.1 --mlm-probability 0.3 --ffn-size 48 --layers 1"}}) {
    CAPTURE(flags);
    check_close(train(1, join(flags, "--device cuda")), train(1, flags), relative);
  }
}

TEST_CASE_FIXTURE(Fixture, "a GPU trains a wide residual network as the cpu device does") {
  const auto losses = [&](const Flags& more) {
    std::filesystem::remove(metrics);
    const Flags flags = "--model wide-resnet --data synthetic --blocks 1,1,1,1 --hidden 4";
    const Flags sizes = "--classes 3 --image-size 32 --batch-size 2 --microbatch-size 2";
    const Flags rest = "--steps 2 --threads 1 --learning-rate 0.01 --metrics " + metrics;
    require_status(0, run(1, join(join(flags, sizes), join(rest, more)), 120s));
    return metric(metrics, "loss");
  };
  const auto expected = losses({}),
             found = losses(fmt::format("--device cuda --device-memory {} --precision fp32", room));
  REQUIRE(found.size() == 2);
  for (std::size_t step = 0; step < found.size(); ++step)
    CHECK(std::stod(found[step]) == doctest::Approx(std::stod(expected.at(step))).epsilon(1e-5));
}

TEST_CASE_FIXTURE(
    Fixture, "products and attention as rank 0 measured them give the usual results, and measurements are saved") {
  const std::string products = file("products.json");
  const Flags flags = "--precision bf16 --layers 2 --g-inter 2";
  const Flags measured = join(flags, "--device cuda --products measured --products-file " + products);
  const Result first = train(2, measured);
  check_close(first, train(2, flags), 3e-3);
  check_has(first.output, {"products: 0 from " + products, " passes; 0 from " + products});
  const std::string remembered = read_file(products);
  const Result second = train(2, measured);
  CHECK(second == first);
  const std::string known = " from " + products + ", 0 measured\n";
  const std::size_t of_products = second.output.find(known);
  REQUIRE(of_products != std::string::npos);
  CHECK(second.output.find(known, of_products + 1) != std::string::npos);  // and for attention
  CHECK(read_file(products) == remembered);
}

TEST_CASE_FIXTURE(Fixture, "a --products-file in another format ends a run before training, and is not changed") {
  const std::string content = read_file(text);
  const Outcome outcome =
      require_failure(start(1, "--precision bf16 --device cuda --products measured --products-file " + text));
  check_has(outcome.output, {"--products-file " + text + ": not JSON", "the file was not changed"});
  CHECK(read_file(metrics).empty());
  CHECK(read_file(text) == content);
}

TEST_CASE_FIXTURE(
    Fixture, "attention by cuDNN gives the training results of the built-in kernels, on all ranks or on none") {
  const Flags own = "--device cuda --precision bf16 --layers 1 --g-data 2 --attention ranvier";
  Flags cudnn = own, either = own;
  cudnn.back() = "cudnn";
  either.back() = "auto";
  either.add("--products measured");
  const Result expected = train(2, own), insisted = train(2, cudnn);
  CHECK(insisted.losses != expected.losses);
  check_close(insisted, expected, 3e-3);
  check_has(insisted.output, {"attention: cuDNN 9.19.0 for 2 of 2 passes"});

  const Result lacking = train(2, either, {{"EMULATED_CUDNN_VERSION", "1"}});
  check_close(lacking, expected, 3e-3);
  check_has(lacking.output,
            {"attention: built-in kernels, since cuDNN on 1 rank does not support rank 0's kernels"});
}

TEST_CASE_FIXTURE(Fixture,
                  "attention by cuDNN trains shared keys, windows and full samples as the built-in kernels do") {
  for (const char* model : {"--model llama --kv-heads 1", "--model llama --kv-heads 1 --window 5",
                            "--model bert --vocab-size 257 --dropout 0 --mlm-probability 0.3"}) {
    CAPTURE(model);
    const Flags own = join("--device cuda --precision bf16 --layers 1 --attention ranvier", model);
    Flags cudnn = own;
    cudnn[7] = "cudnn";
    const Result expected = train(1, own), insisted = train(1, cudnn);
    CHECK(insisted.losses != expected.losses);
    check_close(insisted, expected, 3e-3);
    check_has(insisted.output, {"attention: cuDNN 9.19.0 for 2 of 2 passes"});
  }
}

TEST_CASE_FIXTURE(Fixture, "a fast backward pass of attention trains within rounding, and prints its drawback") {
  const Flags flags = "--device cuda --precision bf16 --layers 1 --attention cudnn";
  const Flags fast = join(flags, "--attention-backward fast");
  const Result result = train(1, fast);
  check_close(result, train(1, flags), 3e-3);
  check_has(result.output, {"its backward pass adds as parts come, so bits differ from run to run"});
}

TEST_CASE_FIXTURE(Fixture, "a cuDNN that is missing on a rank ends a job that requires it, with a remedy") {
  const Outcome refused =
      require_failure(start(2, "--device cuda --precision bf16 --layers 1 --g-data 2 --attention cudnn",
                            {{"EMULATED_CUDNN_MISSING", "1"}}));
  check_has(refused.output, {"--attention cudnn is not possible on rank 1: the emulated cuDNN was taken away; ",
                             "use --attention auto"});
}

TEST_CASE_FIXTURE(
    Fixture, "pipeline stages on GPUs do not change any bit, with checkpoints and states off the device, too") {
  const Result whole = train(1, "--device cuda");
  CHECK(train(2, "--device cuda --g-inter 2 --p2p staged") == whole);
  CHECK(train(2,
              "--device cuda --g-inter 2 --p2p staged --recompute 1 --activation-tier host --optimizer-tier host "
              "--bucket-size 4096") == whole);
  CHECK(train(1, "--device cuda --offload infinity-nvme --nvme " + folder.path().string() +
                     " --bucket-size 4096") == whole);
}

TEST_CASE_FIXTURE(Fixture, "blocks that are replayed as graphs do not change any bit") {
  for (const char* more :
       {"--g-data 2 --shard zero3", "--g-inter 2 --precision bf16 --recompute 1 --activation-tier host"}) {
    CAPTURE(more);
    const Flags on = join("--device cuda", more);
    const Flags off = join(on, "--cuda-graphs off");
    const Result with = train(2, on);
    CHECK(with == train(2, off));
    check_has(with.output, {"CUDA graphs of rank 0: "});
  }
}

TEST_CASE_FIXTURE(Fixture, "rows on GPUs shard their states, with every optimizer") {
  for (const char* optimizer : {"adamw", "muon", "sgd --moment-dtype int8"}) {
    const Flags flags = fmt::format("--g-data 2 --optimizer {}", optimizer);
    const Result cpu = train(2, flags);
    for (const char* sharding : {"ddp", "zero3"}) {
      CAPTURE_ALL(optimizer, sharding);
      check_close(train(2, join(flags, fmt::format("--device cuda --p2p staged --shard {}", sharding))), cpu, 1e-5);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "messages sent directly from a GPU's memory do not change any bit") {
  const auto weights = [&](int ranks, const char* way, const Flags& flags) {
    const Flags all =
        fmt::format("--device cuda --device-memory {} --layers 2 --steps 2 --precision fp32 --p2p {} --save {}",
                    room, way, file("weights"));
    require_status(0, run(ranks, small_run(text, join(flags, all)), 120s));
    return read_file(file("weights/model.safetensors"));
  };
  for (const auto& [ranks, flags] :
       {std::pair{2, "--g-inter 2"}, {4, "--g-inter 2 --g-data 2 --shard zero3 --collectives plans"}}) {
    CAPTURE(flags);
    CHECK(weights(ranks, "direct", flags) == weights(ranks, "staged", flags));
  }
}

TEST_CASE_FIXTURE(Fixture, "messages are sent directly from a GPU's memory if MPI reports support for it") {
  const auto output = [&](const Flags& more, const char* mpi) {
    const Flags flags = join(
        fmt::format("--device cuda --device-memory {} --products first --layers 2 --steps 1 --g-inter 2", room),
        more);
    return run(2, small_run(text, flags), 120s, {{"RANVIER_EMULATED_MPI", mpi}}).output;
  };
  const std::string staged = "messages: staged through pinned memory",
                    used = "pinned memory for messages of rank 0";
  const std::string direct = "messages: direct from GPU memory";
  const std::string by_itself = output({}, "any");
  check_has(by_itself, {direct});
  check_lacks(by_itself, {used});
  const std::string by_host = output({}, "host");
  check_has(by_host, {staged, used});
  check_has(output("--p2p direct", "host"), {"--p2p direct needs a CUDA-aware MPI on every rank"});
}

TEST_CASE_FIXTURE(Fixture, "MPI and NCCL never access a GPU's memory in the same run") {
  const Flags flags = "--device cuda --g-inter 2 --g-data 2 --p2p direct --collectives nccl";
  const Outcome outcome = require_failure(run(4, small_run(text, flags), 120s));
  check_has(outcome.output, {runtime::with_nccl ? "lets MPI access GPUs during NCCL collectives, which can deadlock"
                                                : "--collectives nccl needs NCCL, which this build lacks"});
}
