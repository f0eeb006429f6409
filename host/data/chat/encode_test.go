package chat

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// encoder returns an Encoder with bytes as tokens.
func encoder(t testing.TB, source string, trainOn TrainOn) *Encoder {
	t.Helper()
	tmpl := &Template{Name: "test", Source: source}
	if err := tmpl.parse(); err != nil {
		t.Fatal(err)
	}
	return encoderOf(t, tmpl, tokenizer.Bytes{}, trainOn)
}

func encoderOf(t testing.TB, tmpl *Template, tok tokenizer.Tokenizer, trainOn TrainOn) *Encoder {
	t.Helper()
	e, err := NewEncoder(tmpl, tok, trainOn)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// marked returns the text of a document of bytes, with brackets around the parts with loss.
func marked(d *Document) string {
	var out strings.Builder
	for i, id := range d.IDs {
		if d.Loss[i] && (i == 0 || !d.Loss[i-1]) {
			out.WriteByte('[')
		}
		out.WriteByte(byte(id))
		if d.Loss[i] && (i+1 == len(d.IDs) || !d.Loss[i+1]) {
			out.WriteByte(']')
		}
	}
	return out.String()
}

// textOf returns the text of a document of bytes.
func textOf(d *Document) string {
	text := make([]byte, len(d.IDs))
	for i, id := range d.IDs {
		text[i] = byte(id)
	}
	return string(text)
}

// beginning returns the length of the prefix of c that has the text of d, a document of bytes.
func beginning(tmpl *Template, c Conversation, d *Document) (int, bool) {
	text := textOf(d)
	for n := len(c); n > 0; n-- {
		if r, err := tmpl.Render(c[:n], false); err == nil && r.Text == text {
			return n, true
		}
	}
	return 0, false
}

// markedAll returns the marked texts of documents, one per line.
func markedAll(list []*Document) string {
	var texts []string
	for _, d := range list {
		texts = append(texts, marked(d))
	}
	return strings.Join(texts, "\n")
}

const (
	plain = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if " +
		"add_generation_prompt %}a:{% endif %}"
	noPrompt = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
	blocks   = "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation " +
		"%}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}"
	// thinks has two blocks in a turn, or none if the turn is empty.
	thinks = "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'user' %}{{ m.content }}{% elif " +
		"m.content %}{% generation %}T{% endgeneration %}|{% generation %}{{ m.content }}{% " +
		"endgeneration %}{% endif %};{% endfor %}"
	// lastOnly prints a delimiter only after the last turn; cutsOther prints the contents of only user
	// messages and the last message.
	lastOnly = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ ';' if loop.last and " +
		"m.role == 'assistant' }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
	cutsOther = "{% for m in messages %}{{ m.role[0] }}:{{ m.content if loop.last or m.role == " +
		"'user' else '' }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
	noted = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ '!' if loop.last and " +
		"m.role == 'assistant' }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
	endsTalk = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if " +
		"add_generation_prompt %}a:{% else %}{{ eos_token }}{% endif %}"
	between = "{% for m in messages %}{{ ';' if loop.previtem and loop.previtem.role == " +
		"'assistant' }}{{ m.role[0] }}:{{ m.content }}{% endfor %}{% if messages[-1].role == " +
		"'assistant' %};{% endif %}{% if add_generation_prompt %}a:{% endif %}"
	always = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"
	feeds  = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ ';' if " +
		"add_generation_prompt or not loop.last }}{% endfor %}"
	spaced = "{% for m in messages %}{{ m.content if m.role == 'user' else ' ' + m.content + ' ' " +
		"}}{% endfor %}"
	byIndex = "{% for i in range(messages | length) %}{{ messages[i].role[0] }}:{{ " +
		"messages[i].content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
	lastSeven = "{% for m in messages[-7:] %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if " +
		"add_generation_prompt %}a:{% endif %}"
	alternate = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ " +
		"raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + plain
	needsUser = "{% if not messages | selectattr('role', 'equalto', 'user') | list %}{{ " +
		"raise_exception('no user') }}{% endif %}" + plain
)

func TestMarks(t *testing.T) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
	two := Conversation{NewMessage(User, "q"), NewMessage(Assistant, "one"), NewMessage(User, "r"),
		NewMessage(Assistant, "two")}
	for _, c := range []struct {
		template     string
		trainOn      TrainOn
		conversation Conversation
		want         string
	}{
		{plain, AllTurns, two, "u:q;a:[one;]u:r;a:[two;]"},
		{plain, LastTurn, two, "u:q;a:one;u:r;a:[two;]"},
		{plain, LastTurn, two[:3], "u:q;a:[one;]u:r;"},
		{noPrompt, AllTurns, two, "u:q;a:[one;]u:r;a:[two;]"},
		{blocks, AllTurns, two, "u:q;a:[one];u:r;a:[two];"},
		{blocks, LastTurn, two, "u:q;a:one;u:r;a:[two];"},
		{thinks, LastTurn, two, "u:q;a:T|one;u:r;a:[T]|[two];"},
		{plain, AllTurns, Conversation{NewMessage(Assistant, "one"), NewMessage(User, "q")},
			"a:[one;]u:q;"},
		{plain, AllTurns, Conversation{NewMessage(User, "q"), NewMessage(Assistant, "")}, "u:q;a:[;]"},
		{plain, AllTurns, Conversation{NewMessage(User, "ü"), NewMessage(Assistant, "é")}, "u:ü;a:[é;]"},
		{plain, AllTurns, Conversation{NewMessage(Assistant, "x"), NewMessage(Assistant, "y")},
			"a:[x;]a:[y;]"},
		// No letter is left that occurs neither in the question nor in the answer.
		{noPrompt, AllTurns, Conversation{NewMessage(User, letters), NewMessage(Assistant, "~x")},
			"u:" + letters + ";a:[~x;]"},
		{lastOnly, AllTurns, two, "u:qa:[one]u:ra:[two;]"},
		{cutsOther, AllTurns, two, "u:q;a:[one;]\nu:q;a:;u:r;a:[two;]"},
		{cutsOther, LastTurn, two[:3], "u:q;a:[one;]"},
		// Where the template prints a text after the last turn only, the loss of the other turns ends.
		{noted, AllTurns, two, "u:q;a:[one];u:r;a:[two!;]"},
		{endsTalk, AllTurns, two, "u:q;a:[one;]u:r;a:[two;$]"},
		{endsTalk, AllTurns, two[1:3], "a:[one;]u:r;$"},
		// A text that is printed before the next turn belongs to the previous one, unless it is a header.
		{between, AllTurns, two, "u:qa:[one;]u:ra:[two;]"},
		{between, AllTurns, Conversation{two[0], two[1], two[3]}, "u:qa:[one;]a:[two;]"},
		{always, AllTurns, Conversation{two[0], two[1], two[3]}, "u:q;a:[one;]a:[two;]a:"},
		{always, AllTurns, two, "u:q;a:[one;]u:r;a:[two;]a:"},
		// A generation prompt that ends before the header of the turn is ignored.
		{feeds, AllTurns, two, "u:q;a:[one];u:r;a:[two]"},
		// White space before an answer has loss unless it begins the text: the model has to write it.
		{spaced, AllTurns, two[:2], "q[ one ]"},
		{spaced, AllTurns, two[1:2], " [one ]"},
		// Without a loop over the messages, a turn ends where the text of the conversation up to it ends.
		{byIndex, AllTurns, two, "u:q;a:[one;]u:r;a:[two;]"},
		{byIndex + "{% if not add_generation_prompt %}$$$$$$$${% endif %}", AllTurns, two,
			"u:q;a:[one;$$$$$$$$]\nu:q;a:one;u:r;a:[two;$$$$$$$$]"},
		// A turn that is unchanged in the text of a later turn counts in the loss there.
		{lastSeven, AllTurns, slices.Concat(two, two),
			"u:q;a:[one;]u:r;a:[two;]u:q;a:[one;]\na:one;u:r;a:two;u:q;a:one;u:r;a:[two;]"},
		{cutsOther, LastTurn, two, "u:q;a:;u:r;a:[two;]"},
	} {
		tmpl := encoder(t, c.template, "").template
		tmpl.Tokens.EOS = "$"
		e := encoderOf(t, tmpl, tokenizer.Bytes{}, c.trainOn)
		d, err := e.Encode(t.Context(), c.conversation)
		if err != nil {
			t.Errorf("%s, %s: %v", c.template, c.trainOn, err)
			continue
		}
		if got := markedAll(d); got != c.want {
			t.Errorf("%s, %s:\ngot  %s\nwant %s", c.template, c.trainOn, got, c.want)
		}
	}
}

