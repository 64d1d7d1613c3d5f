#include "monitor/window/window.h"

#define GLFW_INCLUDE_NONE
#include <GL/gl.h>
#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>
#include <fmt/core.h>
#include <imgui.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/numbers.h"
#include "monitor/commands/actions.h"
#include "monitor/snapshot/feed.h"
#include "monitor/window/offscreen.h"

namespace hearth::monitor {
namespace {

std::string glfw_problem;  // global because GLFW's error callback takes no user pointer

/// The program sleeps while nothing happens; this is the longest delay before a message is drawn.
constexpr double kWaitS = 0.05;
/// Draw several frames after input, because its effects show in the following frames.
constexpr int kFramesAfterInput = 3;

struct Glfw {
  GLFWwindow* window = nullptr;
  bool started = false;
  bool imgui = false;
  ~Glfw() {
    if (imgui) {
      ImGui_ImplOpenGL3_Shutdown();
      ImGui_ImplGlfw_Shutdown();
      ImGui::DestroyContext();
    }
    if (window != nullptr) glfwDestroyWindow(window);
    if (started) glfwTerminate();
  }
};

int frames_due = kFramesAfterInput;
void on_input() { frames_due = kFramesAfterInput; }

/// The source of messages, and the time to draw.
class Source {
 public:
  virtual ~Source() = default;
  virtual void give(App& app) = 0;
};

class LiveSource final : public Source {
 public:
  explicit LiveSource(std::unique_ptr<Feed> feed) : feed_(std::move(feed)) {}
  void give(App& app) override {
    for (const ipc::StreamMessage& message : feed_->wait(0)) app.apply(message);
    app.set_now(clock_.now_us());
  }

 private:
  std::unique_ptr<Feed> feed_;
  SteadyClock clock_;
};

/// Its time stops at the end of the recording, so that the daemon does not appear lost.
class RecordedSource final : public Source {
 public:
  explicit RecordedSource(const std::vector<ipc::StreamMessage>& recording)
      : recording_(recording), begin_us_(clock_.now_us()) {}
  void give(App& app) override {
    const int64_t now_us = std::min(recording_.front().time_us + clock_.now_us() - begin_us_,
                                    recording_.back().time_us);
    while (next_ < recording_.size() && recording_[next_].time_us <= now_us) {
      app.apply(recording_[next_++]);
    }
    app.set_now(now_us);
  }

 private:
  const std::vector<ipc::StreamMessage>& recording_;
  SteadyClock clock_;
  int64_t begin_us_;
  size_t next_ = 0;
};

}  // namespace

Result<Settings> run_window(const WindowOptions& options) {
  glfwSetErrorCallback(
      [](int code, const char* text) { glfw_problem = fmt::format("{} ({:#x})", text, code); });
  Glfw glfw;
  if (glfwInit() != GLFW_TRUE) {
    return Error::unsupported(
        fmt::format("no window: {}; pictures need none: --screenshot FILE.png", glfw_problem));
  }
  glfw.started = true;
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  glfw.window =
      glfwCreateWindow(options.settings.width, options.settings.height, "hearth", nullptr, nullptr);
  if (glfw.window == nullptr) {
    return Error::unsupported(fmt::format("no window: {}", glfw_problem));
  }
  glfwMakeContextCurrent(glfw.window);
  glfwSwapInterval(1);
  glfwSetCursorPosCallback(glfw.window, [](GLFWwindow*, double, double) { on_input(); });
  glfwSetWindowSizeCallback(glfw.window, [](GLFWwindow*, int, int) { on_input(); });
  glfwSetWindowRefreshCallback(glfw.window, [](GLFWwindow*) { on_input(); });
  glfwSetMouseButtonCallback(glfw.window, [](GLFWwindow*, int, int, int) { on_input(); });
  glfwSetScrollCallback(glfw.window, [](GLFWwindow*, double, double) { on_input(); });
  glfwSetKeyCallback(glfw.window, [](GLFWwindow*, int, int, int, int) { on_input(); });
  float scale = 1, ignored = 1;
  glfwGetWindowContentScale(glfw.window, &scale, &ignored);
  IMGUI_CHECKVERSION();
  ImGui::CreateContext();
  glfw.imgui = true;
  ImGui::GetIO().IniFilename = nullptr;
  ImGui_ImplGlfw_InitForOpenGL(glfw.window, true);  // chains to the callbacks above
  ImGui_ImplOpenGL3_Init("#version 330");

  std::unique_ptr<Source> source;
  std::unique_ptr<Actions> actions;
  if (options.recording.empty()) {
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Feed> feed, Feed::open(options.runtime_dir));
    actions = std::make_unique<Actions>(feed->runtime_dir());
    source = std::make_unique<LiveSource>(std::move(feed));
  } else {
    source = std::make_unique<RecordedSource>(options.recording);
  }
  const std::unique_ptr<Textures> textures = make_gl_textures();
  App app(options.settings.dark, scale);
  View& view = app.view();
  view.panel = options.settings.panel;
  view.batch_window_s = options.settings.batch_window_s;
  view.ceilings = options.settings.ceilings;
  view.textures = textures.get();
  if (actions != nullptr) {
    view.ask = [&actions](const Command& command) { actions->ask(command); };
  }

  const SteadyClock clock;
  const int64_t begin_us = clock.now_us();
  while (!glfwWindowShouldClose(glfw.window) && !app.quit()) {
    glfwWaitEventsTimeout(frames_due > 0 ? 0.001 : kWaitS);
    source->give(app);
    if (actions != nullptr) {
      for (const Answer& answer : actions->answers()) app.answer(answer);
    }
    if (options.exit_after_s > 0 && us_as_s(clock.now_us() - begin_us) > options.exit_after_s) {
      break;
    }
    if (glfwGetWindowAttrib(glfw.window, GLFW_ICONIFIED) != 0) continue;
    if (frames_due <= 0 && !app.wants_frame()) continue;
    --frames_due;
    ImGui_ImplOpenGL3_NewFrame();
    ImGui_ImplGlfw_NewFrame();
    ImGui::NewFrame();
    app.frame();
    ImGui::Render();
    int width = 0, height = 0;
    glfwGetFramebufferSize(glfw.window, &width, &height);
    glViewport(0, 0, width, height);
    glClear(GL_COLOR_BUFFER_BIT);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    glfwSwapBuffers(glfw.window);
  }
  Settings settings = options.settings;
  settings.dark = view.theme.dark;
  settings.panel = view.panel;
  settings.batch_window_s = view.batch_window_s;
  settings.ceilings = view.ceilings;
  glfwGetWindowSize(glfw.window, &settings.width, &settings.height);
  return settings;
}

}  // namespace hearth::monitor
