// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/provenance.h"

namespace pagewise::text::jinja {

/// The scopes that the body of a {% call %} sees.
struct Closure {
  std::vector<Variables> scopes;
};

namespace {

/// How a body was left.
enum class Flow { kNext, kBreak, kContinue };

class Evaluator {
 public:
  Evaluator(Variables variables, std::optional<int64_t> now) {
    session_.now = now;
    scopes_.push_back(std::move(variables));
  }

  Result<Rope> run_template(const Body& body) {
    Rope out;
    PW_ASSIGN_OR_RETURN(const Flow flow, run(body, out));
    (void)flow;  // the parser lets no break out of its loop
    return out;
  }

 private:
  static Error at_line(uint32_t line, const Error& error) {
    return {error.code, fmt::format("chat template, line {}: {}", line, error.message)};
  }
  static Status at_line(uint32_t line, const Status& status) {
    return status ? status : Status(at_line(line, status.error()));
  }
  template <typename T>
  static Result<T> at_line(uint32_t line, Result<T> result) {
    if (result) return result;
    return at_line(line, result.error());
  }

  /// One level of recursion. Without macros the parser's bounds are lower.
  class Level {
   public:
    explicit Level(uint32_t& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Status check() const {
      if (depth_ <= kDepthMax) return Status::ok();
      return {ErrorCode::kInvalidArgument,
              fmt::format("rendering nests deeper than {}", kDepthMax)};
    }

   private:
    static constexpr uint32_t kDepthMax = 600;
    uint32_t& depth_;
  };

  // ---- variables
  // ----------------------------------------------------------------------------------

  Result<Value> look_up(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      PW_RETURN_IF_ERROR(session_.spend_search(scope->size()));
      for (const auto& [key, value] : *scope) {
        if (key == name) return value;
      }
    }
    if (const Builtin* function = find_function(name)) {
      Callable callable;
      callable.builtin = function;
      return Value(callable);
    }
    return Value(Undefined{name});
  }

  void assign(const std::string& name, Value value) {
    for (auto& [key, old] : scopes_.back()) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    scopes_.back().emplace_back(name, std::move(value));
  }

  Status assign_all(uint32_t line, const std::vector<std::string>& targets, const Value& value) {
    PW_RETURN_IF_ERROR(
        at_line(line, session_.spend_search(scopes_.back().size() * targets.size())));
    if (targets.size() == 1) {
      assign(targets[0], value);
      return Status::ok();
    }
    auto items = at_line(line, to_list(value, session_));
    if (!items) return items.error();
    const std::vector<Value>& list = items->list()->items;
    if (list.size() != targets.size()) {
      return at_line(line, Error{ErrorCode::kInvalidArgument,
                                 fmt::format("{} values cannot be unpacked into {} names",
                                             list.size(), targets.size())});
    }
    for (std::size_t i = 0; i < targets.size(); ++i) assign(targets[i], list[i]);
    return Status::ok();
  }

  // ---- statements
  // ---------------------------------------------------------------------------------

  Status write(uint32_t line, const Rope& text, Rope& out) {
    PW_RETURN_IF_ERROR(at_line(line, session_.spend_growth(out.size(), text.size())));
    out.append(text);
    return Status::ok();
  }

