// SPDX-License-Identifier: Apache-2.0
// Any request at the API: routes, keys, bodies, the prompt that is made of them, and the answer
// that is written from what an engine says. Behind the API stands a port that the test plays.
//
// An input reads like the request it is: "METHOD PATH", headers a line each, an empty line, the
// body. The header `fuzz-keys` is the key file, with '|' for line ends; `fuzz-plan` seeds what the
// engine does; with `fuzz-far` the client is on another machine.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/prng.h"
#include "fuzz/fuzz.h"
#include "fuzz/json_mutator.h"
#include "server/anthropic/parse.h"
#include "server/api.h"
#include "server/byte_tokenizer_for_tests.h"
#include "server/json_text.h"
#include "server/openai/parse.h"
#include "server/routes.h"
#include "telemetry/metrics.h"
#include "text/chat_template.h"

namespace pagewise::server {
namespace {

constexpr uint32_t kContextMax = 2000;
constexpr uint32_t kChoicesMax = 4;

constexpr std::string_view kTemplate =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}[assistant]{% "
    "endif %}";

HttpRequest parse_input(std::string_view bytes) {
  HttpRequest request;
  const auto line = [&] {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view out = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    return out;
  };
  const std::string_view first = line();
  const std::size_t space = std::min(first.find(' '), first.size());
  // What the HTTP parser lets through: methods are words, paths have no control characters.
  for (const char c : first.substr(0, space)) {
    if (c >= 'A' && c <= 'Z') request.method += c;
  }
  for (const char c : first.substr(std::min(space + 1, first.size()))) {
    if (static_cast<unsigned char>(c) > 0x20 && c != 0x7f) request.path += c;
  }
  for (std::string_view header = line(); !header.empty(); header = line()) {
    const std::size_t colon = std::min(header.find(':'), header.size());
    std::string_view value = header.substr(std::min(colon + 1, header.size()));
    if (value.starts_with(' ')) value.remove_prefix(1);
    request.headers.push_back({std::string(header.substr(0, colon)), std::string(value)});
  }
  request.body = std::string(bytes);
  request.peer_is_loopback = request.header("fuzz-far") == nullptr;
  return request;
}

void check_prompt(const engine::Request& request) {
  FUZZ_CHECK(!request.prompt.empty() && request.prompt.size() < kContextMax, "{} prompt tokens",
             request.prompt.size());
  for (const TokenId token : request.prompt) {
    FUZZ_CHECK(
        token.value >= 0 && static_cast<uint32_t>(token.value) < byte_tokenizer().vocab_size(),
        "prompt token {}", token.value);
  }
  FUZZ_CHECK(request.choices >= 1 && request.choices <= kChoicesMax, "{} choices", request.choices);
  FUZZ_CHECK(request.sampling.temperature >= 0 && request.sampling.temperature <= 2,
             "temperature {}", request.sampling.temperature);
  FUZZ_CHECK(request.sampling.top_p >= 0 && request.sampling.top_p <= 1 &&
                 request.sampling.min_p >= 0 && request.sampling.min_p <= 1,
             "top_p {}, min_p {}", request.sampling.top_p, request.sampling.min_p);
  FUZZ_CHECK(request.sampling.logprobs <= 20, "{} logprobs", request.sampling.logprobs);
  FUZZ_CHECK(request.sampling.repetition_penalty > 0, "repetition penalty {}",
             request.sampling.repetition_penalty);
  for (const sampling::TokenBias& bias : request.sampling.logit_bias) {
    FUZZ_CHECK(static_cast<uint32_t>(bias.token.value) < byte_tokenizer().vocab_size() &&
                   bias.bias >= -100 && bias.bias <= 100,
               "bias {} of token {}", bias.bias, bias.token.value);
  }
  FUZZ_CHECK(request.text_before.size() < 4, "{} bytes before the answer",
             request.text_before.size());
  for (const std::string& stop : request.stops) FUZZ_CHECK(!stop.empty(), "an empty stop string");
  uint32_t before = 0;
  for (const engine::CachePosition& position : request.cache.positions) {
    FUZZ_CHECK(position.tokens >= before && position.tokens <= request.prompt.size(),
               "position {} behind {} of {}", position.tokens, before, request.prompt.size());
    before = position.tokens;
  }
  FUZZ_CHECK(request.cache.markers.size() <= 4, "{} markers", request.cache.markers.size());
}

constexpr std::string_view kDeviceGone = "the device is gone";

/// Errors in the shape of the API that was spoken; headers that cannot end a header early. 500 only
/// when the engine failed.
void check_whole(const HttpResponse& response, Surface surface) {
  const bool failed =
      response.status == 500 && response.body.find(kDeviceGone) != std::string::npos;
  FUZZ_CHECK(failed || (response.status >= 200 && response.status != 500), "status {}: {}",
             response.status, response.body);
  for (const HttpHeader& header : response.headers) {
    FUZZ_CHECK(fuzz::is_one_line(header.name + ":" + header.value), "header {}", header.name);
  }
  if (!response.content_type.starts_with("application/json")) {
    FUZZ_CHECK(response.status == 200, "status {} with {}", response.status, response.content_type);
    return;
  }
  const auto body = parse_json(response.body, 200);
  FUZZ_CHECK(body.has_value() && body->is_object(), "no JSON object: {}", response.body);
  if (response.status < 400) return;
  const json::object& object = body->get_object();
  const json::value* error = object.if_contains("error");
  FUZZ_CHECK(error != nullptr && error->is_object(), "{}", response.body);
  const auto text = [&](std::string_view name) {
    const json::value* value = error->get_object().if_contains(name);
    return value != nullptr && value->is_string() && !value->get_string().empty();
  };
  FUZZ_CHECK(text("message") && text("type"), "{}", response.body);
  FUZZ_CHECK(surface == Surface::kOpenAi || object.contains("request_id"), "{}", response.body);
}

/// Whole events, each with JSON that reads back.
void check_stream(std::string_view bytes, Surface surface) {
  bool ended = false;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find("\n\n");
    FUZZ_CHECK(end != std::string_view::npos, "half an event: {}", bytes);
    std::string_view event = bytes.substr(0, end);
    bytes.remove_prefix(end + 2);
    if (event.starts_with(":")) continue;
    FUZZ_CHECK(!ended, "something behind the end: {}", event);
    std::string name;
    if (event.starts_with("event: ")) {
      const std::size_t line = event.find('\n');
      FUZZ_CHECK(line != std::string_view::npos, "no data: {}", event);
      name = std::string(event.substr(7, line - 7));
      event.remove_prefix(line + 1);
    }
    FUZZ_CHECK(event.starts_with("data: "), "no data: {}", event);
    event.remove_prefix(6);
    if (event == "[DONE]") {
      ended = true;
      continue;
    }
    const auto data = parse_json(event, 200);
    FUZZ_CHECK(data.has_value() && data->is_object(), "no JSON object: {}", event);
    const bool failed = data->get_object().contains("error");
    if (name == "message_stop" || failed) ended = surface == Surface::kAnthropic || ended;
    FUZZ_CHECK(surface == Surface::kOpenAi || !name.empty(), "an event without a name: {}", event);
  }
}

/// The engine's side of a request, as the seed has it.
class Player {
 public:
  Player(uint64_t seed, SimClock& clock) : prng_(seed), clock_(clock) {}

