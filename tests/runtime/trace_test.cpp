#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "runtime/trace/trace.hpp"
#include "tests/doubles/virtual_time.hpp"
#include "tests/test.hpp"

#include <chrono>
#include <thread>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace std::chrono_literals;

namespace {

using Lane = Trace::Lane;

struct Recording {
  tests::SetClock clock;
  Trace trace{0, clock};
};

}  // namespace

TEST_CASE_FIXTURE(Recording, "a trace records spans and sums the seconds of each kind") {
  trace.add(SpanKind::forward, Lane::compute, 10us, 30us, 4);
  trace.add(SpanKind::forward, Lane::compute, 30us, 60us, 5);
  trace.add(SpanKind::send, Lane::communicate, 30us, 31us);
  CHECK(trace.seconds(SpanKind::forward) == doctest::Approx(50e-6));
  CHECK(trace.seconds(SpanKind::send) == doctest::Approx(1e-6));
  CHECK(trace.seconds(SpanKind::wait) == 0);
  const auto spans = trace.spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].index == 4);
  CHECK(spans[1].begin_ns == spans[0].end_ns);
  CHECK(spans[2].index == -1);
  trace.restart();
  CHECK(trace.seconds(SpanKind::forward) == 0);
  CHECK(trace.spans().empty());
}

TEST_CASE_FIXTURE(Recording, "files that are waited for are those under way while nothing is computed") {
  const auto alone = [&] { return std::lround(trace.seconds_of_files_alone() * 1e6); };
  trace.add(SpanKind::backward, Lane::compute, 10us, 30us);
  trace.add(SpanKind::gather, Lane::communicate, 30us, 45us);  // not computing
  trace.add(SpanKind::optimizer, Lane::compute, 40us, 45us);
  trace.add(SpanKind::load, Lane::files, 20us, 50us);
  CHECK(alone() == 15);                                // from 30 to 40 and from 45 to 50
  trace.add(SpanKind::load, Lane::files, 25us, 48us);  // already counted
  trace.add(SpanKind::load, Lane::files, 48us, 60us);  // counted up to 50
  CHECK(alone() == 25);
  const auto device = make_inline_device();
  const auto stream = device->make_stream("compute", StreamWidth::whole);
  clock.time = 70us;
  trace.begin(*stream, SpanKind::forward);  // not ended yet
  clock.time = 100us;
  trace.add(SpanKind::load, Lane::files, 65us, 100us);
  CHECK(alone() == 30);
  trace.end(*stream, SpanKind::forward, Lane::compute);
  trace.add(SpanKind::load, Lane::files, 90us, 120us);
  CHECK(alone() == 50);
  trace.restart();
  CHECK(alone() == 0);
}

TEST_CASE_FIXTURE(Recording, "overlapping time of spans of one kind counts once") {
  trace.add(SpanKind::reduce, Lane::communicate, 10us, 30us);
  trace.add(SpanKind::reduce, Lane::communicate, 20us, 40us);
  trace.add(SpanKind::reduce, Lane::communicate, 25us, 35us);
  CHECK(trace.seconds(SpanKind::reduce) == doctest::Approx(30e-6));
}

TEST_CASE("a full trace drops the oldest span first, and its totals keep everything") {
  const tests::SetClock clock;
  Trace trace(0, clock, 3);
  for (int i = 0; i < 8; ++i) trace.add(SpanKind::other, Lane::loop, i * 1us, (i + 1) * 1us, i);
  const auto spans = trace.spans();
  REQUIRE(spans.size() == 3);
  for (int i = 0; i < 3; ++i) CHECK(spans[static_cast<std::size_t>(i)].index == 5 + i);
  CHECK(trace.seconds(SpanKind::other) == doctest::Approx(8e-6));
  CHECK(tests::count_of(trace.tail(2), "\n") == 2);
  CHECK(trace.tail(2).find("other 5") == std::string::npos);
  CHECK(trace.tail(2).find("other 6") < trace.tail(2).find("other 7"));
  CHECK(tests::count_of(trace.tail(100), "\n") == 3);
}

TEST_CASE("a stream's spans last as long as its work, also when two streams have the same kind open") {
  const auto device = make_cpu_device({});
  const auto slow = device->make_stream("slow", StreamWidth::one);
  const auto quick = device->make_stream("quick", StreamWidth::one);
  const SteadyClock real_time;
  Trace trace(0, real_time);
  trace.begin(*slow, SpanKind::reduce, 1);
  trace.begin(*quick, SpanKind::reduce, 1);
  slow->launch([](ComputePool&) { std::this_thread::sleep_for(20ms); });
  trace.end(*quick, SpanKind::reduce, Lane::communicate, 1);
  trace.end(*slow, SpanKind::reduce, Lane::compute, 1);
  quick->synchronize();
  slow->synchronize();
  const auto spans = trace.spans();
  REQUIRE(spans.size() == 2);
  for (const auto& span : spans) {
    CHECK(span.index == 1);
    if (span.lane == Lane::compute) CHECK(span.end_ns - span.begin_ns >= 20'000'000);
  }
  const auto& of_quick = spans[spans[0].lane == Lane::communicate ? 0 : 1];
  const auto& of_slow = spans[spans[0].lane == Lane::compute ? 0 : 1];
  CHECK(of_quick.lane == Lane::communicate);
  CHECK(of_slow.lane == Lane::compute);
}

