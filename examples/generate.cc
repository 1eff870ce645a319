// Several prompts at a time through the library: example_generate MODEL PROMPT...
#include <medley/engine.h>

#include <exception>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) return std::cerr << "usage: example_generate MODEL PROMPT...\n", 2;
  try {
    const std::vector<std::string> prompts(argv + 2, argv + argc);
    std::vector<std::string> texts = prompts;  // outlives the engine, whose callbacks write to it
    const auto engine = medley::Engine::load(argv[1]);
    for (size_t i = 0; i < prompts.size(); ++i) {
      medley::GenerationRequest request{.prompt = prompts[i], .sampling = engine->default_sampling()};
      request.sampling.max_tokens = 40;
      // Called on the engine's thread, token by token.
      const auto submitted = engine->submit(request, [&text = texts[i]](const medley::Event& event) {
        text += event.text;
        if (event.finish == medley::Finish::error) text += " [" + event.error + "]";
      });
      if (!submitted) return std::cerr << "refused: " << submitted.error << "\n", 1;
    }
    engine->wait();
    for (const std::string& text : texts) std::cout << text << "\n\n";
  } catch (const std::exception& error) {
    return std::cerr << error.what() << "\n", 1;
  }
}
