package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// maskedTemplate is a template of testdata/masks, in a published model's format. In tagged,
// generation blocks mark all that may have loss; plain prints the same without them.
type maskedTemplate struct {
	name          string
	tagged, plain *Template
}

// tags matches the tags of generation blocks.
var tags = regexp.MustCompile(`\{%-?\s*(end)?generation\s*-?%\}`)

func maskedTemplates(t testing.TB) (list []maskedTemplate) {
	t.Helper()
	files, err := filepath.Glob("testdata/masks/*.jinja")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".jinja")
		tagged := &Template{Name: name, Source: string(testfile.Read(t, path)),
			Tokens: SpecialTokens{BOS: "<s>", EOS: "</s>"}}
		if err := tagged.parse(); err != nil {
			t.Fatal(err)
		}
		plain := &Template{Name: name, Source: tags.ReplaceAllString(tagged.Source, ""),
			Tokens: tagged.Tokens}
		if built, ok := strings.CutPrefix(name, "builtin_"); ok {
			plain.Source = string(testfile.Read(t, "templates/"+built+".jinja"))
		}
		if err := plain.parse(); err != nil {
			t.Fatal(err)
		}
		list = append(list, maskedTemplate{name, tagged, plain})
	}
	return list
}

// utterances are contents of random messages: headers, other messages, nothing, reasoning.
var utterances = []string{
	"", "", "five", "five", "two plus three", "A", "AB", "assistant", "assistant\n",
	"<|im_start|>assistant\n", "<|im_end|>\n", "<|im_end|>\n<|im_start|>user\nfive",
	"\n", "  \n ", " five \n", "\n\nfive", "user: five", "\nassistant: ", "ASSISTANT:", "USER: ",
	"[INST] five [/INST]", "</s>", "<s>", " (end of talk)",
	"<|assistant|>\n", "<start_of_turn>model\n", "### Response:\n", "ünï ✓ 五", "\u0301e",
	"<think>\nadd\n</think>\n\nfive", "<think>\n\n</think>\n\n", "</think>", "<think>", "<",
	"<think>add</think>five", "five</think>six", "system", strings.Repeat("five ", 30),
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~",
}

// randomConversation returns messages of all roles, in an order that most templates accept.
func randomConversation(rng *rand.Rand, tools bool) Conversation {
	var c Conversation
	say := func(role string) {
		m := NewMessage(role, utterances[rng.IntN(len(utterances))])
		if role == Assistant && rng.IntN(6) == 0 {
			m.fields.Set("reasoning_content", utterances[rng.IntN(len(utterances))])
		}
		c = append(c, m)
	}
	if rng.IntN(3) == 0 {
		say(System)
	}
	role := []string{User, User, User, Assistant}[rng.IntN(4)]
	for n := 1 + rng.IntN(8); n > 0; n-- {
		say(role)
		switch k := rng.IntN(12); {
		case k == 0: // the same role again
		case k == 1 && tools:
			role = "tool"
		case role == Assistant:
			role = User
		default:
			role = Assistant
		}
	}
	return c
}

// answerOf returns the part of an answer that all templates print.
func answerOf(m Message) string {
	text := m.Content
	if i := strings.LastIndex(text, "</think>"); i >= 0 {
		text = text[i+len("</think>"):]
	}
	return strings.TrimSpace(text)
}

