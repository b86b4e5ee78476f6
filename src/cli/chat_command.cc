// SPDX-License-Identifier: Apache-2.0
// `pagewise chat`: a conversation in the terminal, or one message a line from a pipe, with the
// engine in this process.
#include <fmt/format.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "cli/chat_engine.h"
#include "cli/chat_session.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/model_argument.h"
#include "cli/process.h"
#include "cli/shared_flags.h"

namespace pagewise::cli {
namespace {

struct ChatFlags {
  ModelArgument model;
  ChatEngineOptions engine;
  std::string system;
  CLI::Option* seed = nullptr;
};

/// A message longer than this is not one that a model reads; the bound keeps memory in bounds.
constexpr std::size_t kLineBytesMax = std::size_t{64} << 20;

/// The next line of standard input; false at its end.
Result<bool> next_line(std::string& line) {
  line.clear();
  for (int c = 0; (c = std::getc(stdin)) != EOF;) {
    if (c == '\n') return true;
    if (line.size() == kLineBytesMax) {
      return Error{ErrorCode::kInvalidArgument, "a line of more than 64 MiB on standard input"};
    }
    line.push_back(static_cast<char>(c));
  }
  if (std::ferror(stdin) != 0) return Error{ErrorCode::kIo, "standard input cannot be read"};
  return !line.empty();
}

/// One message a line; the first failure ends it.
Status chat_with_pipe(ChatSession& session) {
  std::string line;
  for (bool leave = false; !leave;) {
    PW_ASSIGN_OR_RETURN(const bool more, next_line(line));
    if (!more) break;
    PW_RETURN_IF_ERROR(session.take(line, leave));
  }
  return Status::ok();
}

Status chat_with_person(ChatSession& session, const ChatEngine& engine, Interrupts& interrupts) {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<LineEditor> editor,
                      LineEditor::create("> ", interrupts));
  fmt::print("{}\n", dimmed(fmt::format("{}, {} tokens of context. /help lists the commands, "
                                        "Ctrl-D leaves.",
                                        engine.name(), engine.context_max())));
  std::string line;
  for (bool leave = false; !leave && interrupts.leaving() == 0;) {
    switch (editor->read(line)) {
      case LineEnd::kLine:
        if (const Status status = session.take(line, leave); !status) {
          fmt::print("{}\n", status.error().message);
        }
        break;
      case LineEnd::kInterrupt:
        fmt::print("\n");
        if (line.empty()) fmt::print("{}\n", dimmed("(Ctrl-D or /exit leaves)"));
        break;
      case LineEnd::kEnd:
        fmt::print("\n");
        leave = true;
        break;
    }
  }
  return Status::ok();
}

Status chat(const ChatFlags& flags) {
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  ChatEngineOptions options = flags.engine;
  if (flags.seed->count() == 0 &&
      RAND_bytes(reinterpret_cast<unsigned char*>(&options.sampling.seed),
                 sizeof options.sampling.seed) != 1) {
    return {ErrorCode::kIo, "the system gives no random numbers"};
  }
  PW_ASSIGN_OR_RETURN(options.model, find_model(flags.model));
  std::unique_ptr<ChatEngine> engine;
  {
    const SignalsForMainThread mask;
    PW_ASSIGN_OR_RETURN(engine, ChatEngine::create(options));
  }
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupts> interrupts, Interrupts::create(terminal));
  ChatSession session(*engine, *interrupts, flags.system, terminal);
  if (!terminal) return chat_with_pipe(session);
  const Status status = chat_with_person(session, *engine, *interrupts);
  // Whoever sent the signal sees that it was it that ended the program.
  if (const int signal = interrupts->leaving(); signal != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  return status;
}

}  // namespace

void add_chat_command(CLI::App& app, int& exit_status) {
  const auto flags = std::make_shared<ChatFlags>();
  flags->engine.sampling.temperature = 0.7F;
  CLI::App* command = app.add_subcommand("chat", "Talk to a model in the terminal");
  add_model_argument(*command, flags->model, "A GGUF file, or a model's name (pagewise models)");
  command->add_option("--chat-template", flags->engine.chat_template,
                      "File of a chat template to use in place of the model file's own");
  command->add_option("--system", flags->system, "System message");
  command
      ->add_option("--max-tokens", flags->engine.max_tokens,
                   "Tokens of an answer at most; 0: what the context has left")
      ->capture_default_str()
      ->check(whole_in(0, 1U << 30));
  add_sampling_flags(*command, flags->engine.sampling);
  flags->seed = command
                    ->add_option("--seed", flags->engine.sampling.seed,
                                 "Of the draws; another one each time when it is not given")
                    ->check(whole_in(0, UINT64_MAX));
  add_compute_flags(*command, flags->engine.compute);
  add_pool_flags(*command, flags->engine.kv_memory, flags->engine.max_context);
  command->add_flag("--no-prefix-cache{false}", flags->engine.prefix_cache,
                    "Compute the whole conversation again at every turn: the same answers, later");
  command->callback([flags, &exit_status] { finish("chat", chat(*flags), exit_status); });
}

}  // namespace pagewise::cli
