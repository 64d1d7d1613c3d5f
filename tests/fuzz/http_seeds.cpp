// The seeds of the target http: a byte that chooses what the bytes after it are.

#include <string>
#include <vector>

#include "tests/fuzz/seeds.h"

namespace hearth::fuzz {
namespace {

void add(Folder& out, char which, const std::string& bytes) {
  out.add(std::string(1, which) + bytes);
}

void connections(Folder& out) {
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  const std::string json = "Content-Type: application/json\r\n";
  const std::string chunked = head + json + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char step : {'\x02', '\x3F'}) {
    for (const std::string& bytes : std::vector<std::string>{
             "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models/a%20b HTTP/1.0\r\n\r\n",
             head + json + "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}GET /",
             chunked + "3;x=y\r\nabc\r\n0\r\nT: x\r\n\r\n", chunked + "fffffffff\r\n",
             head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
             head + "Origin: http://a\r\nsec-fetch-site: same-site\r\nx-api-key: k\r\n"
                    "Authorization: Bearer k\r\n\r\n",
             head + "Transfer-Encoding: gzip\r\n\r\n", head + "X: " + std::string(400, 'a'),
             "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "nonsense\r\n\r\n"}) {
      add(out, '\0', step + bytes);
    }
  }
  const std::string host =
      " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer 0123456789abcdef\r\n";
  for (const char* target : {"GET /",
                             "GET /v1/models?limit=1",
                             "GET /v1/models?x=1",
                             "POST /v1/rerank",
                             "POST /messages",
                             "GET /v1/health/",
                             "GET /v1/files?limit=1",
                             "DELETE /v1/files/a",
                             "GET /v1/files/a/content",
                             "POST /v1/batches/a/cancel",
                             "GET /v1/batches/a",
                             "DELETE /v1/responses/a%2",
                             "GET /v1/responses/a/input_items?limit=2",
                             "PUT /v1/responses/a",
                             "PATCH /v1/batches",
                             "POST /v1/requests/a/end_reasoning",
                             "DELETE /api/delete",
                             "GET /nonesuch",
                             "GET /api/tags",
                             "HEAD http://localhost/health",
                             "GET http://h.example",
                             "GET http://?",
                             "POST /v1/files"}) {
    add(out, '\0', '\x3F' + (target + host) + json + "\r\n");
    add(out, '\0', '\x3F' + std::string(target) + " HTTP/1.1\r\nHost: hearth\r\n\r\n");
  }
  const std::string upload = "POST /v1/files HTTP/1.1\r\nHost: hearth\r\nContent-Type: ";
  add(out, '\0', '\x3F' + upload + "multipart/form-data; boundary=\"a b\"\r\n\r\n");
  add(out, '\0', '\x3F' + upload + "multipart/form-data\r\n\r\n");
  add(out, '\0', '\x3F' + head + "Content-Encoding: gzip\r\n" + json + "\r\n");
  add(out, '\0',
      '\x3F' + head + "Content-Type: application/json; charset=utf-8\r\nExpect: x\r\n\r\n");
  add(out, '\0',
      "\x3F"
      "OPTIONS /v1/models HTTP/1.1\r\nHost: hearth\r\nOrigin: http://a\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
}

/// Bodies of all APIs, files of keys, texts.
void bodies(Folder& out) {
  add(out, '\6',
      "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n"
      "Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n{}\n\r\n--b--");
  add(out, '\6',
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"a"}})");
  add(out, '\6', R"({"input_file_id":"a","endpoint":"/v1/embeddings","metadata":{"a":"b"}})");
  for (const char* body :
       {R"({"prompt":"a","max_tokens":3,"n":2,"stop":["x"],"logit_bias":{"5":-1},"seed":7})",
        R"({"prompt":[1,2],"stream":true,"stream_options":{"include_usage":true},"logprobs":2})",
        R"({"prompt":["a","b"]})", R"({"prompt":"a","echo":true})", R"({"nonesuch":1})"}) {
    add(out, '\1', body);
  }
  for (
      const char* body :
      {R"({"messages":[{"role":"user","content":"a"}],"stream":true,"top_logprobs":1,"logprobs":true})",
       R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"b"}]}],"tools":[]})",
       R"({"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema",
            "json_schema":{"name":"n","schema":{"type":"string"}}},"chat_template_kwargs":{}})"}) {
    add(out, '\2', body);
  }
  add(out, '\3', R"({"input":"a","instructions":"b","text":{"format":{"type":"json_object"}}})");
  add(out, '\3',
      R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}],"stream":true})");
  add(out, '\4',
      R"({"max_tokens":3,"messages":[{"role":"user","content":"a"}],"system":"s","stream":true,
      "stop_sequences":["x"],"top_k":3,"thinking":{"type":"disabled"}})");
  add(out, '\4', R"({"max_tokens":3,"messages":[{"role":"assistant","content":"a"}]})");
  add(out, '\5', R"({"text":"a","raw":true})");
  add(out, '\5', R"({"text":"a","verb":"ping"})");
  add(out, '\6', "# keys\nme all 0123456789abcdef\nyou read,metrics\tfedcba9876543210\n");
  add(out, '\6', "me all short\n");
  add(out, '\7',
      R"({"model":"m:latest","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"",
      "thinking":"b","tool_calls":[{"function":{"index":0,"name":"f","arguments":{}}}]},
      {"role":"tool","tool_name":"f","content":"c"}],"stream":false,"think":"low","format":{"type":"object"},
      "options":{"num_predict":-2,"seed":-1,"stop":["x"],"num_ctx":9},"keep_alive":"5m"})");
  add(out, '\7',
      R"({"model":"m","prompt":"a","system":"s","raw":false,"images":[],"context":[],"logprobs":true})");
  add(out, '\7', R"({"model":"m","input":["a","b"],"dimensions":4,"truncate":true})");
  add(out, '\7', R"({"name":"m:latest","verbose":true})");
  add(out, '\7',
      R"({"model":"m","prompt":"","options":{"num_ctx":9,"temperature":1,"mirostat":0},"think":true})");
  add(out, '\7', "127.0.0.1:8080");
  add(out, '\7', "[::1]:80");
  add(out, '\7', "a\"b\\\n\x01\xC3\xA9");
}

