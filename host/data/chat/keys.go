package chat

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/internal/lists"
)

// Rows may have keys that are specific to the program for which they were made: OpenAI's
// fine-tuning, ShareGPT, TRL, axolotl, LLaMA-Factory, ms-swift. Some of these keys change which
// tokens count in the loss.

type keyTable struct {
	used    []string          // by [ParseRow], and those of messages by [isContext]
	refused map[string]string // change the loss in an unsupported way: the reason
	// flags maps keys that can exclude a row or message from the loss to the error that is returned
	// if the value is a boolean other than true, or a number other than 1.
	flags map[string]string
}

const (
	onlyText = "only text is supported"
	noTools  = "tool calls are not supported"
	noLabel  = "an answer that is marked as bad (as for KTO) would be learned like a good one: " +
		"remove such rows"
	noConversations = "conversations with tools are not supported"
	noTraining      = "the row is not for training: remove it"
	noParts         = "parts of messages are not supported: the loss includes whole messages"
	noVariables     = "templates have the same variables for all rows: prepare rows with other " +
		"variables separately, with a template that sets them ({% set enable_thinking = false %})"
)

var rowKeys = keyTable{
	used: []string{"system", "system_prompt"},
	refused: map[string]string{
		"tools": noConversations, "functions": noConversations, "function_call": noTools,
		"documents":            "want documents in the text of a message",
		"history":              "want the earlier turns in messages",
		"chat_template_kwargs": noVariables,
	},
	flags: map[string]string{
		"train": noTraining, "training": noTraining, "label": noLabel, "kto_tag": noLabel,
		"weight": "want 1: remove rows of weight 0",
	},
}

var messageKeys = keyTable{
	used: []string{"train", "training", "loss", "weight"},
	refused: map[string]string{
		"tool_calls": noTools, "function_call": noTools, "tools": noTools, "functions": noTools,
		"train_detail": noParts, "training_detail": noParts,
	},
	flags: map[string]string{"label": noLabel},
}

// mediaKeys are the keys of images, videos and audio, which are not supported.
var mediaKeys = []string{"images", "image", "videos", "video", "audios", "audio"}

// harmlessKeys describe the origin of a row or message.
var harmlessKeys = []string{"id", "_id", "idx", "index", "uuid", "prompt_id", "message_id",
	"conversation_id", "conversation_hash", "source", "dataset", "url", "license", "language", "lang",
	"timestamp", "created", "created_at", "date", "model", "parallel_tool_calls"}

// Columns lists the keys of a row that [ParseRow] reads, first the keys that hold conversations.
var Columns = func() []string {
	list := append(lists.Map(forms, func(f form) string { return f.key }), "prompt", "completion")
	more := slices.AppendSeq(slices.Concat(rowKeys.used, mediaKeys), maps.Keys(rowKeys.refused))
	more = slices.AppendSeq(more, maps.Keys(rowKeys.flags))
	slices.Sort(more)
	return append(list, more...)
}()

// checkKeys checks the keys of a row or message other than own, the keys of its form. It returns
// the ignored keys, or an error for a key that must not be ignored.
func checkKeys(d *jinja.Dict, table *keyTable, own ...string) (ignored []string, _ error) {
	for _, name := range d.Keys() {
		value, _ := d.Get(name)
		if slices.Contains(own, name) || slices.Contains(table.used, name) ||
			slices.Contains(harmlessKeys, name) || empty(value) { // which takes the most time
			continue
		}
		if slices.Contains(mediaKeys, name) {
			return nil, fmt.Errorf("%s: %s", name, onlyText)
		}
		if reason, ok := table.refused[name]; ok {
			return nil, fmt.Errorf("%s: %s", name, reason)
		}
		on, known := flag(value)
		switch reason, ok := table.flags[name]; {
		case !ok || !known && name != "weight": // such as a class label
			ignored = append(ignored, name)
		case !on:
			return nil, fmt.Errorf("%s: %s", name, reason)
		}
	}
	return ignored, nil
}

func flag(value any) (on, known bool) {
	switch v := value.(type) {
	case bool:
		return v, true
	case int64:
		return v == 1, v == 0 || v == 1
	case float64:
		return v == 1, v == 0 || v == 1
	case string:
		on, err := strconv.ParseBool(v)
		return on, err == nil
	}
	return false, false
}

func isContext(d *jinja.Dict, role string) (context bool, err error) {
	for _, name := range messageKeys.used {
		value, _ := d.Get(name)
		if empty(value) {
			continue
		}
		on, known := flag(value)
		switch {
		case !known && role == Assistant:
			return false, fmt.Errorf("%s: want true or 1 for messages with loss, else false or 0", name)
		case role == Assistant:
			context = context || !on
		case known && !on, name == "weight": // these messages never count in the loss
		default:
			return false, fmt.Errorf("%s: only messages of the assistant can count in the loss", name)
		}
	}
	return context, nil
}

func (c Conversation) answers() (list []int) {
	for i, m := range c {
		if m.Role == Assistant {
			list = append(list, i)
		}
	}
	return list
}
