package chat

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// Roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one turn of a conversation.
type Message struct {
	Role, Content string
	// Context excludes an assistant message from the loss.
	Context bool
	// fields holds all keys of the message, for templates.
	fields *jinja.Dict
}

// NewMessage returns a message with a role and content, and no other keys.
func NewMessage(role, content string) Message {
	d := &jinja.Dict{}
	d.Set("role", role)
	d.Set("content", content)
	return Message{Role: role, Content: content, fields: d}
}

// Conversation is a list of messages.
type Conversation []Message

// ParseRow parses a conversation from a JSON row, which has one of these forms:
//
//	{"messages": [{"role": "user", "content": "…"}, …]}      roles system, user, assistant
//	{"conversations": [{"from": "human", "value": "…"}, …]}   system, human, gpt
//	{"prompt": "…", "completion": "…"}
//
// The first of these keys that exists determines the form. Other keys that affect the loss are used
// or rejected. ignored lists the keys that are ignored, those of messages together with the key of
// the list, as in "messages[].name".
func ParseRow(row []byte) (c Conversation, ignored []string, err error) {
	value, err := jinja.FromJSON(row)
	if err != nil {
		return nil, nil, err
	}
	d, ok := value.(*jinja.Dict)
	if !ok {
		return nil, nil, errors.New("want a JSON object with the key " + wantKeys)
	}
	var own, ofMessages []string
	for i := range forms {
		if list, ok := d.Get(forms[i].key); ok {
			own = []string{forms[i].key}
			if c, ofMessages, err = forms[i].parse(list); err != nil {
				return nil, nil, err
			}
			break
		}
	}
	if own == nil {
		own = []string{"prompt", "completion"}
		prompt, ok := d.Get(own[0])
		completion, too := d.Get(own[1])
		if !ok || !too {
			found := "none"
			if keys := d.Keys(); len(keys) > 0 {
				found = strings.Join(keys, ", ")
			}
			return nil, nil, fmt.Errorf("want the key %s; the row has %s", wantKeys, found)
		}
		question, ok := prompt.(string)
		answer, too := completion.(string)
		if !ok || !too {
			return nil, nil, errors.New("prompt and completion must be strings")
		}
		if hasZero(question) || hasZero(answer) {
			return nil, nil, errZero
		}
		c = Conversation{NewMessage(User, question), NewMessage(Assistant, answer)}
	}
	if ignored, err = checkKeys(d, &rowKeys, own...); err != nil {
		return nil, nil, err
	}
	system := "" // the system message in a separate key
	for _, name := range rowKeys.used {
		value, _ := d.Get(name)
		text, ok := value.(string)
		switch {
		case value == nil, ok && text == "":
		case !ok:
			return nil, nil, fmt.Errorf("%s is not a string", name)
		case system != "" && text != system:
			return nil, nil, errors.New("system and system_prompt differ")
		case hasZero(text):
			return nil, nil, errZero
		default:
			system = text
		}
	}
	switch {
	case system == "":
	case c[0].Role != System:
		c = slices.Insert(c, 0, NewMessage(System, system))
	case c[0].Content != system:
		return nil, nil, errors.New("the row has two different system messages, " +
			"one of them in a separate key")
	}
	return c, append(ignored, ofMessages...), nil
}

// empty reports whether an optional value, or the value that a string holds as JSON, is empty.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		parsed, err := jinja.FromJSON([]byte(v))
		_, text := parsed.(string)
		return strings.TrimSpace(v) == "" || err == nil && !text && empty(parsed)
	case []any:
		return len(v) == 0
	case *jinja.Dict: // groups of Parquet have all their keys
		return !slices.ContainsFunc(v.Keys(), func(key string) bool {
			value, _ := v.Get(key)
			return !empty(value)
		})
	}
	return false
}

// form describes a format for lists of messages. Templates can also use the other keys of messages,
// except in ShareGPT's format.
type form struct {
	key           string            // of the list
	role, content string            // keys of a message
	roles         map[string]string // by their names in the format
	want          string            // these names, for errors
}

var forms = []form{
	{"messages", "role", "content",
		map[string]string{System: System, User: User, Assistant: Assistant},
		"system, user or assistant"},
	{"conversations", "from", "value",
		map[string]string{"system": System, "human": User, "gpt": Assistant},
		"system, human or gpt"},
}

func (f *form) parse(value any) (c Conversation, ignored []string, err error) {
	list, ok := value.([]any)
	if !ok {
		return nil, nil, fmt.Errorf("%s: want a list of messages", f.key)
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("%s: the list is empty", f.key)
	}
	c = make(Conversation, len(list))
	for i, element := range list {
		d, ok := element.(*jinja.Dict)
		if !ok {
			return nil, nil, fmt.Errorf("%s[%d]: want an object", f.key, i)
		}
		keys, err := checkKeys(d, &messageKeys, f.role, f.content)
		name, noRole := text(d, f.role)
		content, noContent := text(d, f.content)
		role, known := f.roles[name]
		err = cmp.Or(err, noRole)
		if err == nil && !known {
			err = fmt.Errorf("%s %q, want %s", f.role, name, f.want)
		}
		if err = cmp.Or(err, noContent); err == nil && hasZero(d) {
			err = errZero
		}
		if err == nil {
			c[i] = NewMessage(role, content)
			c[i].Context, err = isContext(d, role)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s[%d]: %w", f.key, i, err)
		}
		if f.key == messagesVariable {
			c[i].fields = d
		}
		for _, key := range keys {
			if name := f.key + ofMessage + key; !slices.Contains(ignored, name) {
				ignored = append(ignored, name)
			}
		}
	}
	return c, ignored, nil
}

// ofMessage is written between the key of a list and a key of its messages.
const ofMessage = "[]."

const wantKeys = "messages, conversations, or prompt and completion"

var errZero = errors.New("the text has a zero byte")

func hasZero(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.Contains(v, "\x00")
	case []any:
		return slices.ContainsFunc(v, hasZero)
	case *jinja.Dict:
		return slices.ContainsFunc(v.Keys(), func(key string) bool {
			value, _ := v.Get(key)
			return hasZero(value)
		})
	}
	return false
}

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
