package chat

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data"
)

// conversationForms holds an exchange in each form, without the braces. More keys of the answer
// replace MORE.
var conversationForms = map[string]string{
	"messages":      `"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"MORE}]`,
	"conversations": `"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"MORE}]`,
	"prompt":        `"prompt": "q", "completion": "a"`,
}

// TestKeysOfRows checks that a key beside a conversation is used, rejected or ignored, in each
// form.
func TestKeysOfRows(t *testing.T) {
	for _, c := range []struct {
		key       string
		want, err string // want ends in * if there are ignored keys
	}{
		{`"system": "s"`, "system: s | user: q | assistant: a", ""},
		{`"system_prompt": "s"`, "system: s | user: q | assistant: a", ""},
		{`"system_prompt": "s", "system": "s"`, "system: s | user: q | assistant: a", ""},
		{`"system": " "`, "system:   | user: q | assistant: a", ""},
		{`"system": "[]"`, "system: [] | user: q | assistant: a", ""},
		{`"system": "", "system_prompt": null`, "user: q | assistant: a", ""},
		{`"system": "s", "system_prompt": "t"`, "", "system and system_prompt differ"},
		{`"system": ["s"]`, "", "system is not a string"},
		{`"system": "\u0000"`, "", "zero byte"},
		{`"tools": "[]", "functions": " {} ", "images": [], "chat_template_kwargs": {}, "documents": "null"`, "user: q | assistant: a", ""},
		{`"tools": "[{\"name\": \"f\"}]"`, "", "tools: conversations with tools"},
		{`"chat_template_kwargs": {"enable_thinking": null}, "function_call": {"name": null, "arguments": ""}`, "user: q | assistant: a", ""},
		{`"functions": [{"name": "f"}]`, "", "functions: conversations with tools"},
		{`"images": ["a.png"]`, "", "images: "},
		{`"audio": {"path": "a.wav"}`, "", "audio: "},
		{`"chat_template_kwargs": {"enable_thinking": false}`, "",
			"chat_template_kwargs: templates have the same variables for all rows"},
		{`"history": [["b", "c"]]`, "", "history: want the earlier turns in messages"},
		{`"label": true, "kto_tag": "True", "train": 1, "training": 1.0, "weight": 1`,
			"user: q | assistant: a", ""},
		{`"label": false`, "", "label: an answer that is marked as bad"},
		{`"label": 0`, "", "label: "},
		{`"kto_tag": "false"`, "", "kto_tag: "},
		{`"label": "sports"`, "user: q | assistant: a*", ""},
		{`"train": "part 1"`, "user: q | assistant: a*", ""},
		{`"weight": "part 1"`, "", "weight: "},
		{`"label": 7`, "user: q | assistant: a*", ""},
		{`"train": false`, "", "train: the row is not for training"},
		{`"training": 0`, "", "training: "},
		{`"weight": 0`, "", "weight: "},
		{`"weight": 0.5`, "", "weight: want 1"},
		{`"id": 3, "source": "x", "url": "y"`, "user: q | assistant: a", ""},
		{`"rejected": "b", "score": 0`, "user: q | assistant: a*", ""},
	} {
		for name, form := range conversationForms {
			row := fmt.Sprintf("{%s, %s}", c.key, strings.ReplaceAll(form, "MORE", ""))
			got, ignored, err := ParseRow([]byte(row))
			said := said(got)
			if len(ignored) > 0 {
				said += "*"
			}
			if c.err == "" && (err != nil || said != c.want) || c.err != "" &&
				(err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s, %s: %q, %v, want %q, %q", name, c.key, said, err, c.want, c.err)
			}
		}
	}
}

// TestSystemInBoth checks that equal system messages become one, and different ones are an error.
func TestSystemInBoth(t *testing.T) {
	const row = `{"system": %q, "conversations": [{"from": "system", "value": "s"}, {"from": "gpt", "value": "a"}]}`
	if c, _, err := ParseRow(fmt.Appendf(nil, row, "s")); err != nil ||
		said(c) != "system: s | assistant: a" {
		t.Errorf("%s, %v", said(c), err)
	}
	if _, _, err := ParseRow(fmt.Appendf(nil, row, "t")); err == nil ||
		!strings.Contains(err.Error(), "two different system messages") {
		t.Error(err)
	}
}

// TestKeysOfMessages checks which keys exclude a message from the loss, and which are errors.
func TestKeysOfMessages(t *testing.T) {
	for _, c := range []struct {
		key     string
		context bool
		err     string
	}{
		{`"train": true`, false, ""},
		{`"train": false`, true, ""},
		{`"training": "False"`, true, ""},
		{`"loss": 0`, true, ""},
		{`"weight": 0`, true, ""},
		{`"weight": 0.0`, true, ""},
		{`"weight": 1, "train": null`, false, ""},
		{`"weight": 1, "train": false`, true, ""},
		{`"weight": 0.5`, false, "weight: want true or 1"},
		{`"train": "no"`, false, "train: want true or 1"},
		{`"training_detail": [{"begin_offset": 0, "end_offset": 1, "train": false}]`, false,
			"training_detail: parts of messages"},
		{`"function_call": {"name": "f"}`, false, "function_call: "},
		{`"tool_calls": "[]", "images": null`, false, ""},
		{`"images": ["x"]`, false, "images: "},
		{`"label": false`, false, "label: "},
	} {
		for _, name := range []string{"messages", "conversations"} {
			form := strings.ReplaceAll(conversationForms[name], "MORE", ", "+c.key)
			got, ignored, err := ParseRow([]byte("{" + form + "}"))
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), name+"[1]: "+c.err) {
					t.Errorf("%s, %s: %v, want %q", name, c.key, err, c.err)
				}
			case err != nil || got[1].Context != c.context || got[0].Context || len(ignored) > 0:
				t.Errorf("%s, %s: %+v, %q, %v", name, c.key, got, ignored, err)
			}
		}
	}
	for key, want := range map[string]string{
		`"weight": 1`: "", `"weight": 0`: "", `"train": false`: "",
		`"train": true`: "train: only messages of the assistant can count in the loss",
	} {
		_, _, err := ParseRow(fmt.Appendf(nil, `{"messages": [{"role": "user", "content": "q", %s}]}`,
			key))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a user's %s: %v", key, err)
		}
	}
}

