package chat

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// Rows have keys of the programs for which they were made: OpenAI's fine-tuning, ShareGPT, TRL,
// axolotl, LLaMA-Factory, ms-swift. Some of these keys change which tokens have loss.

// meaning is the effect of a key on training.
type meaning int

const (
	keyUnknown  meaning = iota // ignored, and reported to the user
	keyHarmless                // does not affect the loss
	keyUsed                    // by [ParseRow]
	keyRefused                 // changes the loss in an unsupported way
	keyLearned                 // true or 1: nothing special; false or 0: no loss
)

// keyRule is the known meaning of a key. reason ends the error message about it.
type keyRule struct {
	meaning meaning
	reason  string
}

const (
	onlyText = "models of text are trained, which see nothing else"
	noTools  = "calls of tools are not supported"
	noLabel  = "an answer that is marked as bad (as for KTO) would be learned like a good one: " +
		"leave such rows out"
	noConversations = "conversations with tools are not supported"
	noTraining      = "the row is not for training: leave it out"
	noParts         = "parts of messages are not supported: a message is learned as a whole or not"
	noVariables     = "templates have the same variables for all rows: prepare rows with other " +
		"variables by themselves, with a template that sets them ({% set enable_thinking = false %})"
)

var rowKeys = mergedKeys(harmlessKeys, map[string]keyRule{
	"system": {meaning: keyUsed}, "system_prompt": {meaning: keyUsed},
	"tools":                {keyRefused, noConversations},
	"functions":            {keyRefused, noConversations},
	"function_call":        {keyRefused, noTools},
	"documents":            {keyRefused, "want documents in the text of a message"},
	"history":              {keyRefused, "want the earlier turns in messages"},
	"chat_template_kwargs": {keyRefused, noVariables},
	"train":                {keyLearned, noTraining},
	"training":             {keyLearned, noTraining},
	"weight":               {keyLearned, "want 1: leave rows of weight 0 out"},
	"label":                {keyLearned, noLabel}, "kto_tag": {keyLearned, noLabel},
}, mediaKeys)

var messageKeys = mergedKeys(harmlessKeys, map[string]keyRule{
	"tool_calls": {keyRefused, noTools}, "function_call": {keyRefused, noTools},
	"tools": {keyRefused, noTools}, "functions": {keyRefused, noTools},
	"train_detail": {keyRefused, noParts}, "training_detail": {keyRefused, noParts},
	"label": {keyLearned, noLabel},
	"train": {meaning: keyUsed}, "training": {meaning: keyUsed},
	"loss": {meaning: keyUsed}, "weight": {meaning: keyUsed},
}, mediaKeys)

var mediaKeys = map[string]keyRule{
	"images": {keyRefused, onlyText}, "image": {keyRefused, onlyText},
	"videos": {keyRefused, onlyText}, "video": {keyRefused, onlyText},
	"audios": {keyRefused, onlyText}, "audio": {keyRefused, onlyText},
}

// harmlessKeys describe the origin of a row or message.
var harmlessKeys = func() map[string]keyRule {
	keys := map[string]keyRule{}
	for _, name := range []string{"id", "_id", "idx", "index", "uuid", "prompt_id", "message_id",
		"conversation_id", "conversation_hash", "source", "dataset", "url", "license", "language", "lang",
		"timestamp", "created", "created_at", "date", "model", "parallel_tool_calls"} {
		keys[name] = keyRule{meaning: keyHarmless}
	}
	return keys
}()

func mergedKeys(tables ...map[string]keyRule) map[string]keyRule {
	all := map[string]keyRule{}
	for _, table := range tables {
		maps.Copy(all, table)
	}
	return all
}

// Columns lists the keys of a row that [ParseRow] reads, those of conversations first.
var Columns = func() []string {
	list := []string{"prompt", "completion"}
	for i := range forms {
		list = slices.Insert(list, i, forms[i].key)
	}
	var more []string
	for name, k := range rowKeys {
		if k.meaning != keyHarmless {
			more = append(more, name)
		}
	}
	slices.Sort(more)
	return append(list, more...)
}()

// checkKeys checks the keys of a row or message other than those of its form. It returns the
// ignored ones, or an error for one that must not be ignored.
func checkKeys(d *jinja.Dict, table map[string]keyRule, own ...string) (ignored []string, _ error) {
	for _, name := range d.Keys() {
		value, _ := d.Get(name)
		if slices.Contains(own, name) || empty(value) {
			continue
		}
		k := table[name]
		switch on, known := flag(value); {
		case k.meaning == keyUnknown,
			k.meaning == keyLearned && !known && name != "weight": // such as a class label
			ignored = append(ignored, name)
		case k.meaning == keyRefused, k.meaning == keyLearned && !on:
			return nil, fmt.Errorf("%s: %s", name, k.reason)
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
	for _, name := range []string{"train", "training", "loss", "weight"} {
		value, _ := d.Get(name)
		if empty(value) {
			continue
		}
		on, known := flag(value)
		switch {
		case !known && role == Assistant:
			return false, fmt.Errorf("%s: want true or 1 of what is learned, else false or 0", name)
		case role == Assistant:
			context = context || !on
		case known && !on, name == "weight": // these messages never have loss
		default:
			return false, fmt.Errorf("%s: only what the assistant says is learned", name)
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

// otherRows has, by a key of rows without a conversation, a hint how to use them.
var otherRows = []struct{ key, hint string }{
	{"chosen", "preferences are not learned: of the answers, give the chosen one as completion"},
	{"instruction", "give Alpaca's instruction and input as prompt, and its output as completion"},
	{"text", "rows with a finished text are prepared with --kind text"},
}
