package chat

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// FuzzRow: a row is refused, or its conversation gives a document whose text is what the
// template prints, or is dropped.
func FuzzRow(f *testing.F) {
	f.Add([]byte(`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "x": [1, {}]}]}`))
	f.Add([]byte(`{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": ""}]}`))
	f.Add([]byte(`{"prompt": "a", "completion": "b"}`))
	encoders := map[string]*Encoder{plain: encoder(f, plain, ""), blocks: encoder(f, blocks, LastTurn), lastOnly: encoder(f, lastOnly, ""), alternate: encoder(f, alternate, "")}
	f.Fuzz(func(t *testing.T, row []byte) {
		c, err := ParseRow(row)
		if err != nil {
			return
		}
		for source, e := range encoders {
			d, err := e.Encode(t.Context(), c)
			if _, dropped := errors.AsType[*Dropped](err); dropped {
				continue
			}
			if _, stopped := errors.AsType[*jinja.Error](err); stopped && strings.Contains(err.Error(), "was stopped") {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
			text, err := e.template.Render(c, false)
			if err != nil || len(d.IDs) != len(text.Text) || len(d.Loss) != len(d.IDs) {
				t.Fatalf("%s: %d ids and %d marks of %q, %v", source, len(d.IDs), len(d.Loss), text.Text, err)
			}
		}
	})
}

// FuzzConfig: a tokenizer_config.json or tokenizer.json, whatever is in it, is read or
// refused.
func FuzzConfig(f *testing.F) {
	for _, name := range []string{"testdata/tokenizer_config.json", "testdata/llama32.tokenizer.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"chat_template": [{"name": "default", "template": "x"}], "bos_token": {"content": "<s>"}, "eos_token": null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := parseConfig(text); (c == nil) == (err == nil) && err == nil {
			t.Fatal("neither a configuration nor an error")
		}
		list, err := specialTokens(text)
		for _, token := range list {
			if token == "" || err != nil {
				t.Fatalf("the special tokens %q, %v", list, err)
			}
		}
	})
}
