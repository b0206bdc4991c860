// A stage actor, tested separately: its neighbors, layers and resources are simulated: early, late, or few.
#include "actors/pipeline/stage_actor.hpp"

#include "actors/base/rank_context.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/delayed_device.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

#include <fmt/ranges.h>

using namespace ranvier;
using namespace ranvier::tests;
using actors::PassResource;
using actors::Policy;
using models::Stage;
using std::chrono::microseconds;

namespace {

constexpr int layers = 4, positions = 3, microbatch_size = 2;

/// Record of layer calls as they run on the stream.
using Log = std::function<void(const std::string& layer, const std::string& what, std::int64_t first_sample)>;

/// A layer that computes nothing.
class Noted final : public models::Layer {
 public:
  Noted(std::string name, bool last, const Log& log) : Layer(std::move(name)), last_(last), log_(&log) {}

  models::LayerPhases parts() const override { return {{{}, {}}, {{}}, {{}, {}, {}}}; }
  double flops_per_sample(int) const override { return 1; }
  std::size_t output_elements(int of_positions) const override { return last_ ? 0 : std::size_t(of_positions); }
  models::LayerMemory memory(models::MicrobatchShape) const override { return {}; }

  void forward(const models::LayerCall& call, const std::byte*, std::byte*) override {
    note(call, "forward");
    if (call.loss == nullptr) return;
    call.stream.launch([loss = call.loss, first = call.key.first_sample](runtime::ComputePool&) {
      *loss = static_cast<double>(1 + first);
    });
  }
  void backward_input(const models::LayerCall& call, const std::byte*, const std::byte*, std::byte*) override {
    note(call, "input");
  }
  void backward_weight(const models::LayerCall& call, const std::byte*) override { note(call, "weight"); }

 private:
  void note(const models::LayerCall& call, const char* what) const {
    call.stream.launch(
        [this, what, first = call.key.first_sample](runtime::ComputePool&) { (*log_)(name(), what, first); });
  }

  bool last_;
  const Log* log_;
};

/// A resource of some steps that checks its calls. Uses become ready late, and the number of queued unfinished ones is
/// limited.
class Scarce final : public PassResource {
 public:
  Scarce(runtime::EventLoop& loop, std::uint64_t seed, std::function<bool(const Stage::PassStep&)> uses,
         std::size_t places, bool listens)
      : loop_(&loop), random_(seed), uses_(std::move(uses)), places_(places), listens_(listens) {}

  bool uses(const Stage::PassStep& step) const override { return uses_(step); }
  std::uint64_t announce(const Announced& pass) override {
    const std::uint64_t first = announced_;
    announced_ += static_cast<std::uint64_t>(std::count_if(pass.steps.begin(), pass.steps.end(), uses_));
    const bool weights = std::none_of(pass.steps.begin(), pass.steps.end(),
                                      [](const Stage::PassStep& step) { return step.needs_parameters(); });
    passes.emplace_back(weights ? 'W' : pass.backward ? 'B' : 'F', pass.microbatch);
    return first;
  }
  bool ready(std::uint64_t use) const override {
    CHECK(use == queued_);
    CHECK(use < announced_);
    return brought_ > use && (!listens_ || queued_ - done_ < places_);
  }
  void when_ready(std::uint64_t use, runtime::Handler handler) override {
    CHECK_FALSE(waiting_);
    CHECK_FALSE(ready(use));
    waiting_ = std::move(handler);
    loop_->after(microseconds(random_() % 300), [this, use] {
      brought_ = std::max(brought_, use + 1 + random_() % 4);
      check();
    });
  }
  void provide(std::uint64_t use, models::StepArrays& arrays) override {
    CHECK(ready(use));
    CHECK(provided_ == queued_);
    ++provided_;
    arrays.accumulate = true;
  }
  bool queued(std::uint64_t use) override {
    CHECK(use == queued_);
    CHECK(provided_ == ++queued_);
    return listens_;
  }
  void done(std::uint64_t use) override {
    CHECK(listens_);
    CHECK(use == done_);
    CHECK(++done_ <= queued_);
    check();
  }

