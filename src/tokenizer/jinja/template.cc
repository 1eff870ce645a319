#include "tokenizer/jinja/template.h"

#include "base/error.h"
#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {

namespace {
constexpr size_t max_source = 4u << 20;  // published templates have up to 20 KB
}

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  if (source.size() > max_source) fail("{}: a template of {} bytes, more than {}", name_, source.size(), max_source);
  if (!unicode::is_valid(source)) fail("{}: the template is not UTF-8", name_);
  try {
    body_ = std::make_shared<const Body>(parse(source));
  } catch (const TemplateError& error) {
    fail("{} line {}: {}", name_, error.line, error.what());
  }
}

Template::Result Template::render(const std::map<std::string, Value>& variables, const Options& options) const {
  Result result;
  try {
    result.text = Interpreter(options).render(*body_, variables);
    result.ok = true;
  } catch (const TemplateError& error) {
    result.error = fmt::format("{} line {}: {}", name_, error.line, error.what());
  }
  return result;
}

}  // namespace medley::jinja
