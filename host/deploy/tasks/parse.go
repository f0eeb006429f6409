package tasks

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// Parse parses the description of a task; name is for messages.
func Parse(name string, text []byte) (*Task, error) {
	sum := sha256.Sum256(text)
	t := &Task{hash: hex.EncodeToString(sum[:])}
	decoded, err := toml.Decode(string(text), t)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, plaintoml.Explain(string(text), err, nil))
	}
	if t.Dataset == "" {
		t.Dataset = t.Name
	}
	if t.Delimiter == nil {
		space := " "
		t.Delimiter = &space
	}
	problem := unknown(decoded.Keys())
	if problem == nil {
		problem = t.check()
	}
	if problem != nil {
		return nil, fmt.Errorf("%s%s: %s: %w", name, lineOf(text, problem.key), problem.key, problem)
	}
	return t, nil
}

// A problem is what is wrong with a key of a description.
type problem struct {
	key         string
	found, want string
}

func (p *problem) Error() string {
	if p.want == "" {
		return p.found
	}
	return p.found + "; want " + p.want
}

// missing is the problem of a key that is not there, or empty.
func missing(key, want string) *problem { return &problem{key, "missing", want} }

// lineOf is the line of a key as it follows a file's name, empty where the key is not in
// the text.
func lineOf(text []byte, key string) string {
	key, _, _ = strings.Cut(key[strings.LastIndexByte(key, '.')+1:], "[")
	at := regexp.MustCompile(`(?m)(?:^|[{,])[ \t]*(?:\[\[?[ \t]*)?["']?` + regexp.QuoteMeta(key) + `["']?[ \t]*[=\]]`).FindIndex(text)
	if at == nil {
		return ""
	}
	return fmt.Sprintf(":%d", 1+bytes.Count(text[:at[0]], []byte("\n")))
}