// TestLearned checks, for random templates and conversations, that only the assistant's answers and
// their delimiters have loss, and that each answer has loss in some document.
func TestLearned(t *testing.T) {
	templates := maskedTemplates(t)
	rng := rand.New(rand.NewPCG(58, 2))
	documents, kept, divided := 0, map[string]int{}, map[string]int{}
	for range 10000 {
		k := templates[rng.IntN(len(templates))]
		c := randomConversation(rng, strings.Contains(k.plain.Source, ".role +"))
		trainOn := []TrainOn{AllTurns, AllTurns, LastTurn}[rng.IntN(3)]
		list, err := encoderOf(t, k.plain, tokenizer.Bytes{}, trainOn).Encode(t.Context(), c)
		if reason, ok := errors.AsType[*Dropped](err); ok {
			if wrong := wronglyDropped(k, c, trainOn, reason.Reason); wrong {
				t.Errorf("%s: dropped, %s:\n%s", k.name, reason.Reason, show(c))
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		kept[k.name]++
		documents += len(list)
		if len(list) > 1 {
			divided[k.name]++
		}
		if err := checkLearned(k, c, trainOn, list); err != nil {
			t.Errorf("%s, %s: %v\n%s\nof\n%s", k.name, trainOn, err, markedAll(list), show(c))
		}
		if t.Failed() {
			return
		}
	}
	for _, k := range templates {
		if kept[k.name] == 0 {
			t.Errorf("%s: no conversation is kept", k.name)
		}
	}
	t.Logf("%d documents; conversations with several: %v", documents, divided)
}

// show returns a conversation, a line for each message.
func show(c Conversation) string {
	var lines strings.Builder
	for _, m := range c {
		reasoning, _ := m.fields.Get("reasoning_content")
		fmt.Fprintf(&lines, "%s: %q %v\n", m.Role, m.Content, reasoning)
	}
	return lines.String()
}

// wronglyDropped reports whether a conversation should have given a document.
func wronglyDropped(k maskedTemplate, c Conversation, trainOn TrainOn, reason Reason) bool {
	switch {
	case strings.HasPrefix(string(reason), string(refusal)):
		return !strings.Contains(k.plain.Source, "raise_exception")
	case reason == NoLoss:
		answers := toLearn(c, trainOn)
		// The first token of a text is never predicted, and may be the only one of an answer.
		if c[0].Role == Assistant {
			answers = answers[min(1, len(answers)):]
		}
		return slices.ContainsFunc(answers, func(m Message) bool { return answerOf(m) != "" })
	}
	// Without a loop over the messages, a turn is found only after a generation prompt.
	return k.name != "by_index"
}

// toLearn returns the messages that should have loss.
func toLearn(c Conversation, trainOn TrainOn) Conversation {
	list := slices.DeleteFunc(slices.Clone(c), func(m Message) bool { return m.Role != Assistant })
	if trainOn == LastTurn && len(list) > 0 {
		list = list[len(list)-1:]
	}
	return list
}

// checkLearned compares the loss masks of documents with the generation blocks.
func checkLearned(k maskedTemplate, c Conversation, trainOn TrainOn, list []*Document) error {
	answers := toLearn(c, AllTurns)
	if k.name == "nothing_for_empty" {
		answers = slices.DeleteFunc(answers, func(m Message) bool { return m.Content == "" })
	}
	found := make([]bool, len(answers))
	for _, d := range list {
		n, ok := beginning(k.plain, c, d)
		if !ok {
			return fmt.Errorf("%q is the text of no beginning", textOf(d))
		}
		r, err := k.tagged.Render(c[:n], false)
		if err != nil || r.Text != textOf(d) {
			return fmt.Errorf("with generation blocks: %q, %v", r.Text, err)
		}
		for at := range d.Loss {
			if d.Loss[at] && !slices.ContainsFunc(r.Generated,
				func(s jinja.Span) bool { return s.Start <= at && at < s.End }) {
				return fmt.Errorf("byte %d is learned", at)
			}
		}
		spans := r.Generated
		if strings.HasSuffix(k.name, "_between") {
			for i := len(spans) - 1; i > 0; i-- {
				if spans[i-1].End == spans[i].Start { // an answer and its delimiter
					spans[i-1].End = spans[i].End
					spans = slices.Delete(spans, i, i+1)
				}
			}
		}
		for i, s := range spans {
			if i >= len(answers) {
				break
			}
			text := []byte{}
			for at := s.Start; at < s.End; at++ {
				if d.Loss[at] {
					text = append(text, r.Text[at])
				}
			}
			if len(text) > 0 && strings.Contains(string(text), answerOf(answers[i])) {
				found[i] = true
			}
		}
	}
	if trainOn == LastTurn && len(found) > 0 {
		found = found[len(found)-1:]
		answers = answers[len(answers)-1:]
	}
	for i, m := range answers {
		if answerOf(m) != "" && !found[i] {
			return fmt.Errorf("answer %d, %q, is not learned", i, m.Content)
		}
	}
	return nil
}

// TestMasksOfTransformers checks that, with generation blocks, the loss masks are those of
// transformers.
func TestMasksOfTransformers(t *testing.T) {
	var cases []struct {
		Template string          `json:"template"`
		Messages json.RawMessage `json:"messages"`
		IDs      []int32         `json:"input_ids"`
		Mask     string          `json:"mask"`
	}
	if err := json.Unmarshal(testfile.Read(t, "testdata/masks.golden.json"), &cases); err != nil {
		t.Fatal(err)
	}
	encoders := map[string]*Encoder{}
	for _, k := range maskedTemplates(t) {
		encoders[k.name] = encoderOf(t, k.tagged, goldenTokenizer(t), "")
	}
	for i, c := range cases {
		e := encoders[c.Template]
		texts, err := e.texts(t.Context(), goldenCase{Messages: c.Messages}.conversation(t))
		if err != nil || len(texts) != 1 {
			t.Fatalf("case %d, %s: %d texts, %v", i, c.Template, len(texts), err)
		}
		d, err := e.document(texts[0])
		if err != nil {
			t.Fatalf("case %d, %s: %v", i, c.Template, err)
		}
		mask := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(asMask(d.Loss)), "[]")), "")
		if !slices.Equal(d.IDs, c.IDs) || mask != c.Mask {
			t.Errorf("case %d, %s: ids %v with the mask\n%s, want %v with\n%s\nof %q", i, c.Template, d.IDs,
				mask, c.IDs, c.Mask, texts[0].text)
		}
	}
}