  Result<Flow> run(const Body& body, Rope& out) {
    const Level level(depth_);
    for (const Statement& statement : body) {
      PW_RETURN_IF_ERROR(at_line(statement.line, level.check()));
      PW_RETURN_IF_ERROR(at_line(statement.line, session_.spend(1)));
      PW_ASSIGN_OR_RETURN(
          const Flow flow,
          std::visit([&](const auto& node) { return execute(node, statement.line, out); },
                     statement.node));
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Result<Flow> execute(const Output& node, uint32_t line, Rope& out) {
    PW_RETURN_IF_ERROR(write(line, Rope(node.text, kTemplateOrigin), out));
    return Flow::kNext;
  }

  Result<Flow> execute(const Print& node, uint32_t line, Rope& out) {
    PW_ASSIGN_OR_RETURN(const Value value, eval(*node.value));
    if (const Rope* text = value.text()) {
      PW_RETURN_IF_ERROR(write(line, *text, out));
      return Flow::kNext;
    }
    PW_ASSIGN_OR_RETURN(const Rope text, at_line(line, print(value, session_)));
    PW_RETURN_IF_ERROR(write(line, text, out));
    return Flow::kNext;
  }

  Result<Flow> execute(const If& node, uint32_t, Rope& out) {
    for (const auto& [condition, body] : node.branches) {
      PW_ASSIGN_OR_RETURN(const Value value, eval(*condition));
      if (truthy(value)) return run(body, out);
    }
    return run(node.otherwise, out);
  }

  Result<Flow> execute(const For& node, uint32_t line, Rope& out) {
    PW_ASSIGN_OR_RETURN(const Value walked, eval(*node.items));
    PW_ASSIGN_OR_RETURN(Value items, at_line(line, to_list(walked, session_)));
    if (node.filter) {
      PW_ASSIGN_OR_RETURN(items, filter(node, line, items));
    }
    const ListPtr list = items.shared_list();
    if (list->items.empty()) return run(node.otherwise, out);
    // Forgotten behind the last iteration: what it remembers may remember the loop.
    struct Walk {
      std::shared_ptr<Loop::State> state = std::make_shared<Loop::State>();
      ~Walk() { state->seen.reset(); }
    } const walk;
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      // What an iteration sets is gone in the next one; only a namespace carries it on.
      scopes_.emplace_back();
      auto loop = std::make_shared<Loop>();
      loop->items = list;
      loop->index = i;
      loop->state = walk.state;
      assign("loop", LoopPtr(std::move(loop)));
      PW_RETURN_IF_ERROR(at_line(line, session_.spend(1)));
      PW_RETURN_IF_ERROR(assign_all(line, node.targets, list->items[i]));
      PW_ASSIGN_OR_RETURN(const Flow flow, run(node.body, out));
      scopes_.pop_back();
      if (flow == Flow::kBreak) break;
    }
    return Flow::kNext;
  }

  Result<Value> filter(const For& node, uint32_t line, const Value& items) {
    std::vector<Value> kept;
    for (const Value& item : items.list()->items) {
      scopes_.emplace_back();
      PW_RETURN_IF_ERROR(assign_all(line, node.targets, item));
      PW_ASSIGN_OR_RETURN(const Value keep, eval(*node.filter));
      scopes_.pop_back();
      if (truthy(keep)) kept.push_back(item);
    }
    return make_list(std::move(kept));
  }

  Result<Flow> execute(const Set& node, uint32_t line, Rope&) {
    PW_ASSIGN_OR_RETURN(Value value, eval(*node.value));
    if (node.attribute.empty()) {
      PW_RETURN_IF_ERROR(assign_all(line, node.targets, value));
      return Flow::kNext;
    }
    PW_ASSIGN_OR_RETURN(const Value owner, at_line(line, look_up(node.targets[0])));
    Namespace* name_space = owner.name_space();
    if (name_space == nullptr) {
      return at_line(line, Error{ErrorCode::kInvalidArgument,
                                 fmt::format("'{}' is no namespace, so '{}.{}' cannot be set",
                                             node.targets[0], node.targets[0], node.attribute)});
    }
    PW_RETURN_IF_ERROR(at_line(line, session_.spend_search(name_space->values.size())));
    name_space->set(node.attribute, std::move(value));
    return Flow::kNext;
  }

  Result<Flow> execute(const Capture& node, uint32_t line, Rope& out) {
    Rope captured;
    scopes_.emplace_back();
    PW_ASSIGN_OR_RETURN(const Flow flow, run(node.body, captured));
    scopes_.pop_back();
    Value value(std::move(captured));
    if (node.filters) {
      scopes_.emplace_back();
      assign(std::string(kCaptured), std::move(value));
      PW_ASSIGN_OR_RETURN(value, eval(*node.filters));
      scopes_.pop_back();
    }
    if (!node.target.empty()) {
      assign(node.target, std::move(value));
      return flow;
    }
    PW_ASSIGN_OR_RETURN(const Rope text, at_line(line, print(value, session_)));
    PW_RETURN_IF_ERROR(write(line, text, out));
    return flow;
  }

  Result<Flow> execute(const CallBlock& node, uint32_t line, Rope& out) {
    uint64_t variables = 1;
    for (const Variables& scope : scopes_) variables += scope.size();
    PW_RETURN_IF_ERROR(at_line(line, session_.spend(variables)));
    Callable caller;
    caller.macro = &node.body;
    caller.scopes = scopes_.size();
    caller.closure = std::make_shared<const Closure>(Closure{scopes_});
    PW_ASSIGN_OR_RETURN(const Value result,
                        eval_call(std::get<NamedCall>(node.call->node), node.call->line, &caller));
    PW_ASSIGN_OR_RETURN(const Rope text, at_line(line, print(result, session_)));
    PW_RETURN_IF_ERROR(write(line, text, out));
    return Flow::kNext;
  }

  Result<Flow> execute(const With& node, uint32_t line, Rope& out) {
    std::vector<Value> values;
    for (const ExprPtr& expr : node.values) {
      PW_ASSIGN_OR_RETURN(Value value, eval(*expr));
      values.push_back(std::move(value));
    }
    scopes_.emplace_back();
    PW_RETURN_IF_ERROR(at_line(line, session_.spend_search(values.size() * values.size())));
    for (std::size_t i = 0; i < values.size(); ++i) assign(node.targets[i], std::move(values[i]));
    PW_ASSIGN_OR_RETURN(const Flow flow, run(node.body, out));
    scopes_.pop_back();
    return flow;
  }

  Result<Flow> execute(const Macro& node, uint32_t line, Rope&) {
    PW_RETURN_IF_ERROR(at_line(line, session_.spend_search(scopes_.back().size())));
    Callable callable;
    callable.macro = &node;
    callable.scopes = scopes_.size();
    assign(node.name, callable);
    return Flow::kNext;
  }

  Result<Flow> execute(const Block& node, uint32_t, Rope& out) {
    scopes_.emplace_back();
    PW_ASSIGN_OR_RETURN(const Flow flow, run(node.body, out));
    scopes_.pop_back();
    return flow;
  }

  Result<Flow> execute(const Break&, uint32_t, Rope&) { return Flow::kBreak; }
  Result<Flow> execute(const Continue&, uint32_t, Rope&) { return Flow::kContinue; }

  // ---- expressions
  // --------------------------------------------------------------------------------

  Result<Value> eval(const Expr& expr) {
    const Level level(depth_);
    PW_RETURN_IF_ERROR(at_line(expr.line, level.check()));
    PW_RETURN_IF_ERROR(at_line(expr.line, session_.spend(1)));
    return std::visit([&](const auto& node) { return eval_node(node, expr.line); }, expr.node);
  }

  Result<Value> eval_node(const Literal& node, uint32_t) { return node.value; }

  Result<Value> eval_node(const Name& node, uint32_t line) {
    return at_line(line, look_up(node.name));
  }

  Result<Value> eval_node(const Attribute& node, uint32_t line) {
    PW_ASSIGN_OR_RETURN(const Value subject, eval(*node.subject));
    return at_line(line, get_attribute(subject, node.name, session_));
  }

  Result<Value> eval_node(const Subscript& node, uint32_t line) {
    PW_ASSIGN_OR_RETURN(const Value subject, eval(*node.subject));
    PW_ASSIGN_OR_RETURN(const Value key, eval(*node.key));
    return at_line(line, get_item(subject, key, session_));
  }

  Result<Value> eval_node(const Slice& node, uint32_t line) {
    PW_ASSIGN_OR_RETURN(const Value subject, eval(*node.subject));
    Value bounds[3] = {None{}, None{}, None{}};
    const ExprPtr* exprs[3] = {&node.start, &node.stop, &node.step};
    for (int i = 0; i < 3; ++i) {
      if (!*exprs[i]) continue;
      PW_ASSIGN_OR_RETURN(bounds[i], eval(**exprs[i]));
    }
    return at_line(line, get_slice(subject, bounds[0], bounds[1], bounds[2], session_));
  }

  Result<Value> eval_node(const Invocation& node, uint32_t line) {
    Value subject;
    if (node.subject) {
      PW_ASSIGN_OR_RETURN(subject, eval(*node.subject));
    }
    Call call{node.builtin->name, subject, {}, {}, {}, session_};
    for (const ExprPtr& argument : node.arguments) {
      auto& bound = call.arguments.emplace_back();
      if (!argument) continue;
      PW_ASSIGN_OR_RETURN(bound, eval(*argument));
    }
    for (const ExprPtr& argument : node.rest) {
      PW_ASSIGN_OR_RETURN(Value value, eval(*argument));
      call.rest.push_back(std::move(value));
    }
    for (const auto& [name, argument] : node.named) {
      PW_ASSIGN_OR_RETURN(Value value, eval(*argument));
      call.named.emplace_back(name, std::move(value));
    }
    auto result = node.builtin->function(call);
    if (node.builtin->raises) return result;
    return at_line(line, std::move(result));
  }

  Result<Value> eval_node(const NamedCall& node, uint32_t line) {
    return eval_call(node, line, nullptr);
  }

  /// `caller`: of a {% call %} around it; may be null.
  Result<Value> eval_call(const NamedCall& node, uint32_t line, const Callable* caller) {
    PW_ASSIGN_OR_RETURN(const Value callee, at_line(line, look_up(node.name)));
    const auto refuse = [&](std::string message) {
      return at_line(line, Error{ErrorCode::kInvalidArgument, std::move(message)});
    };
    if (callee.is_undefined()) return at_line(line, undefined_error(callee));
    if (callee.callable() == nullptr) {
      return refuse(fmt::format("'{}' is '{}' and cannot be called", node.name, type_name(callee)));
    }
    std::vector<Value> arguments;
    for (const ExprPtr& argument : node.arguments) {
      PW_ASSIGN_OR_RETURN(Value value, eval(*argument));
      arguments.push_back(std::move(value));
    }
    const Macro* macro = callee.callable()->macro;
    if (macro == nullptr) {
      return call_builtin(node, line, *callee.callable()->builtin, std::move(arguments));
    }
    if (arguments.size() > macro->parameters.size() && !macro->reads_varargs) {
      return refuse(fmt::format("macro '{}' takes at most {} argument(s)", node.name,
                                macro->parameters.size()));
    }
    if (caller != nullptr && !macro->reads_caller) {
      return refuse(fmt::format("macro '{}' has no use for a caller", node.name));
    }
    MacroCall call{*callee.callable(), arguments, {}, {}, caller};
    for (const auto& [name, argument] : node.named) {
      const auto& parameters = macro->parameters;
      const auto place = std::find(parameters.begin(), parameters.end(), name);
      const bool known = place != parameters.end();
      if (known ? static_cast<std::size_t>(place - parameters.begin()) < arguments.size()
                : !macro->reads_kwargs) {
        return refuse(fmt::format("macro '{}' takes no other argument '{}'", node.name, name));
      }
      PW_ASSIGN_OR_RETURN(Value value, eval(*argument));
      if (known) {
        call.named.emplace_back(name, std::move(value));
      } else {
        call.others.emplace_back(make_text(name), std::move(value));
      }
    }
    return call_macro(call);
  }

  /// A function under another name, or one that only some renderings have.
  Result<Value> call_builtin(const NamedCall& node, uint32_t line, const Builtin& builtin,
                             std::vector<Value> arguments) {
    const Value subject;
    Call call{builtin.name, subject, {}, {}, {}, session_};
    call.arguments.resize(builtin.parameters.size());
    const auto refuse = [&] {
      return at_line(line, Error{ErrorCode::kInvalidArgument,
                                 fmt::format("'{}' does not take these arguments", node.name)});
    };
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (i < call.arguments.size()) {
        call.arguments[i] = std::move(arguments[i]);
      } else if (builtin.any_positional) {
        call.rest.push_back(std::move(arguments[i]));
      } else {
        return refuse();
      }
    }
    for (const auto& [name, argument] : node.named) {
      PW_ASSIGN_OR_RETURN(Value value, eval(*argument));
      const auto place = std::find(builtin.parameters.begin(), builtin.parameters.end(), name);
      const auto slot = static_cast<std::size_t>(place - builtin.parameters.begin());
      if (place == builtin.parameters.end()) {
        if (!builtin.any_named) return refuse();
        call.named.emplace_back(name, std::move(value));
      } else if (call.arguments[slot]) {
        return refuse();
      } else {
        call.arguments[slot] = std::move(value);
      }
    }
    for (std::size_t i = 0; i < builtin.required; ++i) {
      if (!call.arguments[i]) return refuse();
    }
    auto result = builtin.function(call);
    if (builtin.raises) return result;
    return at_line(line, std::move(result));
  }

