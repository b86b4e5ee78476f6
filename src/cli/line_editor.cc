// SPDX-License-Identifier: Apache-2.0
#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "text/utf8.h"

namespace pagewise::cli {
namespace {

constexpr int kHistoryLines = 1000;
constexpr std::string_view kPasteOn = "\x1b[?2004h";  // pasted text comes between two marks
constexpr std::string_view kPasteOff = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

std::wstring widen(std::string_view text) {
  std::wstring out;
  while (!text.empty()) {
    const text::Utf8Unit unit = text::utf8_unit(text);
    out.push_back(unit.kind == text::Utf8Kind::kCharacter
                      ? static_cast<wchar_t>(text::utf8_decode(text.substr(0, unit.length)))
                      : L'\uFFFD');
    text.remove_prefix(unit.length);
  }
  return out;
}

std::string narrow(std::wstring_view text) {
  std::string out;
  for (const wchar_t character : text) {
    text::utf8_append(static_cast<uint32_t>(character), out);
  }
  return out;
}

/// Widths and output of the library follow the locale; a terminal that says nothing gets UTF-8.
void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

/// Keys that terminals send and the library does not know by itself.
constexpr std::array<std::pair<const wchar_t*, const wchar_t*>, 19> kKeys = {{
    {L"\\e[1;5D", L"ed-prev-word"},  // Ctrl-Left
    {L"\\e[1;5C", L"em-next-word"},  // Ctrl-Right
    {L"\\e[1;3D", L"ed-prev-word"},  // Alt-Left
    {L"\\e[1;3C", L"em-next-word"},  // Alt-Right
    {L"\\e[5D", L"ed-prev-word"},    // Ctrl-Left of older terminals
    {L"\\e[5C", L"em-next-word"},        {L"\\e[H", L"ed-move-to-beg"},  // Home
    {L"\\e[F", L"ed-move-to-end"},                                       // End
    {L"\\e[1~", L"ed-move-to-beg"},      {L"\\e[4~", L"ed-move-to-end"},
    {L"\\eOH", L"ed-move-to-beg"},       {L"\\eOF", L"ed-move-to-end"},
    {L"\\e[3~", L"ed-delete-next-char"},  // Delete
    {L"^R", L"em-inc-search-prev"},      {L"^W", L"ed-delete-prev-word"},
    {L"\\e^?", L"ed-delete-prev-word"},                                    // Alt-Backspace
    {L"\\e[200~", L"pagewise-paste"},    {L"\\e^M", L"pagewise-newline"},  // Alt-Enter
    {L"\\e^J", L"pagewise-newline"},
}};

}  // namespace

struct LineEditor::Impl {
  std::wstring prompt;
  Interrupts* interrupts = nullptr;
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  bool marks_pastes = false;
  std::string typed;  // bytes read and not yet given to the editor
  bool closed = false;
  bool interrupted = false;

  ~Impl() {
    if (editor != nullptr) el_end(editor);
    if (history != nullptr) history_wend(history);
  }

  static Impl& of(EditLine* editor) {
    void* self = nullptr;
    el_wget(editor, EL_CLIENTDATA, &self);
    return *static_cast<Impl*>(self);
  }