/// Tools, reasoning and kept answers of OpenAI's APIs.
void tools(Folder& out) {
  const std::string tool =
      R"({"name":"f","description":"d","parameters":{"type":"object"},"strict":true})";
  const std::string messages = R"("messages":[{"role":"user","content":"a"}])";
  const std::string chat =
      "{" + messages + R"(,"tools":[{"type":"function","function":)" + tool +
      R"(},{"type":"custom","custom":{"name":"g","format":{"type":"grammar",)" +
      R"("grammar":{"syntax":"regex","definition":"[0-9]+"}}}}])";
  for (const char* choice :
       {R"("required","parallel_tool_calls":false)",
        R"({"type":"function","function":{"name":"f"}})",
        R"({"type":"custom","custom":{"name":"g"}})",
        R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function",)"
        R"("function":{"name":"f"}}]}})"}) {
    add(out, '\2', chat + R"(,"tool_choice":)" + choice + "}");
  }
  add(out, '\2',
      R"({"messages":[{"role":"system","content":"Today is Monday\nBe kind"},{"role":"user","content":[)"
      R"({"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]}],)"
      R"("prompt_cache_retention":"24h","reasoning_effort":"high","prediction":{"type":"content",)"
      R"("content":"a"},"user":"u","store":false,"stop_token_ids":[1],"stream":true})");
  for (const char* more :
       {R"("thinking":{"type":"enabled","budget_tokens":9})", R"("reasoning":{"effort":"low"})",
        R"("enable_thinking":false)", R"("structured_outputs":{"choice":["a","b\n"]})",
        R"("guided_regex":"a+")", R"("json_schema":{"type":"integer"})", R"("num_ctx":1)",
        R"("max_tokens":2,"max_completion_tokens":3)"}) {
    add(out, '\2', "{" + messages + "," + more + "}");
  }
  const std::string flat =
      R"("tools":[{"type":"function","name":"f","parameters":{}},{"type":"custom","name":"g",)"
      R"("format":{"type":"grammar","syntax":"regex","definition":"^a$"}}])";
  add(out, '\3',
      R"({"input":"a",)" + flat +
          R"(,"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":)"
          R"("custom","name":"g"}]},"include":["reasoning.encrypted_content"]})");
  const std::string items =
      R"([{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},)"
      R"({"role":"assistant","content":[{"type":"output_text","text":"b","annotations":[]}]},)"
      R"({"type":"function_call","call_id":"1","name":"f","arguments":"{\"a\":1}"},)"
      R"({"type":"custom_tool_call","call_id":"2","name":"g","input":"x"},)"
      R"({"type":"function_call_output","call_id":"1","output":"y"}])";
  add(out, '\3', R"({"input":)" + items + R"(,"reasoning":{"effort":"low","summary":"auto"}})");
  add(out, '\13', R"({"input":)" + items + R"(,"store":true})");
  add(out, '\13',
      R"({"input":"a","previous_response_id":"r"})"
      "\x1E"
      R"({"items":)" +
          items + "}");
  add(out, '\13',
      R"({"input":"a","previous_response_id":"r"})"
      "\x1E"
      "{");
}