  struct MacroCall {
    const Callable& callee;
    const std::vector<Value>& arguments;
    Variables named;
    std::vector<std::pair<Value, Value>> others;  // names that are no parameters
    const Callable* caller;
  };

  Result<Value> call_macro(const MacroCall& call) {
    const Macro& macro = *call.callee.macro;
    // The macro sees what stands around its definition, not what its caller sees.
    std::vector<Variables> hidden;
    if (call.callee.closure != nullptr) {
      hidden = std::exchange(scopes_, call.callee.closure->scopes);
      uint64_t variables = 1;
      for (const Variables& scope : scopes_) variables += scope.size();
      PW_RETURN_IF_ERROR(session_.spend(variables));
    } else {
      const std::size_t visible = std::min(call.callee.scopes, scopes_.size());
      const auto first_hidden = scopes_.begin() + static_cast<std::ptrdiff_t>(visible);
      hidden.assign(std::make_move_iterator(first_hidden), std::make_move_iterator(scopes_.end()));
      scopes_.resize(visible);
    }
    const std::size_t visible = scopes_.size();
    scopes_.emplace_back();
    PW_RETURN_IF_ERROR(bind_parameters(macro, call));
    Rope out;
    PW_ASSIGN_OR_RETURN(const Flow flow, run(macro.body, out));
    (void)flow;  // the parser lets no break out of a macro
    if (call.callee.closure != nullptr) {
      scopes_ = std::move(hidden);
      return Value(std::move(out));
    }
    scopes_.resize(visible);
    scopes_.insert(scopes_.end(), std::make_move_iterator(hidden.begin()),
                   std::make_move_iterator(hidden.end()));
    return Value(std::move(out));
  }