func TestDropped(t *testing.T) {
	two := Conversation{NewMessage(User, "q"), NewMessage(Assistant, "one"), NewMessage(User, "r"),
		NewMessage(Assistant, "two")}
	for _, c := range []struct {
		template     string
		conversation Conversation
		want         Reason
	}{
		{plain, two[:1], NoLoss},
		{"", two, NotFound},
		{"{{ messages[-1].content }}", two, NotFound},
		{"{{ 'x' * (10 - messages | length) }}", two, NotFound},
		{alternate, Conversation{two[0], two[0]}, "the template refuses: roles must alternate"},
		{needsUser, Conversation{NewMessage(System, "s"), two[1], two[0]},
			"the template refuses: no user"},
	} {
		_, err := encoder(t, c.template, "").Encode(t.Context(), c.conversation)
		d, ok := errors.AsType[*Dropped](err)
		if !ok || d.Reason != c.want {
			t.Errorf("%s: got %v, want %s", c.template, err, c.want)
		}
	}
}

// TestNormalForms checks that the answers are found if the tokenizer normalizes the text.
func TestNormalForms(t *testing.T) {
	tok := nfc(t)
	// The template's e and the accent that the answer begins with are one letter in NFC.
	const joined = "{% for m in messages %}{% if m.role == 'assistant' %}e{% generation %}{{ " +
		"m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}"
	const ohm, accent = "5 k\u2126", "cafe\u0301"
	c := Conversation{NewMessage(User, "<|im_start|>\u0338\u212b?"),
		NewMessage(Assistant, ohm+" "+accent)}
	for _, k := range []struct{ template, answer, want string }{
		{plain, ohm + " " + accent, "5 kΩ café;"},
		{blocks, ohm + " " + accent, "5 kΩ café"},
		{joined, "\u0301 " + ohm, "é 5 kΩ"},
		{lastOnly, ohm + " " + accent, "5 kΩ café;"},
		{cutsOther, ohm, "5 kΩ;"},
	} {
		e := encoderOf(t, encoder(t, k.template, "").template, tok, LastTurn)
		c[1] = NewMessage(Assistant, k.answer)
		for _, conversation := range []Conversation{c, append(c[:2:2], c...)} {
			d, err := e.Encode(t.Context(), conversation)
			if err != nil {
				t.Errorf("%s: %v", k.template, err)
				continue
			}
			var learned []int32
			for i, id := range d[0].IDs {
				if d[0].Loss[i] {
					learned = append(learned, id)
				}
			}
			if got, err := tok.Decode(learned); err != nil || got != k.want {
				t.Errorf("%s: %q is learned, want %q, %v", k.template, got, k.want, err)
			}
		}
	}
}

