// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "server/admin_access.h"
#include "server/anthropic/parse.h"
#include "server/channels.h"
#include "server/curve_report.h"
#include "server/diagnostics.h"
#include "server/explain/explainer.h"
#include "server/id_source.h"
#include "server/json_text.h"
#include "server/key_limits.h"
#include "server/late_answer.h"
#include "server/model_routes.h"
#include "server/openai/parse.h"
#include "server/prompt.h"
#include "server/routes.h"
#include "server/token_routes.h"
#include "server/tools/call_grammar.h"

namespace pagewise::server {
namespace {

std::string_view id_prefix(Format format) {
  switch (format) {
    case Format::kChat:
      return "chatcmpl-";
    case Format::kCompletion:
      return "cmpl-";
    case Format::kMessages:
      return "msg_";
  }
  return "";
}

class Api final : public Handler {
 public:
  explicit Api(ApiSetup setup)
      : setup_(std::move(setup)),
        ids_(setup_.random_seed),
        limits_(setup_.keys.size()),
        explainer_(setup_.model, *setup_.clock, setup_.log) {}

  std::optional<HttpResponse> begin(HttpRequest& request) override {
    request.request_id = ids_.id("req_");
    const Surface surface = surface_of(request);
    const RouteRow* row = find_route(request.path);
    if (row == nullptr) {
      return refuse(
          request, surface, "unknown",
          {ErrorKind::kUnknownRoute,
           fmt::format("no route {} {}", request.method, valid_utf8(request.path)), "", "", ""});
    }
    if (!takes(row->methods, request.method)) {
      const std::string_view allowed = spelled(row->methods);
      HttpResponse response =
          refuse(request, surface, row->label,
                 {ErrorKind::kWrongMethod,
                  fmt::format("{} takes {}", valid_utf8(request.path), allowed), "", "", ""});
      response.headers.push_back({"allow", std::string(allowed)});
      return response;
    }
    if (const auto error = check_access(*row, request))
      return refuse(request, surface, row->label, *error);
    const std::string* encoding = request.header("content-encoding");
    if (request.method == "POST" && encoding != nullptr && !encoding->empty() &&
        *encoding != "identity") {
      return refuse(
          request, surface, row->label,
          {ErrorKind::kInvalidRequest, "content-encoding: send the body without compression", "",
           "", "request_body_encoding_unsupported"});
    }
    return std::nullopt;
  }

  Outcome handle(HttpRequest&& request) override {
    const RouteRow& row = *find_route(request.path);
    const Surface surface = surface_of(request);
    if (request.method != "POST") return get(row, request, surface);
    ApiResult<json::object> body = parse_body(request);
    if (!body) return refuse(request, surface, row.label, body.error());
    switch (row.route) {
      case Route::kChat:
        return generate(row, request, surface, openai::parse_chat(*body, parse_limits()));
      case Route::kCompletion:
        return generate(row, request, surface, openai::parse_completion(*body, parse_limits()));
      case Route::kMessages:
        return generate(row, request, surface,
                        anthropic::parse_messages_request(*body, claude_options()));
      case Route::kCountTokens:
        return count_tokens(row, request, surface, *body);
      case Route::kCacheClear:
        return clear_cache(row, request, surface, *body);
      case Route::kAdminKv:
        return resize_pool(row, request, surface, *body);
      case Route::kCacheExplain:
        return explain(row, request, *body);
      case Route::kTokenize:
        return answer(row, request, surface, tokenize(setup_.model, *body));
      default:
        return answer(row, request, surface, detokenize(setup_.model, *body));
    }
  }

  HttpResponse read_failed(const HttpRequest& request, ReadFailure failure) override {
    ApiError error;
    switch (failure) {
      case ReadFailure::kMalformed:
        error.message = "this is no HTTP request that can be read";
        break;
      case ReadFailure::kBodyTooLarge:
        error.kind = ErrorKind::kRequestTooLarge;
        error.message = "the body is larger than 32 MB";
        break;
      case ReadFailure::kHeaderTooLarge:
        error.kind = ErrorKind::kHeaderTooLarge;
        error.message = "the header is too large";
        break;
      case ReadFailure::kInternal:
        error.kind = ErrorKind::kInternal;
        error.message = "the server failed on this request";
        break;
    }
    HttpRequest named = request;
    if (named.request_id.empty()) named.request_id = ids_.id("req_");
    return refuse(named, surface_of(named), "unread", error);
  }