/// Blocks of Anthropic's API.
void blocks(Folder& out) {
  const std::string front =
      R"({"system":[{"type":"text","text":"noon\ns","cache_control":{"type":"ephemeral"}}],)"
      R"("messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t",)"
      R"("signature":"s"},{"type":"text","text":"a","citations":[]},{"type":"tool_use","id":"1",)"
      R"("name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result",)"
      R"("tool_use_id":"1","content":[{"type":"text","text":"b"}],"is_error":true,)"
      R"("cache_control":{"type":"ephemeral","ttl":"90s","scope":"x"}}]}],)"
      R"("tools":[{"name":"f","input_schema":{},"input_examples":[],"cache_control":)"
      R"({"type":"ephemeral","ttl":"2d"},"eager_input_streaming":true}])";
  for (
      const char* more :
      {R"("max_tokens":9,"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true})",
       R"("max_tokens":9,"output_config":{"format":{"type":"json_schema","schema":{}},"effort":"low",)"
       R"("task_budget":{}},"context_management":{"edits":[{"type":"clear_thinking_20251015",)"
       R"("keep":"all"}]})",
       R"("max_tokens":9,"tool_choice":{"type":"any"},"metadata":{},"thinking":{"type":"adaptive",)"
       R"("display":"omitted"})"}) {
    add(out, '\4', front + "," + more + "}");
    add(out, '\12', front + "," + more + "}");
  }
}

/// Tokens, vectors, rankings, lists' parameters.
void others(Folder& out) {
  add(out, '\5', R"({"prompt":"a","add_special_tokens":false,"return_token_strs":false})");
  add(out, '\5', R"({"content":"a","add_special":true,"with_pieces":false,"model":"m"})");
  add(out, '\5', R"({"tokens":[1,2],"model":"m"})");
  add(out, '\5', R"({"tokens":[]})");
  for (const char* body :
       {R"({"input":"a","model":"m","encoding_format":"base64","dimensions":2,"user":"u"})",
        R"({"input":["a","b"],"pooling":"mean","normalize":false,"encoding_format":"float"})",
        R"({"input":[1,2]})", R"({"input":[[1],[2,3]],"dimensions":3})", R"({"input":[]})",
        R"({"input":["a",1]})", R"({"input":"a","nonesuch":1})", "{}"}) {
    add(out, '\10', body);
  }
  for (const char* body :
       {R"({"query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true})",
        R"({"query":"q","documents":["a","b"],"raw_scores":true,"model":"m","user":"u"})",
        R"({"query":"q","documents":[]})", R"({"documents":[1],"query":"q"})",
        R"({"query":"q","documents":["a"],"top_n":0})"}) {
    add(out, '\11', body);
  }
  for (const char* query :
       {"limit=3&order=asc&after=a&beta=1", "limit=0", "order=up", "purpose=batch&limit=100",
        "include=x&stream=false", "starting_after=1", "Today is *=Today is Monday", "*a*b=xaab"}) {
    add(out, '\14', query);
  }
}

}  // namespace

void http_seeds(Folder out) {
  connections(out);
  bodies(out);
  tools(out);
  blocks(out);
  others(out);
}

}  // namespace hearth::fuzz
