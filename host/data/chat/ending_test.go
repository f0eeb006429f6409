package chat

import (
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

// TestEnding: an answer ends at the special token behind it, or at a text where that is no such token.
func TestEnding(t *testing.T) {
	llama, err := tokenizer.Open(filepath.Join("testdata", "llama32.tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	eot, err := llama.Encode("<|eot_id|>")
	if err != nil || len(eot) != 1 {
		t.Fatal(eot, err)
	}
	const turns = "{% for m in messages %}{{ m.role }}: {{ m.content }}"
	for _, c := range []struct {
		source string
		tok    tokenizer.Tokenizer
		want   Ending
	}{
		{turns + "<|eot_id|>{% endfor %}", llama, Ending{Token: eot[0]}},
		{turns + "\n<|eot_id|>\n{% endfor %}", llama, Ending{Token: eot[0]}},
		{turns + "<|end|>\n{% endfor %}", llama, Ending{tokenizer.NoToken, "<|end|>"}},
		{turns + "<|eot_id|>\n{% endfor %}", tokenizer.Bytes{}, Ending{tokenizer.NoToken, "<|eot_id|>"}},
		{turns + "\n{% endfor %}", llama, Ending{Token: tokenizer.NoToken}},
		{"{% for m in messages %}{{ m.content | upper }}<|eot_id|>{% endfor %}", llama, Ending{Token: tokenizer.NoToken}},
	} {
		tmpl, err := ModelTemplate(map[string][]byte{tokenizer.TemplateFile: []byte(c.source)})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Ending(c.tok, nil); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.source, got, err, c.want)
		}
	}
}

// TestEndingBehindOthers: a template that wants a system message gets the one of the conversation.
func TestEndingBehindOthers(t *testing.T) {
	tmpl, err := ModelTemplate(map[string][]byte{tokenizer.ConfigFile: []byte(
		`{"chat_template": "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}{{ m.content }};{% endfor %}"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Ending(tokenizer.Bytes{}, nil); err == nil {
		t.Error("a template that refuses a conversation has an ending")
	}
	if got, err := tmpl.Ending(tokenizer.Bytes{}, Conversation{NewMessage(System, "Be brief.")}); err != nil || got.Text != ";" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestModelTemplate: a tokenizer without a template has none, and one that cannot be read is an error.
func TestModelTemplate(t *testing.T) {
	for _, files := range []map[string][]byte{nil, {tokenizer.ConfigFile: []byte(`{"eos_token": "</s>"}`)}} {
		if tmpl, err := ModelTemplate(files); tmpl != nil || err != nil {
			t.Errorf("%s: %v, %v", files, tmpl, err)
		}
	}
	for _, files := range []map[string][]byte{{tokenizer.ConfigFile: []byte(`[`)}, {tokenizer.TemplateFile: []byte(`{% if %}`)}} {
		if _, err := ModelTemplate(files); err == nil {
			t.Errorf("%s: no error", files)
		}
	}
}