 private:
  /// 401 for who is not known, 403 for who may not do this.
  std::optional<ApiError> check_access(const RouteRow& row, const HttpRequest& request) const {
    if (row.access == Access::kOpen) return std::nullopt;
    if (!setup_.keys.configured()) {
      if (row.access != Access::kAdmin) return std::nullopt;
      const std::string reason = why_not_local(request);
      if (reason.empty()) return std::nullopt;
      return ApiError{
          ErrorKind::kPermission,
          fmt::format("without a key file {} is for programs on this machine alone, and this "
                      "request is not from one: {}; start with --api-key-file and send a key "
                      "marked 'admin'",
                      row.path, reason),
          "", "", ""};
    }
    const auto presented = presented_key(request);
    if (!presented) {
      return ApiError{ErrorKind::kAuthentication,
                      "no API key: send it as 'Authorization: Bearer KEY' or as 'x-api-key: KEY'",
                      "", "", ""};
    }
    const ApiKey* key = setup_.keys.find(*presented);
    if (key == nullptr) {
      return ApiError{ErrorKind::kAuthentication, "this API key is not valid", "",
                      "invalid_api_key", ""};
    }
    if (row.access == Access::kAdmin && !key->admin) {
      return ApiError{ErrorKind::kPermission,
                      fmt::format("{} needs a key that the key file marks 'admin'", row.path), "",
                      "", ""};
    }
    return std::nullopt;
  }

  /// The key that the request was let in with; nullptr without a key file.
  const ApiKey* key_of(const HttpRequest& request) const {
    if (!setup_.keys.configured()) return nullptr;
    return setup_.keys.find(presented_key(request).value_or(""));
  }

  openai::ParseLimits parse_limits() const {
    return {setup_.model.choices_max, setup_.model.prompts_max,
            setup_.model.tokenizer->vocab_size()};
  }

  anthropic::ParseOptions claude_options() const { return {setup_.strict_markers}; }

  HttpResponse refuse(const HttpRequest& request, Surface surface, std::string_view label,
                      const ApiError& error) {
    HttpResponse response = error_response(error, surface, request.request_id);
    if (setup_.metrics != nullptr && error.kind == ErrorKind::kRateLimited)
      setup_.metrics->count_refusal(telemetry::Metrics::Limit::kKeyRequests);
    if (setup_.metrics != nullptr && error.kind == ErrorKind::kTokensLimited)
      setup_.metrics->count_refusal(telemetry::Metrics::Limit::kKeyTokens);
    note(request, label, response.status, error_label(error));
    return response;
  }

  void note(const HttpRequest& request, std::string_view label, int status,
            std::string_view error) {
    if (setup_.metrics != nullptr) setup_.metrics->count_http(label, status);
    if (setup_.log) {
      const ApiKey* key = key_of(request);
      const std::string_view name = key == nullptr ? std::string_view() : key->name;
      setup_.log(fmt::format("{} {} {}{}{}{}{}", request.request_id, label, status,
                             error.empty() ? "" : " error=", error,
                             name.empty() ? "" : " key=", name));
    }
  }

  static ApiResult<json::object> parse_body(const HttpRequest& request) {
    if (request.body.empty()) {
      return ApiError{ErrorKind::kInvalidRequest, "the body is empty: send a JSON object", "", "",
                      ""};
    }
    auto parsed = parse_json(request.body);
    if (!parsed) {
      return ApiError{ErrorKind::kInvalidRequest,
                      fmt::format("the body is {}", parsed.error().message), "", "", ""};
    }
    if (!parsed->is_object()) {
      return ApiError{ErrorKind::kInvalidRequest, "the body must be a JSON object", "", "", ""};
    }
    return ApiResult<json::object>(std::move(parsed->get_object()));
  }

  Outcome answer(const RouteRow& row, const HttpRequest& request, Surface surface,
                 const ApiResult<json::object>& body) {
    if (!body) return refuse(request, surface, row.label, body.error());
    note(request, row.label, 200, "");
    return json_response(200, *body, request.request_id);
  }

  // GET

