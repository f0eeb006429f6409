package chat

import (
	"context"
	"embed"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// Template renders conversations as text.
type Template struct {
	// Name is the name of a built-in template, or the path of the file it was read from.
	Name string
	// Source is the template's text, in the language of package jinja.
	Source string
	// Tokens are the special tokens that it uses.
	Tokens SpecialTokens
	// Time is the current time for the template. Zero means DefaultTime.
	Time time.Time

	program    *jinja.Template
	config     tokenizer.Config // of the model
	ofItsModel bool             // the template came with the tokenizer
}

// DefaultTime is the current time for templates that print a date: the fallback date of Llama 3.2's
// templates. Because it is fixed, prepared data does not depend on the date.
var DefaultTime = time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC)

//go:embed templates/*.jinja
var templates embed.FS

// BuiltIn lists the names of the built-in templates.
func BuiltIn() []string {
	entries, err := templates.ReadDir("templates")
	if err != nil {
		panic(err) // they are embedded
	}
	return lists.Map(entries, func(e fs.DirEntry) string {
		return strings.TrimSuffix(e.Name(), ".jinja")
	})
}

// OpenTemplate returns the template that spec names: a built-in one ("tulu", "chatml", "llama3"),
// the path of a file, or, if spec is empty, the model's own: chat_template.jinja in the tokenizer's
// folder, or else chat_template in tokenizer_config.json. folder is the directory of the tokenizer,
// or the path of its tokenizer.json; its tokenizer_config.json names the special tokens. addsBOS
// says whether the tokenizer puts the BOS token before every text.
//
// Built-in templates begin with the BOS token if and only if addsBOS is set, because a model that
// was trained with it should always get it. Other templates are not changed.
func OpenTemplate(spec, folder string, addsBOS bool) (*Template, error) {
	dir := folder
	if stat, err := os.Stat(folder); err == nil && !stat.IsDir() {
		dir = filepath.Dir(folder)
	}
	files := map[string][]byte{}
	for _, name := range []string{tokenizer.ConfigFile, tokenizer.TemplateFile} {
		if name == tokenizer.TemplateFile && spec != "" {
			files[name] = nil // like an empty file: chat_template in the other file is not parsed either
			continue
		}
		text, err := vfs.At(filepath.Join(dir, name)).ReadFile()
		if err == nil {
			files[name] = text
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	t, err := newTemplate(files, dir)
	if err != nil {
		return nil, err
	}
	names := strings.Join(BuiltIn(), ", ")
	var text []byte
	switch {
	case spec == "" && t.Source == "" && dir == "bytes":
		return nil, fmt.Errorf("%s has no chat template: give the model's directory with --tokenizer, "+
			"or name a template (%s, or a file)", dir, names)
	case spec == "" && t.Source == "":
		return nil, fmt.Errorf("%s has no chat template, neither %s nor chat_template in %s: "+
			"the model is a base model; name a template (%s, or a file)",
			dir, tokenizer.TemplateFile, tokenizer.ConfigFile, names)
	case spec == "":
		t.ofItsModel = true
		return t, t.parse()
	case slices.Contains(BuiltIn(), spec):
		text, err = templates.ReadFile("templates/" + spec + ".jinja")
		if t.Tokens.EOS == "" && strings.Contains(string(text), "eos_token") {
			return nil, fmt.Errorf("template %s needs an EOS token, but the tokenizer %s names none "+
				"(eos_token in %s): want chatml, llama3 or another tokenizer", spec, dir, tokenizer.ConfigFile)
		}
		if !addsBOS {
			t.Tokens.BOS = ""
		}
	default:
		text, err = vfs.At(spec).ReadFile()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("template %q is neither a file nor one of %s", spec, names)
	}
	if err != nil {
		return nil, err
	}
	t.Name, t.Source = spec, strings.TrimPrefix(string(text), byteOrderMark)
	return t, t.parse()
}

const byteOrderMark = "\ufeff"

// newTemplate returns the chat template in the files of a tokenizer, given their contents by name
// and their folder dir. Its source is empty if the files have none.
func newTemplate(files map[string][]byte, dir string) (*Template, error) {
	t := &Template{Name: filepath.Join(dir, tokenizer.TemplateFile)}
	source, ok := files[tokenizer.TemplateFile]
	t.Source = strings.TrimPrefix(string(source), byteOrderMark)
	text, configured := files[tokenizer.ConfigFile]
	if !configured {
		return t, nil
	}
	path := filepath.Join(dir, tokenizer.ConfigFile)
	var err error
	t.config, err = tokenizer.ParseConfig(text)
	for key, token := range t.Tokens.byKey() {
		if err == nil {
			*token, err = t.config.Token(key)
		}
	}
	if err == nil && !ok {
		t.Name = path
		t.Source, err = t.config.Template()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// ModelTemplate returns the tokenizer's own template, given the contents of the tokenizer's files
// by name, or nil if they have none.
func ModelTemplate(files map[string][]byte) (*Template, error) {
	t, err := newTemplate(files, "")
	if err != nil || t.Source == "" {
		return nil, err
	}
	return t, t.parse()
}

func (t *Template) parse() (err error) {
	t.program, err = jinja.Parse(t.Name, t.Source)
	return err
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	settings     = regexp.MustCompile(`^(?:\{% set \w+ = "(?:[^"\\]|\\.)*" %\}\n?)*`)
)

// Set sets a variable of the template, such as date_string, to a text. The assignment becomes part
// of the source, after earlier ones, so that programs that get the template render the same.
func (t *Template) Set(name, text string) error {
	if !variableName.MatchString(name) || name == messagesVariable || name == promptVariable {
		return fmt.Errorf("%q: want the name of a variable other than %s and %s",
			name, messagesVariable, promptVariable)
	}
	literal, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return err
	}
	at := len(settings.FindString(t.Source))
	set, rest := fmt.Sprintf("{%% set %s = %s %%}", name, literal), t.Source[at:]
	if strings.TrimLeft(rest, " \t\r\n") != rest {
		set += "\n" // which is removed by trim_blocks, instead of white space of the template
	}
	t.Source = t.Source[:at] + set + rest
	return t.parse()
}

// Render renders a conversation as text. If prompt is set, the text ends with the generation
// prompt. Errors are of type [*jinja.Error].
func (t *Template) Render(c Conversation, prompt bool) (jinja.Rendering, error) {
	r, _, err := t.render(context.Background(), c, prompt)
	return r, err
}

// render is [Template.Render] until ctx ends. It also returns the output of a loop for each
// message, as in [jinja.Rendering.Printed], or nil if there is none.
func (t *Template) render(ctx context.Context, c Conversation, prompt bool) (
	r jinja.Rendering, printed []*jinja.Span, err error) {
	variables := t.variables(c, prompt)
	r, err = t.program.Render(variables, t.now(), jinja.Limits{Context: ctx})
	printed = make([]*jinja.Span, len(c))
	for i, m := range variables[messagesVariable].([]any) {
		if span, ok := r.Printed[m.(*jinja.Dict)]; ok {
			printed[i] = &span
		}
	}
	return r, printed, err
}

// Names of the variables that differ between conversations.
const (
	messagesVariable = "messages"
	promptVariable   = "add_generation_prompt"
)

func (t *Template) variables(c Conversation, prompt bool) map[string]any {
	messages := make([]any, len(c))
	for i, m := range c {
		fields := *m.fields // a copy, so that [jinja.Rendering.Printed] distinguishes equal messages
		messages[i] = &fields
	}
	variables := map[string]any{"tools": nil, "documents": nil}
	for name, token := range t.Tokens.byKey() {
		if *token != "" {
			variables[name] = *token
		}
	}
	for _, name := range []string{"unk_token", "sep_token", "cls_token", "mask_token"} {
		if token, err := t.config.Token(name); err == nil && token != "" { // as in transformers
			variables[name] = token
		}
	}
	variables[messagesVariable], variables[promptVariable] = messages, prompt
	return variables
}

func (t *Template) now() time.Time {
	if t.Time.IsZero() {
		return DefaultTime
	}
	return t.Time
}

// Ending is the output of a template after an assistant turn, by which a program detects the end of
// the answer: a special token, or else a text.
type Ending struct {
	Token int32  // [tokenizer.NoToken]: none
	Text  string // "" if Token is set, or if the ending is unknown
}

// Ending renders a question and a reply after the messages in history, and returns the template's
// output after the reply. The ending is unknown if the template changes the text of replies.
func (t *Template) Ending(tok tokenizer.Tokenizer, history Conversation) (Ending, error) {
	none := Ending{Token: tokenizer.NoToken}
	const question, reply = "question", "the-reply-of-cage" // a text that templates do not have
	turn := []Message{NewMessage(User, question), NewMessage(Assistant, reply)}
	r, err := t.Render(slices.Concat(history, turn), false)
	if err != nil {
		return none, err
	}
	at := strings.LastIndex(r.Text, reply)
	if at < 0 {
		return none, nil
	}
	after := strings.TrimSpace(r.Text[at+len(reply):])
	ids, err := tok.Encode(after)
	if err != nil || len(ids) == 0 {
		return none, err
	}
	if tokenizer.IsSpecial(tok, ids[0]) {
		return Ending{Token: ids[0]}, nil
	}
	return Ending{tokenizer.NoToken, after}, nil
}

// ModelEnding returns the ending of turns in the chat template of a model, given the files of its
// tokenizer. The ending is unknown if they have no template.
func ModelEnding(files map[string][]byte, tok tokenizer.Tokenizer) (Ending, error) {
	template, err := ModelTemplate(files)
	if err != nil || template == nil {
		return Ending{Token: tokenizer.NoToken}, err
	}
	return template.Ending(tok, nil)
}

// EndOfTurn returns the token that ends a turn in the chat template among the files of a tokenizer;
// [tokenizer.NoToken] without a template, or with one that fails.
func EndOfTurn(files map[string][]byte, tok tokenizer.Tokenizer) int32 {
	end, _ := ModelEnding(files, tok)
	return end.Token
}

// SpecialTokens are the special tokens that templates use; a missing one is "".
type SpecialTokens struct {
	BOS string `json:"bos_token,omitempty"`
	EOS string `json:"eos_token,omitempty"`
	Pad string `json:"pad_token,omitempty"`
}

// byKey returns the tokens by their keys in a tokenizer_config.json.
func (t *SpecialTokens) byKey() map[string]*string {
	return map[string]*string{"bos_token": &t.BOS, "eos_token": &t.EOS, "pad_token": &t.Pad}
}

// tokenizerConfig returns the tokenizer_config.json of a dataset: the model's file with the special
// tokens of the template, and without the template, which is in a separate file. Added tokens are
// appended to the list of added tokens, if the file has one.
func (t *Template) tokenizerConfig(added []AddedToken) (map[string]any, error) {
	out := map[string]any{}
	for key, value := range t.config {
		out[key] = value
	}
	delete(out, "chat_template")
	if listed, ok := t.config["added_tokens_decoder"]; ok && len(added) > 0 {
		list := map[string]any{}
		if err := json.Unmarshal(listed, &list); err != nil {
			return nil, fmt.Errorf("%s: added_tokens_decoder: %w", tokenizer.ConfigFile, err)
		}
		for _, token := range added {
			list[strconv.Itoa(token.ID)] = map[string]any{
				"content": token.Content, "lstrip": false, "normalized": false, "rstrip": false,
				"single_word": false, "special": true,
			}
		}
		out["added_tokens_decoder"] = list
	}
	for key, token := range t.Tokens.byKey() {
		before, _ := t.config.Token(key) // it was parsed when the template was opened
		switch {
		case *token == before: // unchanged, as an object with more than its text
		case *token == "":
			delete(out, key)
		default:
			out[key] = *token
		}
	}
	return out, nil
}
