// Time of GPT's layers, LLaMA's block and BERT's head compared with their matrix multiplications and attention alone.
// The difference is the cost of passes over memory. One JSON line per case.
//
//   layer_bench [threads]
#include "models/families/model.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/matmul.hpp"
#include "models/text/masked_source.hpp"
#include "runtime/device/device.hpp"
#include "tests/bench/bench.hpp"

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::models;
using runtime::DType;

namespace {

struct Model {
  const char* name;
  GptOptions options;
  int samples;
};

class Bench {
 public:
  Bench(runtime::Device& device, const Model& model, DType dtype)
      : device_(device),
        model_(model),
        dtype_(dtype),
        stream_(device.make_stream("bench", runtime::StreamWidth::whole)) {
    model_.options.precision = {dtype, DType::f32};
    shape_ = {model.samples, model.options.sequence_length, device.threads()};
    N = static_cast<std::size_t>(model.samples) * static_cast<std::size_t>(model.options.sequence_length);
    C = static_cast<std::size_t>(model.options.hidden);
    V = static_cast<std::size_t>(model.options.vocab_size);
    P = (V + 63) / 64 * 64;  // stored rows of the token table
  }

  void time_layers() {
    const auto layers = static_cast<double>(model_.options.layers);
    const Architecture gpt = make_gpt(model_.options);
    const auto &embedding = gpt.layers.front(), &block = gpt.layers[1], &head = gpt.layers.back();
    time_layer(*embedding, "embedding", 1, {});
    time_layer(*block, "block", layers, block_products({{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}}, false));
    Passes of_head;
    add_products(of_head, N, C, P, true);
    time_layer(*head, "head", 1, of_head);
    const double flops = (embedding->flops_per_sample(shape_.positions) + head->flops_per_sample(shape_.positions) +
                          layers * block->flops_per_sample(shape_.positions)) *
                         model_.samples;
    print_case(R"("bench":"model","model":"{}","dtype":"{}","threads":{},"ms":{:.3f},"products_ms":{:.3f},)"
               R"("share":{:.3f},"gflops":{:.1f},"tokens_per_second":{:.0f})",
               model_.name, to_string(dtype_), device_.threads(), total_ * 1e3, total_products_ * 1e3,
               total_products_ / total_, flops / total_ * 1e-9, static_cast<double>(N) / total_);
  }

  /// LLaMA's block of the same width; not included in the model's total.
  void time_llama_block() {
    LlamaOptions options;
    options.layers = 1;
    options.hidden = model_.options.hidden;
    options.heads = model_.options.heads;
    options.inner = (8 * options.hidden / 3 + 63) / 64 * 64;
    options.sequence_length = model_.options.sequence_length;
    options.precision = model_.options.precision;
    const auto F = static_cast<std::size_t>(options.inner);
    time_layer(*make_llama(options).layers[1], "llama block", 0,
               block_products({{C, 3 * C}, {C, C}, {C, 2 * F}, {F, C}}, true));
  }

  /// BERT's head of the same width, for all positions and for masked positions only.
  void time_bert_heads() {
    const int found = static_cast<int>(tokens_to_find(0.15, shape_.positions));
    for (const int targets : {0, found}) {
      const BertOptions options{.layers = 1,
                                .hidden = model_.options.hidden,
                                .heads = model_.options.heads,
                                .inner = 4 * model_.options.hidden,
                                .vocab_size = model_.options.vocab_size,
                                .sequence_length = shape_.positions,
                                .targets = targets,
                                .precision = model_.options.precision};
      const std::size_t rows = targets > 0 ? static_cast<std::size_t>(model_.samples * targets) : N;
      Passes products;
      for (const std::size_t out : {C, P}) add_products(products, rows, C, out, true);
      time_layer(*make_bert(options).layers.back(), targets > 0 ? "bert head of 15%" : "bert head of all", 0,
                 products, found);
    }
  }

 private:
  /// Seconds of the fastest call.
  double seconds_of_call(const std::function<void()>& work) {
    return quickest(0.25, [&] {
      work();
      stream_->synchronize();
    });
  }

  struct Passes {
    double forward = 0, backward_input = 0, backward_weight = 0;
  };

  runtime::Buffer values(std::size_t elements, DType dtype, float scale = 1) {
    runtime::Buffer buffer = device_.allocate(elements * size_of(dtype), runtime::MemorySpace::device);
    fill(buffer.data(), dtype, elements, scale);
    return buffer;
  }

  /// `of_sample`: positions per sample that have a token; the others have `no_target`.
  runtime::Buffer tokens(int of_sample) {
    runtime::Buffer buffer = device_.allocate(N * sizeof(std::int32_t), runtime::MemorySpace::device);
    for (std::size_t i = 0; i < N; ++i) {
      const bool has = i % static_cast<std::size_t>(shape_.positions) < static_cast<std::size_t>(of_sample);
      reinterpret_cast<std::int32_t*>(buffer.data())[i] =
          has ? static_cast<std::int32_t>(i * i * 2654435761u % V) : no_target;
    }
    return buffer;
  }

  double product(const MatmulShape& shape, bool weight_gradient) {
    const auto a = values(shape.m * shape.k, dtype_), b = values(shape.k * shape.n, dtype_);
    const DType c_dtype = weight_gradient ? DType::f32 : dtype_;
    const auto c = values(shape.m * shape.n, c_dtype);
    return seconds_of_call([&] {
      matmul(*stream_, shape,
             {.c = c.data(),
              .c_dtype = c_dtype,
              .a = a.data(),
              .b = b.data(),
              .dtype = dtype_,
              .accumulate = weight_gradient});
    });
  }

