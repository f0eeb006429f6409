package chat

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one turn of a conversation.
type Message struct {
	Role, Content string
	// fields is the message as templates see it, with keys of its own.
	fields *jinja.Dict
}

// NewMessage returns a message with a role and content, and no other keys.
func NewMessage(role, content string) Message {
	d := &jinja.Dict{}
	d.Set("role", role)
	d.Set("content", content)
	return Message{role, content, d}
}

// Conversation is a list of messages.
type Conversation []Message

// Columns lists the keys of a row that [ParseRow] reads.
var Columns = []string{"messages", "conversations", "prompt", "completion", "tools"}

// ParseRow parses a conversation from a JSON row, which has one of these forms:
//
//	{"messages": [{"role": "user", "content": "…"}, …]}      roles system, user, assistant
//	{"conversations": [{"from": "human", "value": "…"}, …]}   system, human, gpt
//	{"prompt": "…", "completion": "…"}
//
// The first of these keys that is present counts; other keys are ignored, except "tools",
// which must be empty.
func ParseRow(row []byte) (Conversation, error) {
	value, err := jinja.FromJSON(row)
	if err != nil {
		return nil, err
	}
	d, ok := value.(*jinja.Dict)
	if !ok {
		return nil, errors.New("want a JSON object with the key messages, conversations, or prompt and completion")
	}
	if tools, _ := d.Get("tools"); !empty(tools) {
		return nil, errors.New("tools: conversations with tools are not supported")
	}
	for i := range forms {
		if list, ok := d.Get(forms[i].key); ok {
			return forms[i].parse(list)
		}
	}
	prompt, ok := d.Get("prompt")
	completion, too := d.Get("completion")
	if !ok || !too {
		return nil, fmt.Errorf("want the key messages, conversations, or prompt and completion; the row has %s", cmp.Or(strings.Join(d.Keys(), ", "), "none"))
	}
	question, ok := prompt.(string)
	answer, too := completion.(string)
	if !ok || !too {
		return nil, errors.New("prompt and completion must be strings")
	}
	if hasZero(question) || hasZero(answer) {
		return nil, errZero
	}
	return Conversation{NewMessage(User, question), NewMessage(Assistant, answer)}, nil
}

// empty tells whether an optional value says nothing.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case jinja.List:
		return len(v) == 0
	case *jinja.Dict:
		return len(v.Keys()) == 0
	}
	return false
}

// form is how a row writes the messages of a conversation.
type form struct {
	key           string            // of the list
	role, content string            // keys of a message
	roles         map[string]string // by the names that the form gives them
	want          string            // those names
	whole         bool              // templates see the other keys of a message too
}

var forms = []form{
	{"messages", "role", "content", map[string]string{System: System, User: User, Assistant: Assistant}, "system, user or assistant", true},
	{"conversations", "from", "value", map[string]string{"system": System, "human": User, "gpt": Assistant}, "system, human or gpt", false}, // ShareGPT
}

func (f *form) parse(value any) (Conversation, error) {
	list, ok := value.(jinja.List)
	if !ok {
		return nil, fmt.Errorf("%s: want a list of messages", f.key)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: the list is empty", f.key)
	}
	c := make(Conversation, len(list))
	for i, element := range list {
		d, ok := element.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("%s[%d]: want an object", f.key, i)
		}
		var err error
		if c[i], err = f.message(d); err == nil && hasZero(d) {
			err = errZero
		}
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", f.key, i, err)
		}
	}
	return c, nil
}

// errZero is the same error as that of a text in JSONL.
var errZero = errors.New("the text has a zero byte")

// hasZero tells whether a value has a text with a zero byte.
func hasZero(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.Contains(v, "\x00")
	case jinja.List:
		return slices.ContainsFunc(v, hasZero)
	case *jinja.Dict:
		return slices.ContainsFunc(v.Keys(), func(key string) bool {
			value, _ := v.Get(key)
			return hasZero(value)
		})
	}
	return false
}

// meaningful are keys of a message that would be wrong to ignore.
var meaningful = []string{"tool_calls", "function_call", "weight"}

func (f *form) message(d *jinja.Dict) (Message, error) {
	for _, key := range meaningful {
		if value, _ := d.Get(key); !empty(value) {
			return Message{}, fmt.Errorf("%s is not supported", key)
		}
	}
	name, err := text(d, f.role)
	if err != nil {
		return Message{}, err
	}
	role, ok := f.roles[name]
	if !ok {
		return Message{}, fmt.Errorf("%s %q, want %s", f.role, name, f.want)
	}
	content, err := text(d, f.content)
	if f.whole {
		return Message{role, content, d}, err
	}
	return NewMessage(role, content), err
}

// text is the string that a key of a message must have.
func text(d *jinja.Dict, key string) (string, error) {
	value, ok := d.Get(key)
	if !ok {
		return "", fmt.Errorf("has no %s", key)
	}
	s, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("%s is not a string", key)
	}
	return s, nil
}
