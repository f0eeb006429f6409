package ruler

import (
	"strings"
	"testing"
)

// TestFollow: what may change between two uses of a directory, and what may not.
func TestFollow(t *testing.T) {
	base := func() *Manifest {
		return &Manifest{Format: 1, Seed: 42, Samples: 5, Settings: map[string]string{"tokenizer": "t", "words": "made up"}, LeftOut: map[string]string{}}
	}
	for name, c := range map[string]struct {
		old, now func(m *Manifest)
		want     string // of the error; empty: none
	}{
		"nothing":       {},
		"more samples":  {now: func(m *Manifest) { m.Samples = 9 }},
		"fewer samples": {now: func(m *Manifest) { m.Samples = 4 }, want: "it has 5 samples of each task, and 4 are asked for"},
		"seed":          {now: func(m *Manifest) { m.Seed = 1 }, want: "its prompts were made with the seed 42, not 1"},
		"an input more": {now: func(m *Manifest) { m.Settings["essay"] = "e" }},
		"an input less": {old: func(m *Manifest) { m.Settings["essay"] = "e" }},
		"another input": {now: func(m *Manifest) { m.Settings["words"] = "w" }, want: `its prompts were made with words "made up", not "w"`},
		"first model":   {now: func(m *Manifest) { m.Model = &ModelName{Name: "a"} }},
		"no model":      {old: func(m *Manifest) { m.Model = &ModelName{Name: "a"} }},
		"another model": {old: func(m *Manifest) { m.Model = &ModelName{Name: "a"} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "b", Identity: "x"} }, want: "it has answers of a, not of b (x)"},
		"another batch": {old: func(m *Manifest) { m.Model = &ModelName{Name: "a", Batch: 3} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "a", Batch: 2} }, want: "its prompts were answered 3 at once, not 2"},
		"a known batch": {old: func(m *Manifest) { m.Model = &ModelName{Name: "a"} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "a", Batch: 2} }},
		"moved":         {old: func(m *Manifest) { m.Model = &ModelName{Name: "a", Identity: "x"} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "b", Identity: "x"} }},
		"trained anew":  {old: func(m *Manifest) { m.Model = &ModelName{Name: "a", Identity: "x"} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "a", Identity: "y"} }, want: "it has answers of a (x), not of a (y)"},
	} {
		old, now := base(), base()
		for m, change := range map[*Manifest]func(*Manifest){old: c.old, now: c.now} {
			if change != nil {
				change(m)
			}
		}
		err := now.follow(old)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
		if err == nil && old.Model != nil && now.Model == nil {
			t.Errorf("%s: the model is forgotten", name)
		}
		for key, value := range old.Settings {
			if err == nil && now.Settings[key] != value {
				t.Errorf("%s: %s is forgotten", name, key)
			}
		}
	}
}