// keysOf are the names of a struct's fields in TOML.
func keysOf[T any]() (names []string) {
	for f := range reflect.TypeFor[T]().Fields() {
		if name := f.Tag.Get("toml"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// unknown finds a key that a description does not have. Its case counts.
func unknown(keys []toml.Key) *problem {
	for _, key := range keys {
		known := keysOf[Task]()
		if len(key) > 1 && key[0] == "filters" {
			known = keysOf[Filter]()
		}
		name := key[len(key)-1]
		if slices.Contains(known, name) {
			continue
		}
		if near := schema.DidYouMean(name, known); near != "" {
			return &problem{key: key.String(), found: "unknown key; " + near}
		}
		return &problem{key.String(), "unknown key", "one of " + strings.Join(known, ", ")}
	}
	return nil
}

// metricsOf are the metrics of each kind.
var metricsOf = map[string][]string{Choices: {Acc, AccNorm}, Continuation: {Perplexity, Acc}, Generation: {ExactMatch}, Text: {WordPerplexity, BytePerplexity, BitsPerByte}}

func (t *Task) check() *problem {
	kinds := strings.Join([]string{Choices, Continuation, Generation, Text}, ", ")
	allowed, ok := metricsOf[t.Kind]
	switch {
	case t.Kind == "":
		return missing("kind", "one of "+kinds)
	case !ok:
		return &problem{"kind", fmt.Sprintf("found %q", t.Kind), "one of " + kinds}
	case t.Name == "":
		return missing("name", "one that can be a file's")
	case strings.ContainsAny(t.Name, `/\`):
		return &problem{"name", fmt.Sprintf("found %q", t.Name), "one that can be a file's, without slashes"}
	case len(t.Metrics) == 0:
		return missing("metrics", "some of "+strings.Join(allowed, ", "))
	case len(t.Question) == 0:
		return missing("question", `a template, such as question = ["{{ question }}"]`)
	case t.Split == "":
		return missing("split", `the split with the questions, such as split = "test"`)
	case t.Shots < 0:
		return &problem{"shots", fmt.Sprintf("found %d", t.Shots), "a number of examples, or 0"}
	case t.MaxTokens < 0:
		return &problem{"max_tokens", fmt.Sprintf("found %d", t.MaxTokens), "a number of tokens, or 0 for the default"}
	}
	for _, m := range t.Metrics {
		if !slices.Contains(allowed, m) {
			return &problem{"metrics", fmt.Sprintf("a task of the kind %s has no %q", t.Kind, m), "some of " + strings.Join(allowed, ", ")}
		}
	}
	return cmp.Or(t.checkKind(), t.checkTemplates(), t.compile())
}

// checkKind checks that the keys are those of the kind.
func (t *Task) checkKind() *problem {
	switch several := len(t.Question) > 1; {
	case t.Kind == Choices && t.Gold == "":
		return missing("gold", "a template that writes the number of the right choice")
	case t.Kind == Choices && several && t.Target == "":
		return missing("target", "the continuation of the questions, of which there is one for each choice")
	case t.Kind == Choices && several && (len(t.Choice) > 0 || t.ChoicesOf != ""):
		return &problem{"question", fmt.Sprintf("found %d, beside choices", len(t.Question)), "one question with choices, or one for each choice with target"}
	case t.Kind == Choices && !several && t.Target != "":
		return &problem{"target", "found beside one question", "choices or choices_of in its place"}
	case t.Kind == Choices && !several && len(t.Choice) == 0 && t.ChoicesOf == "":
		return missing("choices", "it or choices_of, or a question for each choice with target")
	case t.Kind != Choices && several:
		return &problem{"question", fmt.Sprintf("found %d", len(t.Question)), "one, in a task of the kind " + t.Kind}
	case (t.Kind == Continuation || t.Kind == Generation) && t.Target == "":
		return missing("target", "a template that writes the right answer")
	case t.Kind == Text && t.Target != "":
		return &problem{"target", "found in a task of the kind " + Text, "none: the question is the whole text"}
	case t.Kind == Text && t.Shots > 0:
		return &problem{"shots", "found in a task of the kind " + Text, "none: the question is the whole text"}
	case t.Kind == Generation && len(t.Filters) == 0:
		return missing("filters", "one or more, in a task of the kind "+Generation)
	case t.Kind != Generation && len(t.Filters) > 0:
		return &problem{"filters", "found in a task of the kind " + t.Kind, "none: they belong to the kind " + Generation}
	}
	return nil
}

// checkTemplates finds a template that is none. What a template lacks of a row is known
// only when a row is there.
func (t *Task) checkTemplates() *problem {
	for _, part := range []struct {
		key  string
		list []string
	}{{"question", t.Question}, {"choices", t.Choice}, {"target", []string{t.Target}}, {"gold", []string{t.Gold}}} {
		for i, source := range part.list {
			if _, err := jinja.Parse(t.Name, source); err != nil {
				key := part.key
				if len(part.list) > 1 {
					key = fmt.Sprintf("%s[%d]", key, i)
				}
				return &problem{key: key, found: err.Error()}
			}
		}
	}
	return nil
}

// compile parses patterns.
func (t *Task) compile() *problem {
	var p *problem
	pattern := func(key string, i int, source string) *regexp.Regexp {
		compiled, err := regexp.Compile(source)
		if err != nil && p == nil {
			p = &problem{fmt.Sprintf("%s[%d]", key, i), strings.TrimPrefix(err.Error(), "error parsing regexp: "), "a regular expression"}
		}
		return compiled
	}
	for i, c := range t.Clean {
		t.clean = append(t.clean, pattern("clean", i, c[0]))
	}
	for i, source := range t.Ignore {
		t.ignore = append(t.ignore, pattern("ignore", i, pythonEnd(source)))
	}
	for i := range t.Filters {
		t.Filters[i].pattern = pattern("filters", i, t.Filters[i].Pattern)
	}
	return p
}
