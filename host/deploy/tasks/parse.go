package tasks

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

var metricsOf = map[string][]string{
	Choices: {Acc, AccNorm}, Continuation: {Perplexity, Acc}, Generation: {ExactMatch},
	Text: {WordPerplexity, BytePerplexity, BitsPerByte},
}

// Parse parses the description of a task. The name is used in messages. The error is a
// *[plaintoml.Error] if the text is not TOML, otherwise [plaintoml.Errors].
func Parse(name string, text []byte) (*Task, error) {
	doc, err := plaintoml.Parse(name, text)
	if err != nil {
		return nil, err
	}
	t := &Task{hash: fmt.Sprintf("%x", sha256.Sum256(text))}
	r := plaintoml.NewReader(doc)
	var replacements any
	var filters []map[string]any
	r.Read("", doc.Values(), t.keys(&replacements, &filters)...)
	t.Filters = make([]Filter, len(filters))
	for i, values := range filters {
		f := &t.Filters[i]
		r.Read(plaintoml.Indexed("filters", i), values,
			schema.Key{Name: "name", To: &f.Name, Default: ""},
			schema.Key{Name: "pattern", To: &f.Pattern, Default: ""},
			schema.Key{Name: "last", To: &f.Last, Default: false})
	}
	t.readClean(r, replacements)
	t.Dataset = cmp.Or(t.Dataset, t.Name)
	if len(r.Errs) == 0 { // otherwise further problems may be consequences of these
		t.checkKind(r)
		t.checkTemplates(r)
		t.compile(r)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return t, nil
}

// keys returns the keys of a description. The caller parses the values of clean and filters.
func (t *Task) keys(replacements *any, filters *[]map[string]any) []schema.Key {
	optional := func(name string, to any) schema.Key {
		return schema.Key{Name: name, To: to, Optional: "empty"}
	}
	fileName := schema.Matching("that can be a file's, without slashes",
		regexp.MustCompile(`^[^/\\]+$`))
	split := schema.NonEmpty(`that names the split with the questions, such as split = "test"`)
	return []schema.Key{
		{Name: "name", To: &t.Name, Is: fileName},
		optional("version", &t.Version), optional("paper", &t.Paper), optional("chance", &t.Chance),
		{Name: "kind", To: &t.Kind, Is: schema.OneOf(Choices, Continuation, Generation, Text)},
		optional("dataset", &t.Dataset), optional("columns", &t.Columns),
		{Name: "split", To: &t.Split, Is: split},
		optional("fewshot_split", &t.ExampleSplit),
		{Name: "shots", To: &t.Shots, Is: schema.From(0, schema.Most), Default: 0},
		optional("spare_example", &t.ExtraExample), optional("fixed_shots", &t.FixedExamples),
		{Name: "question", To: &t.Question, Is: schema.Patterns(),
			Doc: `a template, such as question = ["{{ question }}"]`},
		optional("choices", &t.Choice), optional("choices_of", &t.ChoicesOf),
		optional("target", &t.Target), optional("gold", &t.Gold), optional("gold_of", &t.GoldOf),
		{Name: "delimiter", To: &t.Delimiter, Default: " "},
		optional("strip", &t.Strip), optional("clean", replacements),
		optional("metrics", &t.Metrics), optional("until", &t.Until),
		{Name: "max_tokens", To: &t.MaxTokens, Is: schema.From(0, schema.Most), Default: 0},
		optional("filters", filters),
		optional("ignore", &t.Ignore), optional("ignore_case", &t.IgnoreCase),
	}
}

func (t *Task) readClean(r *plaintoml.Reader, raw any) {
	list, ok := raw.([]any)
	for _, e := range list {
		var pair []string
		key := schema.Key{To: &pair}
		if found, _ := key.Read(e); found != "" || len(pair) != 2 {
			ok = false
			break
		}
		t.Clean = append(t.Clean, [2]string(pair))
	}
	if raw != nil && !ok {
		r.Report("clean", "found "+schema.Describe(raw),
			`want an array of pairs of a pattern and its replacement, such as [["\\s+", " "]]`)
	}
}

func (t *Task) checkKind(r *plaintoml.Reader) {
	allowed := strings.Join(metricsOf[t.Kind], ", ")
	if len(t.Metrics) == 0 {
		r.Report("metrics", "missing", "want some of "+allowed)
	}
	for _, m := range t.Metrics {
		if !slices.Contains(metricsOf[t.Kind], m) {
			r.Report("metrics", fmt.Sprintf("a task of kind %s has no %q", t.Kind, m),
				"want some of "+allowed)
		}
	}
	several, inKind := len(t.Question) > 1, "found in a task of kind "+t.Kind
	if t.Kind == Choices && t.Gold == "" {
		r.Report("gold", "missing", "want a template for the index of the correct choice")
	}
	switch {
	case t.Kind == Choices && several && t.Target == "":
		r.Report("target", "missing",
			"want the continuation of the questions, of which there is one for each choice")
	case t.Kind == Choices && several && (len(t.Choice) > 0 || t.ChoicesOf != ""):
		r.Report("question", fmt.Sprintf("found %d questions together with choices", len(t.Question)),
			"want one question with choices, or one for each choice, with target")
	case t.Kind == Choices && !several && t.Target != "":
		r.Report("target", "found with a single question", "want choices or choices_of instead")
	case t.Kind == Choices && !several && len(t.Choice) == 0 && t.ChoicesOf == "":
		r.Report("choices", "missing",
			"want choices or choices_of, or one question for each choice, with target")
	case t.Kind != Choices && several:
		r.Report("question", fmt.Sprintf("found %d", len(t.Question)),
			"want one, in a task of the kind "+t.Kind)
	case (t.Kind == Continuation || t.Kind == Generation) && t.Target == "":
		r.Report("target", "missing", "want a template for the correct answer")
	case t.Kind == Text && t.Target != "":
		r.Report("target", inKind, "want none: the question is the whole text")
	case t.Kind == Text && t.Shots > 0:
		r.Report("shots", inKind, "want none: the question is the whole text")
	}
	switch {
	case t.Kind == Generation && len(t.Filters) == 0:
		r.Report("filters", "missing", "want one or more, in a task of the kind "+Generation)
	case t.Kind != Generation && len(t.Filters) > 0:
		r.Report("filters", inKind, "want none: they belong to the kind "+Generation)
	}
}

// checkTemplates reports mistakes in templates. A missing column is reported only when a template
// is rendered.
func (t *Task) checkTemplates(r *plaintoml.Reader) {
	t.templates = map[string]*jinja.Template{}
	for _, part := range []struct {
		key  string
		list []string
	}{{"question", t.Question}, {"choices", t.Choice}, {"target", []string{t.Target}},
		{"gold", []string{t.Gold}}} {
		for i, source := range part.list {
			var err error
			if t.templates[source], err = jinja.Parse(t.Name, source); err != nil {
				key := part.key
				if len(part.list) > 1 {
					key = plaintoml.Indexed(key, i)
				}
				r.Report(key, err.Error(), "")
			}
		}
	}
}

func (t *Task) compile(r *plaintoml.Reader) {
	pattern := func(key string, i int, source string) *regexp.Regexp {
		compiled, err := regexp.Compile(source)
		if err != nil {
			problem := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
			r.Report(plaintoml.Indexed(key, i), problem, "want a regular expression")
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
}
