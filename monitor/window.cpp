#include "monitor/window.h"

#define GLFW_INCLUDE_NONE
#include <GL/gl.h>
#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <atomic>
#include <string>
#include <thread>

#include "ipc/client.h"
#include "kernels/base/clock.h"
#include "monitor/feed.h"
#include "monitor/offscreen.h"

namespace hearth::monitor {
namespace {

std::string glfw_problem;  // GLFW's callback has no place for a pointer of ours

/// While nothing happens the program sleeps; this is how late a message can be drawn.
constexpr double kWaitS = 0.05;
/// After input several frames follow: what was pressed shows its effect in the next ones.
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

/// Asks on a thread of its own: the window never waits for the daemon.
class Canceller {
 public:
  explicit Canceller(std::filesystem::path runtime) : runtime_(std::move(runtime)) {}
  ~Canceller() {
    if (thread_.joinable()) thread_.join();
  }
  void ask(const std::string& id) {
    if (busy_.exchange(true)) return;
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([this, id] {
      ipc::ClientOptions options;
      options.runtime_dir = runtime_;
      if (Result<ipc::Client> client = ipc::Client::connect(options); client.ok()) {
        (void)client->cancel(id).ok();
      }
      busy_ = false;
    });
  }

 private:
  std::filesystem::path runtime_;
  std::atomic<bool> busy_{false};
  std::thread thread_;
};

}  // namespace

Result<Settings> run_window(const WindowOptions& options) {
  glfwSetErrorCallback(
      [](int code, const char* text) { glfw_problem = fmt::format("{} ({:#x})", text, code); });
  Glfw glfw;
  if (glfwInit() != GLFW_TRUE) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("no window: {}; pictures need none: --screenshot FILE.png", glfw_problem), ""};
  }
  glfw.started = true;
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  glfw.window =
      glfwCreateWindow(options.settings.width, options.settings.height, "hearth", nullptr, nullptr);
  if (glfw.window == nullptr) {
    return Error{ErrorCode::kUnsupported, fmt::format("no window: {}", glfw_problem), ""};
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

  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Feed> feed, Feed::open(options.runtime_dir));
  Canceller canceller(feed->runtime_dir());
  const std::unique_ptr<Textures> textures = make_gl_textures();
  App app(options.settings.dark, scale);
  View& view = app.view();
  view.panel = options.settings.panel;
  view.batch_window_s = options.settings.batch_window_s;
  view.ceilings = options.settings.ceilings;
  view.textures = textures.get();
  view.cancel = [&canceller](const std::string& id) { canceller.ask(id); };

  const SteadyClock clock;
  const int64_t begin_us = clock.now_us();
  while (!glfwWindowShouldClose(glfw.window) && !app.quit()) {
    glfwWaitEventsTimeout(frames_due > 0 ? 0.001 : kWaitS);
    for (const ipc::StreamMessage& message : feed->wait(0)) app.apply(message);
    app.set_now(clock.now_us());
    if (options.exit_after_s > 0 &&
        static_cast<double>(clock.now_us() - begin_us) / 1e6 > options.exit_after_s) {
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
