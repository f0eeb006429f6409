package metrics

import (
	"fmt"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Sample is one line of samples.jsonl: the texts that a model wrote after a step.
type Sample struct {
	Step  int    `json:"step"` // optimizer steps done
	Texts []Text `json:"texts"`
}

// Text is what a model wrote after a prompt. Invalid UTF-8, as a byte-level tokenizer may
// give, has become U+FFFD.
type Text struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"` // without the prompt
}

func (s Sample) at() int { return s.Step }

// ParseSample reads a line of samples.jsonl.
func ParseSample(line []byte) (Sample, error) {
	var s Sample
	if err := plainjson.Unmarshal(line, &s); err != nil {
		return Sample{}, fmt.Errorf("metrics: no sample: %w", err)
	}
	return s, nil
}