  Outcome get(const RouteRow& row, const HttpRequest& request, Surface surface) {
    switch (row.route) {
      case Route::kHealth:
        return json_response(200, json::object{{"status", "ok"}}, request.request_id);
      case Route::kReady:
        return json_response(200, json::object{{"status", "ready"}}, request.request_id);
      case Route::kVersion:
        return json_response(200, json::object{{"version", PAGEWISE_VERSION}}, request.request_id);
      case Route::kMetrics: {
        HttpResponse response;
        response.content_type = "text/plain; version=0.0.4; charset=utf-8";
        response.headers = base_headers(request.request_id);
        response.body = setup_.metrics->render(setup_.snapshot());
        return response;
      }
      case Route::kCacheStats:
        return cache_stats(row, request, surface);
      case Route::kCacheCurve:
        return ask_engine<engine::CurveReport>(row, request, surface, setup_.operators.report_curve,
                                               curve_json);
      case Route::kAdminKv:
        return report_pool(row, request, surface);
      case Route::kModels:
        note(request, row.label, 200, "");
        return json_response(200, model_list(setup_.model), request.request_id);
      case Route::kModel: {
        // What an alias takes is echoed: text, whatever bytes were asked for.
        const std::string asked = valid_utf8(model_in_path(request.path));
        if (!setup_.model.answers_to(asked))
          return refuse(request, surface, row.label, unknown_model(asked));
        note(request, row.label, 200, "");
        return json_response(200, model_object(setup_.model, asked), request.request_id);
      }
      default: {
        HttpResponse response;
        response.content_type = "text/plain; charset=utf-8";
        response.headers = base_headers(request.request_id);
        response.body = fmt::format(
            "Pagewise {} serves {}.\nPOST /v1/messages, /v1/chat/completions, /v1/completions; GET "
            "/v1/models, "
            "/health, /metrics.\n",
            PAGEWISE_VERSION, setup_.model.name);
        return response;
      }
    }
  }

  Outcome count_tokens(const RouteRow& row, const HttpRequest& request, Surface surface,
                       const json::object& body) {
    auto parsed = anthropic::parse_count_tokens(body, claude_options());
    if (!parsed) return refuse(request, surface, row.label, parsed.error());
    if (!setup_.model.answers_to(parsed->model)) {
      return refuse(request, surface, row.label, unknown_model(parsed->model));
    }
    auto prompt = build_prompt_unchecked(*parsed, setup_.model);
    if (!prompt) return refuse(request, surface, row.label, prompt.error());
    note(request, row.label, 200, "");
    return json_response(200, json::object{{"input_tokens", prompt->tokens.size()}},
                         request.request_id);
  }

  // For operators

  /// Asks the engine between two steps; `write` turns its answer into a body.
  template <typename T, typename Ask, typename Write>
  Outcome ask_engine(const RouteRow& row, const HttpRequest& request, Surface surface, Ask ask,
                     Write write) {
    HttpRequest kept = without_body(request);
    HttpResponse stopping =
        error_response({ErrorKind::kNotReady, "the server is shutting down", "", "", ""}, surface,
                       request.request_id);
    // The engine may outlive us: nothing of ours is touched before somebody polls.
    auto finish = [this, &row, surface, kept = std::move(kept),
                   write = std::move(write)](const Result<T>& result) {
      if (!result) return refuse(kept, surface, row.label, operator_error(result.error()));
      note(kept, row.label, 200, "");
      return json_response(200, write(*result), kept.request_id);
    };
    auto begin = [ask = std::move(ask), finish = std::move(finish)](Answered answered) {
      ask([finish, answered = std::move(answered)](Result<T> result) {
        answered([finish, result = std::move(result)] { return finish(result); });
      });
    };
    return make_late_answer(std::move(begin), std::move(stopping));
  }

  static HttpRequest without_body(const HttpRequest& request) {
    HttpRequest out;
    out.method = request.method;
    out.path = request.path;
    out.headers = request.headers;
    out.request_id = request.request_id;
    return out;
  }

  /// Keys see their own, administrators everything; without keys all is one account's.
  Outcome cache_stats(const RouteRow& row, const HttpRequest& request, Surface surface) {
    const ApiKey* key = key_of(request);
    const bool whole = key == nullptr ? why_not_local(request).empty() : key->admin;
    return ask_engine<engine::CacheReport>(
        row, request, surface, setup_.operators.report_cache,
        [this, whole, account = account_of(key),
         name_space =
             namespace_of(request, account_of(key), "")](const engine::CacheReport& report) {
          json::object out = whole ? stats_json(report, setup_.keys, setup_.prices)
                                   : account_json(report, account, setup_.prices);
          out["misses"] = whole ? explainer_.misses(std::nullopt) : explainer_.misses(name_space);
          return out;
        });
  }

