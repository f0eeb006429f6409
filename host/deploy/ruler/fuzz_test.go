package ruler

import (
	"context"
	"strings"
	"testing"
)

// FuzzDocuments: SQuAD and HotpotQA are refused, or prompts can be made of them.
func FuzzDocuments(f *testing.F) {
	f.Add(`{"data":[{"paragraphs":[{"context":"c","qas":[{"question":"q","answers":[{"text":"a"}]}]},{"context":"d","qas":[]},{"context":"c"}]}]}`)
	f.Add(`[{"question":"q","answer":"a","context":[["t",["s","s"]],["t",["s","s"]]]}]`)
	f.Add(`[{"context":[["t"]]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func([]byte) (*Documents, error){ParseSquad, ParseHotpot} {
			d, err := parse([]byte(text))
			if err != nil {
				continue
			}
			g := &Generator{Inputs: Inputs{Squad: d}, Count: countWords}
			_, _ = first(context.Background(), g, "qa_1", 1000)
		}
	})
}

// FuzzWords: a list of words is refused, or has as many words as strings.
func FuzzWords(f *testing.F) {
	f.Add(`{"0": "a", "0": "b"}`)
	f.Add(`{"0": 1}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, text string) {
		if list, err := parseEnglish([]byte(text)); err == nil && len(list) > strings.Count(text, `:`) {
			t.Errorf("%q has the words %q", text, list)
		}
	})
}

// FuzzManifest: a manifest is refused, or goes on with itself.
func FuzzManifest(f *testing.F) {
	f.Add(`{"format":1,"seed":42,"samples":5,"settings":{"words":"made up"},"left_out":{"qa_1":"SQuAD"}}`)
	f.Add(`{"format":1}`)
	f.Add(`{"format":2}`)
	f.Fuzz(func(t *testing.T, text string) {
		old, err := ParseManifest([]byte(text))
		if err != nil {
			return
		}
		again := &Manifest{Format: old.Format, Seed: old.Seed, Samples: old.Samples, Settings: map[string]string{}, LeftOut: map[string]string{}}
		if err := again.follow(old); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
