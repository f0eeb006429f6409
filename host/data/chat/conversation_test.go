package chat

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// said returns a conversation as one line.
func said(c Conversation) string {
	var parts []string
	for _, m := range c {
		parts = append(parts, m.Role+": "+m.Content)
	}
	return strings.Join(parts, " | ")
}

func TestParseRow(t *testing.T) {
	for _, c := range []struct{ row, want string }{
		{`{"id": "x", "messages": [{"role": "system", "content": ""}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [], "weight": null}], "source": 1}`,
			"system:  | user: a | assistant: b"},
		{`{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "ü"}], "tools": ""}`,
			"system: s | user: a | assistant: ü"},
		{`{"prompt": "a", "completion": "b", "tools": null}`, "user: a | assistant: b"},
		{`{"prompt": "unused", "messages": [{"role": "user", "content": "a"}], "tools": []}`, "user: a"},
	} {
		got, _, err := ParseRow([]byte(c.row))
		if err != nil || said(got) != c.want {
			t.Errorf("%s\ngot %q, %v, want %q", c.row, said(got), err, c.want)
		}
	}
}

func TestParseRowMistakes(t *testing.T) {
	for _, c := range []struct{ row, want string }{
		{``, "not valid JSON: it is empty"},
		{`{"messages": `, "not valid JSON: it ends in the middle"},
		{`{"messages": [}`, "not valid JSON: invalid character '}' at start of value (byte 15)"},
		{`{"messages": [{"role": "user", "content": "\ud800"}]}`,
			"not valid JSON: invalid surrogate pair"},
		{`{"messages": [{"role": "user", "content": "` + "\xff" + `"}]}`,
			"not valid JSON: invalid UTF-8 (byte 44)"},
		{`{"messages": [{"role": "user", "content": "a", "content": "b"}]}`,
			"messages.0.content: duplicate key"},
		{`{"messages": [{"role": "user", "content": "a"}], "messages": []}`, "messages: duplicate key"},
		{`{"messages": [{"role": "user", "content": "a"}]} {}`, "more text follows"},
		{`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b\u0000"}]}`,
			"messages[1]: the text has a zero byte"},
		{`{"messages": [{"role": "user", "content": "a", "thinking": [{"text": "\u0000"}]}]}`,
			"messages[0]: the text has a zero byte"},
		{`{"conversations": [{"from": "gpt", "value": "\u0000"}]}`,
			"conversations[0]: the text has a zero byte"},
		{`{"prompt": "a", "completion": "\u0000"}`, "the text has a zero byte"},
		{`[]`, "want a JSON object"},
		{`{}`, "want the key messages, conversations, or prompt and completion; the row has none"},
		{`{"text": "x", "prompt": "y"}`, "the row has text, prompt"},
		{`{"prompt": "x", "completion": ["y"]}`, "prompt and completion must be strings"},
		{`{"messages": {}}`, "messages: want a list"},
		{`{"messages": []}`, "messages: the list is empty"},
		{`{"messages": ["x"]}`, "messages[0]: want an object"},
		{`{"messages": [{"content": "x"}]}`, "messages[0]: has no role"},
		{`{"messages": [{"role": "user", "content": "x"}, {"role": "user"}]}`,
			"messages[1]: has no content"},
		{`{"messages": [{"role": "user", "content": [{"type": "text"}]}]}`,
			"messages[0]: content is not a string"},
		{`{"messages": [{"role": "tool", "content": "x"}]}`,
			`messages[0]: role "tool", want system, user or assistant`},
		{`{"messages": [{"role": "assistant", "content": "x", "tool_calls": [1]}]}`,
			"messages[0]: tool_calls: tool calls are not supported"},
		{`{"conversations": [{"from": "user", "value": "x"}]}`,
			`conversations[0]: from "user", want system, human or gpt`},
		{`{"conversations": [{"from": "gpt", "value": null}]}`,
			"conversations[0]: value is not a string"},
		{`{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}`,
			"tools: conversations with tools are not supported"},
	} {
		if got, _, err := ParseRow([]byte(c.row)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot %q, %v, want an error with %q", c.row, said(got), err, c.want)
		}
	}
}

// FuzzRow checks that a row is rejected, dropped or too costly, or that its documents are what the
// template prints for a prefix of the conversation.
func FuzzRow(f *testing.F) {
	f.Add([]byte(`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "x": [1, {}]}]}`))
	f.Add([]byte(`{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": ""}]}`))
	f.Add([]byte(`{"prompt": "a", "completion": "b"}`))
	encoders := map[string]*Encoder{plain: encoder(f, plain, ""), blocks: encoder(f, blocks, LastTurn),
		lastOnly: encoder(f, lastOnly, ""), alternate: encoder(f, alternate, "")}
	f.Fuzz(func(t *testing.T, row []byte) {
		c, _, err := ParseRow(row)
		if err != nil {
			return
		}
		for source, e := range encoders {
			list, err := e.Encode(t.Context(), c)
			if _, dropped := errors.AsType[*Dropped](err); dropped {
				continue
			}
			if _, stopped := errors.AsType[*jinja.Error](err); stopped &&
				strings.Contains(err.Error(), "was stopped") {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
			for _, d := range list {
				if _, ok := beginning(e.template, c, d); !ok || len(d.Loss) != len(d.IDs) {
					t.Fatalf("%s: %d marks of %q, want those of a beginning of the conversation", source,
						len(d.Loss), textOf(d))
				}
			}
		}
	})
}

// FuzzConfig checks that reading a tokenizer_config.json gives a template or an error.
func FuzzConfig(f *testing.F) {
	for _, name := range []string{"testdata/tokenizer_config.json",
		"testdata/llama32.tokenizer.json"} {
		text := testfile.Read(f, name)
		f.Add(text)
	}
	f.Add([]byte(`{"chat_template": [{"name": "default", "template": "x"}], "bos_token": {"content": "<s>"}, "eos_token": null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if template, err := newTemplate(map[string][]byte{tokenizer.ConfigFile: text},
			""); (template == nil) == (err == nil) {
			t.Fatal("neither a configuration nor an error")
		}
	})
}