  Status bind_parameters(const Macro& macro, const MacroCall& call) {
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const std::string& parameter = macro.parameters[i];
      Value value(Undefined{parameter});
      const auto given = std::find_if(call.named.begin(), call.named.end(),
                                      [&](const auto& entry) { return entry.first == parameter; });
      if (i < call.arguments.size()) {
        value = call.arguments[i];
      } else if (given != call.named.end()) {
        value = given->second;
      } else if (macro.defaults[i]) {
        PW_ASSIGN_OR_RETURN(value, eval(*macro.defaults[i]));
      }
      assign(parameter, std::move(value));
    }
    if (macro.reads_varargs) {
      const auto first = std::min(macro.parameters.size(), call.arguments.size());
      PW_ASSIGN_OR_RETURN(Value rest,
                          make_list({call.arguments.begin() + static_cast<std::ptrdiff_t>(first),
                                     call.arguments.end()},
                                    true));
      assign("varargs", std::move(rest));
    }
    if (macro.reads_kwargs) {
      PW_ASSIGN_OR_RETURN(Value others, make_dict(call.others));
      assign("kwargs", std::move(others));
    }
    if (macro.reads_caller) {
      assign("caller", call.caller != nullptr ? Value(*call.caller) : Value(Undefined{"caller"}));
    }
    return Status::ok();
  }