  /// Adds the multiplications of `rows` by a matrix that is stored in × out, or transposed.
  void add_products(Passes& sum, std::size_t rows, std::size_t in, std::size_t out, bool transposed) {
    sum.forward += product({.m = rows, .n = out, .k = in, .transpose_b = transposed}, false);
    sum.backward_input += product({.m = rows, .n = in, .k = out, .transpose_b = !transposed}, false);
    const auto [m, n] = transposed ? std::pair{out, in} : std::pair{in, out};
    sum.backward_weight += product({.m = m, .n = n, .k = rows, .transpose_a = true}, true);
  }

  Passes block_products(const std::vector<std::pair<std::size_t, std::size_t>>& matrices, bool transposed) {
    Passes sum = attention();
    for (const auto& [in, out] : matrices) add_products(sum, N, in, out, transposed);
    return sum;
  }

  Passes attention() {
    const AttentionShape shape{shape_.samples, shape_.positions, model_.options.heads,
                               model_.options.hidden / model_.options.heads};
    const auto qkv = values(N * 3 * C, dtype_), d_qkv = values(N * 3 * C, dtype_), out = values(N * C, dtype_);
    const auto logsumexp = values(N * static_cast<std::size_t>(shape.heads), DType::f32);
    const auto scratch =
        device_.allocate(attention_workspace_bytes(shape, dtype_, device_.threads()), runtime::MemorySpace::device);
    const AttentionArrays arrays{.qkv = qkv.data(),
                                 .out = out.data(),
                                 .logsumexp = reinterpret_cast<float*>(logsumexp.data()),
                                 .d_out = out.data(),
                                 .d_qkv = d_qkv.data(),
                                 .workspace = scratch.data()};
    return {.forward = seconds_of_call([&] { attention_forward(*stream_, shape, dtype_, arrays); }),
            .backward_input = seconds_of_call([&] { attention_backward(*stream_, shape, dtype_, arrays); })};
  }

  /// `targets_of_sample`: targets per sample; 0: all positions.
  void time_layer(Layer& layer, const char* name, double times, const Passes& products, int targets_of_sample = 0) {
    const LayerMemory memory = layer.memory(shape_);
    const auto saved = values(memory.saved / 4 + 1, DType::f32),
               deferred = values(memory.deferred / 4 + 1, DType::f32),
               workspace = values(memory.workspace / 4 + 1, DType::f32);
    std::vector<runtime::Buffer> parameters, gradients;
    std::vector<const std::byte*> parameter_data;
    std::vector<std::byte*> gradient_data;
    for (const UnitSpec& unit : layer.units()) {
      parameters.push_back(values(unit.elements(), dtype_, 0.07f));
      gradients.push_back(values(unit.elements(), DType::f32));
      parameter_data.push_back(parameters.back().data());
      gradient_data.push_back(gradients.back().data());
    }
    const auto input = name == std::string("embedding") ? tokens(shape_.positions) : values(N * C, dtype_);
    const auto output = values(N * C, dtype_), output_gradient = values(N * C, dtype_, 1e-3f),
               input_gradient = values(N * C, dtype_),
               targets = tokens(targets_of_sample > 0 ? targets_of_sample : shape_.positions);
    double loss = 0;
    const LayerCall call{.stream = *stream_,
                         .shape = shape_,
                         .parameters = parameter_data,
                         .gradients = gradient_data,
                         .accumulate = true,
                         .saved = saved.data(),
                         .deferred = deferred.data(),
                         .workspace = workspace.data(),
                         .output_gradient = output_gradient.data(),
                         .targets = targets.data(),
                         .loss = &loss,
                         .loss_factor = 1.0 / static_cast<double>(N)};
    const auto report = [&](const char* pass, double seconds_of_products, const std::function<void()>& work) {
      const double seconds = seconds_of_call(work);
      print_case(R"("bench":"layer","model":"{}","dtype":"{}","threads":{},"layer":"{}","pass":"{}","ms":{:.3f},)"
                 R"("products_ms":{:.3f},"share":{:.3f})",
                 model_.name, to_string(dtype_), device_.threads(), name, pass, seconds * 1e3,
                 seconds_of_products * 1e3, seconds_of_products / seconds);
      total_ += seconds * times;
      total_products_ += seconds_of_products * times;
    };
    report("forward", products.forward, [&] { layer.forward(call, input.data(), output.data()); });
    report("backward_input", products.backward_input,
           [&] { layer.backward_input(call, input.data(), output_gradient.data(), input_gradient.data()); });
    report("backward_weight", products.backward_weight, [&] { layer.backward_weight(call, input.data()); });
  }

  runtime::Device& device_;
  Model model_;
  DType dtype_;
  std::unique_ptr<runtime::Stream> stream_;
  MicrobatchShape shape_;
  std::size_t N, C, V, P;
  double total_ = 0, total_products_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  GptOptions tiny{.layers = 6, .hidden = 384, .heads = 6, .vocab_size = 256, .sequence_length = 256};
  GptOptions small = std::get<GptOptions>(*named_model("gpt2-small"));
  small.sequence_length = 256;
  for (const Model& model : {Model{"6x384", tiny, 16}, Model{"gpt2-small", small, 4}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto device = runtime::make_cpu_device({.threads = threads});
      Bench bench(*device, model, dtype);
      bench.time_layers();
      bench.time_llama_block();
      bench.time_bert_heads();
    }
  }
}