  Outcome clear_cache(const RouteRow& row, const HttpRequest& request, Surface surface,
                      const json::object& body) {
    auto name = parse_clear(body);
    if (!name) return refuse(request, surface, row.label, name.error());
    const auto ask = [this, name = *std::move(name)](OperatorPort::Done<engine::Cleared> done) {
      explainer_.clear(name);  // what is forgotten is no longer compared with
      setup_.operators.clear_cache(name, std::move(done));
    };
    return ask_engine<engine::Cleared>(row, request, surface, ask, cleared_json);
  }

  Outcome report_pool(const RouteRow& row, const HttpRequest& request, Surface surface) {
    return ask_engine<engine::PoolReport>(row, request, surface, setup_.operators.report_pool,
                                          pool_json);
  }

  Outcome resize_pool(const RouteRow& row, const HttpRequest& request, Surface surface,
                      const json::object& body) {
    const auto bytes = parse_resize(body);
    if (!bytes) return refuse(request, surface, row.label, bytes.error());
    const auto ask = [this, bytes = *bytes](OperatorPort::Done<engine::PoolReport> done) {
      setup_.operators.resize_pool(bytes, std::move(done));
    };
    return ask_engine<engine::PoolReport>(row, request, surface, ask, pool_json);
  }

  // Generation

  /// Whether the answer's thoughts are split off, and where it begins.
  void place_thoughts(const GenerationRequest& asked, const Prompt& prompt,
                      ResponseContext& context) const {
    // What continues an answer that is past its thought has none, nor has one that is held to a
    // form from its first byte.
    const bool held = asked.grammar != nullptr || asked.tool_choice.use == ToolUse::kRequired;
    const bool may_think = !held && (!asked.continue_last || prompt.thought_open);
    const bool split = setup_.model.reasoning.channels ? !held : may_think;
    if (asked.format == Format::kCompletion || asked.thoughts == Thoughts::kInText || !split)
      return;
    context.reasoning = setup_.model.reasoning;
    context.thought_open = prompt.thought_open;
    context.answer_head = prompt.answer_head;
    context.thoughts_omitted = asked.thoughts == Thoughts::kOmitted;
  }

  Outcome generate(const RouteRow& row, const HttpRequest& request, Surface surface,
                   ApiResult<GenerationRequest> parsed) {
    if (!parsed) return refuse(request, surface, row.label, parsed.error());
    GenerationRequest& asked = *parsed;
    if (!setup_.model.answers_to(asked.model)) {
      return refuse(request, surface, row.label, unknown_model(asked.model));
    }
    const ApiKey* key = key_of(request);
    KeyLimits::Ticket ticket;
    if (key != nullptr) {
      auto entered = limits_.enter(*key);
      if (!entered) return refuse(request, surface, row.label, entered.error());
      ticket = std::move(*entered);
    }
    const TimeNs before = setup_.clock->now();
    std::vector<Prompt> prompts;
    for (std::size_t i = 0; i < asked.prompts.size(); ++i) {
      auto prompt = build_prompt(asked, setup_.model, i);
      if (!prompt) return refuse(request, surface, row.label, prompt.error());
      prompts.push_back(*std::move(prompt));
    }
    const auto calls = tools::call_grammar(asked, setup_.model.tool_format, *setup_.model.tokenizer,
                                           marks_thoughts());
    if (!calls) return refuse(request, surface, row.label, calls.error());
    if (key != nullptr) {
      if (const auto error = limit_tokens(*key, prompts, asked, ticket))
        return refuse(request, surface, row.label, *error);
    }

    ExchangeSetup exchange;
    exchange.engine = setup_.engine;
    exchange.surface = surface;
    exchange.stream = asked.stream;
    exchange.model_name = setup_.model.name;
    exchange.route = row.label;
    exchange.key_name = key == nullptr ? "" : key->name;
    exchange.ticket = std::move(ticket);
    exchange.received_at = request.received_at;
    exchange.tokenize_ns = setup_.clock->now() - before;
    exchange.clock = setup_.clock;
    exchange.metrics = setup_.metrics;
    exchange.log = setup_.log;

    const std::string account = account_of(key);
    const std::string name_space = namespace_of(request, account, asked.cache_salt);
    ResponseContext& context = exchange.context;
    context.format = asked.format;
    context.model = asked.model;
    context.request_id = request.request_id;
    context.id = ids_.id(id_prefix(asked.format));
    context.created_unix_s = setup_.unix_time_s();
    context.prompts = static_cast<uint32_t>(prompts.size());
    context.choices = asked.choices;
    context.candidates = asked.candidates;
    context.stops = asked.stops;
    context.calls = call_rules(asked, calls->certain);
    context.include_usage = asked.include_usage;
    context.context_management = asked.context_management;
    context.logprobs = asked.logprobs;
    context.tokenizer = setup_.model.tokenizer;
    place_thoughts(asked, prompts.front(), context);
    if (asked.diagnostics) {
      context.diagnostics_asked = true;
      context.diagnostics =
          diagnostics_.exchange(name_space, asked.diagnostics->previous_message_id, context.id,
                                make_fingerprint(asked, prompts.front()), setup_.clock->now());
    }

    if (asked.format != Format::kCompletion && asked.use_cache) {
      remember(exchange, asked, prompts.front(), name_space);
    }
    for (Prompt& prompt : prompts) {
      exchange.requests.push_back(engine_request(asked, prompt, name_space, account));
      engine::Request& work = exchange.requests.back();
      if (calls->grammar != nullptr) work.grammar = calls->grammar;
      // What splits thoughts off has to see their marks, and who leaves them in wants them.
      if (context.reasoning || asked.thoughts == Thoughts::kInText) {
        const auto marks = control_tokens(setup_.model.reasoning, *setup_.model.tokenizer);
        work.control_text.insert(work.control_text.end(), marks.begin(), marks.end());
      }
      if (asked.echo) context.echo.push_back(std::move(prompt.echo));
    }
    return make_exchange(std::move(exchange));
  }

