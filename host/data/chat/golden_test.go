package chat

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// goldenCase is a conversation with its text, ids and loss masks as transformers computes them.
type goldenCase struct {
	Name, Template, Rendered string
	Messages                 json.RawMessage
	Variables                json.RawMessage
	BOS                      string  `json:"bos_token"`
	EOS                      string  `json:"eos_token"`
	WithPrompt               *string `json:"with_generation_prompt"`
	IDs                      []int32 `json:"input_ids"`
	ByteSpans                [][2]int
	Loss                     []int `json:"loss_mask"`
	Generation               []int `json:"generation_mask"`
}

// goldenFile is testdata/chat.golden.json.
type goldenFile struct {
	Templates map[string]string
	Cases     []goldenCase
}

func readGolden(t *testing.T) goldenFile {
	t.Helper()
	text := testfile.Read(t, "testdata/chat.golden.json")
	text = []byte(strings.ReplaceAll(string(text), `"byte_spans"`, `"ByteSpans"`))
	var g goldenFile
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) != 25 {
		t.Fatalf("%d cases, want 25", len(g.Cases))
	}
	return g
}

// goldenTokenizer returns the tokenizer that made the ids.
func goldenTokenizer(t testing.TB) tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.LoadHuggingFace("testdata/llama32.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// template returns the template of a case, with its special tokens and variables.
func (g goldenFile) template(t *testing.T, c goldenCase) *Template {
	t.Helper()
	tmpl := &Template{Name: c.Template, Source: g.Templates[c.Template],
		Tokens: SpecialTokens{BOS: c.BOS, EOS: c.EOS}}
	if err := tmpl.parse(); err != nil {
		t.Fatal(err)
	}
	value, err := jinja.FromJSON(c.Variables)
	if err != nil {
		t.Fatal(err)
	}
	d := value.(*jinja.Dict)
	for _, key := range d.Keys() {
		if value, _ := d.Get(key); value != nil { // as by default
			if err := tmpl.Set(key, value.(string)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tmpl
}

// conversation returns the messages of a case, including those with tools, which ParseRow rejects.
func (c goldenCase) conversation(t *testing.T) Conversation {
	t.Helper()
	value, err := jinja.FromJSON(c.Messages)
	if err != nil {
		t.Fatal(err)
	}
	var list Conversation
	for _, element := range value.([]any) {
		d := element.(*jinja.Dict)
		role, _ := d.Get("role")
		content, _ := d.Get("content")
		text, _ := content.(string)
		list = append(list, Message{Role: role.(string), Content: text, fields: d})
	}
	return list
}

// TestGoldenText compares all texts with those of transformers, with and without a prompt.
func TestGoldenText(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Cases {
		tmpl, conversation := g.template(t, c), c.conversation(t)
		got, err := tmpl.Render(conversation, false)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if diff := cmp.Diff(c.Rendered, got.Text); diff != "" {
			t.Errorf("%s:\n%s", c.Name, diff)
		}
		if c.WithPrompt == nil {
			continue
		}
		if got, err = tmpl.Render(conversation, true); err != nil || got.Text != *c.WithPrompt {
			t.Errorf("%s, with a prompt: %v\n%s", c.Name, err, cmp.Diff(*c.WithPrompt, got.Text))
		}
	}
}

func asMask(loss []bool) []int {
	mask := make([]int, len(loss))
	for i, l := range loss {
		if l {
			mask[i] = 1
		}
	}
	return mask
}

// TestGoldenMarks compares ids, spans and both kinds of loss masks with those of transformers.
func TestGoldenMarks(t *testing.T) {
	g := readGolden(t)
	tok := goldenTokenizer(t)
	spans, generated := 0, 0
	for _, c := range g.Cases {
		if c.Loss == nil {
			continue
		}
		tmpl, conversation := g.template(t, c), c.conversation(t)
		e := encoderOf(t, tmpl, tok, "")
		want := c.Generation
		if want == nil {
			want = c.Loss
			texts, err := e.texts(t.Context(), conversation)
			if err != nil || len(texts) != 1 {
				t.Errorf("%s: %d texts, %v", c.Name, len(texts), err)
				continue
			}
			var pairs [][2]int
			for _, s := range texts[0].spans {
				pairs = append(pairs, [2]int{s.Start, s.End})
			}
			if diff := cmp.Diff(c.ByteSpans, pairs); diff != "" {
				t.Errorf("%s, spans:\n%s", c.Name, diff)
			}
			spans++
		} else {
			generated++
		}
		list, err := e.Encode(t.Context(), conversation)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: %d documents, %v", c.Name, len(list), err)
			continue
		}
		if diff := cmp.Diff(c.IDs, list[0].IDs) + cmp.Diff(want, asMask(list[0].Loss)); diff != "" {
			t.Errorf("%s, ids and loss:\n%s", c.Name, diff)
		}
	}
	if spans != 16 || generated != 4 {
		t.Errorf("%d cases with spans, %d with generation blocks, want 16 and 4", spans, generated)
	}
}

// TestBuiltIn checks that the built-in templates print the published formats, with the BOS token if
// and only if the tokenizer adds it.
func TestBuiltIn(t *testing.T) {
	g := readGolden(t)
	compared := 0
	for _, c := range g.Cases {
		if c.Template != "llama3" && c.Template != "tulu" && c.Name != "chatml/system" {
			continue
		}
		compared++
		for _, addsBOS := range []bool{false, true} {
			tmpl := openTemplate(t, c.Template, "testdata", addsBOS)
			if tmpl.Tokens.EOS != c.EOS {
				t.Fatalf("end token %q, want %q", tmpl.Tokens.EOS, c.EOS)
			}
			for _, prompt := range []bool{false, true} {
				want := c.Rendered
				if prompt {
					want = *c.WithPrompt
				}
				want = strings.TrimPrefix(want, c.BOS)
				if addsBOS {
					want = c.BOS + want
				}
				got, err := tmpl.Render(c.conversation(t), prompt)
				if err != nil || got.Text != want {
					t.Errorf("%s, begins %v, prompt %v: %v\n%s", c.Name, addsBOS, prompt, err,
						cmp.Diff(want, got.Text))
				}
			}
		}
	}
	if compared != 9 {
		t.Errorf("%d cases were compared, want 9", compared)
	}
}

// TestTruncatedRefusal checks that a template's long error message is truncated.
func TestTruncatedRefusal(t *testing.T) {
	err := asDropped(&jinja.Error{Problem: strings.Repeat("ü", 300), Raised: true})
	d, ok := errors.AsType[*Dropped](err)
	if !ok || len(d.Reason) > len(refusal)+maxReason+len("…") ||
		!strings.HasSuffix(string(d.Reason), "ü…") {
		t.Errorf("got %v", err)
	}
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
