// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "server/anthropic/parse.h"
#include "server/diagnostics.h"
#include "server/id_source.h"
#include "server/json_text.h"
#include "server/model_routes.h"
#include "server/openai/parse.h"
#include "server/prompt.h"
#include "server/routes.h"
#include "server/token_routes.h"

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
  explicit Api(ApiSetup setup) : setup_(std::move(setup)), ids_(setup_.random_seed) {}

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
    if (row->access != Access::kOpen && setup_.keys.configured()) {
      const auto key = presented_key(request);
      if (!key) {
        return refuse(request, surface, row->label,
                      {ErrorKind::kAuthentication,
                       "no API key: send it as 'Authorization: Bearer KEY' or as 'x-api-key: KEY'",
                       "", "", ""});
      }
      if (!setup_.keys.accepts(*key)) {
        return refuse(
            request, surface, row->label,
            {ErrorKind::kAuthentication, "this API key is not valid", "", "invalid_api_key", ""});
      }
    }
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
        return generate(row, request, surface, anthropic::parse_messages_request(*body));
      case Route::kCountTokens:
        return count_tokens(row, request, surface, *body);
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
  openai::ParseLimits parse_limits() const {
    return {setup_.model.choices_max, setup_.model.prompts_max,
            setup_.model.tokenizer->vocab_size()};
  }

  HttpResponse refuse(const HttpRequest& request, Surface surface, std::string_view label,
                      const ApiError& error) {
    HttpResponse response = error_response(error, surface, request.request_id);
    note(request, label, response.status, error_label(error));
    return response;
  }

  void note(const HttpRequest& request, std::string_view label, int status,
            std::string_view error) {
    if (setup_.metrics != nullptr) setup_.metrics->count_http(label, status);
    if (setup_.log) {
      setup_.log(fmt::format("{} {} {}{}{}", request.request_id, label, status,
                             error.empty() ? "" : " error=", error));
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
    auto parsed = anthropic::parse_count_tokens(body);
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

  // Generation

  Outcome generate(const RouteRow& row, const HttpRequest& request, Surface surface,
                   ApiResult<GenerationRequest> parsed) {
    if (!parsed) return refuse(request, surface, row.label, parsed.error());
    GenerationRequest& asked = *parsed;
    if (!setup_.model.answers_to(asked.model)) {
      return refuse(request, surface, row.label, unknown_model(asked.model));
    }
    const TimeNs before = setup_.clock->now();
    std::vector<Prompt> prompts;
    for (std::size_t i = 0; i < asked.prompts.size(); ++i) {
      auto prompt = build_prompt(asked, setup_.model, i);
      if (!prompt) return refuse(request, surface, row.label, prompt.error());
      prompts.push_back(*std::move(prompt));
    }

    ExchangeSetup exchange;
    exchange.engine = setup_.engine;
    exchange.surface = surface;
    exchange.stream = asked.stream;
    exchange.model_name = setup_.model.name;
    exchange.route = row.label;
    exchange.received_at = request.received_at;
    exchange.tokenize_ns = setup_.clock->now() - before;
    exchange.clock = setup_.clock;
    exchange.metrics = setup_.metrics;
    exchange.log = setup_.log;

    const std::string name_space = namespace_of(request, asked);
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
    context.include_usage = asked.include_usage;
    context.logprobs = asked.logprobs;
    context.tokenizer = setup_.model.tokenizer;
    if (asked.diagnostics) {
      context.diagnostics_asked = true;
      context.diagnostics =
          diagnostics_.exchange(name_space, asked.diagnostics->previous_message_id, context.id,
                                make_fingerprint(asked, prompts.front()), setup_.clock->now());
    }

    for (Prompt& prompt : prompts) {
      exchange.requests.push_back(engine_request(asked, prompt, name_space));
      if (asked.echo) context.echo.push_back(std::move(prompt.echo));
    }
    return make_exchange(std::move(exchange));
  }

  /// Takes the prompt's tokens.
  engine::Request engine_request(const GenerationRequest& asked, Prompt& prompt,
                                 const std::string& name_space) {
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
    work.ignore_eos = asked.ignore_eos;
    if (asked.echo) {
      work.text_before = cut_character(prompt.echo);
      if (asked.logprobs) work.prompt_logprobs = asked.sampling.logprobs;
    }
    work.cache.use_cache = asked.use_cache;
    work.cache.cache_namespace = name_space;
    work.cache.positions = std::move(prompt.positions);
    work.cache.markers = std::move(prompt.markers);
    return work;
  }

  /// Only a key that was checked names a cache: without a key file anybody may present anything.
  std::string namespace_of(const HttpRequest& request, const GenerationRequest& asked) const {
    const std::string* workspace = request.header("anthropic-workspace-id");
    const std::string key =
        setup_.keys.configured() ? presented_key(request).value_or("") : std::string();
    return cache_namespace(key, workspace == nullptr ? "" : *workspace, asked.cache_salt);
  }

  const ApiSetup setup_;
  IdSource ids_;
  DiagnosticsLog diagnostics_;
};

}  // namespace

std::unique_ptr<Handler> make_api(ApiSetup setup) {
  return std::make_unique<Api>(std::move(setup));
}

}  // namespace pagewise::server