  void mark_pastes(bool on) const {
    if (!marks_pastes) return;
    const std::string_view text = on ? kPasteOn : kPasteOff;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  /// Ctrl-Z: the terminal is given back as it was, and taken again when the program goes on.
  void suspend() {
    mark_pastes(false);
    el_wset(editor, EL_PREP_TERM, 0);
    interrupts->suspend();
    el_wset(editor, EL_PREP_TERM, 1);
    mark_pastes(true);
    el_wset(editor, EL_REFRESH);
  }

  /// The next character: 1, or 0 when no more come, or -1 when Ctrl-C ends the line.
  int next(wchar_t& out) {
    for (;;) {
      if (!typed.empty()) {
        const text::Utf8Unit unit = text::utf8_unit(typed);
        if (unit.kind != text::Utf8Kind::kIncomplete || closed) {
          const bool whole = unit.kind == text::Utf8Kind::kCharacter;
          out = whole ? static_cast<wchar_t>(text::utf8_decode(typed.substr(0, unit.length)))
                      : L'\uFFFD';
          typed.erase(0, unit.length);
          return 1;
        }
      }
      if (closed) return 0;
      interrupts->wait(STDIN_FILENO);
      if (interrupts->leaving() != 0) closed = true;
      if (interrupts->take_suspend()) suspend();
      if (interrupts->take_resize()) el_resize(editor);
      if (interrupts->take_interrupt()) {
        typed.clear();
        interrupted = true;
        return -1;
      }
      take_typed();
    }
  }

  void take_typed() {
    std::array<char, 4096> bytes;
    // The wait may have ended for another reason; a terminal in raw mode is asked without waiting.
    if (!interrupts->readable(STDIN_FILENO)) return;
    const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count > 0) {
      typed.append(bytes.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      closed = true;
    }
  }

  static int get_character(EditLine* editor, wchar_t* out) { return of(editor).next(*out); }

  static wchar_t* get_prompt(EditLine* editor) { return of(editor).prompt.data(); }

  /// Everything up to the end mark is text, whatever keys it would be.
  static unsigned char paste(EditLine* editor, wint_t /*key*/) {
    std::wstring pasted;
    wchar_t character = 0;
    while (!pasted.ends_with(kPasteEnd)) {
      if (el_wgetc(editor, &character) != 1) return CC_EOF;
      pasted.push_back(character);
    }
    pasted.resize(pasted.size() - kPasteEnd.size());
    std::wstring text;
    for (std::size_t i = 0; i < pasted.size(); ++i) {
      const wchar_t c = pasted[i];
      if (c == L'\r') {  // terminals send what Enter sends
        if (i + 1 == pasted.size() || pasted[i + 1] != L'\n') text.push_back(L'\n');
      } else if (c == L'\n' || c == L'\t' || (c >= 0x20 && c != 0x7F && !(c >= 0x80 && c < 0xA0))) {
        text.push_back(c);
      }
    }
    while (text.ends_with(L'\n')) text.pop_back();
    if (text.empty()) return CC_NORM;
    return el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char newline(EditLine* editor, wint_t /*key*/) {
    return el_winsertstr(editor, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }
};

LineEditor::LineEditor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineEditor::~LineEditor() = default;

Result<std::unique_ptr<LineEditor>> LineEditor::create(std::string_view prompt,
                                                       Interrupts& interrupts) {
  use_utf8_locale();
  auto impl = std::make_unique<Impl>();
  impl->prompt = widen(prompt);
  impl->interrupts = &interrupts;
  const char* terminal = std::getenv("TERM");
  impl->marks_pastes = terminal != nullptr && std::string_view(terminal) != "dumb";
  impl->editor = el_init("pagewise", stdin, stdout, stderr);
  impl->history = history_winit();
  if (impl->editor == nullptr || impl->history == nullptr) {
    return Error{ErrorCode::kInternal, "the line editor cannot be set up on this terminal"};
  }
  EditLine* const editor = impl->editor;
  HistEventW event;
  history_w(impl->history, &event, H_SETSIZE, kHistoryLines);
  history_w(impl->history, &event, H_SETUNIQUE, 1);
  el_wset(editor, EL_CLIENTDATA, impl.get());
  el_wset(editor, EL_EDITOR, L"emacs");
  el_wset(editor, EL_SIGNAL, 0);
  el_wset(editor, EL_PROMPT, &Impl::get_prompt);
  el_wset(editor, EL_HIST, history_w, impl->history);
  el_wset(editor, EL_GETCFN, &Impl::get_character);
  el_wset(editor, EL_ADDFN, L"pagewise-paste", L"Insert what the terminal pastes", &Impl::paste);
  el_wset(editor, EL_ADDFN, L"pagewise-newline", L"Begin a new line", &Impl::newline);
  for (const auto& [keys, function] : kKeys) el_wset(editor, EL_BIND, keys, function, nullptr);
  el_source(editor, nullptr);  // the user's ~/.editrc, where there is one
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(impl)));
}

LineEnd LineEditor::read(std::string& line) {
  line.clear();
  impl_->interrupted = false;
  impl_->interrupts->take_interrupt();  // one that came before there was a prompt
  // Raw first: what is typed as soon as the marks are seen must not meet the line discipline, where
  // Ctrl-D would end a line that nobody reads.
  el_wset(impl_->editor, EL_PREP_TERM, 1);
  impl_->mark_pastes(true);
  int count = 0;
  const wchar_t* const typed = el_wgets(impl_->editor, &count);
  impl_->mark_pastes(false);
  if (typed == nullptr || count <= 0) {
    if (!impl_->interrupted) return LineEnd::kEnd;
    const LineInfoW* const left = el_wline(impl_->editor);
    line = narrow({left->buffer, static_cast<std::size_t>(left->lastchar - left->buffer)});
    el_wset(impl_->editor, EL_PREP_TERM, 0);
    return LineEnd::kInterrupt;
  }
  std::wstring_view text(typed, static_cast<std::size_t>(count));
  while (text.ends_with(L'\n') || text.ends_with(L'\r')) text.remove_suffix(1);
  line = narrow(text);
  if (!text.empty()) {
    HistEventW event;
    history_w(impl_->history, &event, H_ENTER, std::wstring(text).c_str());
  }
  return LineEnd::kLine;
}

}  // namespace pagewise::cli