  [[nodiscard]] bool over() const {
    return announced_ > 0 && queued_ == announced_ && (!listens_ || done_ == announced_) && !waiting_;
  }

  std::vector<std::pair<char, int>> passes;  // in the order of the announcements

 private:
  void check() {
    if (waiting_ && ready(queued_)) loop_->post(std::exchange(waiting_, nullptr));
  }

  runtime::EventLoop* loop_;
  std::mt19937_64 random_;
  std::function<bool(const Stage::PassStep&)> uses_;
  std::size_t places_;
  bool listens_;
  std::uint64_t announced_ = 0, brought_ = 0, provided_ = 0, queued_ = 0, done_ = 0;
  runtime::Handler waiting_;
};

/// A stage of a model of such layers, on one rank of a simulation without other actors.
class Alone {
 public:
  [[nodiscard]] runtime::EventLoop& loop(int rank) { return simulation_.loop(rank); }
  [[nodiscard]] const Stage& stage() const { return share_.stage->slice(0); }
  void run() { simulation_.run(); }

  std::optional<actors::StageActor> actor;
  std::vector<std::string> calls;

 protected:
  Alone(std::uint64_t seed, int ranks, int rank, int layers_of_model, models::StageOptions options)
      : simulation_(ranks, {.seed = seed}), device_(loop(rank), seed) {
    for (int l = 0; l < layers_of_model; ++l)
      architecture_.layers.push_back(
          std::make_unique<Noted>(fmt::format("l{}", l), l + 1 == layers_of_model, log_));
    architecture_.positions = positions;
    options.capacity = {microbatch_size, positions};
    runtime::MemoryPlan memory;
    share_.stage = std::make_unique<models::StageSlices>(architecture_, std::vector{std::move(options)}, memory);
    resources_.emplace(loop(rank), simulation_.transport(rank), device_, memory);
    share_.stage->bind(resources_->context().arena);
    places_.emplace(device_, actors::Loader::Plan{});
    loader_.emplace(resources_->context(), *places_, source_);
  }
  void start(actors::StageActor::Plan plan, actors::StageActor::Resources resources) {
    plan.microbatch_size = microbatch_size;
    actor.emplace(resources_->context(), share_, std::move(plan), *loader_,
                  std::vector<actors::StageActor::Resources>{std::move(resources)});
  }

  runtime::Simulation simulation_;
  DelayedDevice device_;
  // During a call, the actor's details name the call.
  Log log_ = [this](const std::string& layer, const std::string& what, std::int64_t first_sample) {
    const std::string where = what == "weight"  ? "in the weight gradients of layer "
                              : what == "input" ? "in the input gradient of layer "
                                                : "in layer ";
    const std::string details = actor->details();
    check_has(details, {"layer " + layer});
    if (!stage().first()) CHECK(details.starts_with(where + layer));
    calls.push_back(fmt::format("{} {} m{}", what, layer, first_sample / microbatch_size));
  };
  models::Architecture architecture_;
  actors::ModelShare share_;
  RandomTokens source_{positions, 7};
  std::optional<actors::Loader::Places> places_;
  std::optional<actors::Loader> loader_;
  std::optional<actors::RankResources> resources_;
};

/// The middle one of three stages, on rank 1; its neighbors do what the test requests.
class Middle : public Alone {
 public:
  Middle(std::uint64_t seed, Policy policy, int slots, int recompute, int deferred_slots = 0)
      : Alone(
            seed, 3, 1, layers + 2,
            {.layers = {1, 1 + layers}, .slots = slots, .recompute = recompute, .deferred_slots = deferred_slots}),
        random_(seed) {
    const auto weights = [](const Stage::PassStep& step) { return !step.needs_parameters(); };
    const auto parameters = [](const Stage::PassStep& step) { return step.needs_parameters(); };
    const auto some = [](const Stage::PassStep& step) {
      return step.layer == 2 && step.kind == Stage::PassStep::Kind::forward;
    };
    resources.push_back(std::make_unique<Scarce>(loop(1), seed + 1, some, 1, true));
    resources.push_back(std::make_unique<Scarce>(loop(1), seed + 2, parameters, 100, seed % 2 == 0));
    resources.push_back(std::make_unique<Scarce>(loop(1), seed + 3, weights, 1 + seed % 3, true));
    std::vector<PassResource*> list;
    for (const auto& resource : resources) list.push_back(resource.get());
    start({.stage = 1, .map = {.stages = 3}, .slices = {{.slice = 1, .left = 0, .right = 2}}, .policy = policy},
          std::move(list));
  }

