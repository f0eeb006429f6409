package ruler

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func first(ctx context.Context, g *Generator, task string, length int) (s Sample, err error) {
	tasks, err := Select([]string{task})
	if err != nil {
		return s, err
	}
	samples, err := g.Samples(ctx, tasks[0], length, 1, 1)
	if err != nil {
		return s, err
	}
	return samples[0], nil
}

// TestFits checks that at any length, prompts of every task fit, or an error says that they do not.
// RULER's scripts would retry forever.
func TestFits(t *testing.T) {
	testlevel.Long(t, "writes prompts of many lengths for each task")
	_, inputs := readGolden(t)
	g := &Generator{Inputs: inputs, Count: countWords, Seed: DefaultSeed}
	for _, task := range Tasks() {
		fitted := 0
		for length := 50; length < 6000; length += 350 {
			s, err := first(context.Background(), g, task.Name, length)
			if err != nil {
				if !strings.Contains(err.Error(), "choose a") || fitted > 0 {
					t.Errorf("%s at %d: %v", task.Name, length, err)
				}
				continue
			}
			fitted++
			words, _ := countWords(s.Prompt())
			if words+task.NewTokens > length {
				t.Errorf("%s at %d: the prompt has %d tokens, the answer %d", task.Name, length, words,
					task.NewTokens)
			}
		}
		if fitted < 10 {
			t.Errorf("%s fits %d lengths only", task.Name, fitted)
		}
	}
}

// TestTooShort checks the messages about lengths that are too small.
func TestTooShort(t *testing.T) {
	_, inputs := readGolden(t)
	bytes := func(text string) (int, error) { return len(text), nil }
	for _, c := range []struct {
		task   string
		length int
		count  func(string) (int, error)
		want   string
	}{
		{"niah_single_1", 150, countWords, "niah_single_1 at length 150: sample 0: the smallest " +
			"prompts have about 281 tokens with their answers: choose a larger length"},
		{"fwe", 249, countWords, "the text would have 3 different words: choose a length of 250 or more"},
		{"vt", 100_000, bytes, "the example may have 500 tokens, whatever the length, but the smallest " +
			"with this tokenizer has about 838: leave the task out"},
	} {
		_, err := first(context.Background(),
			&Generator{Inputs: inputs, Count: c.count, Seed: DefaultSeed}, c.task, c.length)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s at %d: the error is %v, want %q", c.task, c.length, err, c.want)
		}
	}
}

// TestTemplate checks that a chat template surrounds the question, and that the beginning of the
// answer follows it. The examples of vt are part of the question.
func TestTemplate(t *testing.T) {
	_, inputs := readGolden(t)
	g := &Generator{Inputs: inputs, Count: countWords, Seed: DefaultSeed, Before: "<user> ",
		After: " </user> "}
	for _, task := range Tasks() {
		s, err := first(context.Background(), g, task.Name, 2000)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(s.Input, "<user> ") || !strings.HasSuffix(s.Input, " </user> ") ||
			strings.Contains(s.AnswerPrefix, "user>") {
			t.Errorf("%s: the template is not around the question %q, with the answer %q", task.Name,
				s.Input, s.AnswerPrefix)
		}
		users := 1
		if task.Name == "cwe" {
			users = 2 // its example is a question of its own, as in RULER
		}
		if got := strings.Count(s.Input, "<user>"); got != users {
			t.Errorf("%s has %d questions, want %d", task.Name, got, users)
		}
	}
}

// TestErrors checks that errors of the caller's function, cancellation and missing inputs stop the
// sampling.
func TestErrors(t *testing.T) {
	_, inputs := readGolden(t)
	broken := errors.New("no such token")
	g := &Generator{Inputs: inputs, Count: func(string) (int, error) { return 0, broken }}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	for _, task := range Tasks() {
		if _, err := first(context.Background(), g, task.Name, 1000); !errors.Is(err, broken) {
			t.Errorf("%s: the error is %v", task.Name, err)
		}
		g := &Generator{Inputs: inputs, Count: countWords}
		if _, err := first(stopped, g, task.Name, 1000); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the error is %v", task.Name, err)
		}
	}
	for task, want := range map[string]string{"niah_single_1": "it needs words",
		"niah_single_3": "it needs an essay", "qa_1": "it needs SQuAD", "qa_2": "it needs HotpotQA"} {
		_, err := first(context.Background(), &Generator{Count: countWords}, task, 1000)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", task, err, want)
		}
	}
	tasks := selected(t, []string{"qa_2"})
	_, err := (&Generator{Inputs: inputs, Count: countWords}).
		Samples(context.Background(), tasks[0], 1000, 9, 1)
	if err == nil || !strings.Contains(err.Error(),
		"the file has 8 questions, but 9 samples were requested") {
		t.Errorf("the error is %v", err)
	}
}

// TestTwice checks that the seed 35, which draws a variable of the example twice, is refused.
// RULER's script fails with it ("list index out of range"). The seed 36 does not.
func TestTwice(t *testing.T) {
	_, err := first(context.Background(), &Generator{Count: countWords, Seed: 35}, "vt", 1000)
	if err == nil || !strings.Contains(err.Error(), "a variable was drawn twice") {
		t.Errorf("the error is %v", err)
	}
	if _, err = first(context.Background(), &Generator{Count: countWords, Seed: 36}, "vt",
		1000); err != nil {
		t.Error(err)
	}
}