// nfc returns the golden file's tokenizer with normal form C.
func nfc(t *testing.T) tokenizer.Tokenizer {
	t.Helper()
	definition := testfile.Read(t, "testdata/llama32.tokenizer.json")
	tok, err := tokenizer.ReadHuggingFace(bytes.Replace(definition, []byte(`"normalizer": null`),
		[]byte(`"normalizer": {"type": "NFC"}`), 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestNormalSpans compares spans in normalized text with those from the whole text before and after
// each span, for all parts of a text.
func TestNormalSpans(t *testing.T) {
	tok := nfc(t).(*tokenizer.HuggingFace)
	e := encoderOf(t, encoder(t, plain, "").template, tok, AllTurns)
	const text = "a\u0301\u0301 <|im_start|>\u0338e\u0301\u0323x \u0301\n" +
		"\u1112\u1161\u11ab <|im_end|>\u212b"
	normal := tok.Normal(text)
	var all []jinja.Span
	for from := range len(text) + 1 {
		for to := from; to <= len(text); to++ {
			if utf8.ValidString(text[:from]) && utf8.ValidString(text[from:to]) {
				all = append(all, jinja.Span{Start: from, End: to})
			}
		}
	}
	_, got := e.normalize(learnedText{text, all})
	for i, s := range all {
		want := jinja.Span{
			Start: commonPrefix(tok.Normal(text[:s.Start]), normal),
			End:   len(normal) - commonSuffix(tok.Normal(text[s.End:]), normal),
		}
		if got[i] != want {
			t.Errorf("%q … %q: %v, want %v", text[:s.Start], text[s.End:], got[i], want)
		}
	}
}

// TestManyNormalSpans checks that the memory, and thus the time, for spans in normalized text is
// not proportional to their number times the length of the text.
func TestManyNormalSpans(t *testing.T) {
	e := encoderOf(t, encoder(t, plain, "").template, nfc(t), AllTurns)
	part := strings.Repeat("one ", 250) + "cafe\u0301 "
	r := learnedText{text: strings.Repeat(part, 100)}
	for i := range 100 {
		r.spans = append(r.spans, jinja.Span{Start: i*len(part) + 4, End: (i + 1) * len(part)})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e.normalize(r)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 20*uint64(len(r.text)) {
		t.Errorf("%d bytes are allocated for a text of %d", used, len(r.text))
	}
}

// vast is a tokenizer with a vocabulary of MaxInt32 tokens.
type vast struct{ tokenizer.Bytes }

func (v vast) Info() tokenizer.Info {
	info := v.Bytes.Info()
	info.VocabSize = math.MaxInt32
	return info
}

// TestVastVocabulary checks that an encoder's memory does not depend on the vocabulary's size.
func TestVastVocabulary(t *testing.T) {
	tmpl := encoder(t, plain, "").template
	e := encoderOf(t, tmpl, vast{}, "")
	c := Conversation{NewMessage(User, "q"), NewMessage(Assistant, "one")}
	got, err := e.Encode(t.Context(), c)
	want, wantErr := encoder(t, plain, "").Encode(t.Context(), c)
	if err != nil || wantErr != nil || !slices.Equal(got[0].Loss, want[0].Loss) {
		t.Errorf("%v, %v; want %v, %v", got, err, want, wantErr)
	}
}

// TestEncodeMistakes checks that wrong templates, tokenizers and options are errors, and do not
// drop rows.
func TestEncodeMistakes(t *testing.T) {
	c := Conversation{NewMessage(User, "q"), NewMessage(Assistant, "one <|eot_id|>")}
	if _, err := encoder(t, "{{ eos_token + 'x' }}", "").Encode(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "eos_token, which is undefined") {
		t.Errorf("an undefined variable: %v", err)
	}
	metaspace, err := tokenizer.LoadHuggingFace("../tokenizer/testdata/llama2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tmpl := encoder(t, plain, "").template
	e := encoderOf(t, tmpl, metaspace, "")
	if _, err := e.Encode(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "changes the text") {
		t.Errorf("a tokenizer that changes the text: %v", err)
	}
	if _, err := NewEncoder(tmpl, metaspace, "x"); err == nil ||
		!strings.Contains(err.Error(), `train on "x"`) {
		t.Errorf("a wrong choice of turns: %v", err)
	}
}