  /// Both neighbors exchange the messages of a microbatch with the stage, at any time.
  void exchange(int m, int samples) {
    loop(0).after(later(), [this, m, samples] { left_sends(m, samples); });
    takes(0, runtime::Channel::gradient, m, samples, [] {});
    takes(2, runtime::Channel::activation, m, samples,
          [this, m, samples] { loop(2).after(later(), [this, m, samples] { right_sends(m, samples); }); });
  }
  /// Runs a batch to its end.
  void train(int samples) {
    bool done = false;
    loop(1).post([&] {
      actor->run({.samples = samples}, [&](double) {
        done = true;
        CHECK(actor->waits().empty());
        stop();
      });
    });
    run();
    CHECK(done);
  }
  /// A neighbor's message to the stage under test, and its reply in return.
  void left_sends(int m, int samples) { send(0, runtime::Channel::activation, m, samples); }
  void right_sends(int m, int samples) { send(2, runtime::Channel::gradient, m, samples); }
  void takes(int rank, runtime::Channel channel, int m, int samples, runtime::Handler done) {
    auto& bytes = buffers_.emplace_back(std::make_unique<std::vector<std::byte>>(bytes_of(samples)));
    simulation_.transport(rank).receive(1, {channel, static_cast<std::uint32_t>(m)}, runtime::Bytes(*bytes),
                                        std::move(done));
  }
  [[nodiscard]] runtime::Duration later() { return microseconds(random_() % 3000); }
  [[nodiscard]] std::mt19937_64& random() { return random_; }
  void stop() {
    for (int rank = 0; rank < 3; ++rank) simulation_.loop(rank).stop();
  }
  /// Whether all messages of the stage have been sent.
  [[nodiscard]] bool taken() {
    const auto pending = simulation_.transport(1).pending();
    return std::all_of(pending.begin(), pending.end(), [](const auto& operation) { return operation.receives; });
  }

  std::vector<std::unique_ptr<Scarce>> resources;

 private:
  static std::size_t bytes_of(int samples) { return std::size_t(samples) * positions * sizeof(float); }
  void send(int from, runtime::Channel channel, int m, int samples) {
    const auto& bytes = buffers_.emplace_back(std::make_unique<std::vector<std::byte>>(bytes_of(samples)));
    simulation_.transport(from).send(1, {channel, static_cast<std::uint32_t>(m)}, runtime::ConstBytes(*bytes),
                                     [] {});
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> buffers_;
};

/// The only stage of a model. It needs only samples, which come at any time.
class Single : public Alone {
 public:
  Single(std::uint64_t seed, Policy policy, int slots, int recompute)
      : Alone(seed, 1, 0, layers,
              {.layers = {0, layers},
               .slots = slots,
               .recompute = recompute,
               .sample = RandomTokens(positions, 7).sample_bytes()}) {
    start({.map = {}, .slices = {{}}, .policy = policy}, {&begins_});
  }

