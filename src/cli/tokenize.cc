// medley tokenize: text to token ids.
#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "models/model_source.h"

namespace medley::cli {
namespace {

struct TokenizeOptions {
  std::string model, text;
  bool show = false;
  bool no_special = false;
};

int tokenize(const TokenizeOptions& options) {
  const std::unique_ptr<ModelSource> model = open_model(options.model);
  const std::optional<Tokenizer> found = model->tokenizer();
  if (!found) fail("{} has no {}; it is needed to turn text into tokens", model->name(), model->tokenizer_place());
  const Tokenizer& tokenizer = *found;
  const std::string text =
      options.text == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : options.text;
  const std::vector<int32_t> ids = tokenizer.encode(text, !options.no_special);
  if (options.show) {
    for (const int32_t id : ids) std::cout << fmt::format("{}\t{}\n", id, tokenizer.token(id).value_or("(no token)"));
    return done;
  }
  std::cout << fmt::format("{}\n", fmt::join(ids, ","));
  return done;
}

constexpr const char* examples = R"text(Examples:
  medley tokenize models/demo-jamba "Once upon a time"
  medley tokenize models/demo-jamba "Once upon a time" --show
  medley tokenize models/demo-jamba - < README.md
  medley run MODEL --ids $(medley tokenize MODEL "Once upon a time"))text";

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text, comma separated");
  auto options = std::make_shared<TokenizeOptions>();
  add_model_option(*command, options->model);
  command->add_option("TEXT", options->text, "The text; \"-\": stdin, every byte of it")->required()->type_name("");
  command->add_flag("--show", options->show, "One line for each token: id, tab, the token as the vocabulary spells it");
  command->add_flag("--no-special", options->no_special,
                    "Without the special tokens that the tokenizer adds (BOS, EOS)");
  command->footer(examples);
  command->callback([options, &action] { action = [options] { return tokenize(*options); }; });
}

}  // namespace medley::cli