TEST_CASE_FIXTURE(Recording, "spans of one stream may nest") {
  const auto device = make_inline_device();
  const auto stream = device->make_stream("compute", StreamWidth::one);
  trace.begin(*stream, SpanKind::backward, 0);
  clock.time = 1ns;
  trace.begin(*stream, SpanKind::forward, 0);
  clock.time = 3ns;
  trace.end(*stream, SpanKind::forward, Lane::compute, 0);
  clock.time = 6ns;
  trace.end(*stream, SpanKind::backward, Lane::compute, 0);
  const auto spans = trace.spans();
  REQUIRE(spans.size() == 2);
  CHECK(std::pair(spans[0].begin_ns, spans[0].end_ns) == std::pair<std::int64_t, std::int64_t>(1, 3));
  CHECK(std::pair(spans[1].begin_ns, spans[1].end_ns) == std::pair<std::int64_t, std::int64_t>(0, 6));
}

TEST_CASE_FIXTURE(Recording, "an end without a begin is refused") {
  const auto device = make_inline_device();
  const auto stream = device->make_stream("compute", StreamWidth::one);
  CHECK_THROWS_AS(trace.end(*stream, SpanKind::forward, Lane::compute), Error);
  trace.begin(*stream, SpanKind::forward, 3);
  CHECK_THROWS_AS(trace.end(*stream, SpanKind::forward, Lane::compute, 4), Error);
  trace.end(*stream, SpanKind::forward, Lane::compute, 3);
}

TEST_CASE("Chrome events name process, lanes and spans, with times in microseconds since the trace was made") {
  tests::SetClock clock;
  clock.time = 3ms;
  Trace trace(7, clock);
  trace.add(SpanKind::forward, Lane::compute, 4000us, 4500us, 2);
  const std::string events = trace.chrome_events();
  CHECK(tests::count_of(events, R"("name":"process_name","pid":7,"args":{"name":"rank 7"})") == 1);
  CHECK(tests::count_of(events, R"("name":"thread_name","pid":7,"tid":0,"args":{"name":"compute"})") == 1);
  CHECK(tests::count_of(
            events, R"("ph":"X","name":"forward 2","cat":"forward","pid":7,"tid":0,"ts":1000.000,"dur":500.000)") ==
        1);
  CHECK(events.front() == '{');
  CHECK(events.back() == '}');
}

TEST_CASE_FIXTURE(Recording, "Chrome events can be limited to the newest spans") {
  for (int i = 0; i < 5; ++i) trace.add(SpanKind::forward, Lane::compute, i * 10us, i * 10us + 5us, i);
  const std::string events = trace.chrome_events(2);
  CHECK(tests::count_of(events, R"("ph":"X")") == 2);
  for (const char* name : {"forward 3", "forward 4"}) CHECK(tests::count_of(events, name) == 1);
}

TEST_CASE_FIXTURE(Recording,
                  "spans distinguish training, validation and sampling, and the steps that they belong to") {
  const auto pass = [&](SpanKind activity, std::int64_t step, std::chrono::microseconds begin) {
    trace.set_activity(activity, step);
    trace.add(SpanKind::forward, Lane::compute, begin, begin + 5us, 0);
    trace.add(activity, Lane::steps, begin, begin + 6us, static_cast<int>(step));
  };
  pass(SpanKind::step, 12, 0us);
  pass(SpanKind::validation, 12, 10us);
  pass(SpanKind::sampling, 12, 20us);
  pass(SpanKind::step, 13, 30us);
  const std::string events = trace.chrome_events();
  for (const auto* name :
       {"validation forward 0", "sampling forward 0", "step 12", "validation 12", "sampling 12", "step 13"}) {
    CAPTURE(name);
    CHECK(tests::count_of(events, std::string(R"("name":")") + name + '"') == 1);
  }
  CHECK(tests::count_of(events, R"("name":"forward 0")") == 2);
  CHECK(tests::count_of(events, R"("args":{"step":12})") == 6);
  CHECK(tests::count_of(events, R"("args":{"step":13})") == 2);
  CHECK(trace.tail(8).find("step 12  compute      validation forward 0") != std::string::npos);
  CHECK(trace.seconds(SpanKind::forward) == doctest::Approx(20e-6));
}

TEST_CASE_FIXTURE(Recording, "overlapping spans of a lane are drawn in separate rows") {
  trace.add(SpanKind::send, Lane::communicate, 0us, 10us, 0);
  trace.add(SpanKind::receive, Lane::communicate, 5us, 12us, 0);
  trace.add(SpanKind::send, Lane::communicate, 10us, 20us, 1);
  const std::string events = trace.chrome_events();
  CHECK(tests::count_of(events, "thread_name") == 2);
  CHECK(tests::count_of(events, R"("communicate 2")") == 1);
  CHECK(tests::count_of(events, R"("ph":"X")") == 3);
  const auto tid_of = [&](const std::string& name) {
    const auto at = events.find("\"tid\":", events.find("\"ph\":\"X\",\"name\":\"" + name)) + 6;
    return events.substr(at, events.find(',', at) - at);
  };
  CHECK(tid_of("send 0") == tid_of("send 1"));
  CHECK(tid_of("send 0") != tid_of("receive 0"));
}

TEST_CASE("several threads may record into a trace at once") {
  const tests::SetClock clock;
  Trace trace(0, clock, 100);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) trace.add(SpanKind::load, Lane::files, 0us, 1us, i);
    });
  for (auto& thread : threads) thread.join();
  CHECK(trace.spans().size() == 100);
  CHECK(trace.seconds(SpanKind::load) == doctest::Approx(1e-6));  // all of them cover the same microsecond
}