  double run(int microbatches, bool training) {
    double loss = 0;
    loop(0).post([&] {
      actor->run({.samples = microbatches * microbatch_size, .training = training}, [&](double of_batch) {
        loss = of_batch;
        loop(0).stop();
      });
    });
    Alone::run();
    return loss;
  }

  std::vector<std::pair<char, int>> passes;  // in the order of the announcements
  std::vector<std::size_t> calls_before;     // number of calls that were done when each pass was announced

 private:
  /// Records passes, and delays none.
  class Begins final : public PassResource {
   public:
    explicit Begins(Single& single) : single_(&single) {}
    bool uses(const Stage::PassStep&) const override { return false; }
    std::uint64_t announce(const Announced& pass) override {
      single_->passes.emplace_back(pass.backward ? 'B' : 'F', pass.microbatch);
      single_->calls_before.push_back(single_->calls.size());
      return 0;
    }
    bool ready(std::uint64_t) const override { return true; }
    void when_ready(std::uint64_t, runtime::Handler) override {}
    void provide(std::uint64_t, models::StepArrays&) override {}
    bool queued(std::uint64_t) override { return false; }
    void done(std::uint64_t) override {}

   private:
    Single* single_;
  };

  Begins begins_{*this};
};

/// Calls of all passes in that order, computed from the stage's layout.
std::vector<std::string> calls_of(const Stage& stage, const std::vector<std::pair<char, int>>& passes,
                                  std::size_t first_layer = 1) {
  std::vector<std::string> calls;
  models::OrderedPass pass;
  for (const auto& [direction, m] : passes) {
    const int slot = m % stage.slots();
    pass = direction == 'F' ? forward_pass(stage, slot) : backward_pass(stage, slot, pass.area);
    for (const Stage::PassStep& step : pass.steps) {
      const char* what = step.kind == Stage::PassStep::Kind::forward          ? "forward"
                         : step.kind == Stage::PassStep::Kind::backward_input ? "input"
                                                                              : "weight";
      calls.push_back(fmt::format("{} l{} m{}", what, first_layer + step.layer, m));
    }
  }
  return calls;
}

/// GPipe's order of five microbatches with one, two and three slots.
constexpr std::array gpipe{"F0B0F1B1F2B2F3B3F4B4", "F0F1B0B1F2F3B2B3F4B4", "F0F1F2B0B1B2F3F4B3B4"};

std::string text_of(const std::vector<std::pair<char, int>>& passes) {
  std::string text;
  for (const auto& [direction, m] : passes) text += fmt::format("{}{}", direction, m);
  return text;
}

}  // namespace

TEST_CASE("a stage runs every pass once, in an order of its schedule, with early, late and missing resources") {
  for (const std::uint64_t seed : test::seeds(120)) {
    CAPTURE(seed);
    const Policy policy = std::array{Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}[seed % 3];
    const int slots = 1 + static_cast<int>(seed / 3 % 3), recompute = static_cast<int>(seed / 9 % 3);
    const int microbatches = 5, samples = 9;  // the last microbatch is shorter
    Middle job(seed, policy, slots, recompute);
    std::vector<int> order(microbatches);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), job.random());
    for (const int m : order) job.exchange(m, m + 1 < microbatches ? microbatch_size : samples % microbatch_size);
    job.train(samples);
    const auto& passes = job.resources.front()->passes;
    CAPTURE(text_of(passes));
    for (const auto& resource : job.resources) {
      CHECK(resource->over());
      CHECK(resource->passes == passes);
    }
    CHECK(fmt::format("{}", fmt::join(job.calls, "; ")) ==
          fmt::format("{}", fmt::join(calls_of(job.stage(), passes), "; ")));
    int forwards = 0, backwards = 0;
    for (const auto& [direction, m] : passes) {
      CHECK(m == (direction == 'F' ? forwards++ : backwards++));
      CHECK(backwards <= forwards);
      CHECK(forwards - backwards <= slots);
    }
    CHECK(forwards == microbatches);
    CHECK(backwards == microbatches);
    if (policy == Policy::message_driven) continue;
    const std::array one_f_one_b{"F0B0F1B1F2B2F3B3F4B4", "F0F1B0F2B1F3B2F4B3B4", "F0F1B0F2B1F3B2F4B3B4"};
    CHECK(text_of(passes) == (policy == Policy::gpipe ? gpipe : one_f_one_b)[std::size_t(slots - 1)]);
  }
}

