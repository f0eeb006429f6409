package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// folder returns a new directory with these files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	testfile.Tree(t, dir, files)
	return dir
}

func openTemplate(t *testing.T, spec, tokenizer string, addsBOS bool) *Template {
	t.Helper()
	tmpl, err := OpenTemplate(spec, tokenizer, addsBOS)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// TestModelsTemplate checks that a model's template is found wherever models store it, and that
// chat_template.jinja has precedence.
func TestModelsTemplate(t *testing.T) {
	hello := Conversation{NewMessage(User, "Hi")}
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"tokenizer_config.json": `{"chat_template": "{{ bos_token }}1{{ pad_token }}", "bos_token": "<s>"}`}, "<s>1"},
		{map[string]string{"tokenizer_config.json": `{"chat_template": "1", "bos_token": null, "eos_token": {"content": "</s>", "lstrip": false}}`, "chat_template.jinja": "{{ messages[0].content }}{{ eos_token }}\n"}, "Hi</s>"},
		{map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}`}, "d"},
		{map[string]string{"chat_template.jinja": "{{ tools is none }}{{ documents is none }}{{ " +
			"add_generation_prompt }}"}, "TrueTrueFalse"},
	} {
		dir := folder(t, c.files)
		tmpl, err := OpenTemplate("", dir, false)
		if err != nil {
			t.Errorf("%v: %v", c.files, err)
			continue
		}
		if got, err := tmpl.Render(hello, false); err != nil || got.Text != c.want {
			t.Errorf("%v: got %q, %v, want %q", c.files, got.Text, err, c.want)
		}
	}
}

// TestTokenizerConfig checks that a dataset has the model's tokenizer_config.json, except for the
// template and the BOS token, which the template does not print.
func TestTokenizerConfig(t *testing.T) {
	dir := folder(t, map[string]string{"tokenizer_config.json": `{"tokenizer_class": "Own", "model_max_length": 1e30, "chat_template": "x", "bos_token": "<s>",
		"eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null, "added_tokens_decoder": {"0": {"content": "<s>"}}}`})
	tmpl := openTemplate(t, "chatml", dir, false)
	o := options(t, conversations(9), filepath.Join(dir, "set"))
	o.Template = tmpl
	prepare(t, o)
	text, err := os.ReadFile(filepath.Join(dir, "set", "tokenizer_config.json"))
	var got map[string]any
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	want := map[string]any{"tokenizer_class": "Own", "model_max_length": 1e30,
		"eos_token": map[string]any{"content": "</s>", "lstrip": false},
		"pad_token": nil, "added_tokens_decoder": map[string]any{"0": map[string]any{"content": "<s>"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestTemplateFile checks that a template file is used whole, except for a byte order mark, and
// that the tokenizer can be named by its file.
func TestTemplateFile(t *testing.T) {
	dir := folder(t, map[string]string{
		"own.jinja":      "\ufeff{{ bos_token }}{{ strftime_now('%d %b %Y') }} {{ date_string }}{{ unk_token }}",
		"tokenizer.json": "{}", "tokenizer_config.json": `{"bos_token": "<s>", "unk_token": "?"}`})
	tmpl := openTemplate(t, filepath.Join(dir, "own.jinja"), filepath.Join(dir, "tokenizer.json"),
		false)
	if err := tmpl.Set("date_string", "today"); err != nil {
		t.Fatal(err)
	}
	for now, want := range map[time.Time]string{{}: "<s>26 Jul 2024 today?", time.Unix(0, 0).
		UTC(): "<s>01 Jan 1970 today?"} {
		tmpl.Time = now
		if got, err := tmpl.Render(nil, false); err != nil || got.Text != want {
			t.Errorf("got %q, %v, want %q", got.Text, err, want)
		}
	}
}

// TestNamedTemplate checks that a template which the user names replaces that of the model, even if
// the latter cannot be used.
func TestNamedTemplate(t *testing.T) {
	for _, config := range []string{`{"chat_template": 1}`, `{"chat_template": [{"name": "a"}]}`} {
		tmpl := openTemplate(t, "chatml", folder(t, map[string]string{"tokenizer_config.json": config}),
			false)
		if tmpl.Name != "chatml" || !strings.Contains(tmpl.Source, "<|im_start|>") {
			t.Errorf("%s: template %s is used: %s", config, tmpl.Name, tmpl.Source)
		}
	}
}

// TestTemplateVariables checks that variables become part of the source, that each text is taken
// literally, and that the rest of the template renders the same.
func TestTemplateVariables(t *testing.T) {
	for source, want := range map[string]string{
		"{% macro f() %}{{ v }}{% endmacro %}{{ f() }}\n\n": "V\n",
		"\n {% if v is defined %}\n {{ v }}{% endif %}":     "\n V",
		"\r\n{{- v }}": "V", "{{ v }}": "V", " \n{{ v }}": " \nV", "x{{ v }}": "xV",
	} {
		for _, text := range []string{"", `a=1,b="2"`, `\n'%}{{`, "Zoë\r\n\t\x00\u2028 😀", "-%}"} {
			tmpl := &Template{Source: source}
			for name, value := range map[string]string{"v": text, "other": "%}\n"} {
				if err := errors.Join(tmpl.Set(name, "replaced"), tmpl.Set(name, value)); err != nil {
					t.Fatal(err)
				}
			}
			want := strings.Replace(want, "V", text, 1)
			if got, err := tmpl.Render(nil, false); err != nil || got.Text != want {
				t.Errorf("%q:\ngot %q, %v\nwant %q", tmpl.Source, got.Text, err, want)
			}
		}
	}
	tmpl := &Template{}
	for _, name := range []string{"", "messages", "add_generation_prompt", "a.b", "a = 1 %}"} {
		if err := tmpl.Set(name, ""); err == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}
	if err := tmpl.Set("v", "\xff"); err == nil {
		t.Error("a text that is not valid UTF-8 is accepted")
	}
}

func TestTemplateMistakes(t *testing.T) {
	broken := folder(t, map[string]string{"tokenizer_config.json": `{`})
	for _, c := range []struct{ spec, dir, want string }{
		{"nothing", ".", `template "nothing" is neither a file nor one of chatml, llama3, tulu`},
		{"", "bytes", "bytes has no chat template: give the model's directory with --tokenizer, or " +
			"name a template (chatml, llama3, tulu, or a file)"},
		{"", folder(t, nil), "has no chat template, neither chat_template.jinja nor chat_template in " +
			"tokenizer_config.json: the model is a base model; name a template (chatml, llama3, tulu, or " +
			"a file)"},
		{"tulu", "bytes", "template tulu needs an EOS token, but the tokenizer bytes names none " +
			"(eos_token in tokenizer_config.json): want chatml, llama3 or another tokenizer"},
		{"tulu", broken, "tokenizer_config.json: not valid JSON: it ends in the middle"},
		{"", folder(t, map[string]string{"tokenizer_config.json": `{"chat_template": 1}`}),
			"chat_template: want a string, or a list"},
		{"", folder(t, map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "a"}]}`}),
			"none of its 1 templates is named default"},
		{"", folder(t, map[string]string{"tokenizer_config.json": `{"eos_token": 1}`}),
			"eos_token: want a string, or an object with the key content"},
		{"", folder(t, map[string]string{"chat_template.jinja": "\n{% if %}"}),
			`chat_template.jinja, line 2: found "%}", want a value`},
		{folder(t, nil), ".", "is a directory"},
	} {
		if _, err := OpenTemplate(c.spec, c.dir, false); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in %s:\ngot  %v\nwant %s", c.spec, c.dir, err, c.want)
		}
	}
}

// TestEnding checks that an answer's ending is the special token after it, or else a text.
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
		{"{% for m in messages %}{{ m.content | upper }}<|eot_id|>{% endfor %}", llama,
			Ending{Token: tokenizer.NoToken}},
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

// TestEndingBehindOthers checks that Ending uses a given system message, which templates may need.
func TestEndingBehindOthers(t *testing.T) {
	tmpl, err := ModelTemplate(map[string][]byte{tokenizer.ConfigFile: []byte(
		`{"chat_template": "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}{{ m.content }};{% endfor %}"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Ending(tokenizer.Bytes{}, nil); err == nil {
		t.Error("a template that refuses a conversation has an ending")
	}
	if got, err := tmpl.Ending(tokenizer.Bytes{},
		Conversation{NewMessage(System, "Be brief.")}); err != nil || got.Text != ";" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestModelTemplate checks that ModelTemplate returns nil for a tokenizer without a template, and
// an error for an unreadable one.
func TestModelTemplate(t *testing.T) {
	for _, files := range []map[string][]byte{nil,
		{tokenizer.ConfigFile: []byte(`{"eos_token": "</s>"}`)}} {
		if tmpl, err := ModelTemplate(files); tmpl != nil || err != nil {
			t.Errorf("%s: %v, %v", files, tmpl, err)
		}
	}
	for _, files := range []map[string][]byte{{tokenizer.ConfigFile: []byte(`[`)},
		{tokenizer.TemplateFile: []byte(`{% if %}`)}} {
		if _, err := ModelTemplate(files); err == nil {
			t.Errorf("%s: no error", files)
		}
	}
}

// withoutMarks returns the golden file's tokenizer without the delimiters of ChatML.
func withoutMarks(t *testing.T) *tokenizer.HuggingFace {
	t.Helper()
	var file map[string]json.RawMessage
	testfile.ReadJSON(t, "testdata/llama32.tokenizer.json", &file)
	var added []map[string]any
	err := json.Unmarshal(file["added_tokens"], &added)
	if err != nil {
		t.Fatal(err)
	}
	var kept []map[string]any
	for _, token := range added {
		if !strings.HasPrefix(token["content"].(string), "<|im_") {
			kept = append(kept, token)
		}
	}
	if file["added_tokens"], err = json.Marshal(kept); err != nil || len(kept) != len(added)-2 {
		t.Fatal(err, len(kept))
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.ReadHuggingFace(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestMissingMarks checks that delimiters that are not tokens are an error that says what to do,
// unless they are plain text: by option, in a model's own template, or in tulu.
func TestMissingMarks(t *testing.T) {
	tok := withoutMarks(t)
	builtIn := func(name string) *Template { return openTemplate(t, name, "testdata", false) }
	chatml := builtIn("chatml")
	options := options(t, conversations(8), t.TempDir())
	options.Tokenizer, options.Template = tok, chatml
	_, err := Prepare(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(),
		"template chatml writes <|im_start|> and <|im_end|>, which the tokenizer") ||
		!strings.Contains(err.Error(), "--add-tokens") {
		t.Errorf("error %v, want one about the marks", err)
	}
	model := *chatml
	model.ofItsModel = true
	for name, c := range map[string]struct {
		template *Template
		tok      tokenizer.Tokenizer
		marks    Delimiters
	}{
		"plain": {chatml, tok, PlainDelimiters}, "of the model": {&model, tok, RefuseDelimiters},
		"tulu":                  {builtIn("tulu"), tok, RefuseDelimiters},
		"marks that are tokens": {builtIn("llama3"), tok, RefuseDelimiters},
		"bytes":                 {chatml, tokenizer.Bytes{}, RefuseDelimiters},
		"nothing to add":        {builtIn("llama3"), tok, AddDelimiters},
	} {
		if got, added, err := c.template.withDelimiters(c.tok, c.marks); err != nil || got != c.tok ||
			added != nil {
			t.Errorf("%s: %v, added %v, error %v", name, got, added, err)
		}
	}
	if _, _, err := chatml.withDelimiters(tokenizer.Bytes{}, AddDelimiters); err == nil ||
		!strings.Contains(err.Error(), "cannot be added to the tokenizer bytes") {
		t.Errorf("marks for bytes: error %v", err)
	}
}

// TestAddedMarks checks that all files of a dataset have the same added tokens.
func TestAddedMarks(t *testing.T) {
	tok := withoutMarks(t)
	folder := t.TempDir()
	listed := `{"eos_token": "<|eot_id|>", "added_tokens_decoder": {"324": {"content": "<|eot_id|>", "special": true}}}`
	testfile.Write(t, filepath.Join(folder, tokenizer.ConfigFile), listed)
	tmpl := openTemplate(t, "chatml", folder, false)
	o := options(t, conversations(8), t.TempDir())
	o.Tokenizer, o.Template, o.Delimiters = tok, tmpl, AddDelimiters
	m := prepare(t, o)
	n := tok.Info().VocabSize
	if diff := cmp.Diff([]AddedToken{{n, "<|im_start|>"}, {n + 1, "<|im_end|>"}},
		m.AddedTokens); diff != "" || m.Tokenizer.VocabSize != n+2 {
		t.Errorf("a vocabulary of %d, added (-want +got):\n%s", m.Tokenizer.VocabSize, diff)
	}
	again, err := tokenizer.Reopen(o.Out, m.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := again.Encode("<|im_end|>"); err != nil || len(ids) != 1 || int(ids[0]) != n+1 {
		t.Errorf("ids %v, %v", ids, err)
	}
	text := testfile.Read(t, filepath.Join(o.Out, tokenizer.ConfigFile))
	var config struct {
		Added map[string]struct {
			Content string
			Special bool
		} `json:"added_tokens_decoder"`
	}
	if err := json.Unmarshal(text, &config); err != nil || len(config.Added) != 3 {
		t.Errorf("%d tokens in %s, %v", len(config.Added), text, err)
	}
	for _, token := range m.AddedTokens {
		if got := config.Added[fmt.Sprint(token.ID)]; got.Content != token.Content || !got.Special {
			t.Errorf("token %d is %+v in %s, want %s", token.ID, got, tokenizer.ConfigFile, token.Content)
		}
	}
}