// TestContextIsNotLearned checks that context has no loss, with and without generation blocks.
func TestContextIsNotLearned(t *testing.T) {
	c := Conversation{NewMessage(User, "q"), NewMessage(Assistant, "no"), NewMessage(User, "r"),
		NewMessage(Assistant, "yes")}
	c[1].Context = true
	last := slices.Clone(c)
	last[1].Context, last[3].Context = false, true
	for _, template := range []string{plain, blocks} {
		want := strings.ReplaceAll("u:q;a:no;u:r;a:[yes;]", ";]",
			map[string]string{plain: ";]", blocks: "];"}[template])
		d, err := encoder(t, template, AllTurns).Encode(t.Context(), c)
		if err != nil || markedAll(d) != want {
			t.Errorf("%s: %v, %v", template, d, err)
		}
		if _, err := encoder(t, template, LastTurn).Encode(t.Context(), last); err == nil ||
			err.Error() != string(NoLoss) {
			t.Errorf("%s: the last turn is context: %v", template, err)
		}
	}
	twice := strings.Replace(blocks, "{% generation %}",
		"{% generation %}>{% endgeneration %}{% generation %}", 1)
	if _, err := encoder(t, twice, AllTurns).Encode(t.Context(), c); err == nil ||
		err.Error() != string(NotFound) {
		t.Errorf("two blocks for a turn: %v", err)
	}
}

// TestIgnoredKeys checks that unknown keys are counted, with the first row of each, up to a limit.
// Keys of messages that the template reads are not counted.
func TestIgnoredKeys(t *testing.T) {
	reads := strings.Replace(plain, "{{ m.content }}", "{{ m.content }}{{ m.mood }}", 1)
	rows := []string{
		`{"prompt": "q", "completion": "answer 0", "persona": "x", "id": 1}`,
		`{"messages": [{"role": "user", "content": "q", "mood": "m", "tone": "t"}, {"role": "assistant", "content": "a", "tone": "u"}], "persona": "y", "empty": null}`,
		`{"conversations": [{"from": "human", "value": "q", "mood": "m"}, {"from": "gpt", "value": "a"}]}`,
	}
	o := options(t, rowsOf(rows...), filepath.Join(t.TempDir(), "set"))
	o.Template = encoder(t, reads, "").template
	want := []RowCount{{"", "persona", 2, "rows: line 1"}, {"", "messages[].tone", 1, "rows: line 2"},
		{"", "conversations[].mood", 1, "rows: line 3"}}
	if diff := cmp.Diff(want, prepare(t, o).Ignored); diff != "" {
		t.Error(diff)
	}

	rows = nil
	for i := range 3 * maxKeys {
		rows = append(rows, fmt.Sprintf(`{"prompt": "q", "completion": "answer", "key%d%s": 1}`, i,
			strings.Repeat("x", 3*maxReason)))
	}
	got := prepare(t, options(t, rowsOf(rows...), filepath.Join(t.TempDir(), "set"))).Ignored
	if len(got) != maxKeys+1 || got[0].Key != otherKeys || got[0].Rows != 2*maxKeys ||
		len(got[1].Key) > maxReason+len("…") {
		t.Errorf("%d keys, the first two %+v", len(got), got[:2])
	}
}

// TestUnreadColumns checks that unread columns of Parquet count as ignored keys.
func TestUnreadColumns(t *testing.T) {
	list := func(yield func(data.InputRow, error) bool) {
		for row := range conversations(3) {
			row.Unread = []string{"persona", "source"}
			if !yield(row, nil) {
				return
			}
		}
	}
	m := prepare(t, options(t, list, filepath.Join(t.TempDir(), "set")))
	if diff := cmp.Diff([]RowCount{{"", "persona", 3, "rows: line 1"}}, m.Ignored); diff != "" {
		t.Error(diff)
	}
	for _, key := range []string{"messages", "conversations", "prompt", "completion", "system",
		"label", "images"} {
		if !slices.Contains(Columns, key) {
			t.Errorf("the column %s is not read", key)
		}
	}
	if slices.Contains(Columns, "source") {
		t.Error("a column that says nothing is read")
	}
}

// TestOtherRows checks that the error for a row without a conversation lists its keys.
func TestOtherRows(t *testing.T) {
	for row, want := range map[string]string{
		`{"instruction": "i", "input": "", "output": "o"}`: "the row has instruction, input, output",
		`{"prompt": "p", "chosen": "c", "rejected": "r"}`:  "the row has prompt, chosen, rejected",
		`{"text": "t"}`: "the row has text",
	} {
		if _, _, err := ParseRow([]byte(row)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", row, err, want)
		}
	}
}