  Result<Value> eval_node(const Unary& node, uint32_t line) {
    PW_ASSIGN_OR_RETURN(const Value operand, eval(*node.operand));
    return at_line(line, apply_unary(node.op, operand));
  }

  Result<Value> eval_node(const Binary& node, uint32_t line) {
    PW_ASSIGN_OR_RETURN(Value left, eval(*node.left));
    if (node.op == Operator::kAnd || node.op == Operator::kOr) {
      if (truthy(left) == (node.op == Operator::kOr)) return left;
      return eval(*node.right);
    }
    PW_ASSIGN_OR_RETURN(const Value right, eval(*node.right));
    return at_line(line, apply_binary(node.op, left, right, session_));
  }

  Result<Value> eval_node(const Comparison& node, uint32_t line) {
    PW_ASSIGN_OR_RETURN(Value left, eval(*node.first));
    for (const auto& [op, operand] : node.rest) {
      PW_ASSIGN_OR_RETURN(Value right, eval(*operand));
      PW_ASSIGN_OR_RETURN(const bool holds,
                          at_line(line, apply_comparison(op, left, right, session_)));
      if (!holds) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  Result<Value> eval_node(const Conditional& node, uint32_t) {
    PW_ASSIGN_OR_RETURN(const Value condition, eval(*node.condition));
    if (truthy(condition)) return eval(*node.then);
    if (node.otherwise) return eval(*node.otherwise);
    return Value(Undefined{"the value of an 'if' without 'else'"});
  }

  Result<Value> eval_node(const ListDisplay& node, uint32_t line) {
    std::vector<Value> items;
    items.reserve(node.items.size());
    for (const ExprPtr& item : node.items) {
      PW_ASSIGN_OR_RETURN(Value value, eval(*item));
      items.push_back(std::move(value));
    }
    return at_line(line, make_list(std::move(items), node.is_tuple));
  }

  Result<Value> eval_node(const DictDisplay& node, uint32_t line) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key_expr, value_expr] : node.entries) {
      PW_ASSIGN_OR_RETURN(Value key, eval(*key_expr));
      PW_ASSIGN_OR_RETURN(Value value, eval(*value_expr));
      if (key.text() == nullptr) {
        return at_line(
            line, Error{ErrorCode::kInvalidArgument,
                        fmt::format("a dictionary's key must be text, not '{}'", type_name(key))});
      }
      PW_RETURN_IF_ERROR(at_line(line, session_.spend_search(entries.size())));
      bool replaced = false;
      for (auto& [old_key, old_value] : entries) {
        if (!equal(old_key, key)) continue;
        old_value = value;
        replaced = true;
      }
      if (!replaced) entries.emplace_back(std::move(key), std::move(value));
    }
    return at_line(line, make_dict(std::move(entries)));
  }

  Session session_;
  std::vector<Variables> scopes_;
  uint32_t depth_ = 0;
};

}  // namespace

Result<Rope> render(const Body& body, Variables variables, std::optional<int64_t> now) {
  return Evaluator(std::move(variables), now).run_template(body);
}

}  // namespace pagewise::text::jinja