TEST_CASE("a single stage queues the next pass after the running one, and none after that") {
  constexpr int microbatches = 5;
  constexpr double losses = microbatches + microbatch_size * microbatches * (microbatches - 1) / 2;
  int ahead = 0;
  for (const std::uint64_t seed : test::seeds(60)) {
    CAPTURE(seed);
    const bool training = seed % 4 != 3;
    const Policy policy = seed % 4 == 0 ? Policy::gpipe : Policy::message_driven;
    const int slots = 1 + static_cast<int>(seed / 4 % 3), recompute = static_cast<int>(seed / 12 % 3);
    Single job(seed, policy, slots, recompute);
    CHECK(job.run(microbatches, training) == losses);
    CAPTURE(text_of(job.passes));
    CHECK(text_of(job.passes) == (!training                 ? "F0F1F2F3F4"
                                  : policy == Policy::gpipe ? gpipe[std::size_t(slots - 1)]
                                                            : gpipe[0]));
    CHECK(job.calls == calls_of(job.stage(), job.passes, 0));
    if (policy == Policy::gpipe || !training) continue;  // passes are announced before they start
    for (std::size_t p = 1; p < job.passes.size(); ++p) {
      const auto calls_of_first = [&](std::size_t count) {
        return calls_of(job.stage(), {job.passes.begin(), job.passes.begin() + std::ptrdiff_t(count)}, 0).size();
      };
      CHECK(job.calls_before[p] >= calls_of_first(p - 1));
      if (job.calls_before[p] < calls_of_first(p)) ++ahead;
    }
  }
  CHECK(ahead > 0);
}

TEST_CASE("deferred weight gradients run once, in order and within their limits, after their input gradients") {
  for (const std::uint64_t seed : test::seeds(160, 1000)) {
    CAPTURE(seed);
    const Policy policy = seed % 2 == 0 ? Policy::zero_bubble : Policy::zb_h1;
    const int slots = 1 + static_cast<int>(seed / 2 % 4), recompute = static_cast<int>(seed / 8 % 3);
    const int wanted_places = 1 + static_cast<int>(seed / 24 % 3);
    const int microbatches = 6;
    Middle job(seed, policy, slots, recompute, wanted_places);
    const int places = job.stage().deferred_slots();
    CHECK(places == std::min(wanted_places, slots));
    for (int m = 0; m < microbatches; ++m) job.exchange(m, microbatch_size);
    job.train(microbatches * microbatch_size);
    for (const auto& resource : job.resources) CHECK(resource->over());
    const auto weights = weights_pass(job.stage());
    std::vector<std::string> expected;
    for (int m = 0; m < microbatches; ++m)
      for (const Stage::PassStep& step : weights)
        expected.push_back(fmt::format("weight l{} m{}", 1 + step.layer, m));
    std::vector<std::string> found;
    std::string order;  // order of passes
    std::array<std::vector<int>, 3> calls;
    for (auto& of_kind : calls) of_kind.resize(microbatches);
    const auto through = [&] {  // microbatches whose weight gradients are done
      return std::count(calls[2].begin(), calls[2].end(), static_cast<int>(weights.size()));
    };
    const auto begun = [&](std::size_t kind) {
      return microbatches - std::count(calls[kind].begin(), calls[kind].end(), 0);
    };
    for (const std::string& call : job.calls) {
      const auto m = static_cast<std::size_t>(call.back() - '0');
      const std::size_t kind = call.starts_with("input") ? 1 : call.starts_with("weight") ? 2 : 0;
      ++calls[kind][m];
      if (kind == 2) found.push_back(call);
      if (kind == 2) CHECK(calls[1][m] == layers);
      CHECK(begun(0) - through() <= slots);
      CHECK(begun(1) - through() <= places);
      const bool again = kind == 0 && calls[1][m] + calls[0][m] > 2 * layers;  // two phases each
      const std::string pass = fmt::format("{}{}", again || kind == 1 ? 'B' : kind == 0 ? 'F' : 'W', m);
      if (!order.ends_with(pass)) order += pass;
    }
    CHECK(fmt::format("{}", fmt::join(found, "; ")) == fmt::format("{}", fmt::join(expected, "; ")));
    CHECK(through() == microbatches);
    for (const int forwards : calls[0])
      CHECK((recompute == 0 ? forwards == 2 * layers : forwards >= 2 * layers && forwards <= 4 * layers));
    if (policy == Policy::zb_h1 && slots == 3 && places >= 2)
      CHECK(order == "F0F1B0F2B1W0F3B2W1F4B3W2F5B4W3B5W4W5");
  }
}