  void play(const engine::Request& request, engine::RequestSink& sink, Exchange& exchange,
            const std::function<void()>& poll) {
    if (prng_.below(8) == 0) {  // it never gets its turn
      clock_.advance(11'000'000'000);
      poll();
    }
    if (prng_.below(10) == 0) return refuse(sink, poll);
    if (prng_.below(10) == 0) return exchange.shut_down();
    engine::Admission admission;
    admission.request = RequestId(1);
    admission.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
    admission.cached_tokens = static_cast<uint32_t>(prng_.below(request.prompt.size()));
    admission.input_tokens = admission.prompt_tokens;
    sink.on_admitted(admission);
    if (prng_.below(3) == 0) poll();
    if (request.prompt_logprobs >= 0) score(request, sink, poll);
    uint32_t total = 0;
    for (uint32_t choice = 0; choice < request.choices; ++choice) {
      const uint64_t pieces = prng_.below(4);
      for (uint64_t i = 0; i <= pieces; ++i) {
        sink.on_delta(delta(request, choice, static_cast<uint32_t>(i) + 1, i == pieces));
        ++total;
        if (prng_.below(3) == 0) poll();
      }
    }
    if (prng_.below(10) == 0) return exchange.cancel();
    engine::Finished finished;
    finished.completion_tokens = total;
    if (prng_.below(10) == 0)
      finished.status = Status(ErrorCode::kInternal, std::string(kDeviceGone));
    sink.on_finished(finished);
  }

 private:
  void refuse(engine::RequestSink& sink, const std::function<void()>& poll) {
    constexpr ErrorCode kCodes[] = {ErrorCode::kOverloaded, ErrorCode::kContextTooLong,
                                    ErrorCode::kCancelled, ErrorCode::kPoolExhausted,
                                    ErrorCode::kRateLimited};
    engine::Finished finished;
    finished.status = Status(kCodes[prng_.below(std::size(kCodes))], "not now");
    sink.on_finished(finished);
    poll();
  }

  /// The prompt's own tokens, in pieces.
  void score(const engine::Request& request, engine::RequestSink& sink,
             const std::function<void()>& poll) {
    for (std::size_t at = 0; at < request.prompt.size();) {
      engine::PromptLogprobs piece;
      piece.position = static_cast<uint32_t>(at);
      for (uint64_t n = 1 + prng_.below(40); n > 0 && at < request.prompt.size(); --n, ++at) {
        sampling::Sampled token;
        token.token = request.prompt[at];
        token.logprob = -static_cast<float>(prng_.below(100));
        token.top.assign(static_cast<std::size_t>(request.prompt_logprobs), {token.token, -1.0F});
        piece.tokens.push_back(std::move(token));
      }
      sink.on_prompt(std::move(piece));
      if (prng_.below(3) == 0) poll();
    }
  }

  engine::Delta delta(const engine::Request& request, uint32_t choice, uint32_t tokens, bool last) {
    constexpr std::string_view kTexts[] = {
        "", "a", " b\n", "\"\\", "\xc3\xa9", "\xf0\x9f\x98\x80", "</s>", "\xef\xbf\xbd", "\x01"};
    engine::Delta out;
    out.choice = choice;
    out.text = std::string(kTexts[prng_.below(std::size(kTexts))]);
    out.completion_tokens = tokens;
    if (last) {
      constexpr engine::FinishReason kReasons[] = {
          engine::FinishReason::kStop, engine::FinishReason::kLength,
          engine::FinishReason::kContext, engine::FinishReason::kStopString};
      out.finish = kReasons[prng_.below(request.stops.empty() ? 3 : 4)];
      if (!request.stops.empty()) {
        out.stop_index = static_cast<uint32_t>(prng_.below(request.stops.size()));
      }
    }
    if (request.sampling.logprobs < 0) return out;
    engine::TokenOutput token;
    token.bytes = prng_.below(3) == 0 ? std::string("\xc3") : out.text;
    token.sampled.token = TokenId(static_cast<int32_t>(prng_.below(258)));
    token.sampled.logprob = -static_cast<float>(prng_.below(100));
    for (int32_t i = 0; i < request.sampling.logprobs; ++i) {
      token.sampled.top.push_back(
          {TokenId(static_cast<int32_t>(prng_.below(258))),
           prng_.below(5) == 0 ? -std::numeric_limits<float>::infinity() : -1.0F});
    }
    out.tokens.push_back(std::move(token));
    return out;
  }

  Prng prng_;
  SimClock& clock_;
};

/// The server's parts that an input meets, and what they said.
class Server {
 public:
  Server(std::optional<std::string> key_file, uint64_t plan)
      : metrics_({.model_name = "real"}), prng_(plan) {
    ApiSetup setup;
    setup.model.name = "real";
    setup.model.aliases = {"gpt-*", "claude-*"};
    setup.model.tokenizer = &byte_tokenizer();
    static const auto chat_template = *text::ChatTemplate::compile(kTemplate);
    setup.model.chat_template = chat_template.get();
    setup.model.bos_token = "<s>";
    setup.model.eos_token = "</s>";
    setup.model.context_max = kContextMax;
    setup.model.choices_max = kChoicesMax;
    setup.model.prompts_max = 3;
    if (key_file) {
      auto keys = ApiKeys::from_text(*key_file);
      if (keys) {
        setup.keys = *std::move(keys);
      } else {
        FUZZ_CHECK(fuzz::is_one_line(keys.error().message), "{}", keys.error().message);
      }
    }
    setup.engine.submit = [this](engine::Request request,
                                 std::shared_ptr<engine::RequestSink> sink) -> Result<RequestId> {
      if (refuse_at_once) return Error{ErrorCode::kOverloaded, "the queue is full"};
      submitted.push_back(std::move(request));
      sinks.push_back(std::move(sink));
      return RequestId(submitted.size());
    };
    setup.engine.cancel = [](RequestId) {};
    setup.engine.look_up = [this](engine::LookUp question,
                                  std::function<void(Result<engine::LookedUp>)> done) {
      if (refuse_at_once) return done(Error{ErrorCode::kOverloaded, "the queue is full"});
      done(look_up(question));
    };
    play_operator(setup.operators);
    setup.snapshot = [] { return telemetry::EngineSnapshot{}; };
    setup.metrics = &metrics_;
    setup.clock = &clock;
    setup.unix_time_s = [] { return int64_t{1'700'000'000}; };
    setup.log = [](std::string_view line) {
      FUZZ_CHECK(fuzz::is_one_line(line), "log line: {}", line);
    };
    setup.random_seed = 1;
    api_ = make_api(std::move(setup));
  }

  Handler& api() { return *api_; }

  SimClock clock;
  bool refuse_at_once = false;
  std::vector<engine::Request> submitted;  // one a prompt
  std::vector<std::shared_ptr<engine::RequestSink>> sinks;

 private:
  /// A cached prompt that begins as this one does, differs somewhere, and then goes on like it.
  engine::LookedUp look_up(const engine::LookUp& question) {
    constexpr std::string_view kOther[] = {
        "2026-11-30T08:15:00Z [user]",  "id 4f1c0de2-9b7a-4c11-8e0d-0123456789ab, count 17",
        "{\"b\": 2, \"a\": 1}",         "  Monday, 30 November 2026\n\n",
        "\xc3\xa9\xf0\x9f\x98\x80 <s>", ""};
    FUZZ_CHECK(!question.tokens.empty(), "a question about no tokens");
    engine::LookedUp out;
    const auto size = static_cast<uint32_t>(question.tokens.size());
    out.found.matched_tokens = static_cast<uint32_t>(prng_.below(size + 1));
    out.found.cached_tokens = std::min(out.found.matched_tokens, size - 1);
    out.found.blocks = out.found.cached_tokens / 32 + 1;
    out.prefill_token_ns = static_cast<TimeNs>(prng_.below(1'000'000));
    const std::string_view other = kOther[prng_.below(std::size(kOther))];
    std::vector<TokenId>& beyond = out.found.beyond;
    for (const char byte : other) beyond.emplace_back(static_cast<unsigned char>(byte));
    const uint32_t again = out.found.matched_tokens + static_cast<uint32_t>(prng_.below(8));
    for (uint32_t i = again; i < size; ++i) beyond.push_back(question.tokens[i]);
    if (beyond.size() > question.beyond_max) beyond.resize(question.beyond_max);
    if (!beyond.empty() && out.found.matched_tokens < size &&
        beyond[0] == question.tokens[out.found.matched_tokens]) {
      beyond[0] = TokenId(beyond[0].value ^ 1);
    }
    return out;
  }

  static void play_operator(OperatorPort& port) {
    const auto pool = [](uint64_t bytes) {
      engine::PoolReport report;
      report.block_tokens = 32;
      report.context_max = kContextMax;
      report.committed_bytes = bytes;
      return report;
    };
    port.report_pool = [pool](OperatorPort::Done<engine::PoolReport> done) { done(pool(1 << 20)); };
    port.resize_pool = [pool](uint64_t bytes, OperatorPort::Done<engine::PoolReport> done) {
      if (bytes < 1000) return done(Error{ErrorCode::kPoolExhausted, "3 blocks are in use"});
      done(pool(bytes));
    };
    port.report_cache = [pool](OperatorPort::Done<engine::CacheReport> done) {
      engine::CacheReport report;
      report.pool = pool(1 << 20);
      done(report);
    };
    port.report_curve = [pool](OperatorPort::Done<engine::CurveReport> done) {
      engine::CurveReport report;
      report.pool = pool(1 << 20);
      engine::CurveFigures figures;
      figures.enough = true;
      figures.pool_tokens = 1024;
      figures.points = {{64, 0.5}};
      report.figures = figures;
      done(report);
    };
    port.clear_cache = [](std::optional<std::string>, OperatorPort::Done<engine::Cleared> done) {
      done(engine::Cleared{});
    };
  }

  telemetry::Metrics metrics_;
  Prng prng_;
  std::unique_ptr<Handler> api_;
};

void ask(Server& server, HttpRequest request, uint64_t plan) {
  const Surface surface = surface_of(request);
  if (const auto refused = server.api().begin(request)) return check_whole(*refused, surface);
  Outcome outcome = server.api().handle(std::move(request));
  if (const auto* response = std::get_if<HttpResponse>(&outcome)) {
    return check_whole(*response, surface);
  }
  const std::unique_ptr<Exchange> exchange =
      std::move(std::get<std::unique_ptr<Exchange>>(outcome));
  server.refuse_at_once = plan % 16 == 15;
  exchange->start([] {});
  bool head = false;
  bool done = false;
  std::string stream;
  const auto poll = [&] {
    const Progress progress = exchange->poll(server.clock.now());
    FUZZ_CHECK(!done || (!progress.whole && !progress.head && progress.bytes.empty()),
               "something behind the end");
    if (progress.whole) {
      FUZZ_CHECK(!head, "a whole answer behind a stream's head");
      check_whole(*progress.whole, surface);
    }
    if (progress.head) {
      FUZZ_CHECK(!head && progress.head->status == 200, "a second head");
      head = true;
    }
    FUZZ_CHECK(progress.bytes.empty() || head, "bytes before the head");
    stream += progress.bytes;
    done = done || progress.done || progress.whole;
  };
  Player player(plan, server.clock);
  for (std::size_t i = 0; i < server.submitted.size(); ++i) {
    check_prompt(server.submitted[i]);
    player.play(server.submitted[i], *server.sinks[i], *exchange, poll);
  }
  poll();
  FUZZ_CHECK(done, "the answer has no end");
  check_stream(stream, surface);
}

/// The parsers alone, each on any object: what comes out is a request or a 400.
void check_parsers(const json::object& body) {
  const openai::ParseLimits limits{.choices_max = kChoicesMax,
                                   .vocab_size = byte_tokenizer().vocab_size()};
  for (const auto& parsed :
       {openai::parse_chat(body, limits), openai::parse_completion(body, limits),
        anthropic::parse_messages_request(body), anthropic::parse_count_tokens(body)}) {
    if (parsed.has_value()) continue;
    FUZZ_CHECK(http_status(parsed.error(), Surface::kOpenAi) == 400 &&
                   http_status(parsed.error(), Surface::kAnthropic) == 400,
               "{}", parsed.error().message);
    FUZZ_CHECK(!parsed.error().message.empty() && is_valid_utf8(parsed.error().message), "{}",
               parsed.error().message);
  }
}

}  // namespace
}  // namespace pagewise::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace pagewise;
  using namespace pagewise::server;
  HttpRequest request = parse_input({reinterpret_cast<const char*>(data), size});
  std::optional<std::string> key_file;
  uint64_t plan = 0;
  for (const HttpHeader& header : request.headers) {
    if (header.name == "fuzz-keys") {
      key_file = header.value;
      std::replace(key_file->begin(), key_file->end(), '|', '\n');
    }
    if (header.name == "fuzz-plan") {
      for (const char c : header.value) plan = mix64(plan + static_cast<unsigned char>(c));
    }
  }
  if (const auto body = parse_json(request.body); body && body->is_object()) {
    check_parsers(body->get_object());
  }
  Server server(key_file, plan);
  ask(server, std::move(request), plan);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned int seed) {
  using namespace pagewise;
  fuzz::JsonMutator mutator(seed);
  if (mutator.prng().below(4) == 0) return LLVMFuzzerMutate(data, size, size_max);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t head = bytes.find("\n\n");
  if (head == std::string_view::npos) return LLVMFuzzerMutate(data, size, size_max);
  auto body = parse_json(bytes.substr(head + 2));
  if (!body) return LLVMFuzzerMutate(data, size, size_max);
  for (uint64_t changes = 1 + mutator.prng().below(3); changes > 0; --changes)
    mutator.change(*body);
  const std::string out = std::string(bytes.substr(0, head + 2)) + json::serialize(*body);
  if (out.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}
