package engine

import (
	"errors"
	"strings"
	"testing"
)

// TestAdvice checks that the remedy is in the first line of a message, and the rest is unchanged.
func TestAdvice(t *testing.T) {
	for _, c := range []struct{ message, first, rest string }{
		{"something else\nin two lines", "something else", "in two lines"},
		{"RESOURCE_EXHAUSTED: Out of memory:\n- largest: 1 GB",
			"RESOURCE_EXHAUSTED: Out of memory: the GPU has too little memory: halve train.batch",
			"- largest: 1 GB"},
		{"\nNCCL failed", "XLA failed: the GPUs do not reach each other", "NCCL failed"},
		{"NCCL: shared memory segment", "NCCL: shared memory segment: /dev/shm is full", ""},
	} {
		first, rest, _ := strings.Cut(advised(c.message), "\n")
		if !strings.HasPrefix(first, c.first) || rest != c.rest {
			t.Errorf("%q became %q and %q, want %q… and %q", c.message, first, rest, c.first, c.rest)
		}
	}
	cause := errors.New("NCCL")
	if err := error(advisedError{cause}); !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
}
