package ruler

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/effort"
)

// longCase is a case of testdata/long.json: what RULER's scripts make of the inputs of
// ruler.json at other lengths, with other seeds, and with a template of conversations.
type longCase struct {
	Task          string
	Length        int `json:"max_seq_length"`
	Seed          uint32
	Before, After string
	Samples       []digest
}

// digest stands for a sample.
type digest struct {
	Index         int
	Length        int
	Outputs       []string
	TokenPosition *int   `json:"token_position_answer"`
	SHA256        string // of the input and the prefix of the answer, with a zero between
}

// TestLong: whole prompts of all tasks below, at and above the length from which RULER's
// scripts take larger steps. testdata/long.py has made the file.
func TestLong(t *testing.T) {
	effort.Long(t, "writes 52 sets of long prompts")
	_, inputs := readGolden(t)
	content, err := os.ReadFile("testdata/long.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []longCase }
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 52 {
		t.Fatalf("the file has %d cases, want 52", len(file.Cases))
	}
	for _, c := range file.Cases {
		t.Run(fmt.Sprintf("%s at %d", c.Task, c.Length), func(t *testing.T) {
			tasks, err := Select([]string{c.Task})
			if err != nil {
				t.Fatal(err)
			}
			g := &Generator{Inputs: inputs, Count: countWords, Seed: c.Seed, Before: c.Before, After: c.After}
			var got []digest
			for s, err := range g.Samples(context.Background(), tasks[0], c.Length, len(c.Samples)) {
				if err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256([]byte(s.Input + "\x00" + s.AnswerPrefix))
				got = append(got, digest{s.Index, s.Length, s.Outputs, s.TokenPosition, fmt.Sprintf("%x", sum)})
			}
			if diff := cmp.Diff(c.Samples, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