TEST_CASE("an idle stage names the neighbor and the message that its schedule waits for, and since when") {
  bool was_taken[2] = {false, false};
  for (const std::uint64_t seed : test::seeds(12)) {
    CAPTURE(seed);
    const Policy policy = std::array{Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}[seed % 3];
    Middle job(seed, policy, 2, 0);
    CHECK(job.actor->peers() == std::vector<int>{0, 2});
    const auto waits = [&] {
      std::vector<std::string> all;
      for (const actors::Wait& wait : job.actor->waits()) {
        CHECK(wait.since <= job.loop(1).now());
        all.push_back(fmt::format("{} from {}", wait.what, wait.rank.value_or(-1)));
      }
      return fmt::format("{}", fmt::join(all, "; "));
    };
    // Only a message-driven schedule continues in another order.
    const std::string one_forward =
        fmt::format("the activation of microbatch 1 from 0{}",
                    policy == Policy::message_driven ? "; the gradient of microbatch 0 from 2" : "");
    job.loop(1).post([&] { job.actor->run({.samples = 3 * microbatch_size}, [](double) {}); });
    const auto at = [&](int seconds, runtime::Handler handler) {
      job.loop(1).after(std::chrono::seconds(seconds), std::move(handler));
    };
    runtime::Duration idle_since{};
    at(1, [&] {
      CHECK(waits() == "the activation of microbatch 0 from 0");
      idle_since = job.actor->waits().front().since;
      CHECK(idle_since < std::chrono::milliseconds(1));
      job.left_sends(0, microbatch_size);
    });
    // The forward pass is over. The right neighbor has not received the activation, which may have been sent already.
    at(2, [&] {
      CHECK(job.calls.size() == 2 * layers);
      const bool taken = job.taken();
      was_taken[taken] = true;
      const std::string not_taken =
          "the activation of microbatch 0 to be taken from 2; the activation of microbatch 1 from 0";
      CHECK(waits() == (taken ? one_forward : not_taken));
      CHECK(job.actor->waits().back().since > idle_since);
      job.takes(2, runtime::Channel::activation, 0, microbatch_size, [] {});
    });
    at(3, [&] {
      CHECK(waits() == one_forward);
      job.left_sends(1, microbatch_size);
      job.takes(2, runtime::Channel::activation, 1, microbatch_size, [] {});
    });
    // Both slots are in flight: only a gradient frees one.
    at(4, [&] {
      CHECK(waits() == "the gradient of microbatch 0 from 2");
      job.stop();
    });
    job.run();
  }
  if (test::seeds(12).size() == 12) {
    CHECK(was_taken[0]);
    CHECK(was_taken[1]);
  }
}