  /// Whether thoughts stand between control tokens.
  bool marks_thoughts() const {
    return !control_tokens(setup_.model.reasoning, *setup_.model.tokenizer).empty();
  }

  /// Where tools may be called, which.
  std::optional<CallRules> call_rules(const GenerationRequest& asked, bool certain) const {
    if (asked.tools.empty() || asked.tool_choice.use == ToolUse::kNone) return std::nullopt;
    CallRules rules;
    rules.certain = certain;
    rules.family = setup_.model.tool_format.family;
    rules.names = asked.tool_choice.only;
    for (const Tool& tool : asked.tools) {
      if (asked.tool_choice.only.empty()) rules.names.push_back(tool.name);
    }
    return rules;
  }

  /// Takes the prompt's tokens.
  engine::Request engine_request(const GenerationRequest& asked, Prompt& prompt,
                                 const std::string& name_space, const std::string& account) {
    engine::Request work;
    work.prompt = std::move(prompt.tokens);
    // The engine clamps to the room left; a bound here keeps the metrics readable.
    work.max_tokens = std::min<uint64_t>(asked.max_tokens, setup_.model.context_max);
    work.choices = asked.candidates;
    work.sampling = asked.sampling;
    if (!asked.seed_given) work.sampling.seed = ids_.draw();
    // The best of several are chosen by their log-probabilities.
    if (asked.candidates > asked.choices) {
      work.sampling.logprobs = std::max(work.sampling.logprobs, 0);
    }
    work.stops = asked.stops;
    if (asked.tool_choice.use != ToolUse::kNone && !asked.tools.empty()) {
      work.control_text =
          tools::control_tokens(setup_.model.tool_format.syntax(), *setup_.model.tokenizer);
    }
    if (setup_.model.reasoning.channels && asked.format != Format::kCompletion) {
      const std::vector<TokenId> marks = channel_tokens(*setup_.model.tokenizer);
      work.control_text.insert(work.control_text.end(), marks.begin(), marks.end());
    }
    work.ignore_eos = asked.ignore_eos;
    work.grammar = asked.grammar;
    if (asked.echo) {
      work.text_before = cut_character(prompt.echo);
      if (asked.logprobs) work.prompt_logprobs = asked.sampling.logprobs;
    }
    work.cache.use_cache = asked.use_cache;
    work.cache.cache_namespace = name_space;
    work.cache.account = account;
    work.cache.tariff = setup_.prices.tariff_of(asked.model);
    work.cache.bill =
        asked.format == Format::kMessages ? engine::BillRule::kMarkers : engine::BillRule::kReuse;
    work.cache.positions = std::move(prompt.positions);
    work.cache.markers = std::move(prompt.markers);
    return work;
  }

