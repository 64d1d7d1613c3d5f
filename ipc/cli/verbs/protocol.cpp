// hearth protocol: the documentation of the socket, written from the field table.

#include "ipc/cli/exit_code.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/wire/protocol_page.h"

namespace hearth::cli {

int protocol() { return write_stdout(ipc::protocol_page()) ? kOk : kFailed; }

}  // namespace hearth::cli
