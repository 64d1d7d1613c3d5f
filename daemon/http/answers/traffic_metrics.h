#pragma once
// The part of /metrics that the broker measures: waits for tokens under hearth's own names, and the
// figures that routers of vLLM servers read, under vLLM's names. Pure.

#include "daemon/http/answers/metrics_page.h"
#include "daemon/http/model_traffic.h"
#include "ipc/schema/replies.h"

namespace hearth::http {

void add_traffic(MetricsPage& page, const ipc::StatsReply& stats, const ModelTraffics& traffic);

}  // namespace hearth::http