  /// What is asked is kept for comparison once it is admitted (explain/history.h).
  void remember(ExchangeSetup& exchange, const GenerationRequest& asked, const Prompt& prompt,
                const std::string& name_space) {
    auto noted = std::make_shared<explain::Asked>(explain::Explainer::note(asked, prompt));
    exchange.admitted = [this, name_space, noted, id = exchange.context.id,
                         format = asked.format](const engine::Admission& admission) {
      explainer_.admitted(name_space, id, std::move(*noted), format, admission);
    };
    exchange.finished = [this](const engine::Admission& admission,
                               const engine::Finished& finished) {
      explainer_.finished(admission, finished);
    };
  }

  /// POST /v1/cache/explain: computes nothing, changes nothing.
  Outcome explain(const RouteRow& row, const HttpRequest& request, const json::object& body) {
    const bool messages = explain::format_of(request, body) == Format::kMessages;
    const Surface surface = messages ? Surface::kAnthropic : Surface::kOpenAi;
    auto parsed = messages ? anthropic::parse_explained(body, claude_options())
                           : openai::parse_chat(body, parse_limits());
    if (!parsed) return refuse(request, surface, row.label, parsed.error());
    if (!setup_.model.answers_to(parsed->model)) {
      return refuse(request, surface, row.label, unknown_model(parsed->model));
    }
    auto prompt = build_prompt(*parsed, setup_.model);
    if (!prompt) return refuse(request, surface, row.label, prompt.error());
    auto question = explain::Explainer::question(
        *parsed, *prompt, namespace_of(request, account_of(key_of(request)), parsed->cache_salt));
    const auto asked =
        std::make_shared<const explain::Asked>(explain::Explainer::note(*parsed, *prompt));
    const auto answer = [this, asked, format = parsed->format, use_cache = question.use_cache,
                         name_space = question.cache_namespace](const engine::LookedUp& known) {
      return explainer_.answer(*asked, format, name_space, use_cache, known);
    };
    const auto ask = [this,
                      question = std::move(question)](OperatorPort::Done<engine::LookedUp> done) {
      setup_.engine.look_up(question, std::move(done));
    };
    return ask_engine<engine::LookedUp>(row, request, surface, ask, answer);
  }

  /// Only a key that was checked names a cache: without a key file anybody may present anything.
  static std::string namespace_of(const HttpRequest& request, std::string_view account,
                                  std::string_view salt) {
    const std::string* workspace = request.header("anthropic-workspace-id");
    return cache_namespace(account, workspace == nullptr ? "" : *workspace, salt);
  }

  static std::string account_of(const ApiKey* key) {
    return key == nullptr ? std::string(kOpenAccount) : key->account();
  }

  /// Clamps the request to what its key may have at all, and takes that from what it may have now.
  std::optional<ApiError> limit_tokens(const ApiKey& key, const std::vector<Prompt>& prompts,
                                       GenerationRequest& asked, KeyLimits::Ticket& ticket) {
    const uint64_t context = setup_.model.context_max;
    uint64_t sum = 0, shortest = context;
    for (const Prompt& prompt : prompts) {
      sum += prompt.tokens.size();
      shortest = std::min<uint64_t>(shortest, prompt.tokens.size());
    }
    const uint64_t room = context - shortest;
    const auto answers = static_cast<uint32_t>(prompts.size() * asked.candidates);
    auto allowed = tokens_allowed(key, sum, answers, std::min(asked.max_tokens, room));
    if (!allowed) return allowed.error();
    // A key that leaves the room leaves the words as well: an answer that fills the context ends
    // so.
    if (*allowed < std::min(asked.max_tokens, room)) asked.max_tokens = *allowed;
    return limits_.take_tokens(ticket, key, sum, *allowed * answers);
  }

  const ApiSetup setup_;
  IdSource ids_;
  KeyLimits limits_;
  DiagnosticsLog diagnostics_;
  explain::Explainer explainer_;
};

}  // namespace

std::unique_ptr<Handler> make_api(ApiSetup setup) {
  return std::make_unique<Api>(std::move(setup));
}

}  // namespace pagewise::server
