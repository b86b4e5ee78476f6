// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <fmt/format.h>

#include <memory>
#include <string_view>
#include <vector>

#include "cli/terminal_text.h"

namespace pagewise::cli {
namespace {

constexpr std::size_t kShown = 60;  // characters of what was typed

/// Options as "--threads N (0)": a letter for what to give, the default behind it.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    // CLI11 writes "--flag{value}" for flags that set something else than true.
    while (name.find('{') != std::string::npos) {
      const std::size_t open = name.find('{');
      name.erase(open, name.find('}', open) - open + 1);
    }
    return name;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    std::string type = option->get_type_name();
    if (const std::size_t set = type.find('{'); set != std::string::npos) {
      type = type.substr(set + 1, type.find('}') - set - 1);
      for (std::size_t at = 0; (at = type.find(',', at)) != std::string::npos;) type[at] = '|';
    } else if (type.starts_with("UINT") || type.starts_with("INT")) {
      type = "N";
    } else if (type.starts_with("FLOAT")) {
      type = "X";
    }
    std::string out = " " + type;
    if (!option->get_default_str().empty()) {
      out += fmt::format(" ({})", option->get_default_str());
    }
    if (option->get_expected_max() > 1) out += " ...";
    return out;
  }
};

const CLI::App& chosen(const CLI::App& app) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  for (const CLI::App* command : commands) {
    if (command->parsed()) return *command;
  }
  return app;
}

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

/// The library's own words, turned into ours where they say too little.
std::string told(const CLI::App& app, const CLI::App& command, const CLI::Error& error) {
  const std::string message = error.what();
  const auto shown = [](std::string_view text) { return one_line(text, kShown); };
  if (&command == &app) {
    const std::vector<std::string> left = app.remaining();
    if (left.empty()) return fmt::format("no command given; there are {}", command_names(app));
    return fmt::format("no {} '{}'; the commands are {}",
                       left.front().starts_with('-') ? "flag" : "command", shown(left.front()),
                       command_names(app));
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> left = command.remaining();
    for (const std::string& word : left) {
      if (word.starts_with('-') && word.size() > 1) {
        return fmt::format("no flag {}", shown(word.substr(0, word.find('='))));
      }
    }
    if (!left.empty()) return fmt::format("'{}' is one argument too many", shown(left.front()));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return message.substr(0, message.find(' ')) + " is missing";
  }
  if (message.ends_with(" missing")) {  // "--temp: 1 required FLOAT missing"
    return message.substr(0, message.find(':')) + ": its value is missing";
  }
  constexpr std::string_view kNotConverted = "Could not convert: ";
  if (message.starts_with(kNotConverted)) {
    const std::size_t equals = message.find(" = ");
    return fmt::format("{}: '{}' is not what it takes",
                       message.substr(kNotConverted.size(), equals - kNotConverted.size()),
                       equals == std::string::npos ? "" : shown(message.substr(equals + 3)));
  }
  return one_line(message, 300);
}

}  // namespace

void shape_command_line(CLI::App& app) {
  app.name("pagewise");
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(34);
  app.formatter(formatter);
  for (CLI::App* command : app.get_subcommands({})) {
    command->formatter(formatter);
    for (CLI::Option* option : command->get_options()) {
      if (option->get_expected_max() == 1 && option->get_type_size() == 1 &&
          !option->get_positional()) {
        option->take_last();
      }
    }
  }
}

std::string usage_error(const CLI::App& app, const CLI::Error& error) {
  const CLI::App& command = chosen(app);
  const std::string name = &command == &app ? "" : " " + command.get_name();
  return fmt::format("pagewise{}: {} (pagewise{} --help lists what there is)\n", name,
                     told(app, command, error), name);
}

}  // namespace pagewise::cli
